//! Who watches whom in one boundary.
//!
//! ```text
//! boundary      RestForOne, 5 in 60s
//!   sessions    Dynamic, at most 4096, 32 in 60s
//!   launcher    Permanent
//!   broker      Permanent
//!   service     Permanent
//! ```
//!
//! The order is the security argument: what serves the keeper stands behind the broker, so that nothing is launched while
//! nobody answers for its connections. What reads the sessions needs nobody and stands before them all: whatever else falls,
//! no session loses its output. The seccomp listener, the lane, the table of sessions and what is read of them belong to
//! the parent: a child that falls is given them again.

use std::time::Duration;

use holdfast_actor::{Change, Child, Clock, Reason, Strategy, Supervisor, View, What, rows};
use holdfast_wire::v1;

/// The tree of a boundary.
pub(crate) fn boundary() -> Supervisor {
    Supervisor::new("boundary", Strategy::RestForOne)
        .intensity(5, Duration::from_mins(1))
        .supervisor(
            Supervisor::dynamic("sessions", MOST_SESSIONS)
                .intensity(MOST_FALLS, Duration::from_mins(1)),
        )
        .child(part("launcher"))
        .child(part("broker"))
        .child(part("service"))
}

/// One that comes back whenever it falls.
fn part(id: &str) -> Child {
    Child::permanent(id).ping(PING)
}

/// How the tree stands, for people. Sessions have a table of their own, and no rows here.
pub(crate) fn told(views: &[View], clock: &Clock) -> v1::Tree {
    let shown = views.iter().filter(|view| !is_session(view.path.as_str()));
    v1::Tree {
        process: "boundary".to_owned(),
        rows: rows(shown, clock),
    }
}

/// A change, for the keeper; `None` of a session.
pub(crate) fn news(change: &Change) -> Option<v1::Changed> {
    if is_session(change.path.as_str()) {
        return None;
    }
    let fell = match &change.what {
        What::Dying { reason } | What::Fell { reason, .. } | What::GaveUp { reason } => {
            reason.to_string()
        }
        What::Stuck => Reason::Stuck.to_string(),
        What::StartTooLong => Reason::StartTooLong.to_string(),
        What::Wedged => Reason::Wedged.to_string(),
        What::Starting | What::Up | What::Stopping | What::Stopped | What::Overdue => String::new(),
    };
    Some(v1::Changed {
        path: change.path.to_string(),
        up: change.what == What::Up,
        fell,
        restarts: change.restarts.into(),
    })
}

fn is_session(path: &str) -> bool {
    path.starts_with("boundary/sessions/")
}

/// How many sessions run at a time; the next one is refused by name.
pub(crate) const MOST_SESSIONS: usize = 4096;

/// How often the readers of all sessions may fall in a minute. One of them falls three times at most.
const MOST_FALLS: u32 = 32;

/// A part that hangs is found and told of within this time.
const PING: Duration = Duration::from_millis(1800);

#[cfg(test)]
mod tests {
    use holdfast_actor::assert_drawn;

    #[test]
    fn the_tree_is_as_drawn() {
        assert_drawn(&super::boundary(), include_str!("tree.rs"));
    }
}
