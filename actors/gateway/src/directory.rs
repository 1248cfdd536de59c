//! Which sandboxes there are, by name and by id: written by the roster, read by everyone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_actor::Address;
use holdfast_wire::v1;
use parking_lot::RwLock;
use tokio::sync::{Mutex, watch};
use tonic::transport::Channel;

use crate::refused::Refused;
use crate::sandbox::Message;

/// Every sandbox of this gateway. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory(Arc<RwLock<Shelves>>);

#[derive(Debug, Default)]
struct Shelves {
    by_id: BTreeMap<String, Entry>,
    /// By name, the id of the sandbox that has it now.
    ids: BTreeMap<String, String>,
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
    /// Held by whoever changes its policy, until it is known whether it was refused.
    pub(crate) revising: Arc<Mutex<()>>,
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
        shelves.ids.insert(entry.name.clone(), entry.id.clone());
        shelves.by_id.insert(entry.id.clone(), entry);
    }

    /// Forgets a sandbox, and no other that has its name by now; those who watch it hear the end.
    pub(crate) fn remove(&self, id: &str) {
        let mut shelves = self.0.write();
        let entry = shelves.by_id.remove(id);
        if let Some(entry) = &entry
            && shelves.ids.get(&entry.name).is_some_and(|has| has == id)
        {
            shelves.ids.remove(&entry.name);
        }
        drop(shelves);
        if let Some(entry) = entry {
            entry.posted.send_modify(|posted| posted.gone = true);
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.read().ids.contains_key(name)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.read().by_id.len()
    }

    pub(crate) fn find(&self, name: &str) -> Result<Entry, Refused> {
        let shelves = self.0.read();
        let found = shelves.ids.get(name).and_then(|id| shelves.by_id.get(id));
        found
            .cloned()
            .ok_or_else(|| Refused::NoSuchSandbox(name.to_owned()))
    }

    /// The one of that name, if it has that id; an empty id means whichever has the name.
    pub(crate) fn pinned(&self, name: &str, id: &str) -> Result<Entry, Refused> {
        let entry = self.find(name)?;
        if id.is_empty() || entry.id == id {
            Ok(entry)
        } else {
            Err(Refused::Replaced(name.to_owned()))
        }
    }

    pub(crate) fn by_id(&self, id: &str) -> Option<Entry> {
        self.0.read().by_id.get(id).cloned()
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<Entry> {
        let shelves = self.0.read();
        let entries = shelves.ids.values().filter_map(|id| shelves.by_id.get(id));
        entries.cloned().collect()
    }
}

impl Entry {
    /// How it stands now.
    pub(crate) fn status(&self) -> Arc<v1::Status> {
        Arc::clone(&self.posted.borrow().status)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_actor::{Strategy, Supervisor, Tree};

    use super::*;
    use crate::dial;

    fn entry(id: &str, name: &str) -> Entry {
        let socket = PathBuf::from("/nowhere");
        Entry {
            id: id.to_owned(),
            name: name.to_owned(),
            address: Tree::new(Supervisor::new("tree", Strategy::OneForOne)).address("tree/one"),
            posted: Arc::new(watch::Sender::new(Posted::default())),
            control: dial::lazily(socket.clone()),
            revising: Arc::default(),
            socket,
        }
    }

    #[tokio::test]
    async fn a_late_removal_leaves_the_next_one_of_that_name() {
        let directory = Directory::default();
        let (old, new) = (entry("1", "qa"), entry("2", "qa"));
        directory.insert(old.clone());
        directory.insert(new.clone());

        directory.remove("1");

        assert_eq!(directory.find("qa").expect("there").id, "2");
        assert!(directory.pinned("qa", "2").is_ok() && directory.pinned("qa", "").is_ok());
        let another = directory.pinned("qa", "1");
        assert!(matches!(another, Err(Refused::Replaced(_))));
        assert!(old.posted.borrow().gone && !new.posted.borrow().gone);
        directory.remove("2");
        assert!(!directory.has("qa") && directory.all().is_empty());
    }
}
