//! How badly a world obeys.

use std::time::Duration;

use holdfast_clock::{Dice, Seed};
use holdfast_supervision::{Fault, Reason};

/// What may go wrong, and how often of a hundred times.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Starts that fail.
    pub failed_starts: u64,
    /// Starts that never come to an end by themselves.
    pub endless_starts: u64,
    /// Lives that end by themselves.
    pub short_lives: u64,
    /// Lives that stop answering.
    pub stuck_lives: u64,
    /// Stops that are not heard.
    pub deaf_stops: u64,
    /// Failures that are want of a resource.
    pub want: u64,
    /// Failures that no restart can cure.
    pub last_straws: u64,
    /// Kills that have no effect.
    pub wedges: u64,
    /// News that come once more, later.
    pub echoes: u64,
    /// Wishes of children for dynamic supervisors per second, in hundredths.
    pub wishes: u64,
    /// The longest life of those that are short.
    pub longest: Duration,
    /// When nothing goes wrong any more.
    pub calm_after: Duration,
    /// When a shutdown is requested, if that is before the calm.
    pub shutdown_after: Duration,
}

impl Weather {
    /// The weather of this seed.
    pub fn of(seed: Seed) -> Self {
        let mut dice = seed.dice();
        let often = |dice: &mut Dice, most: u64| {
            if dice.chance(1, 3) {
                0
            } else {
                dice.below(most + 1)
            }
        };
        Self {
            failed_starts: often(&mut dice, 60),
            endless_starts: often(&mut dice, 10),
            short_lives: often(&mut dice, 100),
            stuck_lives: often(&mut dice, 20),
            deaf_stops: often(&mut dice, 50),
            want: often(&mut dice, 100),
            last_straws: if dice.chance(1, 4) { dice.below(4) } else { 0 },
            wedges: if dice.chance(1, 6) { dice.below(5) } else { 0 },
            echoes: often(&mut dice, 30),
            wishes: often(&mut dice, 200),
            longest: dice.between(Duration::from_millis(1), Duration::from_secs(40)),
            calm_after: dice.between(Duration::ZERO, Duration::from_mins(4)),
            shutdown_after: dice.between(Duration::ZERO, Duration::from_mins(8)),
        }
    }

    /// The same place when the storm is over: whatever starts now stays up. Kills and late news stay as they were.
    #[must_use]
    pub(crate) fn calm(self) -> Self {
        Self {
            failed_starts: 0,
            endless_starts: 0,
            short_lives: 0,
            stuck_lives: 0,
            deaf_stops: 0,
            wedges: 0,
            wishes: 0,
            ..self
        }
    }

    /// What something failed with.
    pub(crate) fn failure(&self, dice: &mut Dice) -> Reason {
        if dice.chance(self.last_straws, 100) {
            return Fault::last("read the settings: no such file").into();
        }
        if dice.chance(self.want, 100) {
            return Fault::exhausted("accept: too many open files").into();
        }
        match dice.below(10) {
            0 => Reason::Ended,
            1 => Reason::Killed,
            2 => Fault::bug("panicked: index out of range").into(),
            _ => Fault::failed("read: connection reset").into(),
        }
    }
}
