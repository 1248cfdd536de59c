//! The siege took place: something of what was planned could be made, its sandbox stayed, and all that was seen found room. What was never broken or never
//! written down passes every other check.

use super::{Finding, moment};
use crate::timeline::{Fact, Timeline};

pub(super) fn check(timeline: &Timeline) -> Finding {
    let (mut made, mut spared) = (0u64, 0u64);
    let mut first = None;
    for entry in timeline.entries() {
        if let Fact::Broken { .. } = &entry.fact {
            made += 1;
        } else if let Fact::Spared { fault, why, .. } = &entry.fact {
            spared += 1;
            first.get_or_insert((fault, why));
        }
    }
    let mut violations = Vec::new();
    if let Some((at, why)) = timeline.lost() {
        violations.push(format!("{}: {why}; the attack ended there", moment(at)));
    }
    if let (0, Some((fault, why))) = (made, first) {
        violations.push(format!(
            "none of {spared} faults could be made: {fault}: {why}"
        ));
    }
    if timeline.missed() > 0 {
        violations.push(format!(
            "{} facts found no room; make the siege shorter",
            timeline.missed()
        ));
    }
    let summary = format!("{made} faults made, {spared} not");
    Finding::of("the siege took place", summary, violations)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{broken, timeline};
    use super::*;

    fn spared() -> Fact {
        Fact::Spared {
            number: 2,
            fault: "enfile +8".into(),
            why: "needs --whole-machine".into(),
        }
    }

    #[test]
    fn a_siege_without_faults_and_one_in_which_some_were_made_pass() {
        assert!(check(&timeline([])).passed);
        assert!(check(&timeline([(1, broken(1)), (2, spared())])).passed);
    }

    #[test]
    fn a_siege_whose_sandbox_was_deleted_does_not() {
        let lost = Fact::Lost("qa (7) was deleted".into());
        let finding = check(&timeline([(1, broken(1)), (1_500, lost)]));
        assert_eq!(
            finding.violations,
            ["1.500s: qa (7) was deleted; the attack ended there"]
        );
    }

    #[test]
    fn a_siege_in_which_nothing_could_be_made_does_not() {
        let finding = check(&timeline([(2, spared()), (3, spared())]));
        assert_eq!(
            finding.violations,
            ["none of 2 faults could be made: enfile +8: needs --whole-machine"]
        );
    }
}
