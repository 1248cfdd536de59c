//! Who watches whom in one keeper.
//!
//! ```text
//! keeper        RestForOne, 3 in 60s
//!   link        Permanent
//!   resolver    Permanent
//!   egress      Dynamic, at most 4096, 3 in 60s
//!   capture     Permanent
//!   lane        Permanent
//!   sessions    Dynamic, at most 4096, 3 in 60s
//! ```
//!
//! The order is the security argument: under `RestForOne` what stands later falls with what stands before it. Sessions
//! stand last, because a launch needs all of the others.

use std::time::Duration;

use holdfast_actor::{Child, Strategy, Supervisor};

/// The tree of a keeper.
pub(crate) fn keeper() -> Supervisor {
    Supervisor::new("keeper", Strategy::RestForOne)
        .intensity(3, Duration::from_mins(1))
        .child(Child::permanent("link"))
        .child(Child::permanent("resolver"))
        .supervisor(Supervisor::dynamic("egress", MOST_LISTENERS))
        .child(Child::permanent("capture"))
        .child(Child::permanent("lane"))
        .supervisor(Supervisor::dynamic("sessions", MOST_SESSIONS))
}

/// How many ports are listened on.
const MOST_LISTENERS: usize = 4096;

/// How many sessions are attended at a time.
const MOST_SESSIONS: usize = 4096;

#[cfg(test)]
mod tests {
    use holdfast_actor::assert_drawn;

    #[test]
    fn the_tree_is_as_drawn() {
        assert_drawn(&super::keeper(), include_str!("tree.rs"));
    }
}
