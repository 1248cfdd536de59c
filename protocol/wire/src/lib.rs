//! What the processes of Holdfast say to each other.
//!
//! The messages are generated from `proto/holdfast/v1`: [`lane`](v1::FromBroker) and [`handoff`](v1::Handoff) travel as one packet each over
//! Unix sockets, [`boundary`](v1::boundary_client), [`keeper`](v1::keeper_client)
//! and [`gateway`](v1::gateway_client) as gRPC.

mod attempt;
pub mod handshake;
pub mod name;
pub mod problem;
pub mod shared;
pub mod words;

/// The descriptors of every service, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The largest message of the link, in bytes, at both of its ends: a program with its arguments and environment.
pub const MOST_BYTES: usize = 16 << 20;

/// The largest HTTP/2 frame, in bytes, wherever a session's bytes pass: a chunk of 64 KiB takes one write and not five.
pub const FRAME: u32 = 128 << 10;

/// How long a keeper's report holds at the gateway: one comes at each change and at least every half of this.
pub const LEASE: std::time::Duration = std::time::Duration::from_millis(1_800);

/// Version 1 of the messages.
#[expect(
    missing_docs,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    unused_qualifications,
    reason = "generated code"
)]
pub mod v1 {
    tonic::include_proto!("holdfast.v1");
}
