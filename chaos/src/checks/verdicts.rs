//! Nothing leaves but through a verdict: every connection that arrived at our server has a record that allowed it.

use super::{Finding, moment};
use crate::timeline::{Fact, Timeline};

pub(super) fn check(timeline: &Timeline) -> Finding {
    let mut counts = timeline.entries().iter().filter_map(|entry| {
        let Fact::Counted { arrived, allowed } = entry.fact else {
            return None;
        };
        Some((entry.at, arrived, allowed))
    });
    let Some((at, arrived, allowed)) = counts.next_back() else {
        let violation = "arrivals and records were never counted".to_owned();
        return Finding::of(
            "no egress without verdict",
            violation.clone(),
            vec![violation],
        );
    };
    let mut violations = Vec::new();
    if arrived > allowed {
        violations.push(format!(
            "by {} {arrived} connections had arrived and {allowed} were recorded as allowed",
            moment(at)
        ));
    }
    let summary = format!("{arrived} connections arrived, {allowed} recorded as allowed");
    Finding::of("no egress without verdict", summary, violations)
}

#[cfg(test)]
mod tests {
    use super::super::testing::timeline;
    use super::*;

    #[test]
    fn as_many_records_as_arrivals_pass_and_fewer_do_not() {
        let counted = |arrived, allowed| timeline([(9, Fact::Counted { arrived, allowed })]);
        assert!(check(&counted(4, 4)).passed);
        // One that was allowed and went away before it was dialled.
        assert!(check(&counted(4, 5)).passed);
        assert!(!check(&counted(5, 4)).passed);
        assert!(!check(&timeline([])).passed);
    }
}
