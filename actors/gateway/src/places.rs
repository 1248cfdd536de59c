//! Where the gateway keeps what: the state directory outlives the host's sessions, the runtime directory holds sockets.
//!
//! ```text
//! STATE/    gateway.lock  registry.redb  sandboxes/ID/{keeper,boundary,workload}.log  audit.jsonl
//! RUNTIME/  gateway.sock  gateway.pid    sandboxes/ID/{spec,keeper.sock,boundary.sock,keeper.pid,boundary.pid}
//! ```
//!
//! Both belong to the user the gateway runs as, and nobody else may write to them; what is made here is open to its owner alone.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use holdfast_wire::shared::BOUNDARY_SOCKET;
use nix::unistd::geteuid;

/// The two directories of one gateway.
#[derive(Clone, Debug)]
pub struct Places {
    /// What outlives the gateway and the host's uptime.
    pub state: PathBuf,
    /// Sockets and pid files.
    pub runtime: PathBuf,
}

/// A directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Misplaced {
    /// It cannot be made or looked at.
    #[error("make the directory {}", path.display())]
    Unmade {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is somebody else's.
    #[error("use {}: it belongs to uid {owner}; name a directory of your own with HOLDFAST_STATE_DIR or HOLDFAST_RUNTIME_DIR", path.display())]
    Foreign {
        /// Which.
        path: PathBuf,
        /// Whose.
        owner: u32,
    },
    /// Others may write to it.
    #[error("use {path}: others may write to it; `chmod go-w {path}`, or name another with HOLDFAST_STATE_DIR or HOLDFAST_RUNTIME_DIR", path = .0.display())]
    Open(PathBuf),
    /// It is no directory.
    #[error("use {}: it is no directory", .0.display())]
    Other(PathBuf),
    /// The sockets in it would have names that are too long.
    #[error("use {}: a socket below it would have a path of {length} bytes, and {MOST_BYTES} is the most; name a shorter one with HOLDFAST_RUNTIME_DIR or --runtime-dir", path.display())]
    TooLong {
        /// Which.
        path: PathBuf,
        /// How long the longest socket's path would be.
        length: usize,
    },
}

impl Places {
    /// Makes what is missing, and refuses what is not ours.
    pub fn prepare(&self) -> Result<(), Misplaced> {
        let longest = self.sandbox_runtime(LONGEST_ID).join(BOUNDARY_SOCKET);
        let length = longest.as_os_str().len();
        if length > MOST_BYTES {
            return Err(Misplaced::TooLong {
                path: self.runtime.clone(),
                length,
            });
        }
        for path in [&self.state, &self.runtime] {
            own(path)?;
            own(&path.join(SANDBOXES))?;
        }
        Ok(())
    }

    /// The gateway's own socket.
    pub fn socket(&self) -> PathBuf {
        self.runtime.join("gateway.sock")
    }

    /// Beside the socket: who serves it. Locked for as long as it does.
    pub(crate) fn pid_file(&self) -> PathBuf {
        self.runtime.join("gateway.pid")
    }

    /// Locked by the gateway whose state this is.
    pub(crate) fn lock(&self) -> PathBuf {
        self.state.join("gateway.lock")
    }

    pub(crate) fn registry(&self) -> PathBuf {
        self.state.join("registry.redb")
    }

    /// The logs of one sandbox.
    pub fn sandbox_state(&self, id: &str) -> PathBuf {
        self.state.join(SANDBOXES).join(id)
    }

    /// The sockets of one sandbox.
    pub fn sandbox_runtime(&self, id: &str) -> PathBuf {
        self.runtime.join(SANDBOXES).join(id)
    }

    /// The directories of sandboxes that are there, in both places, by id.
    pub(crate) fn sandboxes(&self) -> Vec<(String, PathBuf)> {
        let places = [&self.state, &self.runtime];
        let entries = places
            .into_iter()
            .filter_map(|place| fs::read_dir(place.join(SANDBOXES)).ok())
            .flatten()
            .flatten();
        let named =
            |entry: fs::DirEntry| Some((entry.file_name().into_string().ok()?, entry.path()));
        entries.filter_map(named).collect()
    }
}

/// Makes a directory that only its owner may enter, or checks that one is ours.
pub(crate) fn own(path: &Path) -> Result<(), Misplaced> {
    let unmade = |source| Misplaced::Unmade {
        path: path.to_owned(),
        source,
    };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(unmade)?;
    let found = fs::metadata(path).map_err(unmade)?;
    if !found.is_dir() {
        return Err(Misplaced::Other(path.to_owned()));
    }
    if found.uid() != geteuid().as_raw() {
        return Err(Misplaced::Foreign {
            path: path.to_owned(),
            owner: found.uid(),
        });
    }
    if found.mode() & 0o022 != 0 {
        return Err(Misplaced::Open(path.to_owned()));
    }
    Ok(())
}

const SANDBOXES: &str = "sandboxes";

/// As long as every id is.
const LONGEST_ID: &str = "01JZZZZZZZZZZZZZZZZZZZZZZZ";

/// The most bytes in the path of a Unix socket (`unix(7)`: 108 with the zero at its end).
const MOST_BYTES: usize = 107;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn places(base: &Path) -> Places {
        Places {
            state: base.join("state"),
            runtime: base.join("run"),
        }
    }

    #[test]
    fn what_is_made_is_its_owners_alone() {
        let base = tempfile::tempdir().expect("a directory");
        let places = places(base.path());

        places.prepare().expect("made");

        for path in [&places.state, &places.runtime] {
            let mode = fs::metadata(path).expect("there").mode();
            assert_eq!(mode & 0o777, 0o700);
        }
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let base = tempfile::tempdir().expect("a directory");
        let places = places(base.path());
        fs::create_dir(&places.state).expect("made");
        fs::set_permissions(&places.state, fs::Permissions::from_mode(0o777)).expect("opened");

        let refused = places.prepare().expect_err("open to all");

        assert!(matches!(refused, Misplaced::Open(_)), "{refused}");
        assert!(refused.to_string().contains("chmod go-w"));
    }

    #[test]
    fn a_directory_whose_sockets_had_too_long_a_name_is_refused() {
        let base = tempfile::tempdir().expect("a directory");
        let places = Places {
            state: base.path().join("state"),
            runtime: base.path().join("r".repeat(80)),
        };

        let refused = places.prepare().expect_err("too long");

        assert!(refused.to_string().contains("107 is the most"), "{refused}");
    }
}
