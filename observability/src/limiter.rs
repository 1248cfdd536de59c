//! One log line per period: a flood of the same trouble is said once, with a count.

use std::time::Duration;

/// Lets one line through per period and counts those that it held back.
///
/// Time is an argument: the time since whatever origin the caller's clock has.
#[derive(Debug, Clone)]
pub struct Limiter {
    period: Duration,
    last: Option<Duration>,
    held: u64,
}

impl Limiter {
    /// What DESIGN asks for in log lines about exhaustion and transport.
    pub const USUAL: Duration = Duration::from_secs(5);

    /// A limiter that lets the first line through at once.
    pub const fn new(period: Duration) -> Self {
        Self {
            period,
            last: None,
            held: 0,
        }
    }

    /// `Some(held back since the last line)` when a line may be written now.
    pub fn admit(&mut self, now: Duration) -> Option<u64> {
        let early = self
            .last
            .is_some_and(|last| now.saturating_sub(last) < self.period);
        if early {
            self.held += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.held))
    }
}

impl Default for Limiter {
    fn default() -> Self {
        Self::new(Self::USUAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_per_period_and_the_next_line_says_how_many_were_held_back() {
        let mut limiter = Limiter::default();

        let lines: Vec<u64> = (0..10_000_u64)
            .filter_map(|n| limiter.admit(Duration::from_millis(n)))
            .collect();

        assert_eq!(lines, [0, 4999]);
    }

    #[test]
    fn a_clock_that_steps_back_holds_the_line_back_instead_of_flooding() {
        let mut limiter = Limiter::default();
        limiter.admit(Duration::from_secs(100));

        assert_eq!(limiter.admit(Duration::from_secs(1)), None);
        assert_eq!(limiter.admit(Duration::from_secs(105)), Some(1));
    }
}
