//! Keeps a program that asks for the same denied name again and again from flooding the audit.
//!
//! Every `getaddrinfo` asks twice, for A and for AAAA, and programs retry. The first denial of a
//! name is recorded; those that follow within the quiet period are counted, and the count stands in
//! the next record of that name. Pure: time is an argument.

use std::collections::HashMap;
use std::time::Duration;

use holdfast_clock::Moment;

/// The names denied of late.
#[derive(Debug, Default)]
pub(super) struct Denials {
    recent: HashMap<String, Recent>,
}

#[derive(Debug)]
struct Recent {
    quiet_until: Moment,
    repeats: u64,
}

impl Denials {
    /// `Some(denials since the last record)` when this denial is to be recorded.
    pub(super) fn admit(&mut self, name: &str, now: Moment) -> Option<u64> {
        let quiet_until = now + QUIET;
        if let Some(recent) = self.recent.get_mut(name) {
            if now < recent.quiet_until {
                recent.repeats += 1;
                return None;
            }
            recent.quiet_until = quiet_until;
            return Some(std::mem::take(&mut recent.repeats));
        }
        if self.recent.len() >= CAPACITY {
            self.recent.retain(|_, recent| now < recent.quiet_until);
        }
        // With no room to remember it, the name is recorded each time: too much rather than nothing.
        if self.recent.len() < CAPACITY {
            let recent = Recent {
                quiet_until,
                repeats: 0,
            };
            self.recent.insert(name.to_owned(), recent);
        }
        Some(0)
    }
}

const QUIET: Duration = Duration::from_secs(10);
const CAPACITY: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_denial_is_counted_in_the_next_record_of_that_name() {
        let mut denials = Denials::default();
        let start = Moment::ORIGIN;

        let first = denials.admit("denied.test", start);
        let soon: Vec<_> = (1..=100)
            .map(|n| denials.admit("denied.test", start + Duration::from_millis(n)))
            .collect();
        let later = denials.admit("denied.test", start + QUIET);

        assert_eq!(first, Some(0));
        assert!(soon.iter().all(Option::is_none));
        assert_eq!(later, Some(100));
    }

    #[test]
    fn each_name_is_recorded_for_itself() {
        let mut denials = Denials::default();
        let now = Moment::ORIGIN;

        assert_eq!(denials.admit("one.test", now), Some(0));
        assert_eq!(denials.admit("two.test", now), Some(0));
    }

    #[test]
    fn a_flood_of_names_is_bounded_and_none_goes_unrecorded() {
        let mut denials = Denials::default();
        let now = Moment::ORIGIN;

        let recorded = (0..3 * CAPACITY)
            .filter_map(|n| denials.admit(&format!("n{n}.test"), now))
            .count();

        assert_eq!(recorded, 3 * CAPACITY);
        assert_eq!(denials.recent.len(), CAPACITY);
        denials.admit("after.test", now + QUIET);
        assert_eq!(denials.recent.len(), 1, "the old ones made room");
    }
}
