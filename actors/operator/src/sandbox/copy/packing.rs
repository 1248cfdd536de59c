//! Packs a file or a tree of this host.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufWriter, Read as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::failed;
use super::unpacking::{names_in, special, told};
use crate::failure::{Failure, Kind};

/// Whether there is something to pack, before anybody is asked.
pub(super) fn check(source: &Path) -> Result<(), Failure> {
    fs::symlink_metadata(source).map(drop).map_err(|error| {
        Failure::caused(
            Kind::Unreadable,
            format!("copy {}", source.display()),
            &error,
        )
    })
}

/// Packs `source` into the stream. Links are packed as links, and a file of several names once.
pub(super) fn pack(stream: mpsc::Sender<Bytes>, source: &Path) -> Result<(), Failure> {
    match packed(stream, source) {
        // The other side has all that it wants, or has failed; its exit says which.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(failed(&format!("copy {}", source.display()), &told(&error))),
        Ok(()) => Ok(()),
    }
}

fn packed(stream: mpsc::Sender<Bytes>, source: &Path) -> io::Result<()> {
    let writer = BufWriter::with_capacity(CHUNK, Writer(stream));
    let mut archive = tar::Builder::new(writer);
    archive.follow_symlinks(false);
    let mut linked = Linked::new();
    let mut waiting = vec![(source.to_owned(), name(source))];
    while let Some((path, name)) = waiting.pop() {
        let inside = add(&mut archive, &mut linked, &path, &name)?;
        let both = |inside: OsString| (path.join(&inside), name.join(&inside));
        waiting.extend(inside.into_iter().rev().map(both));
    }
    archive.into_inner()?.flush()
}

/// Adds one entry; answers what is in it if it is a directory.
fn add(
    archive: &mut tar::Builder<impl Write>,
    linked: &mut Linked,
    path: &Path,
    name: &Path,
) -> io::Result<Vec<OsString>> {
    let wrong = |error: io::Error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            error
        } else {
            io::Error::other(format!("{}: {}", path.display(), told(&error)))
        }
    };
    // A last slash follows a link, as everywhere.
    let known = fs::symlink_metadata(path).map_err(wrong)?;
    if let Some(what) = special(known.file_type()) {
        let why =
            format!("it is {what}, which is not copied; remove it, or copy what stands beside it");
        return Err(wrong(io::Error::other(why)));
    }
    if known.is_dir() {
        archive.append_dir(name, path).map_err(wrong)?;
        return names_in(path).map_err(wrong);
    }
    let file = (known.dev(), known.ino());
    let first = linked.get(&file).filter(|_| known.is_file());
    if let Some(first) = first {
        let mut header = tar::Header::new_gnu();
        header.set_metadata(&known);
        header.set_entry_type(tar::EntryType::Link);
        header.set_size(0);
        archive
            .append_link(&mut header, name, first)
            .map_err(wrong)?;
        return Ok(Vec::new());
    }
    if known.nlink() > 1 && linked.len() < MOST_LINKED {
        linked.insert(file, name.to_owned());
    }
    if known.is_file() && known.len() <= SMALL {
        let bytes = whole(path).map_err(wrong)?;
        let mut header = tar::Header::new_gnu();
        header.set_metadata(&known);
        header.set_size(bytes.len() as u64);
        let appended = archive.append_data(&mut header, name, bytes.as_slice());
        return appended.map(|()| Vec::new()).map_err(wrong);
    }
    archive.append_path_with_name(path, name).map_err(wrong)?;
    Ok(Vec::new())
}

/// All that there is to read, whatever length was told: the kernel's own files say 0, or a page.
fn whole(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path)?;
    file.take(MOST_UNTOLD + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_UNTOLD {
        let why =
            format!("it told a length of {SMALL} bytes at most, and has more than {MOST_UNTOLD}");
        return Err(io::Error::other(why));
    }
    Ok(bytes)
}

/// Files that have more names than one, by device and number: what they were called first.
type Linked = HashMap<(u64, u64), PathBuf>;

/// What it is called in the stream: its last part; `.` for the content of a directory.
fn name(source: &Path) -> PathBuf {
    let bytes = source.as_os_str().as_bytes();
    match source.file_name() {
        Some(name) if !bytes.ends_with(b"/.") => name.into(),
        Some(_) | None => ".".into(),
    }
}

struct Writer(mpsc::Sender<Bytes>);

impl Write for Writer {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Bytes::copy_from_slice(buffer));
        match sent {
            Ok(()) => Ok(buffer.len()),
            Err(_closed) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const CHUNK: usize = 64 << 10;

/// Up to this length a file is read before its length is told.
const SMALL: u64 = CHUNK as u64;

/// How much is read of one that told less.
const MOST_UNTOLD: u64 = 16 << 20;

/// How many files of several names are remembered; further ones are packed under each name.
const MOST_LINKED: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_in_the_stream_is_the_last_part_or_a_dot() {
        for (path, named) in [
            ("/a/b", "b"),
            ("b/", "b"),
            ("b/.", "."),
            (".", "."),
            ("/", "."),
            ("..", "."),
        ] {
            assert_eq!(name(Path::new(path)), Path::new(named), "{path}");
        }
    }
}
