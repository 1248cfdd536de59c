//! How long somebody has been silent, as far as this process could hear.
//!
//! The time in which this process stood still itself, stopped or starved, is nobody's silence: of what passes between two
//! looks only so much counts as two looks are apart.

use std::time::Duration;

use holdfast_actor::Moment;

/// The silence of one other, from look to look. Nobody is silent before it has begun.
#[derive(Debug)]
pub(crate) struct Silence {
    /// What counts of the time between two looks.
    most: Duration,
    /// Up to the last look.
    silent: Duration,
    /// When that was.
    looked: Option<Moment>,
}

impl Silence {
    /// None yet; of the time between two looks at most `most` will count.
    pub(crate) const fn new(most: Duration) -> Self {
        Self {
            most,
            silent: Duration::ZERO,
            looked: None,
        }
    }

    /// The other has been heard.
    pub(crate) fn heard(&mut self, at: Moment) {
        self.silent = Duration::ZERO;
        self.looked = Some(at);
    }

    /// Looks, and answers how long it is by now.
    pub(crate) fn look(&mut self, now: Moment) -> Duration {
        self.silent = self.so_far(now);
        self.looked = Some(now);
        self.silent
    }

    /// Looks after one that was heard `last` at that time.
    pub(crate) fn look_after(&mut self, last: Moment, now: Moment) -> Duration {
        if self.looked.is_none_or(|looked| last > looked) {
            self.heard(last);
        }
        self.look(now)
    }

    /// How long it is by now.
    pub(crate) fn so_far(&self, now: Moment) -> Duration {
        let since = self
            .looked
            .map_or(Duration::ZERO, |looked| now.since(looked));
        self.silent + since.min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(2);

    fn at(seconds: u64) -> Moment {
        Moment::after_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn silence_counts_from_the_last_sign_of_life_and_grows_from_look_to_look() {
        let mut silence = Silence::new(MOST);
        assert_eq!(silence.so_far(at(900)), Duration::ZERO);

        for (last, now, expected) in [(7, 8, 1), (7, 10, 3), (7, 11, 4), (12, 13, 1), (12, 15, 3)] {
            let silent = silence.look_after(at(last), at(now));
            assert_eq!(silent, Duration::from_secs(expected), "at {now}");
        }
    }

    #[test]
    fn a_standstill_of_ones_own_is_nobodys_silence() {
        let mut silence = Silence::new(MOST);
        silence.look_after(at(1), at(2));

        assert_eq!(
            silence.look_after(at(1), at(1000)),
            MOST + at(1).since(at(0))
        );
        assert_eq!(silence.so_far(at(1001)), MOST + MOST);
    }
}
