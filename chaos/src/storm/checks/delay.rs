//! A delay is between the least and the most of the backoff, and nobody starts before it is over.

use std::collections::BTreeMap;

use holdfast_supervision::{Next, What};

use super::Shape;
use crate::storm::{Fact, History};

pub(super) fn check(shape: &Shape, history: &History) -> Result<(), String> {
    let mut earliest = BTreeMap::new();
    for entry in history.entries() {
        match &entry.fact {
            Fact::Told(change) => match &change.what {
                What::Fell {
                    next: Next::Restart { at },
                    ..
                } => {
                    let Some(place) = shape.get(&change.path) else {
                        return Err(format!("{entry}: nobody has that place"));
                    };
                    let delay = *at - entry.at;
                    if delay < place.backoff.min || delay > place.backoff.max {
                        return Err(format!("{entry}: {delay:?} is outside {:?}", place.backoff));
                    }
                    earliest.insert(change.path.clone(), *at);
                }
                What::Starting => {
                    // A supervisor that starts has forgotten what its children waited for.
                    earliest.retain(|path, _| *path == change.path || !change.path.covers(path));
                    if let Some(at) = earliest.remove(&change.path)
                        && entry.at < at
                    {
                        return Err(format!("{entry}: should have waited until {at:?}"));
                    }
                }
                What::Up
                | What::Fell { .. }
                | What::Dying { .. }
                | What::Stopping
                | What::Stopped
                | What::Stuck
                | What::StartTooLong
                | What::Overdue
                | What::Wedged
                | What::GaveUp { .. } => {}
            },
            Fact::Wanted { path, .. } => {
                // A new child of an old name owes nothing to its namesake.
                earliest.remove(path);
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
            | Fact::TimeIsUp => {}
        }
    }
    Ok(())
}
