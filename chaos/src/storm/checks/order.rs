//! Children start in the order in which they are written, and stop in the reverse order.
//!
//! Under `RestForOne` and `OneForAll` a child starts only while all before it are up or done for good; under `OneForOne`, when
//! all before it have been started once. Whoever is asked to stop has nobody alive after it, except under a dynamic
//! supervisor, which has no order.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_supervision::{Next, Path, Strategy, What};

use super::{Kind, Place, Shape};
use crate::storm::{Fact, History};

#[derive(Default)]
struct Standing {
    up: BTreeSet<Path>,
    /// Not needed any more.
    done: BTreeSet<Path>,
    /// Started since their supervisor was.
    tried: BTreeSet<Path>,
    alive: BTreeSet<Path>,
}

pub(super) fn check(shape: &Shape, history: &History) -> Result<(), String> {
    let mut standing = Standing::default();
    for entry in history.entries() {
        let verdict = match &entry.fact {
            Fact::Told(change) => match &change.what {
                What::Starting => {
                    let verdict = standing.may_start(shape, &change.path);
                    standing.begin(&change.path);
                    verdict
                }
                What::Up => {
                    standing.up.insert(change.path.clone());
                    Ok(())
                }
                What::Fell { next, .. } => {
                    standing.up.remove(&change.path);
                    if *next == Next::Nothing {
                        standing.done.insert(change.path.clone());
                    }
                    Ok(())
                }
                What::Stopped => {
                    standing.up.remove(&change.path);
                    if !shape.get(&change.path).is_some_and(Place::is_permanent) {
                        // A temporary one does not come back; a transient one that does is begun again first.
                        standing.done.insert(change.path.clone());
                    }
                    Ok(())
                }
                What::Wedged => {
                    // Nobody waits for one that cannot be killed.
                    standing.alive.remove(&change.path);
                    Ok(())
                }
                What::Dying { .. }
                | What::Stopping
                | What::Stuck
                | What::StartTooLong
                | What::Overdue
                | What::GaveUp { .. } => Ok(()),
            },
            Fact::Start { path, .. } => {
                standing.alive.insert(path.clone());
                Ok(())
            }
            Fact::Ended { path, .. } => {
                standing.alive.remove(path);
                Ok(())
            }
            Fact::Stop { path, .. } => standing.may_stop(shape, path),
            Fact::Up { .. }
            | Fact::Kill { .. }
            | Fact::Wanted { .. }
            | Fact::Refused { .. }
            | Fact::Calm { .. }
            | Fact::ShutdownRequested
            | Fact::Finished(_)
            | Fact::TimeIsUp => Ok(()),
        };
        verdict.map_err(|what| format!("{entry}: {what}"))?;
    }
    Ok(())
}

impl Standing {
    fn begin(&mut self, path: &Path) {
        let below = |other: &Path| path.covers(other);
        self.tried.retain(|other| !below(other));
        self.done.retain(|other| !below(other));
        self.up.retain(|other| !below(other));
        self.tried.insert(path.clone());
    }

    fn may_start(&self, shape: &Shape, path: &Path) -> Result<(), String> {
        let Some(place) = shape.get(path) else {
            return Err("nobody has that place".to_owned());
        };
        let before = shape
            .siblings(place)
            .filter(|(_, other)| other.index < place.index);
        for (sibling, _) in before {
            let ready = match shape.strategy_over(place) {
                Some(Strategy::OneForAll | Strategy::RestForOne) => {
                    self.up.contains(sibling) || self.done.contains(sibling)
                }
                Some(Strategy::OneForOne) => self.tried.contains(sibling),
                Some(Strategy::Dynamic { .. }) | None => true,
            };
            if !ready {
                return Err(format!("{sibling} stands before it and is not up"));
            }
        }
        Ok(())
    }

    /// Nobody who stands after it is alive.
    fn may_stop(&self, shape: &Shape, path: &Path) -> Result<(), String> {
        let Some(place) = shape.get(path) else {
            return Err("nobody has that place".to_owned());
        };
        if matches!(shape.strategy_over(place), Some(Strategy::Dynamic { .. })) {
            return Ok(());
        }
        let after: BTreeMap<&Path, &Place> = shape
            .siblings(place)
            .filter(|(_, other)| other.index > place.index)
            .collect();
        for (sibling, other) in after {
            let found = match other.kind {
                Kind::Leaf(_) => self.alive.contains(sibling).then_some(sibling),
                Kind::Branch { .. } => self.alive.iter().find(|path| sibling.covers(path)),
            };
            if let Some(alive) = found {
                return Err(format!("{alive} stands after it and is alive"));
            }
        }
        Ok(())
    }
}
