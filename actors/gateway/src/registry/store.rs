//! The database: sandboxes and the revisions of their policies. Every write is on disk before it is acknowledged.
//!
//! ```text
//!  Open ── a write or read failed (a full disk) ──▶ closed ── the next who needs it ──▶ Open, or why not
//! ```
//!
//! The database trusts nothing after an error of its file and refuses all that follows. What is on disk is whole, so it is
//! opened anew: when there is room again, nobody has to end the gateway for it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use prost::Message as _;
use redb::{
    Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, StorageError,
    TableDefinition,
};

use super::row::{Revision, Row};

/// The database at its path.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    /// Nothing after a failure.
    database: Mutex<Option<Database>>,
}

/// Why the database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unopened {
    /// The file cannot be opened.
    #[error("open the registry {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A process that is no gateway of ours has it open.
    #[error("open the registry {}: another process has it open; end that one, or name another --state-dir", .0.display())]
    Locked(PathBuf),
    /// It is no database, or a broken one.
    #[error(
        "open the registry {}: {why}; it is damaged or none of ours: move it away (its sandboxes are lost with it) or restore a copy, then start again",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What the database says.
        why: String,
    },
    /// A newer Holdfast has written it.
    #[error(
        "open the registry {}: its schema is version {found} and this Holdfast knows version {SCHEMA}; install the Holdfast that wrote it, or name another --state-dir",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version it has.
        found: u64,
    },
}

/// A write or read that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write the registry: {0}")]
pub(crate) struct Unstored(String);

impl Store {
    /// Opens the database, or makes it.
    pub(crate) fn open(path: &Path) -> Result<Self, Unopened> {
        Ok(Self {
            path: path.to_owned(),
            database: Mutex::new(Some(open(path)?)),
        })
    }

    /// Every sandbox, in the order in which they were made.
    pub(crate) fn rows(&self) -> Result<Vec<Row>, Unstored> {
        let all = self.within(|database| {
            let table = database.begin_read()?.open_table(SANDBOXES)?;
            let mut all = Vec::new();
            for entry in table.iter()? {
                let (_, value) = entry?;
                all.push(value.value().to_vec());
            }
            Ok(all)
        })?;
        let rows = all.iter().map(|bytes| Row::decode(bytes.as_slice()));
        rows.collect::<Result<_, _>>().map_err(unstored)
    }

    /// One sandbox.
    pub(crate) fn row(&self, id: &str) -> Result<Option<Row>, Unstored> {
        let value = self.within(|database| {
            let table = database.begin_read()?.open_table(SANDBOXES)?;
            Ok(table.get(id)?.map(|value| value.value().to_vec()))
        })?;
        value
            .map(|bytes| Row::decode(bytes.as_slice()).map_err(unstored))
            .transpose()
    }

    /// Keeps a sandbox, with a revision of its policy where there is a new one.
    pub(crate) fn put(&self, row: &Row, revision: Option<&Revision>) -> Result<(), Unstored> {
        self.within(|database| {
            let write = database.begin_write()?;
            {
                let mut table = write.open_table(SANDBOXES)?;
                let bytes = row.encode_to_vec();
                table.insert(row.id.as_str(), bytes.as_slice())?;
                if let Some(revision) = revision {
                    let mut table = write.open_table(POLICIES)?;
                    let bytes = revision.encode_to_vec();
                    table.insert((row.id.as_str(), row.policy), bytes.as_slice())?;
                    let oldest = row.policy.saturating_sub(MOST_REVISIONS);
                    let older = (row.id.as_str(), 0)..=(row.id.as_str(), oldest);
                    table.retain_in(older, |_, _| false)?;
                }
            }
            Ok(write.commit()?)
        })
    }

    /// Forgets a sandbox and its policies.
    pub(crate) fn remove(&self, id: &str) -> Result<(), Unstored> {
        self.within(|database| {
            let write = database.begin_write()?;
            {
                let mut table = write.open_table(SANDBOXES)?;
                table.remove(id)?;
                let mut table = write.open_table(POLICIES)?;
                table.retain_in((id, 0)..=(id, u64::MAX), |_, _| false)?;
            }
            Ok(write.commit()?)
        })
    }

    /// Forgets one revision of a sandbox's policy.
    pub(crate) fn forget(&self, id: &str, revision: u64) -> Result<(), Unstored> {
        self.within(|database| {
            let write = database.begin_write()?;
            {
                let mut table = write.open_table(POLICIES)?;
                table.remove((id, revision))?;
            }
            Ok(write.commit()?)
        })
    }

