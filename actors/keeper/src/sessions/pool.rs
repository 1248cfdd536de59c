//! Connections to the boundary: one of its own for each session, and one that is ready for the next, so that sessions one
//! after the other wait for no dial.

use std::sync::Arc;

use holdfast_actor::Fault;
use parking_lot::Mutex;

use crate::link::{Client, Dialler};
use crate::pressure::{Class, Exhausted, FOR_A_SESSION, Ledger, admit};

/// Connections of sessions that are over, for sessions to come.
#[derive(Debug)]
pub(crate) struct Pool {
    dialler: Dialler,
    ledger: Arc<Ledger>,
    idle: Mutex<Vec<Client>>,
}

/// Why there is none.
#[derive(Debug)]
pub(crate) enum Untaken {
    /// There are no descriptors for it; none was opened.
    Exhausted(Exhausted),
    /// It could not be dialled.
    Failed(Fault),
}

impl Pool {
    pub(crate) fn new(dialler: Dialler, ledger: Arc<Ledger>) -> Self {
        Self {
            dialler,
            ledger,
            idle: Mutex::default(),
        }
    }

    /// A connection that nobody uses.
    pub(crate) async fn take(&self) -> Result<Client, Untaken> {
        let idle = self.idle.lock().pop();
        if let Some(client) = idle {
            return Ok(client);
        }
        let _promise =
            admit(&self.ledger, Class::Session, FOR_A_SESSION).map_err(Untaken::Exhausted)?;
        self.dialler.dial().await.map_err(Untaken::Failed)
    }

    /// Gives one back that nobody uses any more.
    pub(crate) fn put(&self, client: Client) {
        let mut idle = self.idle.lock();
        if idle.len() < MOST_IDLE {
            idle.push(client);
        }
    }
}

/// How many connections wait for sessions. Each is a descriptor here and one in the boundary, for ever.
const MOST_IDLE: usize = 1;
