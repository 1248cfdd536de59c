//! Unpacks a tar stream at a path.
//!
//! Into a directory everything lands under the names of the stream; anything else is the new name of the stream's first
//! part. No name leads out of that place, and no entry is written through a link of the same stream: the sandbox's view
//! would let it go no farther than the sandbox, but a copy says where it goes.

use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use tar::{Archive, Entry, EntryType};

use super::{Failed, PIECE};

/// Unpacks `input` at `path`.
pub(super) fn run(path: &Path, input: impl Read) -> Result<(), Failed> {
    let mut place = Place::find(path)?;
    let broken = |why: String| Failed {
        object: "read the tar stream".to_owned(),
        source: io::Error::other(why),
    };
    let unreadable = |source: io::Error| broken(format!("it is none, or was cut off ({source})"));
    let mut input = BufReader::with_capacity(PIECE, input);
    if input.fill_buf().map_err(unreadable)?.is_empty() {
        return Err(broken("it is empty".to_owned()));
    }
    let mut archive = Archive::new(input);
    let mut directories = Vec::new();
    let mut is_first = true;
    for entry in archive.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        let name = entry.path().map_err(unreadable)?.into_owned();
        let kind = entry.header().entry_type();
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
        place.reach(&target)?;
        put(&place, &mut entry, &target, &mut directories).map_err(Failed::at(&target))?;
    }
    // Last, and the innermost first: a directory may forbid what was written into it, and writing changed its time.
    for (directory, mode, modified) in directories.into_iter().rev() {
        finish(&directory, mode, modified).map_err(Failed::at(&directory))?;
    }
    // What stands behind the end of the archive is taken off its writer's hands.
    let mut rest = archive.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(unreadable)?;
    Ok(())
}

/// Where a stream goes.
#[derive(Debug)]
struct Place {
    /// A directory that is there.
    base: PathBuf,
    /// What the first part of every name becomes.
    renamed: Option<PathBuf>,
    /// It is not there, and was called a directory by a slash at its end: no file may take its name.
    is_directory: bool,
}

impl Place {
    fn find(path: &Path) -> Result<Self, Failed> {
        if path.is_dir() {
            return Ok(Self {
                base: path.to_owned(),
                renamed: None,
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
            is_directory,
        })
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

fn put(
    place: &Place,
    entry: &mut Entry<'_, impl Read>,
    target: &Path,
    directories: &mut Vec<Directory>,
) -> io::Result<()> {
    let kind = entry.header().entry_type();
    let (mode, modified) = terms(entry)?;
    let there = fs::symlink_metadata(target).ok();
    if kind == EntryType::Directory {
        match there {
            // The place itself keeps what it is.
            Some(known) if known.is_dir() && target == place.base => return Ok(()),
            Some(known) if known.is_dir() => {}
            Some(_) => return Err(Errno::ENOTDIR.into()),
            None => fs::DirBuilder::new().mode(0o700).create(target)?,
        }
        directories.push((target.to_owned(), mode, modified));
        return Ok(());
    }
    match there {
        Some(known) if known.is_dir() => return Err(Errno::EISDIR.into()),
        Some(_) => fs::remove_file(target)?,
        None => {}
    }
    if kind == EntryType::Link {
        let linked = entry.link_name()?.ok_or(Errno::EINVAL)?;
        let source = place.target(&linked).map_err(|failed| failed.source)?;
        let linked = fs::hard_link(&source, target);
        // Where there can be no second name, there is a second file.
        return linked.or_else(|error| match fs::symlink_metadata(&source) {
            Ok(known) if known.is_file() => fs::copy(&source, target).map(drop),
            Ok(_) | Err(_) => Err(error),
        });
    }
    entry.set_preserve_permissions(true);
    entry.set_mask(SET_ID);
    entry.set_preserve_mtime(true);
    entry.unpack(target).map(drop)
}

fn finish(directory: &Path, mode: u32, modified: SystemTime) -> io::Result<()> {
    let open = File::open(directory)?;
    open.set_permissions(Permissions::from_mode(mode))?;
    open.set_modified(modified)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, kind, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o644);
            header.set_mtime(7);
            header.set_size(0);
            if *kind == EntryType::Symlink {
                header.set_link_name(content).expect("a link");
            } else {
                header.set_size(content.len() as u64);
            }
            // As an attacker would write it: the builder itself refuses such names.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            let body = if *kind == EntryType::Symlink {
                ""
            } else {
                content
            };
            builder.append(&header, body.as_bytes()).expect("appended");
        }
        builder.into_inner().expect("whole")
    }

    #[test]
    fn a_name_or_a_link_that_leads_out_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let base = directory.path().join("base");
        fs::create_dir(&base).expect("made");
        let file = EntryType::Regular;

        let up = stream(&[("../evil", file, "x")]);
        run(&base, &up[..]).expect_err("up and out");
        let through = stream(&[("out", EntryType::Symlink, ".."), ("out/evil", file, "x")]);
        run(&base, &through[..]).expect_err("through a link");
        let renamed = stream(&[("../evil", file, "x")]);
        run(&base.join("new"), &renamed[..]).expect_err("up and renamed");

        assert!(!directory.path().join("evil").exists());
    }

    #[test]
    fn set_id_bits_are_left_off() {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, kind, mode) in [
            ("tree", EntryType::Directory, 0o2775),
            ("tree/file", EntryType::Regular, 0o6755),
        ] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_mtime(7);
            header.set_size(0);
            header.set_path(name).expect("a short name");
            header.set_cksum();
            builder.append(&header, io::empty()).expect("appended");
        }
        let directory = tempfile::tempdir().expect("a directory");

        run(directory.path(), &builder.into_inner().expect("whole")[..]).expect("unpacked");

        let mode = |name: &str| {
            let known = fs::metadata(directory.path().join(name)).expect("there");
            known.permissions().mode() & 0o7777
        };
        assert_eq!((mode("tree"), mode("tree/file")), (0o775, 0o755));
    }

    #[test]
    fn a_file_takes_the_place_of_a_link_and_not_of_what_it_leads_to() {
        let directory = tempfile::tempdir().expect("a directory");
        let (precious, link) = (
            directory.path().join("precious"),
            directory.path().join("link"),
        );
        fs::write(&precious, "precious").expect("written");
        std::os::unix::fs::symlink(&precious, &link).expect("linked");

        run(&link, &stream(&[("any", EntryType::Regular, "new")])[..]).expect("unpacked");

        assert_eq!(fs::read_to_string(&precious).expect("read"), "precious");
        assert_eq!(fs::read_to_string(&link).expect("read"), "new");
    }

    #[test]
    fn a_stream_that_breaks_off_is_a_failure() {
        let directory = tempfile::tempdir().expect("a directory");
        let whole = stream(&[("file", EntryType::Regular, "0123456789")]);

        let failed = run(directory.path(), &whole[..515]).expect_err("broken");

        assert!(!failed.to_string().is_empty());
    }
}
