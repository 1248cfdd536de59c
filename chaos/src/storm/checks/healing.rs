//! What may live lives when the storm is over: nothing that can come back is forgotten.

use std::collections::BTreeSet;

use holdfast_supervision::What;

use super::{Kind, Shape};
use crate::storm::{Fact, History};

pub(super) fn check(shape: &Shape, history: &History) -> Result<(), String> {
    let mut up = BTreeSet::new();
    let mut calm = None;
    for entry in history.entries() {
        match &entry.fact {
            Fact::Calm { rest } => calm = Some(entry.at + *rest),
            Fact::Up { path, .. } => {
                up.insert(path.clone());
            }
            Fact::Ended { path, .. } => {
                up.remove(path);
            }
            // Given up, or shut down in the storm: nothing has to heal.
            Fact::Finished(_) => return Ok(()),
            Fact::Told(change) if matches!(change.what, What::Wedged) => return Ok(()),
            Fact::ShutdownRequested => {
                if calm.is_none_or(|rested| entry.at < rested) {
                    return Ok(());
                }
                for (path, place) in shape.iter() {
                    // Children that were wanted come and go.
                    let written = place.index != usize::MAX;
                    let leaf = matches!(place.kind, Kind::Leaf(_));
                    if written && leaf && place.is_permanent() && !up.contains(path) {
                        return Err(format!("{entry}: {path} is not up"));
                    }
                }
                return Ok(());
            }
            Fact::Start { .. }
            | Fact::Stop { .. }
            | Fact::Kill { .. }
            | Fact::Told(_)
            | Fact::Wanted { .. }
            | Fact::Refused { .. }
            | Fact::TimeIsUp => {}
        }
    }
    Ok(())
}
