//! What every part of the gateway knows.

use std::sync::Arc;

use holdfast_actor::Lookout;

use crate::directory::Directory;
use crate::places::Places;
use crate::processes::Processes;
use crate::registry::Ledger;
use crate::shortage::Shortage;

/// One gateway's surroundings. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) places: Arc<Places>,
    pub(crate) directory: Directory,
    pub(crate) ledger: Ledger,
    pub(crate) processes: Processes,
    /// Whether the gateway itself can serve.
    pub(crate) shortage: Shortage,
    /// The gateway's own tree.
    pub(crate) lookout: Lookout,
    /// Whether an actor may be made to fail, for tests.
    pub(crate) chaos: bool,
}
