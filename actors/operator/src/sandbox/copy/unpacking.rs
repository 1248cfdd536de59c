//! Unpacks what comes out of a sandbox: staged beside the destination first, moved into place when all of it has come.
//!
//! The stream is the sandbox's: nothing in it is trusted. No entry is written through a link or outside the staging
//! directory, bits that give privileges are left out, and devices, pipes and sockets are not made.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::{Reader, failed};
use crate::failure::{Failure, Kind};

/// Whether something can be put there, before anybody is asked.
pub(super) fn check(destination: &Path) -> Result<(), Failure> {
    let there = fs::metadata(beside(destination));
    let is_directory = there.and_then(|there| {
        let wrong = || io::ErrorKind::NotADirectory.into();
        there.is_dir().then_some(()).ok_or_else(wrong)
    });
    is_directory.map_err(|error| {
        let message = format!("copy to {}", destination.display());
        Failure::caused(Kind::Unreadable, message, &error)
    })
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
    let directory = beside(destination).join(format!(".holdfast-cp-{}", Uuid::now_v7()));
    DirBuilder::new()
        .mode(0o700)
        .create(&directory)
        .map_err(wrong)?;
    let staged = Staged {
        directory,
        destination: destination.to_owned(),
    };
    unpack(stream, &staged.directory).map_err(wrong)?;
    Ok(staged)
}

fn unpack(stream: impl io::Read, directory: &Path) -> io::Result<()> {
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
        } else if is_made && !entry.unpack_in(directory)? {
            let name = entry.path()?.display().to_string();
            return Err(io::Error::other(format!(
                "{name} leads out of the destination"
            )));
        }
    }
    // The deepest first, so that no closed directory stands above one that is still to be made.
    directories.sort_by_key(|entry| std::cmp::Reverse(entry.path_bytes().len()));
    for mut entry in directories {
        entry.unpack_in(directory)?;
    }
    // Blocks of zeros follow: whoever sends them must not meet a closed pipe.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map(drop)
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
            return Err(io::Error::other("nothing came"));
        };
        if self.destination.is_dir() {
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

/// Moves one over the other: directories become one, anything else is replaced. A link at the destination is replaced,
/// never followed.
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

fn names_in(directory: &Path) -> io::Result<Vec<OsString>> {
    let names: io::Result<Vec<OsString>> = fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect();
    names.map(|mut names| {
        names.sort();
        names
    })
}

/// What an error of the archive says, with its cause, which says why.
fn told(error: &io::Error) -> String {
    let text = error.to_string();
    let plain = |text: &str| {
        text.split(" (os error ")
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    match std::error::Error::source(error) {
        Some(cause) => format!("{}: {}", plain(&text), plain(&cause.to_string())),
        None => plain(&text),
    }
}

#[cfg(test)]
mod tests;
