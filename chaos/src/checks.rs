//! What must hold in every siege, judged from its timeline; one invariant a file.
//!
//! A check knows its bounds and the timeline and nothing else, so each is tried with recorded timelines that it must pass and
//! that it must not: a check that cannot fail is no check.

mod acknowledged;
mod backoff;
mod descriptors;
mod false_ready;
mod held;
mod leftovers;
mod made;
mod recovery;
mod restarts;
mod sessions;
mod told;
mod verdicts;

#[cfg(test)]
mod testing;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::scenario::Checks;
use crate::timeline::Timeline;

/// What a check found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Finding {
    /// Which check.
    pub(crate) check: &'static str,
    /// Whether it held.
    pub(crate) passed: bool,
    /// What was found, in a line.
    pub(crate) summary: String,
    /// What should not have been, the earliest first.
    pub(crate) violations: Vec<String>,
    /// What was measured, by name; times are in milliseconds.
    pub(crate) measured: BTreeMap<&'static str, f64>,
}

/// Asks everything that the scenario wants to hold. With `own`, gateway and server are ours and may be judged as well.
pub(crate) fn all(checks: &Checks, own: bool, timeline: &Timeline) -> Vec<Finding> {
    let mut found = vec![made::check(timeline)];
    if timeline.lost().is_some() {
        // Nothing else can be said of a sandbox that somebody took away meanwhile.
        if checks.leftovers {
            found.push(leftovers::check(timeline));
        }
        return found;
    }
    if let Some(bound) = checks.false_ready {
        found.push(false_ready::check(bound, timeline));
    }
    if let Some(bound) = checks.told {
        found.push(told::check(bound, timeline));
    }
    if checks.sessions {
        found.push(sessions::check(timeline));
    }
    if checks.connections {
        found.push(held::check(timeline));
    }
    found.push(restarts::check(checks.restarts, timeline));
    if let Some(bound) = checks.backoff {
        found.push(backoff::check(bound, timeline));
    }
    if let Some(bounds) = checks.descriptors {
        found.push(descriptors::check(bounds, timeline));
    }
    if let Some(bound) = checks.recovery {
        found.push(recovery::check(bound, timeline));
    }
    if checks.leftovers {
        found.push(leftovers::check(timeline));
    }
    if checks.verdicts && own {
        found.push(verdicts::check(timeline));
    }
    if checks.acknowledged && own {
        found.push(acknowledged::check(timeline));
    }
    found
}

impl Finding {
    /// Passed if and only if there is no violation.
    fn of(check: &'static str, summary: String, violations: Vec<String>) -> Self {
        Self {
            check,
            passed: violations.is_empty(),
            summary,
            violations,
            measured: BTreeMap::new(),
        }
    }

    fn measuring(mut self, name: &'static str, value: f64) -> Self {
        self.measured.insert(name, value);
        self
    }
}

/// The value below which so many of a hundred lie; zero of none. `sorted` is.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied().unwrap_or_default()
}

fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// A time as reports write it: "12.345s".
pub(crate) fn moment(at: Duration) -> String {
    format!("{:.3}s", at.as_secs_f64())
}
