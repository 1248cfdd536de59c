//! A supervision tree, as it is told to people.

use holdfast_actor::{Clock, Lookout, Strategy, View};
use holdfast_wire::{v1, words};

/// Sees one process's tree. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Trees {
    process: &'static str,
    pub(crate) lookout: Lookout,
    clock: Clock,
}

impl Trees {
    pub(crate) fn new(process: &'static str, lookout: Lookout) -> Self {
        Self {
            process,
            lookout,
            clock: Clock::tokio(),
        }
    }

    /// How it stands now, a row for each member.
    pub(crate) async fn tree(&self) -> v1::Tree {
        let views = self.lookout.view().await;
        v1::Tree {
            process: self.process.to_owned(),
            rows: views.iter().map(|view| row(view, &self.clock)).collect(),
        }
    }
}

fn row(view: &View, clock: &Clock) -> v1::TreeRow {
    let strategy = view.strategy.map(Strategy::as_str);
    let reason = view.last.as_ref().map(ToString::to_string);
    v1::TreeRow {
        path: view.path.to_string(),
        strategy: strategy.unwrap_or_default().to_owned(),
        state: words::part(view.state).to_owned(),
        restarts: view.restarts.into(),
        last_reason: reason.unwrap_or_default(),
        next_ms: view.next.map_or(0, |next| clock.date_ms(next)),
    }
}
