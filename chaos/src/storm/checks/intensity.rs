//! No window has more restarts than the intensity of the supervisor allows.
//!
//! A restart is the start of a child after a fall that its supervisor answered with one. Want of a resource does not count,
//! and a supervisor that was itself started again begins with an empty window.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_clock::Moment;
use holdfast_supervision::{Class, Intensity, Next, Path, What};

use super::{Kind, Shape};
use crate::storm::{Fact, History};

pub(super) fn check(shape: &Shape, history: &History) -> Result<(), String> {
    let mut due = BTreeSet::new();
    let mut restarts: BTreeMap<Path, Vec<Moment>> = BTreeMap::new();
    for entry in history.entries() {
        let change = match &entry.fact {
            Fact::Told(change) => change,
            Fact::Wanted { path, .. } => {
                // The restart of a namesake that was dismissed is not made any more.
                due.remove(path);
                continue;
            }
            Fact::Start { .. }
            | Fact::Up { .. }
            | Fact::Stop { .. }
            | Fact::Kill { .. }
            | Fact::Ended { .. }
            | Fact::Refused { .. }
            | Fact::Calm { .. }
            | Fact::ShutdownRequested
            | Fact::Finished(_)
            | Fact::TimeIsUp => continue,
        };
        match &change.what {
            What::Fell { reason, next } => {
                let counted = reason.class() != Class::Exhausted;
                if counted && matches!(next, Next::Restart { .. }) {
                    due.insert(change.path.clone());
                }
            }
            What::Starting => {
                // What is under it begins anew.
                restarts.remove(&change.path);
                due.retain(|path| *path == change.path || !change.path.covers(path));
                if due.remove(&change.path)
                    && let Some(parent) = shape.get(&change.path).and_then(|p| p.parent.clone())
                {
                    let made = restarts.entry(parent.clone()).or_default();
                    made.push(entry.at);
                    if let Some(Kind::Branch { intensity, .. }) =
                        shape.get(&parent).map(|place| &place.kind)
                        && too_many(made, *intensity)
                    {
                        return Err(format!("{entry}: one restart too many for {parent}"));
                    }
                }
            }
            What::Up
            | What::Dying { .. }
            | What::Stopping
            | What::Stopped
            | What::Stuck
            | What::StartTooLong
            | What::Overdue
            | What::Wedged
            | What::GaveUp { .. } => {}
        }
    }
    Ok(())
}

/// Whether the latest restart is one too many in the window that ends with it.
fn too_many(made: &[Moment], intensity: Intensity) -> bool {
    let Intensity::AtMost { restarts, within } = intensity else {
        return false;
    };
    let restarts = restarts as usize;
    match (made.last(), made.len().checked_sub(restarts + 1)) {
        (Some(last), Some(first)) => *last - made[first] < within,
        (None, _) | (_, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_too_many_in_a_window_is_noticed_and_one_after_it_is_not() {
        let limit = Intensity::at_most(2, Duration::from_millis(10));
        let at = |millis| Moment::ORIGIN + Duration::from_millis(millis);
        assert!(too_many(&[at(0), at(5), at(9)], limit));
        assert!(!too_many(&[at(0), at(5), at(10)], limit));
        assert!(!too_many(&[at(0), at(5)], limit));
    }
}
