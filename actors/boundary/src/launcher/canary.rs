//! The canary, executed by a session's process instead of a program of the sandbox.

use std::net::SocketAddrV4;

use holdfast_kernel::canary::{Task, execute};
use holdfast_kernel::listen::DOMAIN;
use holdfast_wire::v1;

use super::child::refusal;
use crate::inside::OWN_V4;

/// Becomes the canary, in a process that is confined like any session's. Returns only if that failed.
pub(super) fn run(canary: v1::Canary) -> v1::NotStarted {
    let task = Task {
        server: SocketAddrV4::new(OWN_V4, DOMAIN),
        name: canary.name,
        port: u16::try_from(canary.port).unwrap_or_default(),
        word: canary.nonce,
    };
    refusal("execute the canary", &execute(&task))
}
