//! Who watches whom in the keeper of a sandbox in the foreground: it has no service, tells nobody and changes no policy.
//!
//! ```text
//! keeper          RestForOne, 3 in 60s
//!   link          Permanent
//!   network       OneForOne, 5 in 60s
//!     resolver    Permanent
//!     egress      Dynamic, at most 4096, 3 in 60s
//!     capture     Permanent
//!     lane        Permanent
//!   sessions      Dynamic, at most 4096, 3 in 60s
//! ```

use std::time::Duration;

use holdfast_actor::{Strategy, Supervisor};

use super::{MOST_SESSIONS, network, part};

/// The tree of a keeper that serves one caller.
pub(crate) fn keeper() -> Supervisor {
    Supervisor::new("keeper", Strategy::RestForOne)
        .intensity(3, Duration::from_mins(1))
        .child(part("link"))
        .supervisor(network())
        .supervisor(Supervisor::dynamic("sessions", MOST_SESSIONS))
}

#[cfg(test)]
mod tests {
    use holdfast_actor::assert_drawn;

    #[test]
    fn the_tree_is_as_drawn() {
        assert_drawn(&super::keeper(), include_str!("attended.rs"));
    }
}
