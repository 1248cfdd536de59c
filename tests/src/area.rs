//! A directory of the caller's own, with everything that one test needs on disk.

use crate::artefacts::{base, open_to_all};
use crate::caller::{Caller, callers};
use crate::{leaks, victim};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// One caller's place for one test. When it goes, nothing may have been left in the runtime directory.
#[derive(Debug)]
pub struct Area {
    caller: Caller,
    root: PathBuf,
    serial: AtomicUsize,
}

impl Area {
    /// A fresh place for this caller.
    pub fn new(caller: Caller) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let area = Self {
            caller,
            root: base().join(format!("area-{number}")),
            serial: AtomicUsize::new(0),
        };
        fs::create_dir_all(&area.root).expect("create the area");
        open_to_all(&area.root);
        area.give(&area.root);
        for part in ["work", "home", "run", "state", "log"] {
            area.directory(&area.root.join(part));
        }
        fs::set_permissions(area.runtime(), fs::Permissions::from_mode(0o700)).expect("chmod");
        area
    }

    /// Who works here.
    pub fn caller(&self) -> Caller {
        self.caller
    }

    /// The area itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The caller's working directory.
    pub fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    /// The caller's home.
    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// What `HOLDFAST_RUNTIME_DIR` names.
    pub fn runtime(&self) -> PathBuf {
        self.root.join("run")
    }

    /// What `HOLDFAST_STATE_DIR` names.
    pub fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// A path that no run used before.
    pub fn fresh(&self, name: &str) -> PathBuf {
        let number = self.serial.fetch_add(1, Ordering::Relaxed);
        self.root.join("log").join(format!("{number}-{name}"))
    }

    /// Writes a file of the caller's own.
    pub fn file(&self, path: &Path, content: impl AsRef<[u8]>) -> PathBuf {
        fs::write(path, content).expect("write the file");
        self.give(path);
        path.to_owned()
    }

    /// Writes a program of the caller's own.
    pub fn script(&self, path: &Path, content: &str) -> PathBuf {
        self.file(path, content);
        open_to_all(path);
        path.to_owned()
    }

    /// Makes a directory of the caller's own.
    pub fn directory(&self, path: &Path) -> PathBuf {
        fs::create_dir_all(path).expect("create the directory");
        open_to_all(path);
        self.give(path);
        path.to_owned()
    }

    /// Gives a file to the caller.
    pub fn give(&self, path: &Path) {
        if self.caller == Caller::Stranger {
            chown(path, Some(self.caller.uid()), Some(self.caller.uid())).expect("chown");
        }
    }
}

/// One area for each caller, one after the other.
pub fn everyone() -> impl Iterator<Item = Area> {
    callers().into_iter().map(Area::new)
}

impl Drop for Area {
    fn drop(&mut self) {
        // Keepers outlive their gateway, and would go on for ever when a test fails.
        let running: Vec<_> = victim::parts(self, "").into_values().flatten().collect();
        for process in &running {
            process.kill();
        }
        let left = leaks::files_below(&self.runtime());
        drop(fs::remove_dir_all(&self.root));
        if !std::thread::panicking() {
            assert!(running.is_empty(), "left running: {running:?}");
            assert!(left.is_empty(), "left in the runtime directory: {left:?}");
        }
    }
}
