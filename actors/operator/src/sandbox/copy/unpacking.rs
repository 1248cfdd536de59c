//! Unpacks what comes out of a sandbox: staged beside the destination first, moved into place when all of it has come.
//!
//! The stream is the sandbox's: nothing in it is trusted. No entry is written through a link or outside the staging
//! directory, bits that give privileges are left out, and devices, pipes and sockets are not made.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _};
use std::path::{Path, PathBuf};

use holdfast_wire::words::unnumbered;
use uuid::Uuid;

use super::{Reader, failed};
use crate::failure::{Failure, Kind};

/// Whether something can be put there, before anybody is asked.
pub(super) fn check(destination: &Path) -> Result<(), Failure> {
    let destination = place(destination)?;
    let there = fs::metadata(beside(&destination));
    let is_directory = there.and_then(|there| {
        let wrong = || io::ErrorKind::NotADirectory.into();
        there.is_dir().then_some(()).ok_or_else(wrong)
    });
    is_directory.map_err(|error| {
        let message = format!("copy to {}", destination.display());
        Failure::caused(Kind::Unreadable, message, &error)
    })
}

/// Where it will be: the destination, or what a link there leads to. Only a file, a directory or nothing may be there.
fn place(destination: &Path) -> Result<PathBuf, Failure> {
    let wrong = |why: &str| {
        let message = format!("copy to {}: {why}", destination.display());
        Failure::new(Kind::Unreadable, message).hint(
            "name a file, a directory or a new name; `-` writes the copy to stdout as a tar stream",
        )
    };
    let told = |error: &io::Error| wrong(&told(error));
    let there = match fs::symlink_metadata(destination) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(destination.to_owned()),
        Err(error) => return Err(told(&error)),
    };
    let (place, there) = if there.is_symlink() {
        let place = fs::canonicalize(destination).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                wrong("it is a link that leads nowhere")
            } else {
                told(&error)
            }
        })?;
        let there = fs::metadata(&place).map_err(|error| told(&error))?;
        (place, there)
    } else {
        (destination.to_owned(), there)
    };
    match special(there.file_type()) {
        Some(what) => Err(wrong(&format!("it is {what}, which is never replaced"))),
        None => Ok(place),
    }
}

/// What is neither a file nor a directory nor a link, by its name.
pub(super) fn special(kind: fs::FileType) -> Option<&'static str> {
    if kind.is_file() || kind.is_dir() || kind.is_symlink() {
        None
    } else if kind.is_fifo() {
        Some("a pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else {
        Some("a device")
    }
}

/// Where it is staged: in the destination when that is a directory, else in the directory where it will be.
fn beside(destination: &Path) -> PathBuf {
    if destination.is_dir() {
        return destination.to_owned();
    }
    match destination.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) | None => ".".into(),
    }
}

/// What has come, complete but not in place yet. Dropped, it is removed.
#[derive(Debug)]
pub(super) struct Staged {
    directory: PathBuf,
    destination: PathBuf,
}

/// Unpacks the whole stream beside the destination.
pub(super) fn stage(stream: Reader, destination: &Path) -> Result<Staged, Failure> {
    let wrong =
        |error: io::Error| failed(&format!("copy to {}", destination.display()), &told(&error));
    let destination = place(destination)?;
    let directory = beside(&destination).join(format!(".holdfast-cp-{}", Uuid::now_v7()));
    DirBuilder::new()
        .mode(0o700)
        .create(&directory)
        .map_err(wrong)?;
    let staged = Staged {
        directory,
        destination: destination.clone(),
    };
    unpack(stream, &staged.directory).map_err(|broken| {
        let place = broken.entry.map(|name| place_of(&name, &destination));
        let place = place.as_deref().unwrap_or(&destination);
        failed(
            &format!("copy to {}", place.display()),
            &told(&broken.error),
        )
    })?;
    Ok(staged)
}

/// Where an entry would have been in the end.
fn place_of(name: &Path, destination: &Path) -> PathBuf {
    if destination.is_dir() {
        return destination.join(name);
    }
    // What came is renamed: its first part is the destination.
    let mut parts = name.components();
    parts.next();
    let below = parts.as_path();
    if below.as_os_str().is_empty() {
        destination.to_owned()
    } else {
        destination.join(below)
    }
}

/// What could not be unpacked, and the entry that it was about.
#[derive(Debug)]
struct Broken {
    entry: Option<PathBuf>,
    error: io::Error,
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self { entry: None, error }
    }
}

impl Broken {
    fn at(entry: PathBuf) -> impl FnOnce(io::Error) -> Self {
        move |error| Self {
            entry: Some(entry),
            error,
        }
    }
}

