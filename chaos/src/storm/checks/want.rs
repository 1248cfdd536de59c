//! Want of a resource never climbs: whoever falls for it waits and comes back, and nobody gives up over it.

use holdfast_supervision::{Class, Next, Reason, What};

use super::Shape;
use crate::storm::{Fact, History};

pub(super) fn check(_: &Shape, history: &History) -> Result<(), String> {
    for entry in history.entries() {
        let Fact::Told(change) = &entry.fact else {
            continue;
        };
        let climbed = match &change.what {
            What::Fell { reason, next } => is_want(reason) && *next == Next::Escalation,
            What::GaveUp { reason } => is_want(reason.root_cause().1),
            What::Starting
            | What::Up
            | What::Dying { .. }
            | What::Stopping
            | What::Stopped
            | What::Stuck
            | What::StartTooLong
            | What::Overdue
            | What::Wedged => false,
        };
        if climbed {
            return Err(entry.to_string());
        }
    }
    Ok(())
}

fn is_want(reason: &Reason) -> bool {
    reason.class() == Class::Exhausted
}
