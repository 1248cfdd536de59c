//! Restarts stay within their intensity: at the end nothing has been given up, and where a bound is written no more restarts
//! are counted than it says and no process is replaced that no fault has killed.

use std::collections::BTreeMap;

use super::{Finding, moment};
use crate::timeline::{Fact, Stage, Timeline, Tree};

pub(super) fn check(most: Option<u64>, timeline: &Timeline) -> Finding {
    let mut last: BTreeMap<&str, &Tree> = BTreeMap::new();
    let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in timeline.entries() {
        let Fact::Tree(tree) = &entry.fact else {
            continue;
        };
        if let Some(before) = last.insert(&tree.process, tree) {
            for (path, more) in increases(before, tree) {
                *counted.entry(path).or_default() += more;
            }
        }
    }
    let mut violations: Vec<String> = last
        .values()
        .flat_map(|tree| &tree.rows)
        .filter(|row| row.state == "GivenUp")
        .map(|row| format!("{} was given up after {} restarts", row.path, row.restarts))
        .collect();
    let total: u64 = counted.values().sum();
    if let Some(most) = most {
        if total > most {
            let by: Vec<String> = counted
                .iter()
                .map(|(path, count)| format!("{path} {count}"))
                .collect();
            violations.push(format!(
                "{total} restarts, {most} at most: {}",
                by.join(", ")
            ));
        }
        violations.extend(replaced(timeline));
    }
    let bound = most.map_or_else(String::new, |most| format!(" (bound {most})"));
    let summary = format!(
        "{total} restarts of actors{bound}, {} trees seen",
        last.len()
    );
    Finding::of("restarts within intensity", summary, violations)
}

/// By how much the restarts of each place grew; a process that was replaced counts from zero again.
fn increases<'t>(before: &Tree, after: &'t Tree) -> impl Iterator<Item = (&'t str, u64)> {
    let same = before.pid == after.pid;
    let earlier: BTreeMap<String, u64> = before
        .rows
        .iter()
        .map(|row| (row.path.clone(), row.restarts))
        .collect();
    after.rows.iter().filter_map(move |row| {
        let base = earlier
            .get(&row.path)
            .copied()
            .filter(|base| same && *base <= row.restarts);
        let more = row.restarts - base.unwrap_or(0);
        (more > 0).then_some((row.path.as_str(), more))
    })
}

/// Processes that have another id than before, without a fault that killed them: one kill answers for one replacement of each process
/// that dies of it.
fn replaced(timeline: &Timeline) -> Vec<String> {
    let mut found = Vec::new();
    let mut last: BTreeMap<&str, u32> = BTreeMap::new();
    let mut killed: BTreeMap<&str, u32> = BTreeMap::new();
    for entry in timeline.entries() {
        if let Fact::Stage(Stage::Over) = entry.fact {
            // Another sandbox; the gateway stays, and is missed from the next status on.
            last.clear();
            killed.clear();
        } else if let Fact::Broken { fault, .. } = &entry.fact {
            for process in victims(fault) {
                *killed.entry(process).or_default() += 1;
            }
        } else if let Fact::Shown(shown) = &entry.fact {
            for (process, pid) in &shown.pids {
                // One that is not named for a while keeps its place: whoever comes then is another one.
                let before = last.insert(process, *pid);
                if before.is_none_or(|before| before == *pid) {
                    continue;
                }
                match killed.get_mut(process.as_str()) {
                    Some(kills @ 1..) => *kills -= 1,
                    Some(_) | None => found.push(format!(
                        "at {} the {process} is another process, and no fault killed it",
                        moment(entry.at)
                    )),
                }
            }
        }
    }
    found
}

/// Who dies of a fault. The launcher's death is the boundary's, and a life of both ends with its keeper.
fn victims(fault: &str) -> &'static [&'static str] {
    match fault {
        "kill gateway" => &["gateway"],
        "kill keeper" => &["keeper"],
        "kill boundary" | "kill launcher" => &["boundary", "keeper"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{timeline, tree};
    use super::*;
    use crate::timeline::Shown;

    fn pids(keeper: u32) -> Fact {
        Fact::Shown(Shown {
            pids: [("keeper".to_owned(), keeper)].into(),
            ..Shown::default()
        })
    }

    #[test]
    fn restarts_up_to_the_bound_pass_and_one_more_does_not() {
        let timeline = timeline([
            (0, tree(7, "Running", 1)),
            (500, tree(7, "Running", 3)),
            // Another process counts from zero.
            (900, tree(8, "Running", 1)),
        ]);
        assert!(check(Some(3), &timeline).passed);
        assert!(!check(Some(2), &timeline).passed);
        assert!(check(None, &timeline).passed);
    }

    #[test]
    fn what_is_given_up_at_the_end_never_passes() {
        let ended = timeline([(0, tree(7, "Running", 0)), (9, tree(7, "GivenUp", 3))]);
        assert!(!check(None, &ended).passed);
        let healed = timeline([(0, tree(7, "GivenUp", 3)), (9, tree(8, "Running", 0))]);
        assert!(check(None, &healed).passed);
    }

    fn kill(what: &str) -> Fact {
        Fact::Broken {
            number: 1,
            fault: format!("kill {what}"),
            victim: "7".into(),
        }
    }

    #[test]
    fn a_process_that_is_replaced_needs_a_fault_that_killed_it() {
        let by_itself = timeline([(0, pids(7)), (9, pids(8))]);
        assert!(!check(Some(0), &by_itself).passed);
        let killed = timeline([(0, pids(7)), (5, kill("keeper")), (9, pids(8))]);
        assert!(check(Some(0), &killed).passed);
        let with_its_boundary = timeline([(0, pids(7)), (5, kill("launcher")), (9, pids(8))]);
        assert!(check(Some(0), &with_its_boundary).passed);
    }

    #[test]
    fn a_kill_answers_for_one_replacement_that_follows_it() {
        let twice = timeline([
            (0, pids(7)),
            (5, kill("boundary")),
            (9, pids(8)),
            (20, pids(9)),
        ]);
        assert!(!check(Some(0), &twice).passed);
        let before = timeline([(0, pids(7)), (5, pids(8)), (9, kill("keeper"))]);
        assert!(!check(Some(0), &before).passed);
        let another = timeline([(0, pids(7)), (5, kill("gateway")), (9, pids(8))]);
        assert!(!check(Some(0), &another).passed);
    }

    #[test]
    fn who_is_not_named_for_a_while_may_not_come_back_as_another() {
        let unnamed = Fact::Shown(Shown {
            pids: [("boundary".to_owned(), 3)].into(),
            ..Shown::default()
        });
        let timeline = timeline([(0, pids(7)), (5, unnamed), (9, pids(8))]);
        assert!(!check(Some(0), &timeline).passed);
    }
}
