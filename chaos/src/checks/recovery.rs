//! When a cause is gone, service comes back: Ready is shown within the bound after the end of a fault, wherever nothing else is
//! broken meanwhile, and at the end.

use std::time::Duration;

use super::{Finding, millis, moment, percentile};
use crate::timeline::{Stage, Timeline};

pub(super) fn check(bound: Duration, timeline: &Timeline) -> Finding {
    let ready = timeline.ready();
    let broken = timeline.broken();
    let last = timeline
        .stage(|stage| stage == Stage::Over)
        .unwrap_or(timeline.end());
    let mut times = Vec::new();
    let mut violations = Vec::new();
    for (number, _, mended) in &broken {
        // Until the next fault, or the end.
        let until = broken
            .iter()
            .filter(|(other, from, to)| {
                other != number && *to > *mended && *from <= *mended + bound
            })
            .map(|(_, from, _)| *from)
            .min()
            .unwrap_or(last);
        let back = ready
            .iter()
            .filter(|(_, to)| *to > *mended)
            .map(|(from, _)| (*from).max(*mended))
            .min();
        match back.map(|back| back.saturating_sub(*mended)) {
            Some(took) if took <= bound => times.push(took),
            Some(_) | None if until < *mended + bound && until < last => {}
            Some(took) => violations.push(format!(
                "Ready came {} ms after fault {number} was undone at {}",
                took.as_millis(),
                moment(*mended)
            )),
            None => violations.push(format!(
                "Ready never came back after fault {number} was undone at {}",
                moment(*mended)
            )),
        }
    }
    if !ready
        .iter()
        .any(|(from, until)| *from <= last && *until >= last)
    {
        violations.push("it was not Ready at the end".into());
    }
    times.sort();
    let summary = format!(
        "{} recoveries: p50 {} ms, p99 {} ms, longest {} ms (bound {} ms)",
        times.len(),
        percentile(&times, 50).as_millis(),
        percentile(&times, 99).as_millis(),
        times.last().copied().unwrap_or_default().as_millis(),
        bound.as_millis()
    );
    Finding::of("service comes back", summary, violations)
        .measuring("p50", millis(percentile(&times, 50)))
        .measuring("p99", millis(percentile(&times, 99)))
        .measuring("longest", millis(times.last().copied().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{broken, ms, shown, timeline};
    use super::*;
    use crate::timeline::{Fact, Phase};

    fn mended(number: usize) -> Fact {
        Fact::Mended { number }
    }

    #[test]
    fn ready_in_time_passes_and_late_does_not() {
        let timeline = timeline([
            (0, shown(Phase::Ready)),
            (100, broken(1)),
            (150, shown(Phase::Degraded)),
            (200, mended(1)),
            (700, shown(Phase::Ready)),
            (2_000, Fact::Stage(Stage::Over)),
        ]);
        assert!(check(ms(500), &timeline).passed);
        let finding = check(ms(400), &timeline);
        assert_eq!(
            finding.violations,
            ["Ready came 500 ms after fault 1 was undone at 0.200s"]
        );
    }

    #[test]
    fn ready_that_never_comes_back_does_not_pass() {
        let timeline = timeline([
            (0, shown(Phase::Ready)),
            (100, broken(1)),
            (150, shown(Phase::Degraded)),
            (200, mended(1)),
            (900, Fact::Stage(Stage::Over)),
        ]);
        assert!(!check(ms(500), &timeline).passed);
    }

    #[test]
    fn a_fault_that_is_followed_by_another_is_not_judged() {
        let timeline = timeline([
            (0, shown(Phase::Ready)),
            (100, broken(1)),
            (150, shown(Phase::Degraded)),
            (200, mended(1)),
            (300, broken(2)),
            (1_000, mended(2)),
            (1_300, shown(Phase::Ready)),
            (2_000, Fact::Stage(Stage::Over)),
        ]);
        assert!(check(ms(500), &timeline).passed);
    }
}
