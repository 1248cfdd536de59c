//! A shutdown ends, within the deadlines of all children together, and leaves nobody behind.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_supervision::What;

use super::{Kind, Shape};
use crate::storm::{Fact, History};

/// A killed child may take so long to be gone before nobody waits for it any more.
const KILL_DEADLINE: Duration = Duration::from_secs(10);
/// What the world takes to report an end.
const SLACK: Duration = Duration::from_secs(1);

pub(super) fn check(shape: &Shape, history: &History) -> Result<(), String> {
    let mut bound = Duration::ZERO;
    for (_, place) in shape.iter() {
        match &place.kind {
            Kind::Leaf(child) => bound += child.shutdown + KILL_DEADLINE + SLACK,
            Kind::Branch { .. } => {}
        }
    }
    let mut requested = None;
    let mut finished = false;
    let mut alive = BTreeSet::new();
    let mut wedged = BTreeSet::new();
    for entry in history.entries() {
        match &entry.fact {
            Fact::ShutdownRequested => requested = requested.or(Some(entry.at)),
            Fact::Start { path, .. } => {
                if finished {
                    return Err(format!("{entry}, and all was over"));
                }
                alive.insert(path.clone());
            }
            Fact::Ended { path, .. } => {
                alive.remove(path);
            }
            Fact::Told(change) if change.what == What::Wedged => {
                wedged.insert(change.path.clone());
            }
            Fact::Finished(_) => {
                finished = true;
                if let Some(path) = alive.difference(&wedged).next() {
                    return Err(format!("{entry}, and {path} is alive"));
                }
                if let Some(at) = requested
                    && entry.at - at > bound
                {
                    return Err(format!(
                        "{entry}, asked for at {at:?}; {bound:?} is the most"
                    ));
                }
            }
            Fact::TimeIsUp => return Err(format!("{entry}: it never ended")),
            Fact::Up { .. }
            | Fact::Stop { .. }
            | Fact::Kill { .. }
            | Fact::Told(_)
            | Fact::Wanted { .. }
            | Fact::Refused { .. }
            | Fact::Calm { .. } => {}
        }
    }
    Ok(())
}
