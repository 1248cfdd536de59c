//! Writes a file, or a tree of them, as a tar stream.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use tar::{Builder, EntryType, Header};

use super::{Failed, PIECE, complain};

/// Writes `path` to `output`. Links are written as links, and a file of several names once. What cannot be read is said and left out; then the end is a
/// failure, but the rest is there.
pub(super) fn run(path: &Path, output: impl Write) -> Result<(), Failed> {
    let mut stream = Builder::new(BufWriter::with_capacity(PIECE, output));
    let content = path.as_os_str().as_bytes().ends_with(b"/.");
    let name = match path.file_name() {
        Some(name) if !content => PathBuf::from(name),
        Some(_) | None => PathBuf::from("."),
    };
    // The first one has to be there; of what is in it, some may go away meanwhile.
    let found = if content {
        fs::metadata(path)
    } else {
        fs::symlink_metadata(path)
    };
    found.map_err(Failed::at(path))?;
    let (mut left_out, mut linked) = (None, Linked::new());
    let mut waiting = vec![(path.to_owned(), name)];
    while let Some((path, name)) = waiting.pop() {
        let added = match add(&mut stream, &mut linked, &path, &name) {
            Ok(added) => added,
            Err(Added::Unreadable(failed)) => {
                if let Some(before) = left_out.replace(failed) {
                    complain(&before);
                }
                continue;
            }
            Err(Added::Unwritable(source)) => return Err(Failed::at(Path::new("output"))(source)),
        };
        waiting.extend(
            added
                .into_iter()
                .rev()
                .map(|inside| (path.join(&inside), name.join(&inside))),
        );
    }
    let ended = stream.into_inner().and_then(|mut output| output.flush());
    ended.map_err(Failed::at(Path::new("output")))?;
    left_out.map_or(Ok(()), Err)
}

/// Why something was not added.
enum Added {
    Unreadable(Failed),
    Unwritable(io::Error),
}

/// Files that have more names than one, by device and number: what they were called first.
type Linked = HashMap<(u64, u64), PathBuf>;

/// Adds one entry; answers what is in it if it is a directory.
fn add(
    stream: &mut Builder<impl Write>,
    linked: &mut Linked,
    path: &Path,
    name: &Path,
) -> Result<Vec<PathBuf>, Added> {
    let unreadable = |source| Added::Unreadable(Failed::at(path)(source));
    let known = fs::symlink_metadata(path).map_err(unreadable)?;
    let kind = known.file_type();
    if kind.is_dir() {
        let mut inside: Vec<PathBuf> = fs::read_dir(path)
            .and_then(|entries| {
                entries
                    .map(|entry| Ok(PathBuf::from(entry?.file_name())))
                    .collect()
            })
            .map_err(unreadable)?;
        inside.sort_unstable();
        let mut header = header(&known, EntryType::Directory, 0);
        let added = stream.append_data(&mut header, name, io::empty());
        return added.map(|()| inside).map_err(Added::Unwritable);
    }
    let added = if kind.is_symlink() {
        let target = fs::read_link(path).map_err(unreadable)?;
        stream.append_link(&mut header(&known, EntryType::Symlink, 0), name, target)
    } else if kind.is_file() {
        let file = File::open(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        if let Some(first) = again(linked, &known, name) {
            stream.append_link(&mut header(&known, EntryType::Link, 0), name, first)
        } else {
            // Exactly as long as was said before, also when the file is being written to.
            let bytes = file.chain(io::repeat(0)).take(length);
            stream.append_data(&mut header(&known, EntryType::Regular, length), name, bytes)
        }
    } else {
        // It means nothing elsewhere.
        let what = if kind.is_fifo() {
            "a pipe"
        } else if kind.is_socket() {
            "a socket"
        } else {
            "a device"
        };
        return Err(Added::Unreadable(Failed::special(path, what)));
    };
    added.map(|()| Vec::new()).map_err(Added::Unwritable)
}

/// The name that this file was written under before.
fn again(linked: &mut Linked, known: &Metadata, name: &Path) -> Option<PathBuf> {
    if known.nlink() < 2 {
        return None;
    }
    let file = (known.dev(), known.ino());
    let first = linked.get(&file).cloned();
    if first.is_none() && linked.len() < MOST_LINKED {
        linked.insert(file, name.to_owned());
    }
    first
}

fn header(known: &Metadata, kind: EntryType, length: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_metadata(known);
    header.set_entry_type(kind);
    header.set_size(length);
    header
}

/// How many files of several names are remembered; further ones are written under each name.
const MOST_LINKED: usize = 65_536;
