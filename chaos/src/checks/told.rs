//! What is broken is told: Ready is gone soon after one of our processes is killed or stopped, wherever it lasts long enough to be
//! noticed.
//!
//! What is killed must be told within the bound. What is stopped says nothing itself, so that its silence has to be noticed first: it
//! has four times as long.

use std::time::Duration;

use super::{Finding, millis, moment, percentile};
use crate::timeline::{Fact, Timeline};

pub(super) fn check(bound: Duration, timeline: &Timeline) -> Finding {
    let ready = timeline.ready();
    let spans = timeline.broken();
    let mut times = Vec::new();
    let mut violations = Vec::new();
    for entry in timeline.entries() {
        let Fact::Broken {
            number,
            fault,
            victim,
        } = &entry.fact
        else {
            continue;
        };
        let bound = match fault.split(' ').next() {
            Some("kill") => bound,
            Some("stop") => bound * 4,
            _ => continue,
        };
        let Some((_, from, until)) = spans.iter().find(|(broken, ..)| broken == number) else {
            continue;
        };
        // One that was not Ready when it was broken has nothing to take back. A blow is noted when it has been dealt.
        let dealt = from.saturating_sub(DEALT);
        let Some((_, gone)) = ready
            .iter()
            .find(|(since, gone)| *since <= dealt && dealt < *gone)
        else {
            continue;
        };
        let took = gone.saturating_sub(*from);
        if took <= bound {
            times.push(took);
        } else if *until >= *from + bound {
            violations.push(format!(
                "fault {number}, {fault} ({victim}) at {}: Ready was shown for another {} ms, {} ms at most",
                moment(*from),
                took.min(until.saturating_sub(*from)).as_millis(),
                bound.as_millis()
            ));
        }
    }
    times.sort();
    let summary = format!(
        "{} told: p50 {} ms, p99 {} ms, longest {} ms (bound {} ms, {} ms for what is stopped)",
        times.len(),
        percentile(&times, 50).as_millis(),
        percentile(&times, 99).as_millis(),
        times.last().copied().unwrap_or_default().as_millis(),
        bound.as_millis(),
        (bound * 4).as_millis()
    );
    Finding::of("what is broken is told", summary, violations)
        .measuring("p50", millis(percentile(&times, 50)))
        .measuring("longest", millis(times.last().copied().unwrap_or_default()))
}

/// Between a blow and the note of it.
const DEALT: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::super::testing::{broken, ms, shown, timeline};
    use super::*;
    use crate::timeline::Phase;

    fn stopped(gone: u64, until: u64) -> Timeline {
        timeline([
            (0, shown(Phase::Ready)),
            (1_000, broken(1)),
            (
                gone.min(until),
                shown(if gone <= until {
                    Phase::Degraded
                } else {
                    Phase::Ready
                }),
            ),
            (until, Fact::Mended { number: 1 }),
            (9_000, shown(Phase::Ready)),
        ])
    }

    #[test]
    fn silence_that_is_noticed_in_time_passes_and_is_measured() {
        let finding = check(ms(500), &stopped(2_900, 4_000));
        assert!(finding.passed);
        assert_eq!(finding.measured.get("longest"), Some(&1_900.0));
    }

    #[test]
    fn silence_that_is_noticed_late_or_never_does_not() {
        assert!(!check(ms(500), &stopped(3_100, 4_000)).passed);
        assert!(!check(ms(500), &stopped(5_000, 4_000)).passed);
    }

    #[test]
    fn what_is_over_before_it_could_be_noticed_is_not_judged() {
        assert!(check(ms(500), &stopped(5_000, 2_500)).passed);
    }

    #[test]
    fn a_death_has_less_time() {
        let kill = Fact::Broken {
            number: 1,
            fault: "kill keeper".into(),
            victim: "7".into(),
        };
        let of = |gone| {
            timeline([
                (0, shown(Phase::Ready)),
                (1_000, kill.clone()),
                (gone, shown(Phase::Degraded)),
                (3_000, Fact::Mended { number: 1 }),
            ])
        };
        assert!(check(ms(500), &of(1_400)).passed);
        assert!(!check(ms(500), &of(1_600)).passed);
    }
}
