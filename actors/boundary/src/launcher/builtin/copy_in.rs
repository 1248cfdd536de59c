//! Unpacks a tar stream at a path.
//!
//! Into a directory everything lands under the names of the stream; anything else is the new name of the stream's first
//! part. No name leads out of that place, and no entry is written through a link of the same stream: the sandbox's view
//! would let it go no farther than the sandbox, but a copy says where it goes.
//!
//! A file has its name when all of it has come, and replaces in one step what had that name. The last one waits for the end
//! of the whole stream. A tree at a new name is removed when its stream fails.

mod fresh;

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use tar::{Archive, Entry, EntryType};

use super::{Failed, PIECE};
use fresh::{Fresh, named};

/// Unpacks `input` at `path`.
pub(super) fn run(path: &Path, input: impl Read) -> Result<(), Failed> {
    let place = Place::find(path)?;
    let new = place.new_name();
    let done = unpack(place, path, input);
    if done.is_err()
        && let Some(new) = new
    {
        let _not_made = fs::remove_dir_all(new);
    }
    done
}

fn unpack(mut place: Place, path: &Path, input: impl Read) -> Result<(), Failed> {
    let mut input = Stream {
        bytes: BufReader::with_capacity(PIECE, input),
        has_ended: false,
    };
    if input.bytes.fill_buf().map_err(unreadable)?.is_empty() {
        return Err(broken("it is empty".to_owned()));
    }
    let mut archive = Archive::new(input);
    let mut directories = Vec::new();
    let mut waiting: Option<Fresh> = None;
    let mut is_first = true;
    for entry in archive.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        let name = entry.path().map_err(unreadable)?.into_owned();
        let kind = entry.header().entry_type();
        if kind.is_pax_global_extensions() {
            continue;
        }
        if std::mem::take(&mut is_first)
            && let Some(made) = place.begin(path, &entry, &name)?
        {
            directories.push(made);
            continue;
        }
        if kind.is_fifo() {
            return Err(Failed::special(&name, "a pipe"));
        }
        if kind.is_character_special() || kind.is_block_special() {
            return Err(Failed::special(&name, "a device"));
        }
        let target = place.target(&name)?;
        appear(waiting.take())?;
        place.reach(&target)?;
        waiting =
            put(&place, &mut entry, &target, &mut directories).map_err(Failed::at(&target))?;
    }
    let mut rest = archive.into_inner();
    if rest.has_ended {
        return Err(broken("it was cut off: its end is missing".to_owned()));
    }
    // What stands behind the end of the archive is taken off its writer's hands. A writer that failed leaves it open.
    io::copy(&mut rest, &mut io::sink()).map_err(unreadable)?;
    appear(waiting)?;
    // Last, and the innermost first: a directory may forbid what was written into it, and writing changed its time.
    for (directory, mode, modified) in directories.into_iter().rev() {
        finish(&directory, mode, modified).map_err(Failed::at(&directory))?;
    }
    Ok(())
}

fn broken(why: String) -> Failed {
    Failed {
        object: "read the tar stream".to_owned(),
        source: io::Error::other(why),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
fn unreadable(source: io::Error) -> Failed {
    broken(format!("it is none, or was cut off ({source})"))
}

fn appear(waiting: Option<Fresh>) -> Result<(), Failed> {
    let Some(fresh) = waiting else {
        return Ok(());
    };
    let target = fresh.target().to_owned();
    fresh.appear().map_err(Failed::at(&target))
}

/// A stream that knows whether somebody has read up to its end.
struct Stream<R> {
    bytes: BufReader<R>,
    has_ended: bool,
}

impl<R: Read> Read for Stream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read(buffer)?;
        self.has_ended |= count == 0 && !buffer.is_empty();
        Ok(count)
    }
}

/// Where a stream goes.
#[derive(Debug)]
struct Place {
    /// A directory that is there.
    base: PathBuf,
    /// What the first part of every name becomes.
    renamed: Option<PathBuf>,
    /// That first part, of which there can be one only.
    first: Option<OsString>,
    /// It is not there, and was called a directory by a slash at its end: no file may take its name.
    is_directory: bool,
}