    /// One revision of a sandbox's policy.
    pub(crate) fn revision(&self, id: &str, revision: u64) -> Result<Option<Revision>, Unstored> {
        let value = self.within(|database| {
            let table = database.begin_read()?.open_table(POLICIES)?;
            let value = table.get((id, revision))?;
            Ok(value.map(|value| value.value().to_vec()))
        })?;
        value
            .map(|bytes| Revision::decode(bytes.as_slice()).map_err(unstored))
            .transpose()
    }

    /// Does something with the open database; one that fails is closed.
    fn within<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, Unstored> {
        let mut place = self.database.lock();
        let database = match place.take() {
            Some(database) => database,
            None => open(&self.path).map_err(|error| unstored(crate::chain(&error)))?,
        };
        let done = work(&database).map_err(unstored)?;
        *place = Some(database);
        Ok(done)
    }
}

fn open(path: &Path) -> Result<Database, Unopened> {
    if fs::metadata(path).is_ok_and(|found| found.len() > 0) {
        return open_at(path, path);
    }
    // It gets its name when it is whole: one whose making was cut off, by a full disk or a kill, would be a damaged one for
    // ever.
    let making = path.with_extension("redb.new");
    let _was_not_there = fs::remove_file(&making);
    let made = open_at(&making, path).and_then(|database| {
        let named = fs::rename(&making, path).and_then(|()| sync_directory_of(path));
        named
            .map(|()| database)
            .map_err(|source| unopened(path, source))
    });
    if made.is_err() {
        let _was_not_there = fs::remove_file(&making);
    }
    made
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    path.parent()
        .map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

fn unopened(path: &Path, source: io::Error) -> Unopened {
    Unopened::File {
        path: path.to_owned(),
        source,
    }
}

/// Opens the database in the file `at`, or makes it there; `path` is what it is called.
fn open_at(at: &Path, path: &Path) -> Result<Database, Unopened> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(at);
    // Made here for its mode; the database opens it by itself.
    file.map_err(|source| unopened(path, source))?;
    let damaged = |why: String| Unopened::Damaged {
        path: path.to_owned(),
        why,
    };
    // A full disk is no damage. What the database says of its pages bears no number of the kernel's.
    let unread = |source: io::Error| match source.raw_os_error() {
        Some(_) => unopened(path, source),
        None => damaged(source.to_string()),
    };
    // Pages that are no pages are found by a panic, too.
    let opened = std::panic::catch_unwind(|| Database::create(at));
    let database = match opened {
        Ok(Ok(database)) => database,
        Ok(Err(DatabaseError::DatabaseAlreadyOpen)) => {
            return Err(Unopened::Locked(path.to_owned()));
        }
        Ok(Err(DatabaseError::Storage(StorageError::Io(source)))) => return Err(unread(source)),
        Ok(Err(error)) => return Err(damaged(error.to_string())),
        Err(_) => return Err(damaged("its pages make no sense".to_owned())),
    };
    let found = schema(&database).map_err(|error| {
        if let redb::Error::Io(source) = error {
            return unread(source);
        }
        damaged(error.to_string())
    })?;
    if found > SCHEMA {
        return Err(Unopened::Newer {
            path: path.to_owned(),
            found,
        });
    }
    Ok(database)
}

/// The version of the schema; a fresh database gets ours, and all tables.
fn schema(database: &Database) -> Result<u64, redb::Error> {
    let write = database.begin_write()?;
    let found = {
        let mut meta = write.open_table(META)?;
        let found = meta.get("schema")?.map(|version| version.value());
        if let Some(version) = found {
            version
        } else {
            meta.insert("schema", SCHEMA)?;
            SCHEMA
        }
    };
    if found > SCHEMA {
        write.abort()?;
        return Ok(found);
    }
    write.open_table(SANDBOXES)?;
    write.open_table(POLICIES)?;
    write.commit()?;
    Ok(found)
}

fn unstored(error: impl std::fmt::Display) -> Unstored {
    Unstored(error.to_string())
}

/// The version of the tables below.
const SCHEMA: u64 = 1;

