//! What every part of the gateway knows.

use std::sync::Arc;

use crate::directory::Directory;
use crate::places::Places;
use crate::registry::Ledger;

/// One gateway's surroundings. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) places: Arc<Places>,
    pub(crate) directory: Directory,
    pub(crate) ledger: Ledger,
}
