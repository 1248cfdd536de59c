//! Unpacks a tar stream at a path.
//!
//! Into a directory everything lands under the names of the stream; anything else is the new name of the stream's first
//! part. No name leads out of that place, and no entry is written through a link of the same stream: the sandbox's view
//! would let it go no farther than the sandbox, but a copy says where it goes.

use std::fs::{self, File, Permissions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use tar::{Archive, Entry, EntryType};

use super::{Failed, PIECE};

/// Unpacks `input` at `path`.
pub(super) fn run(path: &Path, input: impl Read) -> Result<(), Failed> {
    let place = Place::find(path)?;
    let unreadable = |source| Failed {
        object: "read the stream".to_owned(),
        source,
    };
    let mut archive = Archive::new(BufReader::with_capacity(PIECE, input));
    let mut directories = Vec::new();
    for entry in archive.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        let name = entry.path().map_err(unreadable)?.into_owned();
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
}

impl Place {
    fn find(path: &Path) -> Result<Self, Failed> {
        if path.is_dir() {
            return Ok(Self {
                base: path.to_owned(),
                renamed: None,
            });
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
        })
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

fn put(
    place: &Place,
    entry: &mut Entry<'_, impl Read>,
    target: &Path,
    directories: &mut Vec<Directory>,
) -> io::Result<()> {
    let header = entry.header();
    let (kind, mode) = (header.entry_type(), header.mode()? & !SET_ID & 0o7777);
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(header.mtime()?);
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
        return fs::hard_link(source, target);
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