impl Place {
    fn find(path: &Path) -> Result<Self, Failed> {
        if path.is_dir() {
            return Ok(Self {
                base: path.to_owned(),
                renamed: None,
                first: None,
                is_directory: false,
            });
        }
        let is_directory = path.as_os_str().as_bytes().ends_with(b"/");
        // A file, and a slash behind it.
        if is_directory && fs::symlink_metadata(path.components().as_path()).is_ok() {
            return Err(Failed::with(&path.display().to_string(), Errno::ENOTDIR));
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Failed::with(&path.display().to_string(), Errno::EINVAL));
        };
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        let known = fs::metadata(parent).map_err(Failed::at(parent))?;
        if !known.is_dir() {
            return Err(Failed::with(&parent.display().to_string(), Errno::ENOTDIR));
        }
        Ok(Self {
            base: parent.to_owned(),
            renamed: Some(PathBuf::from(name)),
            first: None,
            is_directory,
        })
    }

    /// What is to be made and is not there yet.
    fn new_name(&self) -> Option<PathBuf> {
        let new = self.base.join(self.renamed.as_ref()?);
        let known = fs::symlink_metadata(&new);
        known
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
            .then_some(new)
    }

    /// Hears of the first entry. The content of a directory, which has no name of its own, makes the directory that it is
    /// for: that is answered.
    fn begin(
        &mut self,
        path: &Path,
        entry: &Entry<'_, impl Read>,
        name: &Path,
    ) -> Result<Option<Directory>, Failed> {
        let Some(renamed) = &self.renamed else {
            return Ok(None);
        };
        let kind = entry.header().entry_type();
        let mut parts = name.components();
        self.first = first_of(name);
        if !kind.is_dir() {
            let is_alone = parts.nth(1).is_none();
            if self.is_directory && is_alone {
                let why = "there is no such directory; make it first, or leave the slash at the end out to name the copy";
                return Err(Failed {
                    object: path.display().to_string(),
                    source: io::Error::other(why),
                });
            }
            return Ok(None);
        }
        if parts.any(|part| matches!(part, Component::Normal(_) | Component::ParentDir)) {
            return Ok(None);
        }
        let base = self.base.join(renamed);
        let created = fs::DirBuilder::new().mode(0o700).create(&base);
        created.map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                Failed::with(&path.display().to_string(), Errno::ENOTDIR)
            } else {
                Failed::at(&base)(error)
            }
        })?;
        let (mode, modified) = terms(entry).map_err(Failed::at(&base))?;
        *self = Self {
            base: base.clone(),
            renamed: None,
            first: None,
            is_directory: false,
        };
        Ok(Some((base, mode, modified)))
    }

    /// Where the entry `name` goes.
    fn target(&self, name: &Path) -> Result<PathBuf, Failed> {
        let mut parts = name.components();
        let mut target = self.base.clone();
        if let Some(renamed) = &self.renamed {
            parts.next();
            target.push(renamed);
            if self.first != first_of(name) {
                return Err(self.several(&target, name));
            }
        }
        for part in parts {
            match part {
                Component::Normal(part) => target.push(part),
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
                Component::ParentDir => {
                    let name = format!("the name {} in the stream", name.display());
                    return Err(Failed::with(&name, Errno::EINVAL));
                }
            }
        }
        if self.renamed.is_some() && name.components().next() == Some(Component::ParentDir) {
            let name = format!("the name {} in the stream", name.display());
            return Err(Failed::with(&name, Errno::EINVAL));
        }
        Ok(target)
    }

    /// Two things cannot have one name.
    fn several(&self, target: &Path, name: &Path) -> Failed {
        let first = self.first.clone().unwrap_or_default();
        let why = format!(
            "it is no directory, and the stream has more than one part for it ({}, {}); make the directory first",
            Path::new(&first).display(),
            name.display()
        );
        Failed {
            object: target.display().to_string(),
            source: io::Error::other(why),
        }
    }

    /// Makes the directories that lead from the base to `target`; none of them may be a link.
    fn reach(&self, target: &Path) -> Result<(), Failed> {
        let Ok(below) = target.strip_prefix(&self.base) else {
            return Ok(());
        };
        let mut so_far = self.base.clone();
        for part in below.parent().into_iter().flat_map(Path::components) {
            so_far.push(part);
            match fs::symlink_metadata(&so_far) {
                Ok(known) if known.is_dir() => {}
                Ok(_) => {
                    return Err(Failed::with(&so_far.display().to_string(), Errno::ENOTDIR));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    fs::create_dir(&so_far).map_err(Failed::at(&so_far))?;
                }
                Err(error) => return Err(Failed::at(&so_far)(error)),
            }
        }
        Ok(())
    }
}

