//! Who may take how many descriptors, so that nobody takes what another needs.
//!
//! ```text
//!  free ─┬─ control ──── a connection of the gateway, a beat: always
//!        ├─ session ──── reserved before anything is opened, or refused with the reason
//!        ├─ names ────── a lookup
//!        ├─ telemetry ── an exporter
//!        └─ egress ───── what is left: connections, two descriptors each
//! ```

use std::sync::Arc;
use std::time::Duration;

pub use holdfast_kernel::descriptors::{Ledger, Promise};

/// What descriptors are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Speaking with boundary and gateway.
    Control,
    /// Sessions.
    Session,
    /// Connections of the sandbox.
    Egress,
    /// Lookups.
    Names,
    /// Exporters.
    Telemetry,
}

/// Why something was not begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "reserve {needed} descriptors for a {}: {free} of {limit} are free; raise the limit of open files or let connections end", class.as_str()
)]
pub struct Exhausted {
    /// For what.
    pub class: Class,
    /// How many it needs.
    pub needed: u64,
    /// How many are free and nobody else's.
    pub free: u64,
    /// How many there may be in all.
    pub limit: u64,
    /// When trying again makes sense.
    pub retry: Duration,
}

impl Class {
    /// The word for details and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Session => "session",
            Self::Egress => "egress",
            Self::Names => "names",
            Self::Telemetry => "telemetry",
        }
    }

    /// What must be left for those who go before it.
    const fn kept(self) -> u64 {
        match self {
            Self::Control => 0,
            Self::Session => CONTROL,
            Self::Names => CONTROL + SESSION,
            Self::Telemetry => CONTROL + SESSION + NAMES,
            Self::Egress => CONTROL + SESSION + NAMES + TELEMETRY,
        }
    }
}

/// Promises `needed` descriptors to a class, or says why not. Nothing is opened.
pub fn admit(ledger: &Arc<Ledger>, class: Class, needed: u64) -> Result<Promise, Exhausted> {
    ledger
        .promise(needed, class.kept())
        .map_err(|short| Exhausted {
            class,
            needed,
            free: short.free,
            limit: short.limit,
            retry: RETRY,
        })
}

/// How many connections a limit of descriptors bears before any are counted: two each, besides the others' share.
pub(crate) fn bearable(limit: u64) -> usize {
    let free = limit.saturating_sub(Class::Egress.kept()) / 2;
    usize::try_from(free)
        .unwrap_or(usize::MAX)
        .clamp(1, MOST_CONNECTIONS)
}

/// How many connections the egress may hold when it holds `held` and so many descriptors are `free`: what is open stays, and
/// of what is free it gets all but the others' share. A small limit is shared, too: a quarter of it is the others'.
pub(super) fn connections(held: usize, free: u64, limit: u64) -> usize {
    let others = Class::Egress.kept().min(limit / 4).max(LEAST_FOR_OTHERS);
    let more = usize::try_from(free.saturating_sub(others) / 2).unwrap_or(usize::MAX);
    held.saturating_add(more).min(MOST_CONNECTIONS)
}

/// Descriptors that one session takes here: both ends of a connection to the boundary, until one of them has gone there.
pub(crate) const FOR_A_SESSION: u64 = 2;

/// A question of the gateway's.
const CONTROL: u64 = 1;
/// A dozen sessions that begin at once, and their connections.
const SESSION: u64 = 24;
/// Lookups, and questions over TCP.
const NAMES: u64 = 31;
/// One exporter with its spare.
const TELEMETRY: u64 = 8;

/// What others have under the smallest limit.
const LEAST_FOR_OTHERS: u64 = 12;

/// More connections than this are not admitted at a time, whatever the limit.
const MOST_CONNECTIONS: usize = 16_384;

/// The next count is made by then.
const RETRY: Duration = Duration::from_millis(350);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_egress_gets_what_the_others_leave() {
        assert_eq!(connections(0, 1000, 1024), (1000 - 64) / 2);
        assert_eq!(connections(10, 1000, 1024), 10 + (1000 - 64) / 2);
        // A quarter of a small limit is enough for the others.
        assert_eq!(connections(0, 20, 64), 2);
        // Nothing is taken away from what is open.
        assert_eq!(connections(64, 4, 180), 64);
        assert_eq!(connections(0, u64::MAX, u64::MAX), MOST_CONNECTIONS);
    }

    #[test]
    fn before_any_are_counted_a_limit_bears_half_of_what_the_others_leave() {
        assert_eq!(bearable(1024), (1024 - 64) / 2);
        assert_eq!(bearable(0), 1);
        assert_eq!(bearable(u64::MAX), MOST_CONNECTIONS);
    }

    /// What is needed, what is free and what would help stand in the refusal; nothing is opened for it.
    #[test]
    fn a_refusal_says_what_is_needed_and_what_is_free() {
        let ledger = Arc::new(Ledger::default());

        let refused = admit(&ledger, Class::Session, 1 << 40).expect_err("nobody has so many");

        assert_eq!((refused.class, refused.needed), (Class::Session, 1 << 40));
        assert!(refused.free <= refused.limit);
        assert!(refused.to_string().contains("raise the limit"));
        assert_eq!(ledger.refused(), 1);
    }

    #[test]
    fn a_session_goes_before_the_egress() {
        assert!(Class::Session.kept() < Class::Names.kept());
        assert!(Class::Names.kept() < Class::Egress.kept());
    }
}
