//! Generates the gRPC code without a system `protoc`.

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let descriptors = protox::compile(
        [
            "holdfast/v1/boundary.proto",
            "holdfast/v1/gateway.proto",
            "holdfast/v1/handoff.proto",
            "holdfast/v1/keeper.proto",
            "holdfast/v1/lane.proto",
            "holdfast/v1/spec.proto",
        ],
        ["proto"],
    )?;
    // The same descriptors answer gRPC reflection.
    #[expect(
        clippy::disallowed_methods,
        reason = "a build script is told by cargo where to write"
    )]
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".holdfast.v1.OutputChunk.data")
        .bytes(".holdfast.v1.Input.data")
        .bytes(".holdfast.v1.SessionInput.data")
        // Seldom there; what carries it is returned as an error, through many hands.
        .boxed(".holdfast.v1.NotStarted.shortage")
        .compile_fds(descriptors)?;
    Ok(())
}
