//! A file that has no name until it is whole.
//!
//! ```text
//! Fresh ──all bytes, mode, time──> linked at its name
//!   │                                └── something is there ──> linked beside it, renamed over it
//!   └── dropped, or its process killed ──> the kernel lets go of it
//! ```
//!
//! A session is killed with a signal that nobody can catch, so nothing here may depend on being told. Where the file system
//! has no files without names (`O_TMPFILE`), it has one beside its destination, which a failure removes and a kill does not.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::linkat;

use super::super::PIECE;

/// What becomes the file `target`.
#[derive(Debug)]
pub(super) struct Fresh {
    file: File,
    target: PathBuf,
    /// The name that it has meanwhile, where it must have one.
    beside: Option<Beside>,
}

impl Fresh {
    /// An empty one that only its owner may read.
    pub(super) fn new(target: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600);
        let nameless = options
            .clone()
            .custom_flags(libc::O_TMPFILE)
            .open(target.parent().unwrap_or(Path::new("/")));
        let (file, beside) = match nameless {
            Ok(file) => (file, None),
            Err(error) if has_no_nameless(&error) => {
                options.create_new(true);
                let (beside, file) = Beside::make(target, |path| options.open(path))?;
                (file, Some(beside))
            }
            Err(error) => return Err(error),
        };
        let target = target.to_owned();
        Ok(Self {
            file,
            target,
            beside,
        })
    }

    /// Takes `size` bytes. Zeros stay holes.
    pub(super) fn fill(&mut self, mut from: impl Read, size: u64) -> io::Result<()> {
        let broken = || io::Error::other("the tar stream was cut off in the middle of it");
        let mut piece = vec![0; PIECE];
        let mut taken = 0;
        loop {
            let count = match from.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Err(broken()),
            };
            let part = &piece[..count];
            taken += count as u64;
            if part.iter().all(|byte| *byte == 0) {
                self.file.seek(SeekFrom::Start(taken))?;
            } else {
                self.file.write_all(part)?;
            }
        }
        if taken != size {
            return Err(broken());
        }
        self.file.set_len(size)
    }

    /// What is to be so before anybody can open it.
    pub(super) fn dress(&self, mode: u32, modified: SystemTime) -> io::Result<()> {
        self.file.set_permissions(Permissions::from_mode(mode))?;
        self.file.set_modified(modified)
    }

    /// Gives it its name, which may be another file's.
    pub(super) fn appear(self) -> io::Result<()> {
        match &self.beside {
            Some(beside) => beside.replace(&self.target),
            None => named(&self.target, |path| {
                let nameless = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                let follow = AtFlags::AT_SYMLINK_FOLLOW;
                Ok(linkat(AT_FDCWD, &*nameless, AT_FDCWD, path, follow)?)
            }),
        }
    }

    /// The name that it is to have.
    pub(super) fn target(&self) -> &Path {
        &self.target
    }
}

/// Makes a name for something. Where there is one already it is made beside it and renamed over it, so that there is no
/// moment without either.
pub(super) fn named(
    target: &Path,
    mut make: impl FnMut(&Path) -> io::Result<()>,
) -> io::Result<()> {
    match make(target) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let (beside, ()) = Beside::make(target, make)?;
            beside.replace(target)
        }
        done => done,
    }
}

/// A name beside another. Dropped, it is removed.
#[derive(Debug)]
struct Beside(PathBuf);

impl Beside {
    /// Makes something under a name that nobody has.
    fn make<T>(
        target: &Path,
        mut make: impl FnMut(&Path) -> io::Result<T>,
    ) -> io::Result<(Self, T)> {
        for number in 0..MOST_TAKEN {
            let name = format!(".holdfast-cp-{}-{number}", std::process::id());
            let path = target.with_file_name(name);
            match make(&path) {
                Ok(thing) => return Ok((Self(path), thing)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EEXIST.into())
    }

    fn replace(&self, target: &Path) -> io::Result<()> {
        fs::rename(&self.0, target)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Also after a rename: one over another name of the same file does nothing.
        let _renamed = fs::remove_file(&self.0);
    }
}

/// What `open` answers where there is no `O_TMPFILE`, see open(2).
fn has_no_nameless(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    code == Some(libc::EOPNOTSUPP) || code == Some(libc::EISDIR)
}

/// How many names beside a file may be taken already; those of this process are its own.
const MOST_TAKEN: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("read");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("read").file_name();
        let mut names: Vec<_> = entries
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_has_its_name_when_it_is_whole_and_none_before() {
        let directory = tempfile::tempdir().expect("a directory");
        let target = directory.path().join("file");
        fs::write(&target, "old").expect("written");

        let mut fresh = Fresh::new(&target).expect("made");
        fresh.fill(&b"new"[..], 3).expect("filled");
        assert_eq!(fs::read_to_string(&target).expect("read"), "old");
        fresh.appear().expect("named");

        assert_eq!(fs::read_to_string(&target).expect("read"), "new");
        assert_eq!(names(directory.path()), ["file"]);
    }

    #[test]
    fn a_name_beside_is_removed_unless_it_is_renamed() {
        let directory = tempfile::tempdir().expect("a directory");
        let target = directory.path().join("file");
        fs::write(&target, "old").expect("written");
        let write = |path: &Path| fs::write(path, "new");

        drop(Beside::make(&target, write).expect("made"));
        assert_eq!(names(directory.path()), ["file"]);
        let (beside, ()) = Beside::make(&target, write).expect("made");
        beside.replace(&target).expect("renamed");
        drop(beside);

        assert_eq!(fs::read_to_string(&target).expect("read"), "new");
        assert_eq!(names(directory.path()), ["file"]);
    }

    #[test]
    fn zeros_stay_holes_and_count() {
        let directory = tempfile::tempdir().expect("a directory");
        let target = directory.path().join("file");
        let mut content = vec![0; 3 * PIECE];
        content[PIECE] = 1;

        let mut fresh = Fresh::new(&target).expect("made");
        fresh
            .fill(&content[..], content.len() as u64)
            .expect("filled");
        fresh.appear().expect("named");

        assert_eq!(fs::read(&target).expect("read"), content);
    }
}