fn unpack(stream: impl io::Read, directory: &Path) -> Result<(), Broken> {
    let mut archive = tar::Archive::new(stream);
    // Directories last: one that is not to be written to could not be filled.
    let mut directories = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        let is_made =
            kind.is_file() || kind.is_symlink() || kind.is_hard_link() || kind.is_gnu_sparse();
        if kind.is_dir() {
            directories.push(entry);
            continue;
        }
        let path = entry.path()?.into_owned();
        let name = path.display().to_string();
        if kind.is_fifo() || kind.is_character_special() || kind.is_block_special() {
            let why = format!(
                "{name} is a pipe or a device in the sandbox, which is not copied; remove it, or copy what stands beside it"
            );
            return Err(io::Error::other(why).into());
        }
        if is_made && !entry.unpack_in(directory).map_err(Broken::at(path))? {
            let why = format!("{name} leads out of the destination");
            return Err(io::Error::other(why).into());
        }
    }
    // The deepest first, so that no closed directory stands above one that is still to be made.
    directories.sort_by_key(|entry| std::cmp::Reverse(entry.path_bytes().len()));
    for mut entry in directories {
        let path = entry.path()?.into_owned();
        entry.unpack_in(directory).map_err(Broken::at(path))?;
    }
    // Blocks of zeros follow: whoever sends them must not meet a closed pipe.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(())
}

impl Staged {
    /// Moves it into place.
    pub(super) fn commit(self) -> Result<(), Failure> {
        let destination = self.destination.clone();
        self.moved()
            .map_err(|error| failed(&format!("copy to {}", destination.display()), &told(&error)))
    }

    fn moved(&self) -> io::Result<()> {
        let names = names_in(&self.directory)?;
        let Some(first) = names.first() else {
            return Err(io::Error::other("the sandbox sent no file"));
        };
        if self.destination.is_dir() {
            for name in &names {
                fits(&self.directory.join(name), &self.destination.join(name))?;
            }
            for name in &names {
                merge(&self.directory.join(name), &self.destination.join(name))?;
            }
            return Ok(());
        }
        let came = self.directory.join(first);
        let to_directory = self.destination.as_os_str().as_bytes().ends_with(b"/");
        if to_directory && !came.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        if names.len() == 1 {
            fits(&came, &self.destination)?;
            return merge(&came, &self.destination);
        }
        // The content of a directory, for a directory that is not there yet.
        fs::create_dir(&self.destination)?;
        for name in &names {
            fs::rename(self.directory.join(name), self.destination.join(name))?;
        }
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let _nothing_left = fs::remove_dir_all(&self.directory);
    }
}

/// Whether one can be moved over the other, looked at as a whole before anything is moved: no device, pipe or socket is
/// replaced, and no directory gives way to a file or a file to a directory.
fn fits(from: &Path, to: &Path) -> io::Result<()> {
    let there = match fs::symlink_metadata(to) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let wrong = |why: &str| Err(io::Error::other(format!("{} {why}", to.display())));
    if let Some(what) = special(there.file_type()) {
        return wrong(&format!("is {what}, which is never replaced"));
    }
    match (fs::symlink_metadata(from)?.is_dir(), there.is_dir()) {
        (true, true) => names_in(from)?
            .iter()
            .try_for_each(|name| fits(&from.join(name), &to.join(name))),
        (true, false) => wrong("is no directory"),
        (false, true) => wrong("is a directory"),
        (false, false) => Ok(()),
    }
}

/// Moves one over the other: directories become one, a file or a link is replaced. A link below the destination is
/// never followed: its name is the sandbox's word.
fn merge(from: &Path, to: &Path) -> io::Result<()> {
    let is_directory = |path: &Path| fs::symlink_metadata(path).is_ok_and(|there| there.is_dir());
    if is_directory(from) && is_directory(to) {
        for name in names_in(from)? {
            merge(&from.join(&name), &to.join(&name))?;
        }
        return Ok(());
    }
    fs::rename(from, to)
}

pub(super) fn names_in(directory: &Path) -> io::Result<Vec<OsString>> {
    let names: io::Result<Vec<OsString>> = fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect();
    names.map(|mut names| {
        names.sort();
        names
    })
}

/// What an error says at its root: the archive puts words of its own around it, with names that nobody chose.
pub(super) fn told(error: &io::Error) -> String {
    let mut root: &dyn std::error::Error = error;
    while let Some(cause) = root.source() {
        root = cause;
    }
    unnumbered(&root.to_string())
}

#[cfg(test)]
mod tests;