fn first_of(name: &Path) -> Option<OsString> {
    let first = name.components().next();
    first.map(|part| part.as_os_str().to_owned())
}

/// The bits that nobody may set inside; they are left off, as they are on the way out.
const SET_ID: u32 = 0o6000;

/// A directory that is finished at the end: its mode and time.
type Directory = (PathBuf, u32, SystemTime);

/// An entry's mode and time.
fn terms(entry: &Entry<'_, impl Read>) -> io::Result<(u32, SystemTime)> {
    let header = entry.header();
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(header.mtime()?);
    Ok((header.mode()? & !SET_ID & 0o7777, modified))
}

/// Makes an entry, but for a file: that is answered, whole and without a name.
fn put(
    place: &Place,
    entry: &mut Entry<'_, impl Read>,
    target: &Path,
    directories: &mut Vec<Directory>,
) -> io::Result<Option<Fresh>> {
    let kind = entry.header().entry_type();
    let (mode, modified) = terms(entry)?;
    let there = fs::symlink_metadata(target).ok();
    if kind == EntryType::Directory {
        match there {
            // The place itself keeps what it is.
            Some(known) if known.is_dir() && target == place.base => return Ok(None),
            Some(known) if known.is_dir() => {}
            Some(_) => return Err(Errno::ENOTDIR.into()),
            None => fs::DirBuilder::new().mode(0o700).create(target)?,
        }
        directories.push((target.to_owned(), mode, modified));
        return Ok(None);
    }
    if there.is_some_and(|known| known.is_dir()) {
        return Err(Errno::EISDIR.into());
    }
    if kind == EntryType::Link {
        let linked = entry.link_name()?.ok_or(Errno::EINVAL)?;
        let source = place.target(&linked).map_err(|failed| failed.source)?;
        // No more than what is written may what is linked be reached through a link of the stream.
        place.reach(&source).map_err(|failed| failed.source)?;
        return link(&source, target, mode, modified);
    }
    if kind == EntryType::Symlink {
        let leads = entry.link_name()?.ok_or(Errno::EINVAL)?;
        let time = TimeSpec::from_duration(
            modified
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default(),
        );
        named(target, |path| {
            symlink(&leads, path)?;
            let itself = UtimensatFlags::NoFollowSymlink;
            Ok(utimensat(AT_FDCWD, path, &time, &time, itself)?)
        })?;
        return Ok(None);
    }
    let size = entry.size();
    let mut fresh = Fresh::new(target)?;
    fresh.fill(entry, size)?;
    fresh.dress(mode, modified)?;
    Ok(Some(fresh))
}

/// Gives a file a second name. Where there can be none, there is a second file.
fn link(
    source: &Path,
    target: &Path,
    mode: u32,
    modified: SystemTime,
) -> io::Result<Option<Fresh>> {
    let Err(error) = named(target, |path| fs::hard_link(source, path)) else {
        return Ok(None);
    };
    match fs::symlink_metadata(source) {
        Ok(known) if known.is_file() => {
            let from = File::open(source)?;
            let mut fresh = Fresh::new(target)?;
            fresh.fill(from, known.len())?;
            fresh.dress(mode, modified)?;
            Ok(Some(fresh))
        }
        Ok(_) | Err(_) => Err(error),
    }
}

fn finish(directory: &Path, mode: u32, modified: SystemTime) -> io::Result<()> {
    let open = File::open(directory)?;
    open.set_permissions(Permissions::from_mode(mode))?;
    open.set_modified(modified)
}

#[cfg(test)]
mod tests;
