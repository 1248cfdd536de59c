//! What the egress counts: read by status and metrics at any time, never locked.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Since the start of the keeper, except for the two gauges.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that are relayed now.
    pub open: AtomicUsize,
    /// Listeners that do not accept now: no permit, or no descriptor. Their connections wait in the backlog.
    pub waiting: AtomicUsize,
    /// Attempts that the policy allowed.
    pub allowed: AtomicU64,
    /// Attempts that were refused.
    pub denied: AtomicU64,
    /// Attempts that the policy allowed and the upstream, or the way to it, refused.
    pub refused_upstream: AtomicU64,
    /// Attempts that were allowed, and whose connection never came.
    pub abandoned: AtomicU64,
    /// Connections that were closed because a later revision denies them.
    pub withdrawn: AtomicU64,
    /// Connections that arrived elsewhere than announced.
    pub races: AtomicU64,
    /// Packets of the lane that could not be read.
    pub malformed: AtomicU64,
    /// Lookups of a cookie that the kernel refused.
    pub unlooked: AtomicU64,
    /// Accept errors for want of descriptors or memory.
    pub accept_exhausted: AtomicU64,
}

/// Counts one.
pub(super) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// One more as long as it lives.
#[derive(Debug)]
pub(super) struct Gauge<'a>(&'a AtomicUsize);

impl<'a> Gauge<'a> {
    pub(super) fn up(gauge: &'a AtomicUsize) -> Gauge<'a> {
        gauge.fetch_add(1, Ordering::Relaxed);
        Gauge(gauge)
    }
}

impl Drop for Gauge<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