/// More revisions of one policy are not kept.
pub(crate) const MOST_REVISIONS: u64 = 64;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const SANDBOXES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("sandboxes");
const POLICIES: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("policies");

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use redb::StorageBackend;
    use redb::backends::InMemoryBackend;

    use super::*;

    fn row(id: &str) -> Row {
        Row {
            id: id.to_owned(),
            policy: 1,
            ..Row::default()
        }
    }

    #[test]
    fn what_was_put_is_there_after_a_reopening_and_gone_after_its_removal() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("registry.redb");
        let revision = Revision {
            yaml: "version: 1\n".to_owned(),
            name: "p.yaml".to_owned(),
        };
        let store = Store::open(&path).expect("made");
        store.put(&row("a"), Some(&revision)).expect("put");
        store.put(&row("b"), None).expect("put");
        drop(store);

        let store = Store::open(&path).expect("opened");
        assert_eq!(store.rows(), Ok(vec![row("a"), row("b")]));
        assert_eq!(store.revision("a", 1), Ok(Some(revision)));
        store.remove("a").expect("removed");

        assert_eq!(store.rows(), Ok(vec![row("b")]));
        assert_eq!(store.row("a"), Ok(None));
        assert_eq!(store.revision("a", 1), Ok(None));
    }

    /// A disk in memory that runs full when it is told to.
    #[derive(Debug, Default)]
    struct Disk(InMemoryBackend, Arc<AtomicBool>);

    impl Disk {
        fn room(&self) -> io::Result<()> {
            if self.1.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(())
        }
    }

    impl StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.0.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.room()?;
            self.0.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.room()?;
            self.0.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.room()?;
            self.0.write(offset, data)
        }
    }

    /// The database refuses everything after an error of its file: it has to be another one.
    #[test]
    fn after_a_full_disk_it_is_opened_anew() {
        let base = tempfile::tempdir().expect("a directory");
        let store = Store::open(&base.path().join("registry.redb")).expect("made");
        store.put(&row("a"), None).expect("put");
        let disk = Disk::default();
        let full = Arc::clone(&disk.1);
        let database = Database::builder().create_with_backend(disk);
        let database = database.expect("made");
        schema(&database).expect("ours");
        *store.database.lock() = Some(database);
        full.store(true, Ordering::Relaxed);

        let refused = store.put(&row("b"), None).expect_err("the disk is full");

        assert!(!refused.to_string().is_empty());
        assert_eq!(store.rows(), Ok(vec![row("a")]));
        store.put(&row("b"), None).expect("put");
        assert_eq!(store.rows(), Ok(vec![row("a"), row("b")]));
    }

    /// One that was killed while it made its registry leaves half of one.
    #[test]
    fn what_was_never_made_to_the_end_is_made_anew() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("registry.redb");
        fs::write(&path, "").expect("written");
        fs::write(path.with_extension("redb.new"), [0; 8192]).expect("written");

        let store = Store::open(&path).expect("made");
        store.put(&row("a"), None).expect("put");
        drop(store);

        let store = Store::open(&path).expect("opened");
        assert_eq!(store.rows(), Ok(vec![row("a")]));
        assert_eq!(fs::read_dir(base.path()).expect("read").count(), 1);
    }

    #[test]
    fn the_oldest_revisions_make_room() {
        let base = tempfile::tempdir().expect("a directory");
        let store = Store::open(&base.path().join("registry.redb")).expect("made");
        for number in 1..=MOST_REVISIONS + 2 {
            let row = Row {
                policy: number,
                ..row("a")
            };
            store.put(&row, Some(&Revision::default())).expect("put");
        }

        assert_eq!(store.revision("a", 2), Ok(None));
        assert!(store.revision("a", 3).expect("read").is_some());

        store.forget("a", 3).expect("forgotten");
        assert_eq!(store.revision("a", 3), Ok(None));
        assert!(store.revision("a", 4).expect("read").is_some());
    }

    #[test]
    fn a_newer_schema_is_refused_with_both_versions() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("registry.redb");
        let database = Database::create(&path).expect("made");
        let write = database.begin_write().expect("begins");
        write
            .open_table(META)
            .expect("made")
            .insert("schema", 7)
            .expect("put");
        write.commit().expect("written");
        drop(database);

        let refused = Store::open(&path).expect_err("newer").to_string();

        assert!(
            refused.contains("version 7") && refused.contains("version 1"),
            "{refused}"
        );
        assert!(refused.contains("install the Holdfast that wrote it"));
    }

    #[test]
    fn a_file_that_is_no_database_is_named() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("registry.redb");
        fs::write(&path, vec![b'x'; 8192]).expect("written");

        let refused = Store::open(&path).expect_err("none of ours");

        assert!(matches!(refused, Unopened::Damaged { .. }), "{refused}");
        assert!(refused.to_string().contains("registry.redb"));
    }
}
