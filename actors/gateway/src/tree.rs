//! Who watches whom in a gateway.
//!
//! ```text
//! gateway        RestForOne, 3 in 60s
//!   reaper       Permanent
//!   registry     Permanent
//!   sandboxes    Dynamic, at most 1024, unlimited
//!   roster       Permanent
//!   api          Permanent
//!   http         Permanent
//! ```
//!
//! What stands later lives from what stands before it: nobody may change what cannot be written down, and nobody is served
//! by a gateway that does not know its sandboxes. The sandboxes themselves are processes of their own; their actors here
//! may fall as often as they like, and find them again in the registry.

use std::time::Duration;

use holdfast_actor::{Child, Clock, Strategy, Supervisor, View, rows};
use holdfast_wire::v1;

/// The tree of a gateway.
pub(crate) fn gateway() -> Supervisor {
    Supervisor::new("gateway", Strategy::RestForOne)
        .intensity(3, Duration::from_mins(1))
        .child(Child::permanent("reaper"))
        .child(Child::permanent("registry").ping(SLOW_DISK))
        .supervisor(Supervisor::dynamic("sandboxes", MOST_SANDBOXES).unlimited())
        .child(Child::permanent("roster").ping(SLOW_DISK).start(SLOW_DISK))
        .child(Child::permanent("api"))
        .child(Child::permanent("http"))
}

/// The tree as it stands, for those who ask.
pub(crate) fn told(views: &[View]) -> v1::Tree {
    v1::Tree {
        process: "gateway".to_owned(),
        rows: rows(views, &Clock::tokio()),
    }
}

/// More sandboxes are not made.
pub(crate) const MOST_SANDBOXES: usize = 1024;

/// Who waits for a disk may wait longer than others before it is taken to be stuck.
const SLOW_DISK: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use holdfast_actor::assert_drawn;

    #[test]
    fn the_tree_is_as_drawn() {
        assert_drawn(&super::gateway(), include_str!("tree.rs"));
    }
}
