//! Generates the gRPC code without a system `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let descriptors = protox::compile(
        [
            "holdfast/v1/boundary.proto",
            "holdfast/v1/handoff.proto",
            "holdfast/v1/lane.proto",
        ],
        ["proto"],
    )?;
    tonic_prost_build::configure()
        .bytes(".holdfast.v1.OutputChunk.data")
        .bytes(".holdfast.v1.Input.data")
        .compile_fds(descriptors)?;
    Ok(())
}
