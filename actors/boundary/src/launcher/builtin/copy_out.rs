//! Writes a file, or a tree of them, as a tar stream.

use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use tar::{Builder, EntryType, Header};

use super::{Failed, PIECE, complain};

/// Writes `path` to `output`. Links are written as links. What cannot be read is said and left out; then the end is a
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
    let mut left_out = None;
    let mut waiting = vec![(path.to_owned(), name)];
    while let Some((path, name)) = waiting.pop() {
        let added = match add(&mut stream, &path, &name) {
            Ok(added) => added,
            Err(Added::Unreadable(source)) => {
                let failed = Failed::at(&path)(source);
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
    Unreadable(io::Error),
    Unwritable(io::Error),
}

/// Adds one entry; answers what is in it if it is a directory.
fn add(stream: &mut Builder<impl Write>, path: &Path, name: &Path) -> Result<Vec<PathBuf>, Added> {
    let known = fs::symlink_metadata(path).map_err(Added::Unreadable)?;
    let kind = known.file_type();
    if kind.is_dir() {
        let mut inside: Vec<PathBuf> = fs::read_dir(path)
            .and_then(|entries| {
                entries
                    .map(|entry| Ok(PathBuf::from(entry?.file_name())))
                    .collect()
            })
            .map_err(Added::Unreadable)?;
        inside.sort_unstable();
        let mut header = header(&known, EntryType::Directory, 0);
        let added = stream.append_data(&mut header, name, io::empty());
        return added.map(|()| inside).map_err(Added::Unwritable);
    }
    let added = if kind.is_symlink() {
        let target = fs::read_link(path).map_err(Added::Unreadable)?;
        stream.append_link(&mut header(&known, EntryType::Symlink, 0), name, target)
    } else if kind.is_file() {
        let file = File::open(path).map_err(Added::Unreadable)?;
        let length = file.metadata().map_err(Added::Unreadable)?.len();
        // Exactly as long as was said before, also when the file is being written to.
        let bytes = file.chain(io::repeat(0)).take(length);
        stream.append_data(&mut header(&known, EntryType::Regular, length), name, bytes)
    } else if kind.is_fifo() {
        stream.append_data(&mut header(&known, EntryType::Fifo, 0), name, io::empty())
    } else {
        // A socket or a device means nothing elsewhere.
        return Err(Added::Unreadable(Errno::EOPNOTSUPP.into()));
    };
    added.map(|()| Vec::new()).map_err(Added::Unwritable)
}

fn header(known: &Metadata, kind: EntryType, length: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_metadata(known);
    header.set_entry_type(kind);
    header.set_size(length);
    header
}
