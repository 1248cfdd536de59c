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
    shelf: Mutex<Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    idle: Vec<Client>,
    /// How many were given back so far.
    given: u64,
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
            shelf: Mutex::default(),
        }
    }

    /// Whether there are descriptors for one more.
    pub(crate) fn has_room(&self) -> Result<(), Exhausted> {
        admit(&self.ledger, Class::Session, FOR_A_SESSION).map(drop)
    }

    /// A connection that nobody uses.
    pub(crate) async fn take(&self) -> Result<Client, Untaken> {
        let idle = self.shelf.lock().idle.pop();
        if let Some(client) = idle {
            return Ok(client);
        }
        let _promise =
            admit(&self.ledger, Class::Session, FOR_A_SESSION).map_err(Untaken::Exhausted)?;
        self.dialler.dial().await.map_err(Untaken::Failed)
    }

    /// Gives one back that nobody uses any more.
    pub(crate) fn put(&self, client: Client) {
        let mut kept = self.shelf.lock();
        kept.given += 1;
        // Every so often one is not kept, so that none serves for ever.
        if kept.idle.len() < MOST_IDLE && !kept.given.is_multiple_of(WORN) {
            kept.idle.push(client);
        }
    }
}

/// How many connections wait for sessions. Each is a descriptor here and one in the boundary, for ever.
const MOST_IDLE: usize = 1;

/// How many sessions a connection carries one after the other, at most. HTTP/2 counts streams that were cut short over the
/// life of a connection, and ends it, with whatever it carries just then, when they have become too many.
const WORN: u64 = 128;
