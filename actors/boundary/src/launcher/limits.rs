//! When the time of each herd is up: the launcher's own clock, which ticks whoever else stands still or is gone.
//!
//! ```text
//!  set ──> Waiting ── its time is up ──> Killing ── AGAIN later ──┐
//!             │                            │  ^                   │
//!             │                            │  └───────────────────┘
//!             └── lift ──> none <── lift ──┘
//! ```
//!
//! A herd is killed until it is gone and not once: what was forked meanwhile, or was not yet its own process, is met the next
//! time. Without a limit nothing here is due, and nobody is woken.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use nix::poll::PollTimeout;
use nix::unistd::Pid;

/// Herds, by their shepherds, and when each is to be killed next.
#[derive(Debug, Default)]
pub(super) struct Limits {
    next: HashMap<Pid, Duration>,
    order: BTreeSet<(Duration, Pid)>,
}

impl Limits {
    /// The time of the herd of `shepherd` is up at `due`.
    pub(super) fn set(&mut self, shepherd: Pid, due: Duration) {
        self.lift(shepherd);
        self.next.insert(shepherd, due);
        self.order.insert((due, shepherd));
    }

    /// It has no limit any more.
    pub(super) fn lift(&mut self, shepherd: Pid) {
        if let Some(due) = self.next.remove(&shepherd) {
            self.order.remove(&(due, shepherd));
        }
    }

    /// Those whose time is up; each will be again, soon.
    pub(super) fn pass(&mut self, now: Duration) -> Vec<Pid> {
        let due = self.order.iter().take_while(|(due, _)| *due <= now);
        let up: Vec<Pid> = due.map(|(_, shepherd)| *shepherd).collect();
        for shepherd in &up {
            self.set(*shepherd, now.saturating_add(AGAIN));
        }
        up
    }

    /// Whether the time of anybody is up.
    pub(super) fn are_due(&self, now: impl FnOnce() -> Duration) -> bool {
        self.order.first().is_some_and(|(due, _)| *due <= now())
    }

    /// How long nothing is due.
    pub(super) fn wait(&self, now: impl FnOnce() -> Duration) -> PollTimeout {
        let Some((due, _)) = self.order.first() else {
            return PollTimeout::NONE;
        };
        // A millisecond too late rather than too early, which would be a turn for nothing.
        let left = due.saturating_sub(now()) + Duration::from_micros(999);
        PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX)
    }
}

/// Between two kills of what does not die, or was forked meanwhile.
const AGAIN: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn wait(limits: &Limits, now: u64) -> PollTimeout {
        limits.wait(|| at(now))
    }

    #[test]
    fn without_a_limit_nobody_looks_at_the_clock() {
        let mut limits = Limits::default();

        limits.set(Pid::from_raw(5), at(10));
        limits.lift(Pid::from_raw(5));

        assert!(!limits.are_due(|| unreachable!("nothing is due")));
        let forever = limits.wait(|| unreachable!("nothing is due"));
        assert_eq!(forever, PollTimeout::NONE);
    }

    #[test]
    fn the_nearest_limit_is_waited_for_and_no_longer() {
        let mut limits = Limits::default();
        for (shepherd, due) in [(5, 300), (6, 100), (7, 200)] {
            limits.set(Pid::from_raw(shepherd), at(due));
        }

        assert_eq!(wait(&limits, 40), PollTimeout::from(60_u8));
        assert_eq!(
            limits.wait(|| Duration::from_micros(99_500)),
            PollTimeout::from(1_u8)
        );
        assert_eq!(wait(&limits, 150), PollTimeout::ZERO);
        assert!(limits.pass(at(99)).is_empty());
        limits.set(Pid::from_raw(5), at(u64::MAX));
        limits.lift(Pid::from_raw(6));
        limits.lift(Pid::from_raw(7));
        assert_eq!(wait(&limits, 0), PollTimeout::MAX);
    }

    #[test]
    fn whose_time_is_up_is_killed_until_it_is_gone() {
        let mut limits = Limits::default();
        let (one, other) = (Pid::from_raw(5), Pid::from_raw(6));
        limits.set(one, at(100));
        limits.set(other, at(200));

        assert_eq!(limits.pass(at(100)), [one]);
        assert!(limits.pass(at(100)).is_empty());
        assert_eq!(limits.pass(at(250)), [other]);
        assert_eq!(limits.pass(at(800)), [one, other]);
        limits.lift(one);
        assert_eq!(limits.pass(at(5000)), [other]);
    }
}
