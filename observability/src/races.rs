//! Counts harmless races by syscall and errno, and sums them up once a minute.
//!
//! A target that is gone before we look (ESRCH, ENOENT, ENOTCONN) is no denial and no error. It is still worth a
//! number, because a number that jumps is how a real fault first shows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// Counts of races since the start, and what is new since the last summary.
#[derive(Debug, Clone, Default)]
pub struct Races {
    totals: BTreeMap<String, u64>,
    fresh: BTreeMap<String, u64>,
    summed_up: Option<Duration>,
}

impl Races {
    /// How often a summary is due.
    pub const PERIOD: Duration = Duration::from_mins(1);

    /// Counts one race: `("connect", "ENOENT")`.
    pub fn count(&mut self, syscall: &str, errno: &str) {
        self.add(&format!("{syscall}/{errno}"), 1);
    }

    /// Adds what a broker reported, by its own keys: `"connect/ENOENT"`.
    pub fn merge<'a>(&mut self, counts: impl IntoIterator<Item = (&'a str, u64)>) {
        for (key, count) in counts {
            self.add(key, count);
        }
    }

    /// Everything counted since the start, by `syscall/errno`.
    pub fn totals(&self) -> &BTreeMap<String, u64> {
        &self.totals
    }

    /// One line when a minute has passed and something was counted: `connect/ENOENT 3, getsockopt/ESRCH 1`.
    pub fn summary(&mut self, now: Duration) -> Option<String> {
        let since = *self.summed_up.get_or_insert(now);
        if now.saturating_sub(since) < Self::PERIOD || self.fresh.is_empty() {
            return None;
        }
        self.summed_up = Some(now);
        Some(line(&std::mem::take(&mut self.fresh)))
    }

    fn add(&mut self, key: &str, count: u64) {
        for counts in [&mut self.totals, &mut self.fresh] {
            let known = counts.contains_key(key) || counts.len() < KEYS;
            let key = if known { key } else { "other" };
            let counted = counts.entry(key.to_owned()).or_default();
            *counted = counted.saturating_add(count);
        }
    }
}

fn line(counts: &BTreeMap<String, u64>) -> String {
    let mut text = String::new();
    for (key, count) in counts {
        let comma = if text.is_empty() { "" } else { ", " };
        let _infallible = write!(text, "{comma}{key} {count}");
    }
    text
}

/// How many different keys are kept apart; the rest is counted as `other`.
const KEYS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const fn minute(n: u64) -> Duration {
        Duration::from_mins(n)
    }

    #[test]
    fn a_minute_of_races_is_one_line() {
        let mut races = Races::default();
        assert_eq!(races.summary(minute(0)), None);
        races.count("connect", "ENOENT");
        races.count("connect", "ENOENT");
        races.merge([("getsockopt/ESRCH", 1)]);

        let early = races.summary(minute(1).saturating_sub(Duration::from_millis(1)));
        let due = races.summary(minute(1));
        let quiet = races.summary(minute(2));

        assert_eq!(early, None);
        assert_eq!(due.as_deref(), Some("connect/ENOENT 2, getsockopt/ESRCH 1"));
        assert_eq!(quiet, None);
        assert_eq!(races.totals()["connect/ENOENT"], 2);
    }

    #[test]
    fn keys_are_bounded_and_nothing_is_lost_from_the_sum() {
        let mut races = Races::default();

        for n in 0..1000 {
            races.count("connect", &n.to_string());
        }

        assert!(races.totals().len() <= KEYS + 1);
        assert_eq!(races.totals().values().sum::<u64>(), 1000);
    }
}
