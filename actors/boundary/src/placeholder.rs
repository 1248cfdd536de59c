//! An empty file in a directory of the root, for sandboxes to mount one of their own on
//! ([why so](../../../docs/decisions/0040-lend-a-place-for-a-mount.md)).
//!
//! ```text
//!  nothing ── make ──> Placeholder ── the last one lets go ──> nothing
//!                       ▲       └── others hold it ──> theirs
//!     one of ours ── share
//! ```
//!
//! Whoever uses it holds a shared lock on it, since removing what others have mounted on takes their mounts away. It is
//! known by its sticky bit, which means nothing on a file (`inode(7)`), and which it has from the moment it is there: so
//! nobody's own empty file is ever taken for one, nor one that is not locked yet for somebody's own.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, fstatat, umask};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// A file of ours that this process holds.
#[derive(Debug)]
pub(crate) struct Placeholder {
    directory: OwnedFd,
    name: OsString,
    file: File,
}

impl Placeholder {
    /// Makes one at `path`, whose directory is there and behind no link, or shares the one that is there. `None`: what is
    /// there is somebody's own, and stays as it is.
    pub(crate) fn hold(path: &Path) -> io::Result<Option<Self>> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::EINVAL.into());
        };
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
        let directory = openat2(AT_FDCWD, above, how)?;
        for _ in 0..MOST_TRIES {
            match attempt(&directory, name)? {
                Attempt::Held(file) => {
                    return Ok(Some(Self {
                        directory,
                        name: name.to_owned(),
                        file,
                    }));
                }
                Attempt::Foreign => return Ok(None),
                Attempt::Gone => sleep(PAUSE),
            }
        }
        Err(Errno::EBUSY.into())
    }

    /// Lets go of it, and removes it if nobody else holds it. What was written to or has another name meanwhile stays.
    pub(crate) fn let_go(self) {
        // The shared lock goes before the other one is asked for (`flock(2)`): of two who end at a time the later one gets it.
        if self.file.try_lock().is_err() {
            return;
        }
        let empty = self.file.metadata().is_ok_and(|found| is_one(&found));
        if empty && leads_to(&self.directory, &self.name, &self.file) {
            // One that cannot be removed is empty, and the next sandbox here tries again.
            let _ = remove(&self.directory, &self.name);
        }
    }
}

/// What came of one attempt to hold one.
enum Attempt {
    Held(File),
    /// What is there is somebody's own.
    Foreign,
    /// The last one who held it is removing it, or has just done so.
    Gone,
}

fn attempt(directory: &OwnedFd, name: &OsStr) -> io::Result<Attempt> {
    let file = match made(directory, name) {
        Err(Errno::EEXIST) => found(directory, name),
        made => made,
    };
    let file = match file {
        Ok(file) => file,
        Err(Errno::ENOENT) => return Ok(Attempt::Gone),
        // What is there is a link or a socket, or may not be read.
        Err(Errno::ELOOP | Errno::ENXIO | Errno::EACCES) if is_there(directory, name) => {
            return Ok(Attempt::Foreign);
        }
        Err(error) => return Err(error.into()),
    };
    if !is_one(&file.metadata()?) {
        return Ok(Attempt::Foreign);
    }
    match file.try_lock_shared() {
        Ok(()) if leads_to(directory, name, &file) => Ok(Attempt::Held(file)),
        Ok(()) | Err(TryLockError::WouldBlock) => Ok(Attempt::Gone),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether what was found is a placeholder, of whichever sandbox.
pub(crate) fn is_one(found: &Metadata) -> bool {
    found.is_file() && found.len() == 0 && found.mode() & libc::S_ISVTX != 0
}

/// A new one, marked from the beginning.
fn made(directory: &OwnedFd, name: &OsStr) -> nix::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    // The same for everybody: another user's sandbox has to share it.
    let callers = umask(Mode::empty());
    let file = openat(
        directory,
        name,
        flags | OFlag::O_NOFOLLOW,
        Mode::from_bits_truncate(MODE),
    );
    umask(callers);
    let file = File::from(file?);
    if file.metadata().is_ok_and(|found| is_one(&found)) {
        return Ok(file);
    }
    // A file system that does not keep the mark: nobody would ever know it for ours.
    remove(directory, name)?;
    Err(Errno::EOPNOTSUPP)
}

/// The file that is there. A pipe is not waited for.
fn found(directory: &OwnedFd, name: &OsStr) -> nix::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    openat(directory, name, flags, Mode::empty()).map(File::from)
}

