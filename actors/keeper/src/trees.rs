//! A supervision tree, as it is told to people.

use std::time::UNIX_EPOCH;

use holdfast_actor::{Clock, Lookout, Node, Strategy, Supervisor, View};
use holdfast_wire::v1;

/// Sees one process's tree. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Trees {
    process: &'static str,
    spec: Supervisor,
    pub(crate) lookout: Lookout,
    clock: Clock,
}

impl Trees {
    pub(crate) fn new(process: &'static str, spec: Supervisor, lookout: Lookout) -> Self {
        Self {
            process,
            spec,
            lookout,
            clock: Clock::tokio(),
        }
    }

    /// How it stands now, a row for each member.
    pub(crate) async fn tree(&self) -> v1::Tree {
        let views = self.lookout.view().await;
        v1::Tree {
            process: self.process.to_owned(),
            rows: views.iter().map(|view| self.row(view)).collect(),
        }
    }

    fn row(&self, view: &View) -> v1::TreeRow {
        let due = |next| {
            let wall = self.clock.wall() + (next - self.clock.now());
            let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        };
        let reason = view.last.as_ref().map(ToString::to_string);
        v1::TreeRow {
            path: view.path.to_string(),
            strategy: strategy(&self.spec, view.path.as_str()).to_owned(),
            state: state(view.state).to_owned(),
            restarts: view.restarts.into(),
            last_reason: reason.unwrap_or_default(),
            next_ms: view.next.map_or(0, due),
        }
    }
}

/// The strategy of the supervisor at `path`; empty for anything else.
fn strategy(spec: &Supervisor, path: &str) -> &'static str {
    let Some(below) = path.strip_prefix(spec.id.as_str()) else {
        return "";
    };
    let Some(below) = below.strip_prefix('/') else {
        return match spec.strategy {
            _ if !below.is_empty() => "",
            Strategy::OneForOne => "OneForOne",
            Strategy::OneForAll => "OneForAll",
            Strategy::RestForOne => "RestForOne",
            Strategy::Dynamic { .. } => "Dynamic",
        };
    };
    let found = spec.children.iter().map(|node| match node {
        Node::Supervisor(spec) => strategy(spec, below),
        Node::Child(_) => "",
    });
    found
        .into_iter()
        .find(|found| !found.is_empty())
        .unwrap_or("")
}

/// The word of the supervision for a state, in the words of the status.
fn state(word: &str) -> &'static str {
    match word {
        "up" => "Running",
        "idle" | "starting" => "Starting",
        "waiting" => "Waiting",
        "stopping" | "killing" => "Stopping",
        "lost" => "GivenUp",
        _ => "Stopped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn supervisors_are_told_with_their_strategy() {
        let spec = tree::lasting();

        assert_eq!(strategy(&spec, "keeper"), "RestForOne");
        assert_eq!(strategy(&spec, "keeper/outside"), "OneForOne");
        assert_eq!(strategy(&spec, "keeper/sessions"), "Dynamic");
        assert_eq!(strategy(&spec, "keeper/sessions/7"), "");
        assert_eq!(strategy(&spec, "keeper/link"), "");
        assert_eq!(strategy(&spec, "keepers"), "");
    }
}
