//! Whether this gateway has the descriptors left that a session needs: without them no sandbox can be used, however well it is.
//!
//! ```text
//! Enough ── a count finds too few ──▶ Short: every sandbox that serves is Degraded
//!    ▲                                  │
//!    └───────── a count finds enough ───┘
//! ```
//!
//! Counted at a fixed pace, and at once when a session was refused.

use std::sync::Arc;
use std::time::Duration;

use holdfast_clock::every;
use holdfast_kernel::descriptors::{self, Short};
use tokio::sync::watch;

/// What is short, if anything is. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shortage(Arc<watch::Sender<Option<Short>>>);

impl Shortage {
    /// What is short now.
    pub(crate) fn now(&self) -> Option<Short> {
        *self.0.borrow()
    }

    /// Is woken when a shortage begins, and when it ends.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<Short>> {
        self.0.subscribe()
    }

    /// Counts for ever.
    pub(crate) async fn look_out(self) {
        let mut ticks = every(TURN);
        loop {
            ticks.tick().await;
            self.count();
        }
    }

    /// Counts now.
    pub(crate) fn count(&self) {
        let seen = match descriptors::observe() {
            Ok(seen) => seen,
            Err(error) => {
                tracing::warn!(%error, "count the descriptors");
                return;
            }
        };
        let short = short(seen.limit, seen.used);
        self.0.send_if_modified(|known| {
            let is_news = known.is_some() != short.is_some();
            *known = short;
            is_news
        });
    }
}

fn short(limit: u64, used: u64) -> Option<Short> {
    let free = limit.saturating_sub(used);
    (free < NEEDED).then_some(Short {
        needed: NEEDED,
        free,
        limit,
    })
}

/// A session takes a connection of its client and one to its keeper.
const NEEDED: u64 = 2;

/// Between two counts: a shortage is told within half a second.
const TURN: Duration = Duration::from_millis(350);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_for_one_session_are_a_shortage_also_below_what_is_in_use() {
        assert_eq!(short(20, 18), None);
        for (limit, used, free) in [(20, 19, 1), (20, 20, 0), (10, 20, 0)] {
            assert_eq!(short(limit, used).map(|short| short.free), Some(free));
        }
    }
}