fn is_there(directory: &OwnedFd, name: &OsStr) -> bool {
    fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
}

/// Whether `name` is the name of `file`.
fn leads_to(directory: &OwnedFd, name: &OsStr, file: &File) -> bool {
    let there = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW);
    let (Ok(there), Ok(held)) = (there, file.metadata()) else {
        return false;
    };
    (there.st_dev, there.st_ino) == (held.dev(), held.ino())
}

fn remove(directory: &OwnedFd, name: &OsStr) -> nix::Result<()> {
    unlinkat(directory, name, UnlinkatFlags::NoRemoveDir)
}

/// Read by everybody, and marked.
const MODE: libc::mode_t = libc::S_ISVTX | 0o644;

/// How often one that is being removed is waited for.
const MOST_TRIES: u32 = 200;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::PathBuf;

    use super::*;

    struct Place {
        _directory: tempfile::TempDir,
        path: PathBuf,
    }

    fn place() -> Place {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().canonicalize().expect("real");
        let path = path.join("resolv.conf");
        Place {
            _directory: directory,
            path,
        }
    }

    fn held(path: &Path) -> Placeholder {
        Placeholder::hold(path).expect("held").expect("ours")
    }

    #[test]
    fn the_last_one_who_lets_go_removes_it() {
        let place = place();

        let (first, second) = (held(&place.path), held(&place.path));
        let found = fs::metadata(&place.path).expect("made");
        assert_eq!((found.len(), found.mode() & 0o7777), (0, 0o1644));
        first.let_go();
        assert!(place.path.exists(), "another one holds it");
        let third = held(&place.path);
        second.let_go();
        assert!(place.path.exists(), "one that came later holds it");
        third.let_go();

        assert!(!place.path.exists());
    }

    #[test]
    fn one_that_a_killed_process_has_left_is_taken_over() {
        let place = place();
        drop(held(&place.path));
        assert!(place.path.exists());

        held(&place.path).let_go();

        assert!(!place.path.exists());
    }

    #[test]
    fn what_is_somebodys_own_is_not_held() {
        let place = place();
        let is_held = || Placeholder::hold(&place.path).expect("looked at").is_some();

        fs::write(&place.path, "").expect("written");
        assert!(!is_held(), "an empty file");
        fs::write(&place.path, "text").expect("written");
        fs::set_permissions(&place.path, fs::Permissions::from_mode(0o1644)).expect("marked");
        assert!(!is_held(), "one that says something");
        fs::remove_file(&place.path).expect("removed");
        symlink("other", &place.path).expect("linked");
        assert!(!is_held(), "a link");

        assert_eq!(
            fs::read_link(&place.path).expect("a link"),
            Path::new("other")
        );
        assert!(!place.path.with_file_name("other").exists());
    }

    #[test]
    fn what_was_written_to_or_replaced_meanwhile_stays() {
        let place = place();

        let written = held(&place.path);
        fs::write(&place.path, "text").expect("written");
        written.let_go();
        assert_eq!(fs::read_to_string(&place.path).expect("kept"), "text");
        fs::remove_file(&place.path).expect("removed");
        let replaced = held(&place.path);
        let other = place.path.with_file_name("other");
        fs::write(&other, "").expect("written");
        fs::rename(&other, &place.path).expect("replaced");
        replaced.let_go();

        assert!(place.path.exists());
    }

    #[test]
    fn one_whose_directory_was_moved_is_removed_where_it_is() {
        let place = place();
        let above = place.path.with_file_name("above");
        fs::create_dir(&above).expect("made");
        let moved = place.path.with_file_name("moved");
        let placeholder = held(&above.join("resolv.conf"));

        fs::rename(&above, &moved).expect("moved");
        symlink("/etc", &above).expect("linked");
        placeholder.let_go();

        assert!(!moved.join("resolv.conf").exists());
    }

    #[test]
    fn a_directory_behind_a_link_is_not_entered() {
        let place = place();
        let real = place.path.with_file_name("real");
        fs::create_dir(&real).expect("made");
        let link = place.path.with_file_name("link");
        symlink("real", &link).expect("linked");

        let refused = Placeholder::hold(&link.join("resolv.conf")).expect_err("refused");

        assert_eq!(refused.raw_os_error(), Some(libc::ELOOP));
        assert!(!real.join("resolv.conf").exists());
    }
}
