//! Connections to the boundary that are ready for the next session: one of its own for each, none dialled while a client
//! waits.

use holdfast_actor::Fault;
use parking_lot::Mutex;

use crate::link::{Client, Dialler};

/// Connections of sessions that are over, for sessions to come.
#[derive(Debug)]
pub(crate) struct Pool {
    dialler: Dialler,
    idle: Mutex<Vec<Client>>,
}

impl Pool {
    pub(crate) fn new(dialler: Dialler) -> Self {
        Self {
            dialler,
            idle: Mutex::default(),
        }
    }

    /// A connection that nobody uses.
    pub(crate) async fn take(&self) -> Result<Client, Fault> {
        let idle = self.idle.lock().pop();
        match idle {
            Some(client) => Ok(client),
            None => self.dialler.dial().await,
        }
    }

    /// Gives one back that nobody uses any more.
    pub(crate) fn put(&self, client: Client) {
        let mut idle = self.idle.lock();
        if idle.len() < MOST_IDLE {
            idle.push(client);
        }
    }
}

/// How many connections wait for sessions. Each is a descriptor here and one in the boundary.
const MOST_IDLE: usize = 2;
