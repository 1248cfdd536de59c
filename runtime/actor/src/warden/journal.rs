//! One log line for what an operator may want to know of a tree.

use std::collections::HashMap;
use std::time::Duration;

use holdfast_clock::Moment;
use holdfast_supervision::{Change, Class, Next, Path, Reason, What};

/// Want of a resource is told once in this while for each child; all else is bounded by the intensities.
const PAUSE: Duration = Duration::from_secs(5);

/// Writes the lines.
#[derive(Debug, Default)]
pub(super) struct Journal {
    told: HashMap<Path, Moment>,
    /// What falls while a tree is being stopped is no news: what it needs may have stopped before it.
    stopping: bool,
}

impl Journal {
    pub(super) fn write(&mut self, change: &Change, now: Moment) {
        let Change {
            path,
            what,
            restarts,
        } = change;
        match what {
            What::Fell { .. } | What::GaveUp { .. } if self.stopping => {
                tracing::debug!(actor = %path, what = ?what, restarts);
            }
            What::Fell { reason, next } if reason.class() == Class::Exhausted => {
                if self.may_tell(path, now) {
                    tracing::warn!(actor = %path, %reason, next = %Following(*next, now), "short of a resource");
                }
            }
            What::Fell {
                next: Next::Nothing,
                reason: reason @ Reason::Ended,
            } => tracing::debug!(actor = %path, %reason, "ended"),
            What::Fell { reason, next } => {
                tracing::warn!(actor = %path, %reason, restarts, next = %Following(*next, now), "fell");
            }
            What::Stuck => tracing::warn!(actor = %path, "does not answer and is replaced"),
            What::StartTooLong => tracing::warn!(actor = %path, "takes too long to start"),
            What::Overdue => tracing::warn!(actor = %path, "takes too long to stop and is killed"),
            What::Wedged => {
                tracing::error!(actor = %path, "blocks its thread and cannot be killed; restart this process");
            }
            What::GaveUp { reason } => {
                tracing::error!(supervisor = %path, %reason, "gave up");
            }
            What::Starting | What::Up | What::Dying { .. } | What::Stopping | What::Stopped => {
                tracing::debug!(actor = %path, what = ?what, restarts);
            }
        }
    }

    pub(super) fn stop(&mut self) {
        self.stopping = true;
    }

    pub(super) fn forget(&mut self, path: &Path) {
        self.told.remove(path);
    }

    fn may_tell(&mut self, path: &Path, now: Moment) -> bool {
        match self.told.get(path) {
            Some(last) if now - *last < PAUSE => false,
            Some(_) | None => {
                self.told.insert(path.clone(), now);
                true
            }
        }
    }
}

struct Following(Next, Moment);

impl std::fmt::Display for Following {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Next::Restart { at } => write!(out, "restart in {:?}", at - self.1),
            Next::WithSiblings => out.write_str("restart with its siblings"),
            Next::Nothing => out.write_str("nothing"),
            Next::Escalation => out.write_str("its supervisor gives up"),
        }
    }
}
