//! Descriptors settle: when all is over no process has more open than before and a little, and none ever had more than it may.

use std::collections::BTreeMap;

use super::Finding;
use crate::scenario::Descriptors as Bounds;
use crate::timeline::{Fact, Shown, Stage, Timeline};

/// What was seen of one sandbox.
#[derive(Default)]
struct Seen<'t> {
    root: Option<u64>,
    before: Option<&'t Shown>,
    after: Option<&'t Shown>,
    /// By process.
    highest: BTreeMap<&'t str, u64>,
}

pub(super) fn check(bounds: Bounds, timeline: &Timeline) -> Finding {
    let sandboxes = sandboxes(timeline);
    let mut violations = Vec::new();
    let mut most: BTreeMap<&str, u64> = BTreeMap::new();
    for seen in &sandboxes {
        violations.extend(settled(bounds, seen));
        for (process, high) in &seen.highest {
            let most = most.entry(process).or_default();
            *most = (*most).max(*high);
        }
    }
    for (process, bound) in [("keeper", bounds.keeper), ("boundary", bounds.boundary)] {
        let (Some(bound), Some(most)) = (bound, most.get(process)) else {
            continue;
        };
        if *most > bound {
            violations.push(format!(
                "the {process} had {most} descriptors, {bound} at most"
            ));
        }
    }
    violations.extend(spread(bounds.spread, &sandboxes));
    let most: Vec<String> = most
        .iter()
        .map(|(process, most)| format!("{process} {most}"))
        .collect();
    let rest = sandboxes.last().and_then(|seen| seen.after).map(|shown| {
        let open = shown
            .descriptors
            .iter()
            .map(|(process, of)| format!("{process} {}", of.used));
        open.collect::<Vec<_>>().join(", ")
    });
    let rest = rest.unwrap_or_else(|| "unknown".into());
    let summary = format!(
        "high-water marks: {}; open at rest: {rest}",
        most.join(", ")
    );
    Finding::of("descriptors settle", summary, violations)
}

fn sandboxes(timeline: &Timeline) -> Vec<Seen<'_>> {
    let mut sandboxes: Vec<Seen<'_>> = Vec::new();
    let mut last = None;
    for entry in timeline.entries() {
        if let Fact::Stage(stage) = entry.fact {
            match (stage, sandboxes.last_mut()) {
                (Stage::Calm { root }, _) => sandboxes.push(Seen {
                    root,
                    ..Seen::default()
                }),
                (Stage::Faults, Some(seen)) => seen.before = last,
                (Stage::Settled, Some(seen)) => seen.after = last,
                (Stage::Over, _) => last = None,
                (Stage::Faults | Stage::Settling | Stage::Settled, _) => {}
            }
            continue;
        }
        let Fact::Shown(shown) = &entry.fact else {
            continue;
        };
        if shown.descriptors.is_empty() {
            continue;
        }
        last = Some(shown);
        if let Some(seen) = sandboxes.last_mut() {
            for (process, of) in &shown.descriptors {
                let high = seen.highest.entry(process).or_default();
                *high = (*high).max(of.high_water);
            }
        }
    }
    sandboxes
}

fn settled(bounds: Bounds, seen: &Seen<'_>) -> Vec<String> {
    let above = bounds.above;
    let (Some(before), Some(after)) = (seen.before, seen.after) else {
        return vec!["the sandbox did not say how many descriptors it has, before or after".into()];
    };
    let mut found = Vec::new();
    for (process, then) in &before.descriptors {
        let Some(now) = after.descriptors.get(process) else {
            found.push(format!(
                "the {process} does not say any more how many it has"
            ));
            continue;
        };
        if let Some(settled) = bounds.settled.filter(|settled| now.used > *settled) {
            found.push(format!(
                "the {process} has {} open at rest, {settled} at most",
                now.used
            ));
        }
        if now.used > then.used + above {
            found.push(format!(
                "the {process} had {} open before and {} after, {above} more at most",
                then.used, now.used
            ));
        }
    }
    found
}

fn spread(bound: Option<u64>, sandboxes: &[Seen<'_>]) -> Vec<String> {
    let Some(bound) = bound else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for process in ["keeper", "boundary"] {
        let marks: Vec<(Option<u64>, u64)> = sandboxes
            .iter()
            .filter_map(|seen| Some((seen.root, *seen.highest.get(process)?)))
            .collect();
        let highest = marks
            .iter()
            .map(|(_, mark)| *mark)
            .max()
            .unwrap_or_default();
        let lowest = marks
            .iter()
            .map(|(_, mark)| *mark)
            .min()
            .unwrap_or_default();
        if highest - lowest > bound {
            let marks: Vec<String> = marks
                .iter()
                .map(|(root, mark)| format!("{} entries {mark}", root.unwrap_or_default()))
                .collect();
            found.push(format!(
                "the high-water marks of the {process} differ by {}, {bound} at most: {}",
                highest - lowest,
                marks.join(", ")
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::timeline;
    use super::*;
    use crate::timeline::Descriptors;

    fn shown(used: u64, high_water: u64) -> Fact {
        let of = Descriptors {
            limit: 1024,
            used,
            high_water,
            ..Descriptors::default()
        };
        Fact::Shown(Shown {
            descriptors: [("keeper".to_owned(), of)].into(),
            ..Shown::default()
        })
    }

    fn one(root: u64, before: u64, high: u64, after: u64) -> Vec<(u64, Fact)> {
        let calm = Stage::Calm { root: Some(root) };
        vec![
            (0, Fact::Stage(calm)),
            (1, shown(before, before)),
            (2, Fact::Stage(Stage::Faults)),
            (3, shown(before, high)),
            (4, shown(after, high)),
            (5, Fact::Stage(Stage::Settled)),
            (6, Fact::Stage(Stage::Over)),
        ]
    }

    fn bounds() -> Bounds {
        Bounds {
            above: 4,
            settled: Some(25),
            keeper: Some(40),
            boundary: None,
            spread: Some(2),
        }
    }

    #[test]
    fn use_that_returns_passes_and_use_that_stays_does_not() {
        assert!(check(bounds(), &timeline(one(0, 20, 35, 24))).passed);
        assert!(!check(bounds(), &timeline(one(0, 20, 35, 25))).passed);
    }

    #[test]
    fn more_at_rest_than_may_be_does_not_pass() {
        assert!(check(bounds(), &timeline(one(0, 24, 30, 25))).passed);
        assert!(!check(bounds(), &timeline(one(0, 24, 30, 26))).passed);
    }

    #[test]
    fn a_mark_above_the_bound_does_not_pass() {
        assert!(!check(bounds(), &timeline(one(0, 20, 41, 20))).passed);
    }

    #[test]
    fn marks_that_differ_with_the_root_do_not_pass() {
        let of = |high| [one(0, 20, 30, 20), one(1_000, 20, high, 20)].concat();
        assert!(check(bounds(), &timeline(of(32))).passed);
        let finding = check(bounds(), &timeline(of(33)));
        assert_eq!(
            finding.violations,
            [
                "the high-water marks of the keeper differ by 3, 2 at most: 0 entries 30, 1000 entries 33"
            ]
        );
    }

    #[test]
    fn silence_does_not_pass() {
        let calm = Fact::Stage(Stage::Calm { root: None });
        assert!(!check(bounds(), &timeline([(0, calm)])).passed);
    }
}
