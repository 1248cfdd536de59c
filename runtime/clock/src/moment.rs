//! A point on the monotonic time line of this process.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in time that never runs backwards. Two moments can be compared and subtracted; a moment alone says
/// nothing about the date (see [`crate::Clock::wall`] for that).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The beginning of the time line; the first moment of a manual clock.
    pub const ORIGIN: Self = Self(Duration::ZERO);
    /// Later than anything that will happen.
    pub const NEVER: Self = Self(Duration::MAX);

    /// The moment so long after the origin.
    pub const fn after_origin(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How long after the origin this is.
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Saturates at [`Moment::NEVER`].
impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(delay))
    }
}

impl AddAssign<Duration> for Moment {
    fn add_assign(&mut self, delay: Duration) {
        *self = *self + delay;
    }
}

/// Saturates at [`Moment::ORIGIN`].
impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span))
    }
}

/// The distance between two moments; zero when the right one is later.
impl Sub for Moment {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_stops_at_both_ends_of_the_line() {
        let second = Duration::from_secs(1);
        assert_eq!(Moment::NEVER + second, Moment::NEVER);
        assert_eq!(Moment::ORIGIN - second, Moment::ORIGIN);
        assert_eq!(Moment::ORIGIN - (Moment::ORIGIN + second), Duration::ZERO);
        assert_eq!((Moment::ORIGIN + second) - Moment::ORIGIN, second);
    }
}
