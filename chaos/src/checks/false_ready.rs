//! Ready is true: no longer than the bound is it shown while an exec with an allowed connection that starts then fails.
//!
//! ```text
//!  shown   ██████ Ready ██████████████░░ Degraded ░░░░░░██ Ready
//!  probes    ✓   ✓   ✗   ✗   ✗        ✗      ✗      ✓     ✓
//!                    └── false ───────┘
//! ```
//!
//! A false time begins with the start of a probe that fails while Ready is shown. It ends when Ready is gone, or with the start of
//! the next probe that succeeds: between two probes the worse is assumed.

use std::time::Duration;

use super::{Finding, millis, moment, percentile};
use crate::timeline::{Fact, Probed, Timeline};

pub(super) fn check(bound: Duration, timeline: &Timeline) -> Finding {
    let mut probes: Vec<&Probed> = timeline
        .entries()
        .iter()
        .filter_map(|entry| {
            let Fact::Probed(probed) = &entry.fact else {
                return None;
            };
            Some(probed)
        })
        .collect();
    probes.sort_by_key(|probe| probe.started);
    let spans = spans(&probes, &timeline.ready());

    let mut lengths: Vec<Duration> = spans.iter().map(|span| span.length).collect();
    lengths.sort();
    let longest = lengths.last().copied().unwrap_or_default();
    let total: Duration = lengths.iter().sum();
    let mut violations: Vec<String> = spans
        .iter()
        .filter(|span| span.length > bound)
        .map(|span| {
            let (at, long) = (moment(span.from), span.length.as_millis());
            format!(
                "at {at} Ready was shown for {long} ms while it was not: {}",
                span.why
            )
        })
        .collect();
    if probes.is_empty() {
        violations.push("Ready was never tried".into());
    }
    let failed = probes
        .iter()
        .filter(|probe| probe.failure.is_some())
        .count();
    let summary = format!(
        "{} probes, {failed} failed, {} times falsely Ready: p50 {} ms, p99 {} ms, longest {} ms (bound {} ms)",
        probes.len(),
        spans.len(),
        percentile(&lengths, 50).as_millis(),
        percentile(&lengths, 99).as_millis(),
        longest.as_millis(),
        bound.as_millis(),
    );
    Finding::of("false Ready", summary, violations)
        .measuring("probes", count(probes.len()))
        .measuring("failedProbes", count(failed))
        .measuring("falseTimes", count(spans.len()))
        .measuring("p50", millis(percentile(&lengths, 50)))
        .measuring("p99", millis(percentile(&lengths, 99)))
        .measuring("longest", millis(longest))
        .measuring("total", millis(total))
}

struct Span<'p> {
    from: Duration,
    length: Duration,
    why: &'p str,
}

fn spans<'p>(probes: &[&'p Probed], ready: &[(Duration, Duration)]) -> Vec<Span<'p>> {
    let mut spans: Vec<Span<'p>> = Vec::new();
    let mut covered = Duration::ZERO;
    for (index, probe) in probes.iter().enumerate() {
        let Some(why) = &probe.failure else {
            continue;
        };
        let from = probe.started;
        let while_ready = ready
            .iter()
            .find(|(since, until)| *since <= from && from < *until);
        let Some((_, until)) = while_ready else {
            continue;
        };
        if from < covered {
            continue;
        }
        let succeeded = probes
            .iter()
            .skip(index)
            .find(|later| later.failure.is_none());
        let end = succeeded.map_or(*until, |later| later.started.min(*until));
        covered = end;
        spans.push(Span {
            from,
            length: end.saturating_sub(from),
            why,
        });
    }
    spans
}

#[expect(clippy::cast_precision_loss, reason = "nobody makes 2^52 probes")]
fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ms, probe, shown, timeline};
    use super::*;
    use crate::timeline::Phase;

    #[test]
    fn a_ready_that_goes_in_time_passes_and_is_measured() {
        let timeline = timeline([
            (0, shown(Phase::Ready)),
            (110, probe(100, None)),
            (250, probe(200, Some("no listener"))),
            (400, shown(Phase::Degraded)),
            (450, probe(300, Some("no listener"))),
            (900, probe(800, Some("no listener"))),
            (1_000, shown(Phase::Ready)),
            (1_200, probe(1_100, None)),
        ]);

        let finding = check(ms(500), &timeline);

        assert!(finding.passed, "{finding:?}");
        assert_eq!(finding.measured.get("longest"), Some(&200.0));
        assert_eq!(finding.measured.get("falseTimes"), Some(&1.0));
    }

    #[test]
    fn a_ready_that_stays_too_long_does_not() {
        let timeline = timeline([
            (0, shown(Phase::Ready)),
            (250, probe(200, Some("no listener"))),
            (350, probe(300, Some("no listener"))),
            (800, shown(Phase::Degraded)),
        ]);

        let finding = check(ms(500), &timeline);

        assert!(!finding.passed);
        assert_eq!(
            finding.violations,
            ["at 0.200s Ready was shown for 600 ms while it was not: no listener"]
        );
    }

    #[test]
    fn a_ready_that_is_never_taken_back_ends_with_the_next_success() {
        let timeline = timeline([
            (0, shown(Phase::Ready)),
            (250, probe(200, Some("no listener"))),
            (950, probe(900, None)),
        ]);
        assert!(!check(ms(500), &timeline).passed);
        assert!(check(ms(700), &timeline).passed);
    }

    #[test]
    fn a_siege_that_never_tried_does_not_pass() {
        assert!(!check(ms(500), &timeline([(0, shown(Phase::Ready))])).passed);
    }
}
