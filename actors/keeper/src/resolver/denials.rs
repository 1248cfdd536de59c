//! Keeps a program that asks for the same denied name again and again from flooding the audit.
//!
//! Every `getaddrinfo` asks twice, for A and for AAAA, and programs retry. The first denial of a
//! name is recorded; those that follow within the quiet period are counted, and the count stands in
//! the next record of that name. Pure: time is an argument.

use std::collections::HashMap;
use std::time::Duration;

use holdfast_clock::Moment;
use holdfast_observability::Decision;

/// The names denied of late.
#[derive(Debug, Default)]
pub(super) struct Denials {
    recent: HashMap<String, Recent>,
}

#[derive(Debug)]
struct Recent {
    decision: Decision,
    quiet_until: Moment,
    repeats: u64,
}

impl Denials {
    /// The decision that denies `name`: the last one during its quiet period, otherwise a new one
    /// from `record`, which is told how many denials there were since its last record.
    pub(super) fn decide(
        &mut self,
        name: &str,
        now: Moment,
        record: impl FnOnce(u64) -> Decision,
    ) -> Decision {
        let quiet_until = now + QUIET;
        if let Some(recent) = self.recent.get_mut(name) {
            if now < recent.quiet_until {
                recent.repeats += 1;
                return recent.decision;
            }
            recent.decision = record(std::mem::take(&mut recent.repeats));
            recent.quiet_until = quiet_until;
            return recent.decision;
        }
        if self.recent.len() >= CAPACITY {
            self.recent.retain(|_, recent| now < recent.quiet_until);
        }
        let decision = record(0);
        // With no room to remember it, the name is recorded each time: too much rather than nothing.
        if self.recent.len() < CAPACITY {
            let recent = Recent {
                decision,
                quiet_until,
                repeats: 0,
            };
            self.recent.insert(name.to_owned(), recent);
        }
        decision
    }
}

const QUIET: Duration = Duration::from_secs(10);
const CAPACITY: usize = 1024;

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    /// The records that were made, and the decisions that were given.
    #[derive(Default)]
    struct Told {
        denials: Denials,
        records: Vec<u64>,
    }

    impl Told {
        fn deny(&mut self, name: &str, now: Moment) -> Decision {
            let records = &mut self.records;
            self.denials.decide(name, now, |repeats| {
                records.push(repeats);
                Decision::new(SystemTime::UNIX_EPOCH)
            })
        }
    }

    #[test]
    fn a_repeated_denial_is_the_same_decision_and_is_counted_in_the_next_record() {
        let mut told = Told::default();
        let start = Moment::ORIGIN;

        let first = told.deny("denied.test", start);
        for n in 1..=100 {
            let soon = told.deny("denied.test", start + Duration::from_millis(n));
            assert_eq!(soon, first);
        }
        let later = told.deny("denied.test", start + QUIET);

        assert_ne!(later, first);
        assert_eq!(told.records, [0, 100]);
    }

    #[test]
    fn each_name_is_recorded_for_itself() {
        let mut told = Told::default();

        let one = told.deny("one.test", Moment::ORIGIN);
        let two = told.deny("two.test", Moment::ORIGIN);

        assert_ne!(one, two);
        assert_eq!(told.records, [0, 0]);
    }

    #[test]
    fn a_flood_of_names_is_bounded_and_none_goes_unrecorded() {
        let mut told = Told::default();

        for n in 0..3 * CAPACITY {
            told.deny(&format!("n{n}.test"), Moment::ORIGIN);
        }

        assert_eq!(told.records.len(), 3 * CAPACITY);
        assert_eq!(told.denials.recent.len(), CAPACITY);
        told.deny("after.test", Moment::ORIGIN + QUIET);
        assert_eq!(told.denials.recent.len(), 1, "the old ones made room");
    }
}
