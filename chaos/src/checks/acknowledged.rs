//! What was acknowledged holds: a sandbox whose creation was is there, and one whose deletion was is not.

use std::collections::BTreeSet;

use super::Finding;
use crate::timeline::{Fact, Life, Timeline};

pub(super) fn check(timeline: &Timeline) -> Finding {
    let (mut created, mut ending, mut deleted) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut used = 0u64;
    let mut listed: Option<&[String]> = None;
    for entry in timeline.entries() {
        let Fact::Life(life) = &entry.fact else {
            continue;
        };
        match life {
            Life::Created(name) => {
                created.insert(name.as_str());
            }
            Life::Used(_) => used += 1,
            Life::Ending(name) => {
                ending.insert(name.as_str());
            }
            Life::Deleted(name) => {
                deleted.insert(name.as_str());
            }
            Life::Listed(names) => listed = Some(names),
        }
    }
    let mut violations = Vec::new();
    match listed {
        Some(listed) => {
            let there = |name: &str| listed.iter().any(|listed| listed == name);
            let kept = created.iter().filter(|name| !ending.contains(*name));
            violations.extend(
                kept.filter(|name| !there(name))
                    .map(|name| format!("{name} was created and is not there")),
            );
            violations.extend(
                deleted
                    .iter()
                    .filter(|name| there(name))
                    .map(|name| format!("{name} was deleted and is still there")),
            );
        }
        None if created.is_empty() => {}
        None => violations.push("nobody could list the sandboxes at the end".into()),
    }
    let summary = format!(
        "{} sandboxes created, {used} used, {} deleted",
        created.len(),
        deleted.len()
    );
    Finding::of("what was acknowledged holds", summary, violations)
}

#[cfg(test)]
mod tests {
    use super::super::testing::timeline;
    use super::*;

    fn lives(listed: Option<&[&str]>) -> Timeline {
        let of = |life| (0, Fact::Life(life));
        let listed = listed.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        timeline(
            [
                of(Life::Created("kept".into())),
                of(Life::Created("cut".into())),
                of(Life::Ending("cut".into())),
                of(Life::Created("gone".into())),
                of(Life::Ending("gone".into())),
                of(Life::Deleted("gone".into())),
            ]
            .into_iter()
            .chain(listed.map(|names| of(Life::Listed(names)))),
        )
    }

    #[test]
    fn what_is_there_and_what_is_not_passes_however_a_cut_deletion_went() {
        assert!(check(&lives(Some(&["kept"]))).passed);
        assert!(check(&lives(Some(&["kept", "cut"]))).passed);
    }

    #[test]
    fn a_loss_and_a_ghost_do_not_pass() {
        assert_eq!(
            check(&lives(Some(&[]))).violations,
            ["kept was created and is not there"]
        );
        let ghost = check(&lives(Some(&["kept", "gone"])));
        assert_eq!(ghost.violations, ["gone was deleted and is still there"]);
        assert!(!check(&lives(None)).passed);
    }
}
