//! What is broken is told: Ready is gone soon after one of our processes is killed or stopped, and the shortage is named soon after one
//! has hardly a descriptor left, wherever it lasts long enough to be noticed.
//!
//! What is killed or starved must be told within the bound. What is stopped says nothing itself, so that its silence has to be noticed
//! first: it has four times as long.

use std::time::Duration;

use super::{Finding, millis, moment, percentile};
use crate::timeline::{Fact, Shown, Timeline};

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
        let Some(sign) = Sign::of(fault) else {
            continue;
        };
        let bound = match sign {
            Sign::Death | Sign::Shortage => bound,
            Sign::Silence => bound * 4,
        };
        // Each sandbox of one siege has the same numbers.
        let span = spans
            .iter()
            .find(|(broken, from, _)| broken == number && *from == entry.at);
        let Some((_, from, until)) = span else {
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
        let told = match sign {
            Sign::Death | Sign::Silence => Some(*gone),
            Sign::Shortage => shortage(timeline, dealt),
        };
        let took = told.map(|told| told.saturating_sub(*from));
        if let Some(took) = took.filter(|took| *took <= bound) {
            times.push(took);
        } else if *until >= *from + bound {
            let lasted = until.saturating_sub(*from);
            violations.push(format!(
                "fault {number}, {fault} ({victim}) at {}: {} for another {} ms, {} ms at most",
                moment(*from),
                sign.untold(),
                took.map_or(lasted, |took| took.min(lasted)).as_millis(),
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

/// What shows that something is broken.
#[derive(Clone, Copy)]
enum Sign {
    /// Ready is gone.
    Death,
    /// The same, and nobody says why.
    Silence,
    /// The status names the shortage.
    Shortage,
}

impl Sign {
    /// Of a fault as it is written down; `None` for what need not show.
    fn of(fault: &str) -> Option<Self> {
        let mut words = fault.split(' ');
        match (words.next()?, words.next(), words.next()) {
            ("kill", ..) => Some(Self::Death),
            ("stop", ..) => Some(Self::Silence),
            // The gateway is no part of a sandbox.
            ("emfile", Some("keeper" | "boundary"), Some(spare)) => {
                let spare: i64 = spare.parse().ok()?;
                (spare <= SHORT).then_some(Self::Shortage)
            }
            _ => None,
        }
    }

    const fn untold(self) -> &'static str {
        match self {
            Self::Death | Self::Silence => "Ready was shown",
            Self::Shortage => "no DescriptorPressure was shown",
        }
    }
}

/// When the shortage was named, from this time on.
fn shortage(timeline: &Timeline, since: Duration) -> Option<Duration> {
    let named = |(_, shown): &(Duration, &Shown)| {
        let reason = shown.failing.get("DescriptorsAvailable");
        reason.is_some_and(|reason| reason == "DescriptorPressure")
    };
    let mut shown = timeline.shown().filter(|(at, _)| *at >= since);
    shown.find(named).map(|(at, _)| at)
}

/// Whoever has no more descriptors left than this has too few.
const SHORT: i64 = 8;
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

    fn starved(told: Option<u64>) -> Timeline {
        let starve = Fact::Broken {
            number: 1,
            fault: "emfile keeper +8".into(),
            victim: "7".into(),
        };
        let named = Fact::Shown(Shown {
            phase: Phase::Degraded,
            failing: [("DescriptorsAvailable".into(), "DescriptorPressure".into())].into(),
            ..Shown::default()
        });
        let named = told.map(|at| (at, named));
        timeline(
            [(0, shown(Phase::Ready)), (1_000, starve)]
                .into_iter()
                .chain(named)
                .chain([(3_000, Fact::Mended { number: 1 })]),
        )
    }

    #[test]
    fn a_shortage_has_to_be_named() {
        assert!(check(ms(500), &starved(Some(1_400))).passed);
        assert!(!check(ms(500), &starved(Some(1_600))).passed);
        assert!(!check(ms(500), &starved(None)).passed);
    }

    /// A siege of several sandboxes makes the same faults in each.
    #[test]
    fn a_fault_of_another_sandbox_with_the_same_number_excuses_nothing() {
        let kill = || Fact::Broken {
            number: 1,
            fault: "kill keeper".into(),
            victim: "7".into(),
        };
        let twice = timeline([
            (0, shown(Phase::Ready)),
            (1_000, kill()),
            (1_100, shown(Phase::Degraded)),
            (1_200, Fact::Mended { number: 1 }),
            (2_000, shown(Phase::Ready)),
            (3_000, kill()),
            (5_000, shown(Phase::Degraded)),
            (6_000, Fact::Mended { number: 1 }),
        ]);
        assert!(!check(ms(500), &twice).passed);
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
