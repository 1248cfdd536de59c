//! Lets through what the policy allows, and nothing else: every TCP connection of a sandbox passes here.
//!
//! ```text
//! broker ── Attempt ──▶ lane ─────┐                       ┌──▶ dial ──▶ upstream
//!        ◀── Verdict ──           ├─▶ desk: book · court ─┤
//! workload ── TCP ──▶ listener ───┘   (one lock)          ├──▶ relay: workload ⇄ upstream
//!                     + cookie                            └──▶ audit record
//! ```
//!
//! The kernel captures: whatever address a workload connects to, the connection arrives at a [`listener`], and the accepted socket's own address *is*
//! the destination. The broker announces each connect over the [`lane`] before it happens, which gives the caller its real errno and the judgement its
//! identity. [`book`] decides (pure, no I/O), [`desk`] obeys, [`court`] asks the policy, [`dial`] reaches upstreams, [`relay`] carries bytes.
//!
//! The invariant: nothing is relayed without an allowing judgement of the destination that the kernel reports, and each attempt to connect leaves
//! exactly one record. What the broker says can make a judgement stricter or better informed; it cannot replace it.

pub mod actor;
pub mod attempt;
pub mod book;
pub mod budget;
pub mod counters;
pub mod court;
pub mod desk;
pub mod dial;
pub mod lane;
pub mod listener;
pub mod names;
pub mod pool;
pub mod relay;
mod trail;

#[cfg(test)]
mod testing;
