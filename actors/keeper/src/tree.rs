//! Who watches whom in the keeper of a lasting sandbox; [`attended`] is the smaller one of a sandbox in the foreground.
//!
//! ```text
//! keeper          RestForOne, 3 in 60s
//!   link          Permanent
//!   rulebook      Permanent
//!   network       OneForOne, 5 in 60s
//!     resolver    Permanent
//!     egress      Dynamic, at most 4096, 3 in 60s
//!     capture     Permanent
//!     lane        Permanent
//!   sessions      Dynamic, at most 4096, 3 in 60s
//!   workload      Permanent
//!   service       Permanent
//!   outside       OneForOne, 20 in 60s
//!     uplink      Permanent
//!     pressure    Permanent
//!     canary      Permanent
//! ```
//!
//! The order is the security argument: under `RestForOne` what stands later falls with what stands before it. Sessions
//! stand behind all that a launch needs, then `workload`, which takes up those that run, then the service. The parts of `network` need
//! nothing of each other and judge by what outlives them: one that falls comes back alone, and only if that does not help
//! do the sessions' clients hear of it. What may fail without harm stands in `outside`, with a budget of its own: a flapping
//! uplink must not cost anyone their session.

use std::time::Duration;

use holdfast_actor::{Child, Fault, Observer, Root, Seed, Strategy, Supervisor, Tree};

pub(crate) mod attended;

/// The tree of a keeper that outlives its clients.
pub(crate) fn lasting() -> Supervisor {
    Supervisor::new("keeper", Strategy::RestForOne)
        .intensity(3, Duration::from_mins(1))
        .child(part("link"))
        .child(part("rulebook"))
        .supervisor(network())
        .supervisor(Supervisor::dynamic("sessions", MOST_SESSIONS))
        .child(part("workload"))
        .child(part("service"))
        .supervisor(outside())
}

/// What answers for names and connections.
pub(crate) fn network() -> Supervisor {
    Supervisor::new("network", Strategy::OneForOne)
        .intensity(5, Duration::from_mins(1))
        .child(part("resolver"))
        .supervisor(Supervisor::dynamic("egress", MOST_LISTENERS))
        .child(part("capture"))
        .child(part("lane"))
}

/// What looks at the sandbox, or tells of it, and is not needed for its work.
fn outside() -> Supervisor {
    Supervisor::new("outside", Strategy::OneForOne)
        .intensity(20, Duration::from_mins(1))
        .child(part("uplink"))
        .child(part("pressure"))
        .child(part("canary"))
}

/// One that comes back whenever it falls.
pub(crate) fn part(id: &str) -> Child {
    Child::permanent(id).ping(PING)
}

/// Starts the actors, and waits until all of them are up.
pub(crate) async fn grow(tree: Tree, seed: Seed, observer: impl Observer) -> Result<Root, Fault> {
    let root = tree
        .start(seed, observer)
        .await
        .map_err(|unfit| Fault::bug(unfit.to_string()))?;
    root.up()
        .await
        .map_err(|end| Fault::failed(format!("start the keeper's actors: {end:?}")))?;
    Ok(root)
}

/// How many ports are listened on.
const MOST_LISTENERS: usize = 4096;

/// How many sessions are attended at a time.
pub(crate) const MOST_SESSIONS: usize = 4096;

/// A part that hangs is found and told of within this time.
const PING: Duration = Duration::from_millis(1800);

#[cfg(test)]
mod tests {
    use holdfast_actor::assert_drawn;

    #[test]
    fn the_tree_is_as_drawn() {
        assert_drawn(&super::lasting(), include_str!("tree.rs"));
    }
}
