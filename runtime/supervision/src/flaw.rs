//! What is wrong with a tree as it is written.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::{Backoff, Intensity, Node, Path, Strategy, Supervisor};

/// A tree that cannot mean what its author meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// An id is empty or has a `/` in it.
    BadId(Path),
    /// Two siblings have one id.
    TwiceThere(Path),
    /// A dynamic supervisor is written with children.
    NotDynamic(Path),
    /// A backoff that shrinks, or whose least delay is longer than its most.
    BadBackoff(Path),
    /// A deadline of zero for a start or a ping.
    NoTime(Path),
    /// A child that fails at each start would never use up its supervisor's intensity, because its delays are too
    /// long for the window: a crash loop without an end, unless that is said (`Intensity::Unlimited`).
    Unreachable(Path),
}

impl Supervisor {
    /// All flaws of this supervisor and what is under it.
    pub fn flaws(&self) -> Vec<Flaw> {
        let mut flaws = Vec::new();
        let path = Path::new(&self.id);
        if bad_id(&self.id) {
            flaws.push(Flaw::BadId(path.clone()));
        }
        self.inspect(&path, &mut flaws);
        flaws
    }

    fn inspect(&self, path: &Path, flaws: &mut Vec<Flaw>) {
        let mut seen = BTreeSet::new();
        if matches!(self.strategy, Strategy::Dynamic { .. }) && !self.children.is_empty() {
            flaws.push(Flaw::NotDynamic(path.clone()));
        }
        for node in &self.children {
            let place = path.join(node.id());
            if bad_id(node.id()) {
                flaws.push(Flaw::BadId(place.clone()));
            }
            if !seen.insert(node.id()) {
                flaws.push(Flaw::TwiceThere(place.clone()));
            }
            let backoff = match node {
                Node::Child(child) => {
                    if child.start.is_zero() || child.ping.is_zero() {
                        flaws.push(Flaw::NoTime(place.clone()));
                    }
                    child.backoff
                }
                Node::Supervisor(supervisor) => {
                    supervisor.inspect(&place, flaws);
                    supervisor.backoff
                }
            };
            if backoff.factor < 1.0 || !backoff.factor.is_finite() || backoff.min > backoff.max {
                flaws.push(Flaw::BadBackoff(place));
            } else if !reachable(self.intensity, &backoff) {
                flaws.push(Flaw::Unreachable(place));
            }
        }
    }
}

fn bad_id(id: &str) -> bool {
    id.is_empty() || id.contains('/')
}

/// Whether even the slowest crash loop fails once too often within one window.
fn reachable(intensity: Intensity, backoff: &Backoff) -> bool {
    let Intensity::AtMost { restarts, within } = intensity else {
        return true;
    };
    let mut slowest = Duration::ZERO;
    for failures in 0..restarts {
        slowest = slowest.saturating_add(backoff.bound(failures));
        if slowest >= within {
            return false;
        }
    }
    true
}

impl fmt::Display for Flaw {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadId(path) => write!(out, "{path}: an id is not empty and has no slash"),
            Self::TwiceThere(path) => write!(out, "{path}: two siblings have this id"),
            Self::NotDynamic(path) => {
                write!(
                    out,
                    "{path}: a dynamic supervisor is written without children"
                )
            }
            Self::BadBackoff(path) => write!(
                out,
                "{path}: a backoff has a factor of at least 1 and a least delay up to its most"
            ),
            Self::NoTime(path) => write!(out, "{path}: a start or ping needs time"),
            Self::Unreachable(path) => write!(
                out,
                "{path}: its backoff is so slow that its supervisor would never give up; shorten \
                 the most, widen the window, or say unlimited"
            ),
        }
    }
}

impl std::error::Error for Flaw {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Child;

    #[test]
    fn each_flaw_is_found_where_it_is() {
        let slow = Backoff::between(Duration::from_secs(1), Duration::from_secs(30));
        let tree = Supervisor::new("root", Strategy::OneForOne)
            .child(Child::permanent("a/b"))
            .child(Child::permanent("twin"))
            .child(Child::permanent("twin"))
            .child(Child::permanent("hasty").ping(Duration::ZERO))
            .child(Child::permanent("shrinking").backoff(Backoff {
                factor: 0.5,
                ..Backoff::default()
            }))
            .supervisor(Supervisor::dynamic("sessions", 4).child(Child::temporary("early")))
            .supervisor(
                Supervisor::new("outside", Strategy::OneForOne)
                    .intensity(20, Duration::from_mins(1))
                    .child(Child::permanent("uplink").backoff(slow)),
            );
        let at = |path: &str| Path::new(path);
        assert_eq!(
            tree.flaws(),
            [
                Flaw::BadId(at("root/a/b")),
                Flaw::TwiceThere(at("root/twin")),
                Flaw::NoTime(at("root/hasty")),
                Flaw::BadBackoff(at("root/shrinking")),
                Flaw::NotDynamic(at("root/sessions")),
                Flaw::Unreachable(at("root/outside/uplink")),
            ]
        );
    }

    #[test]
    fn a_loop_without_an_end_is_fine_when_it_is_said() {
        let tree = Supervisor::new("outside", Strategy::OneForOne)
            .unlimited()
            .child(Child::permanent("uplink").backoff(Backoff::between(
                Duration::from_secs(1),
                Duration::from_mins(1),
            )));
        assert_eq!(tree.flaws(), []);
    }
}
