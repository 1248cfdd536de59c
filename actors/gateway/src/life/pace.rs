//! How soon after a failure something is tried again, and when no more.

use std::collections::VecDeque;
use std::time::Duration;

use holdfast_actor::{Backoff, Moment, Seed};
use holdfast_clock::Dice;

/// Counts failures: the delays grow, and too many within a window are the last.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    backoff: Backoff,
    most: usize,
    within: Duration,
    /// When it was tried again, the last `most` times.
    tries: VecDeque<Moment>,
    failures: u32,
    dice: Dice,
}

impl Pace {
    pub(crate) fn new(backoff: Backoff, most: usize, within: Duration, seed: Seed) -> Self {
        Self {
            backoff,
            most,
            within,
            tries: VecDeque::new(),
            failures: 0,
            dice: seed.dice(),
        }
    }

    /// It failed, having been up since `up` if it was at all. How long to wait before the next try; `None`: no more tries.
    pub(crate) fn failed(&mut self, up: Option<Moment>, now: Moment) -> Option<Duration> {
        if up.is_some_and(|up| now - up >= self.backoff.reset_after) {
            self.failures = 0;
        }
        while self
            .tries
            .front()
            .is_some_and(|first| now - *first >= self.within)
        {
            self.tries.pop_front();
        }
        if self.tries.len() >= self.most {
            return None;
        }
        self.tries.push_back(now);
        let delay = self.backoff.delay(self.failures, &mut self.dice);
        self.failures = self.failures.saturating_add(1);
        Some(delay)
    }

    /// Somebody wants it tried anew.
    pub(crate) fn forgive(&mut self) {
        self.tries.clear();
        self.failures = 0;
    }

    /// How many tries are in the window.
    pub(crate) fn tries(&self) -> usize {
        self.tries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pace() -> Pace {
        let backoff = Backoff::between(SECOND, Duration::from_mins(1));
        Pace::new(backoff, 5, Duration::from_mins(10), Seed::new(1))
    }

    /// SV-04: a crash loop whose every start succeeds ends, too.
    #[test]
    fn too_many_within_the_window_are_the_last() {
        let (mut pace, mut now) = (pace(), Moment::ORIGIN);
        for _ in 0..5 {
            let delay = pace
                .failed(Some(now), now + 2 * SECOND)
                .expect("tried again");
            now = now + 2 * SECOND + delay;
        }
        assert_eq!(pace.failed(Some(now), now + 2 * SECOND), None);
        assert!(pace.failed(None, now + Duration::from_mins(11)).is_some());
    }

    #[test]
    fn what_was_up_for_long_begins_with_a_short_delay() {
        let (mut pace, mut now) = (pace(), Moment::ORIGIN);
        for _ in 0..4 {
            pace.failed(None, now);
        }
        now += Duration::from_mins(2);

        let delay = pace.failed(Some(Moment::ORIGIN), now).expect("tried again");

        assert!(delay <= 2 * SECOND, "{delay:?}");
    }
}
