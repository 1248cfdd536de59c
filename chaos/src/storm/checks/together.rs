//! Who falls together comes back together.
//!
//! Under `RestForOne` and `OneForAll` nobody who stands after a child is alive when it starts. Under `OneForAll` all who stand
//! before it have started since it fell.

use std::collections::BTreeMap;

use holdfast_clock::Moment;
use holdfast_supervision::{Next, Path, Strategy, What};

use super::Shape;
use crate::storm::{Fact, History};

#[derive(Default)]
struct Standing {
    /// Since when those who live have done so.
    alive: BTreeMap<Path, Moment>,
    fell: BTreeMap<Path, Moment>,
}

pub(super) fn check(shape: &Shape, history: &History) -> Result<(), String> {
    let mut standing = Standing::default();
    for entry in history.entries() {
        match &entry.fact {
            Fact::Start { path, .. } => {
                standing.alive.insert(path.clone(), entry.at);
            }
            Fact::Ended { path, .. } => {
                standing.alive.remove(path);
            }
            Fact::Told(change) => match &change.what {
                What::Fell {
                    next: Next::Restart { .. },
                    ..
                } => {
                    standing.fell.insert(change.path.clone(), entry.at);
                }
                What::Starting => {
                    let verdict = standing.may_start(shape, &change.path);
                    verdict.map_err(|what| format!("{entry}: {what}"))?;
                    // What is under it begins anew.
                    standing.fell.retain(|path, _| !change.path.covers(path));
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
            Fact::Up { .. }
            | Fact::Stop { .. }
            | Fact::Kill { .. }
            | Fact::Wanted { .. }
            | Fact::Refused { .. }
            | Fact::Calm { .. }
            | Fact::ShutdownRequested
            | Fact::Finished(_)
            | Fact::TimeIsUp => {}
        }
    }
    Ok(())
}

impl Standing {
    fn may_start(&self, shape: &Shape, path: &Path) -> Result<(), String> {
        let Some(place) = shape.get(path) else {
            return Err("nobody has that place".to_owned());
        };
        let all = match shape.strategy_over(place) {
            Some(Strategy::OneForAll) => true,
            Some(Strategy::RestForOne) => false,
            Some(Strategy::OneForOne | Strategy::Dynamic { .. }) | None => return Ok(()),
        };
        let fell = self.fell.get(path);
        for (sibling, other) in shape.siblings(place) {
            let lives = self.alive.iter().filter(|(alive, _)| sibling.covers(alive));
            for (alive, since) in lives {
                if other.index > place.index {
                    return Err(format!("{alive} stands after it and is alive"));
                }
                if all && other.index < place.index && fell.is_some_and(|fell| since < fell) {
                    return Err(format!("{alive} did not fall with it"));
                }
            }
        }
        Ok(())
    }
}
