//! Nothing retries without backoff: between two looks at a tree no place is restarted oftener than once in the bound, and no
//! keeper or boundary is replaced oftener than once in ten of them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Finding, moment};
use crate::timeline::{Fact, Timeline, Tree};

pub(super) fn check(bound: Duration, timeline: &Timeline) -> Finding {
    let mut violations = Vec::new();
    let mut last: BTreeMap<&str, (Duration, &Tree)> = BTreeMap::new();
    let mut fastest: Option<Duration> = None;
    for entry in timeline.entries() {
        let Fact::Tree(tree) = &entry.fact else {
            continue;
        };
        let Some((since, before)) = last.insert(&tree.process, (entry.at, tree)) else {
            continue;
        };
        if before.pid != tree.pid {
            continue;
        }
        let elapsed = entry.at.saturating_sub(since);
        for row in &tree.rows {
            let earlier = before.rows.iter().find(|earlier| earlier.path == row.path);
            let more = row
                .restarts
                .saturating_sub(earlier.map_or(row.restarts, |row| row.restarts));
            // One may have come at any moment between the two looks.
            let Ok(more @ 2..) = u32::try_from(more) else {
                continue;
            };
            let apart = elapsed / (more - 1);
            fastest = Some(fastest.map_or(apart, |fastest| fastest.min(apart)));
            if apart < bound {
                violations.push(format!(
                    "at {} {} had been restarted {more} times in {} ms",
                    moment(entry.at),
                    row.path,
                    elapsed.as_millis()
                ));
            }
        }
    }
    violations.extend(processes(bound.saturating_mul(10), timeline));
    let fastest = fastest.map_or_else(
        || "never two restarts between two looks".to_owned(),
        |apart| {
            format!(
                "several restarts between two looks at least {} ms apart on average",
                apart.as_millis()
            )
        },
    );
    let summary = format!("{fastest} (bound {} ms)", bound.as_millis());
    Finding::of("backoff respected", summary, violations)
}

/// Processes that came sooner after their predecessor than `bound`.
fn processes(bound: Duration, timeline: &Timeline) -> Vec<String> {
    let mut since: BTreeMap<&str, (u32, Duration)> = BTreeMap::new();
    let mut found = Vec::new();
    for (at, shown) in timeline.shown() {
        for (process, pid) in &shown.pids {
            let earlier = since.get(process.as_str()).copied();
            if earlier.is_some_and(|(earlier, _)| earlier == *pid) {
                continue;
            }
            if let Some((earlier, began)) = earlier
                && at.saturating_sub(began) < bound
            {
                let lived = at.saturating_sub(began).as_millis();
                found.push(format!(
                    "at {} the {process} {earlier} was replaced after {lived} ms",
                    moment(at)
                ));
            }
            since.insert(process, (*pid, at));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ms, timeline, tree};
    use super::*;
    use crate::timeline::Shown;

    #[test]
    fn restarts_that_are_apart_pass_and_a_loop_does_not() {
        let calm = timeline([(0, tree(7, "Running", 1)), (500, tree(7, "Running", 3))]);
        assert!(check(ms(10), &calm).passed);
        let spinning = timeline([(0, tree(7, "Running", 1)), (500, tree(7, "Running", 400))]);
        assert!(!check(ms(10), &spinning).passed);
    }

    #[test]
    fn processes_that_follow_each_other_at_once_do_not_pass() {
        let pids = |at, pid| {
            let pids = [("keeper".to_owned(), pid)].into();
            (
                at,
                Fact::Shown(Shown {
                    pids,
                    ..Shown::default()
                }),
            )
        };
        assert!(!check(ms(10), &timeline([pids(0, 1), pids(20, 2)])).passed);
        assert!(check(ms(10), &timeline([pids(0, 1), pids(400, 2)])).passed);
    }
}
