//! How long a boundary lives without a keeper.
//!
//! ```text
//!  Kept ── no sign of life for the grace period ──> the boundary ends, and with it everything inside
//! ```
//!
//! Silence and absence are the same: whether the keeper is gone, stopped or cut off, nobody judges what the workload does,
//! and its connections wait. That is right for a restart and wrong for ever: it fails closed. A boundary that was stopped
//! itself has heard nobody, and nobody was silent ([`Silence`]).

use std::time::Duration;

use holdfast_actor::{Clock, Fault};

use crate::loss::Heard;
use crate::silence::Silence;

/// Ends with a fault when no keeper has been heard for `grace`.
pub(crate) async fn watch(heard: Heard, grace: Duration, clock: Clock) -> Result<(), Fault> {
    let (start, tick) = (clock.now(), (grace / 8).max(LEAST_TICK));
    let mut silence = Silence::new(tick + tick / 4);
    let mut ticks = tokio::time::interval(tick);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let last = heard.last().unwrap_or(start);
        if silence.look_after(last, clock.now()) > grace {
            tracing::error!(
                seconds = grace.as_secs(),
                "no keeper for the grace period: the workload is ended"
            );
            return Err(Fault::last("no keeper for the grace period"));
        }
    }
}

/// Not oftener than this.
const LEAST_TICK: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_mins(1);

    /// How long it takes until a boundary ends whose keeper is heard at the beginning.
    async fn lasted() -> Duration {
        let (heard, clock) = (Heard::default(), Clock::tokio());
        heard.note(clock.now());
        let began = clock.now();
        let ended = watch(heard, GRACE, clock.clone()).await;
        assert!(ended.is_err());
        clock.now() - began
    }

    #[tokio::test(start_paused = true)]
    async fn the_grace_counts_from_the_last_sign_of_life() {
        let lasted = lasted().await;

        assert!(lasted > GRACE, "{lasted:?}");
        assert!(lasted <= GRACE + GRACE / 4, "{lasted:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_standstill_of_its_own_does_not_end_the_boundary() {
        let stopped = async {
            tokio::time::sleep(GRACE / 16).await;
            // Nobody here is asked meanwhile, as when the process is stopped.
            tokio::time::advance(GRACE * 2).await;
        };

        let (lasted, ()) = tokio::join!(lasted(), stopped);

        assert!(lasted > GRACE * 2 + GRACE / 2, "{lasted:?}");
    }
}
