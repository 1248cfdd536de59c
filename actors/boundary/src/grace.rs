//! How long a boundary lives without a keeper.
//!
//! ```text
//!  Kept ── no sign of life for the grace period ──> the boundary ends, and with it everything inside
//! ```
//!
//! Silence and absence are the same: whether the keeper is gone, stopped or cut off, nobody judges what the workload does,
//! and its connections wait. That is right for a restart and wrong for ever: it fails closed.

use std::time::Duration;

use holdfast_actor::{Clock, Fault, Moment};

use crate::loss::Heard;

/// Ends with a fault when no keeper has been heard for `grace`.
pub(crate) async fn watch(heard: Heard, grace: Duration, clock: Clock) -> Result<(), Fault> {
    let start = clock.now();
    let mut ticks = tokio::time::interval((grace / 8).max(LEAST_TICK));
    loop {
        ticks.tick().await;
        if is_over(heard.last().unwrap_or(start), grace, clock.now()) {
            tracing::error!(
                seconds = grace.as_secs(),
                "no keeper for the grace period: the workload is ended"
            );
            return Err(Fault::last("no keeper for the grace period"));
        }
    }
}

fn is_over(last: Moment, grace: Duration, now: Moment) -> bool {
    now - last > grace
}

/// Not oftener than this.
const LEAST_TICK: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grace_counts_from_the_last_sign_of_life() {
        let (start, grace) = (Clock::tokio().now(), Duration::from_mins(1));

        assert!(!is_over(start, grace, start + grace));
        assert!(is_over(start, grace, start + grace + LEAST_TICK));
    }
}
