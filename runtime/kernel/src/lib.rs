//! The only unsafe code: safe, named wrappers of what Linux offers.
//!
//! A wrapper knows no policy. It does one thing, says which call failed, and each unsafe block holds one operation with
//! the argument why it is sound.

pub mod bell;
pub mod canary;
pub mod descriptors;
pub mod diag;
pub mod error;
pub mod execute;
pub mod fork;
pub mod handoff;
pub mod identity;
pub mod landlock;
pub mod listen;
pub mod look;
pub mod memory;
pub mod mount;
pub mod netlink;
pub mod notify;
pub mod outset;
pub mod privilege;
pub mod probe;
pub mod ready;
pub mod seccomp;
pub mod signals;
pub mod sysctl;
pub mod terminal;
pub mod title;
pub mod uptime;
pub mod urgent;

#[cfg(test)]
mod apart;

pub use error::{Called, Error, Result};
