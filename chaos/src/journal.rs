//! Where everything that is seen is written down, with its time, by whoever sees it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use holdfast_clock::{Clock, Moment};
use parking_lot::Mutex;

use crate::timeline::{Fact, Phase, Shown, Timeline};

/// The timeline while it is written. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Journal(Arc<Inner>);

struct Inner {
    clock: Clock,
    start: Moment,
    /// When it was started, for people.
    date: SystemTime,
    pages: Mutex<Pages>,
}

#[derive(Default)]
struct Pages {
    timeline: Timeline,
    last: Shown,
    written: Option<Duration>,
}

impl Journal {
    pub(crate) fn new(clock: Clock) -> Self {
        let (start, date) = (clock.now(), clock.wall());
        Self(Arc::new(Inner {
            clock,
            start,
            date,
            pages: Mutex::default(),
        }))
    }

    /// From the start of the siege.
    pub(crate) fn now(&self) -> Duration {
        self.0.clock.now().since(self.0.start)
    }

    pub(crate) fn date(&self) -> SystemTime {
        self.0.date
    }

    pub(crate) fn tell(&self, fact: Fact) {
        let mut pages = self.0.pages.lock();
        let now = self.now();
        pages.timeline.add(now, fact);
    }

    pub(crate) fn note(&self, text: impl Into<String>) {
        self.tell(Fact::Noted(text.into()));
    }

    /// What the sandbox says now. Only what differs is written down, and mere use of descriptors not oftener than people can read.
    pub(crate) fn show(&self, shown: Shown) {
        let mut pages = self.0.pages.lock();
        let now = self.now();
        if !differs(&pages.last, &shown) {
            let recent = pages.written.is_some_and(|written| now < written + STEADY);
            if recent || pages.last == shown {
                return;
            }
        }
        pages.written = Some(now);
        pages.last = shown.clone();
        pages.timeline.add(now, Fact::Shown(shown));
    }

    /// Nobody answers, so nothing is shown.
    pub(crate) fn silence(&self) {
        let silent = Shown {
            phase: Phase::Silent,
            ..self.last()
        };
        self.show(silent);
    }

    /// What was shown last.
    pub(crate) fn last(&self) -> Shown {
        self.0.pages.lock().last.clone()
    }

    /// Looks at what is written so far.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Timeline) -> T) -> T {
        look(&self.0.pages.lock().timeline)
    }
}

fn differs(before: &Shown, after: &Shown) -> bool {
    let marks = |shown: &Shown| {
        let marks = shown.descriptors.values();
        marks
            .map(|of| (of.limit, of.high_water))
            .collect::<Vec<_>>()
    };
    (before.phase, &before.reason, &before.failing) != (after.phase, &after.reason, &after.failing)
        || before.pids != after.pids
        || (before.generation, before.epoch) != (after.generation, after.epoch)
        || before.restarts != after.restarts
        || marks(before) != marks(after)
}

const STEADY: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use holdfast_clock::ManualClock;

    use super::*;

    #[test]
    fn only_what_differs_is_written_down() {
        let hands = ManualClock::new();
        let journal = Journal::new(hands.clock());
        let ready = Shown {
            phase: Phase::Ready,
            ..Shown::default()
        };
        journal.show(ready.clone());
        hands.advance(Duration::from_secs(1));
        journal.show(ready);
        journal.silence();
        journal.silence();

        let phases: Vec<_> =
            journal.read(|timeline| timeline.shown().map(|(_, shown)| shown.phase).collect());

        assert_eq!(phases, [Phase::Ready, Phase::Silent]);
    }
}
