//! Who watches whom in one boundary.
//!
//! ```text
//! boundary      RestForOne, 5 in 60s
//!   launcher    Permanent
//!   broker      Permanent
//!   sessions    Dynamic, at most 4096, 3 in 60s
//!   service     Permanent
//! ```
//!
//! The order is the security argument: what serves the keeper stands behind the broker, so that nothing is launched while
//! nobody answers for its connections. The seccomp listener, the lane and the table of sessions belong to the parent: a
//! child that falls is given them again.

use std::time::Duration;

use holdfast_actor::{Child, Strategy, Supervisor};

/// The tree of a boundary.
pub(crate) fn boundary() -> Supervisor {
    Supervisor::new("boundary", Strategy::RestForOne)
        .intensity(5, Duration::from_mins(1))
        .child(Child::permanent("launcher"))
        .child(Child::permanent("broker"))
        .supervisor(Supervisor::dynamic("sessions", MOST_SESSIONS))
        .child(Child::permanent("service"))
}

/// How many sessions run at a time; the next one is refused by name.
pub(crate) const MOST_SESSIONS: usize = 4096;

#[cfg(test)]
mod tests {
    use holdfast_actor::assert_drawn;

    #[test]
    fn the_tree_is_as_drawn() {
        assert_drawn(&super::boundary(), include_str!("tree.rs"));
    }
}
