//! A supervision tree, as it is told to people.

use holdfast_actor::{Clock, Lookout, rows};
use holdfast_wire::v1;

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
        v1::Tree {
            process: self.process.to_owned(),
            rows: rows(&self.lookout.view().await, &self.clock),
        }
    }
}
