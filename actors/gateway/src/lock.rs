//! One gateway for one directory: a locked file that holds its pid.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_kernel::look::is_alive;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Held for as long as the gateway runs. The kernel lets go of it when the process ends, however it does.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    _held: Flock<File>,
}

/// A lock that is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum Untaken {
    /// Another gateway has it.
    #[error("use {}: the gateway with pid {pid} uses it; stop that one (`kill {pid}`) or name another directory", directory.display())]
    Held {
        /// The directory that is in use.
        directory: PathBuf,
        /// Who uses it.
        pid: String,
    },
    /// The file cannot be locked at all.
    #[error("lock {}", path.display())]
    Unlockable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Lock {
    /// Locks the file and writes this process's pid into it.
    pub(crate) fn take(path: &Path) -> Result<Self, Untaken> {
        let unlockable = |source| Untaken::Unlockable {
            path: path.to_owned(),
            source,
        };
        let mut tries = 0;
        loop {
            let mut file = open(path).map_err(unlockable)?;
            let mut held = match Flock::lock(
                file.try_clone().map_err(unlockable)?,
                FlockArg::LockExclusiveNonblock,
            ) {
                Ok(held) => held,
                Err((_, Errno::EWOULDBLOCK)) => {
                    let mut pid = String::new();
                    let _unreadable = file.read_to_string(&mut pid);
                    // A keeper that was being started when its gateway was killed holds the lock until it executes.
                    if tries < MOST_TRIES && !pid.trim().parse().is_ok_and(is_alive) {
                        tries += 1;
                        std::thread::sleep(AGAIN);
                        continue;
                    }
                    return Err(Untaken::Held {
                        directory: path.parent().unwrap_or(path).to_owned(),
                        pid: pid.trim().to_owned(),
                    });
                }
                Err((_, errno)) => return Err(unlockable(errno.into())),
            };
            // Its last holder may have removed the file between our opening and our locking it.
            let same = fs::metadata(path)
                .and_then(|there| Ok(there.ino() == held.metadata()?.ino()))
                .unwrap_or(false);
            if !same {
                continue;
            }
            held.set_len(0).map_err(unlockable)?;
            writeln!(held, "{}", std::process::id()).map_err(unlockable)?;
            return Ok(Self {
                path: path.to_owned(),
                _held: held,
            });
        }
    }

    /// Removes the file, then lets go of it.
    pub(crate) fn remove(self) {
        // One that is gone already is what we want.
        let _ = fs::remove_file(&self.path);
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// How long the lock of a dead gateway may be held by what it was starting.
const MOST_TRIES: u32 = 100;
const AGAIN: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_hears_the_pid_of_the_first() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("gateway.lock");
        let first = Lock::take(&path).expect("free");

        let refused = Lock::take(&path).expect_err("held");

        let pid = std::process::id().to_string();
        assert!(refused.to_string().contains(&pid), "{refused}");
        first.remove();
        assert!(!path.exists());
        Lock::take(&path).expect("free again");
    }
}
