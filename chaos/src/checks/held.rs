//! What is open stays open: no connection that a program inside holds is closed while something else is short.

use super::{Finding, moment};
use crate::timeline::{Fact, Timeline};

pub(super) fn check(timeline: &Timeline) -> Finding {
    let cut = timeline.entries().iter().filter(|it| it.fact == Fact::Cut);
    let violations: Vec<String> = cut
        .map(|entry| format!("at {} a held connection was closed", moment(entry.at)))
        .collect();
    let summary = format!("{} held connections closed", violations.len());
    Finding::of("held connections stay", summary, violations)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{broken, timeline};
    use super::*;

    #[test]
    fn what_stays_open_passes_and_what_is_closed_does_not() {
        assert!(check(&timeline([(1, broken(1))])).passed);
        let finding = check(&timeline([(1, broken(1)), (2_500, Fact::Cut)]));
        assert_eq!(
            finding.violations,
            ["at 2.500s a held connection was closed"]
        );
    }
}
