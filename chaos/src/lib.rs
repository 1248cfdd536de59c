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

mod checks;
mod claim;
pub mod command;
mod document;
mod faults;
mod gate;
mod guest;
mod journal;
mod load;
mod mark;
mod own;
mod report;
mod run;
mod scenario;
mod schedule;
mod session;
mod siege;
pub mod storm;
mod timeline;
mod watch;
