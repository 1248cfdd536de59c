//! Nothing is left behind: no fault that could not be undone, and of our own gateway and the sandboxes that were deleted no process,
//! mount, socket or directory.

use super::Finding;
use crate::timeline::{Fact, Stage, Timeline};

pub(super) fn check(timeline: &Timeline) -> Finding {
    let mut violations: Vec<String> = timeline
        .entries()
        .iter()
        .filter_map(|entry| {
            let Fact::Left(what) = &entry.fact else {
                return None;
            };
            Some(what.clone())
        })
        .collect();
    if timeline.stage(|stage| stage == Stage::Over).is_none() {
        violations.push("the end was not reached, and nobody looked".into());
    }
    let summary = match violations.len() {
        0 => "nothing is left".to_owned(),
        left => format!("{left} things are left"),
    };
    Finding::of("no leftovers", summary, violations)
}

#[cfg(test)]
mod tests {
    use super::super::testing::timeline;
    use super::*;

    #[test]
    fn an_end_with_nothing_left_passes() {
        assert!(check(&timeline([(0, Fact::Stage(Stage::Over))])).passed);
    }

    #[test]
    fn what_is_left_or_was_not_looked_for_does_not() {
        let left = timeline([
            (0, Fact::Left("process 7 (holdfast)".into())),
            (1, Fact::Stage(Stage::Over)),
        ]);
        assert_eq!(check(&left).violations, ["process 7 (holdfast)"]);
        assert!(!check(&timeline([])).passed);
    }
}
