//! The date, for people and records.

use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_actor::Clock;

pub(crate) fn wall() -> SystemTime {
    Clock::tokio().wall()
}

/// Milliseconds since 1970.
pub(crate) fn wall_ms() -> i64 {
    let since = wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
