//! Which sandboxes there are, by name and by id: written by the roster, read by everyone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_actor::Address;
use holdfast_wire::v1;
use parking_lot::RwLock;
use tokio::sync::watch;
use tonic::transport::Channel;

use crate::refused::Refused;
use crate::sandbox::Message;

/// Every sandbox of this gateway. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory(Arc<RwLock<Shelves>>);

#[derive(Debug, Default)]
struct Shelves {
    by_name: BTreeMap<String, Entry>,
    names: BTreeMap<String, String>,
}

/// One sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) address: Address<Message>,
    pub(crate) posted: Arc<watch::Sender<Posted>>,
    /// Where its keeper serves; connections of sessions are their own.
    pub(crate) socket: PathBuf,
    /// One connection for everything else.
    pub(crate) control: Channel,
}

/// How a sandbox stands, for all to see.
#[derive(Clone, Debug, Default)]
pub(crate) struct Posted {
    pub(crate) status: Arc<v1::Status>,
    /// There will be nothing more to tell.
    pub(crate) gone: bool,
}

impl Directory {
    pub(crate) fn insert(&self, entry: Entry) {
        let mut shelves = self.0.write();
        shelves.names.insert(entry.id.clone(), entry.name.clone());
        shelves.by_name.insert(entry.name.clone(), entry);
    }

    /// Forgets a sandbox; those who watch it hear the end.
    pub(crate) fn remove(&self, id: &str) {
        let mut shelves = self.0.write();
        let entry = shelves
            .names
            .remove(id)
            .and_then(|name| shelves.by_name.remove(&name));
        drop(shelves);
        if let Some(entry) = entry {
            entry.posted.send_modify(|posted| posted.gone = true);
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.read().by_name.contains_key(name)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.read().by_name.len()
    }

    pub(crate) fn find(&self, name: &str) -> Result<Entry, Refused> {
        let shelves = self.0.read();
        let found = shelves.by_name.get(name).cloned();
        found.ok_or_else(|| Refused::NoSuchSandbox(name.to_owned()))
    }

    pub(crate) fn by_id(&self, id: &str) -> Option<Entry> {
        let shelves = self.0.read();
        let name = shelves.names.get(id)?;
        shelves.by_name.get(name).cloned()
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<Entry> {
        self.0.read().by_name.values().cloned().collect()
    }
}

impl Entry {
    /// How it stands now.
    pub(crate) fn status(&self) -> Arc<v1::Status> {
        Arc::clone(&self.posted.borrow().status)
    }
}
