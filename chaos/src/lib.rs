//! Attacks on what is built here, of two kinds.
//!
//! - [`storm`]: seeded simulations of supervision trees in which everything fails that can. No process, no clock, no luck.
//! - the siege: faults on the real processes of a sandbox while it works.
//!
//! ```text
//!  scenario ─┐
//!  seed ─────┴▶ schedule ─▶ siege: breaks and mends a World ─▶ timeline ─▶ checks: one invariant a file ─▶ report
//! ```
//!
//! What is pure stands left and right: the same scenario and seed give the same schedule, and a check judges a recorded timeline
//! without asking anybody. Only the world in between touches processes.

pub mod checks;
mod document;
pub mod scenario;
pub mod schedule;
pub mod storm;
pub mod timeline;
