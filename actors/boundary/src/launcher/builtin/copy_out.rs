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
            Err(Added::Torn(failed)) => return Err(failed),
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
    /// It stands in the stream in part: there is no way on.
    Torn(Failed),
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
        } else if length <= SMALL {
            let bytes = whole(file).map_err(unreadable)?;
            let mut header = header(&known, EntryType::Regular, bytes.len() as u64);
            stream.append_data(&mut header, name, bytes.as_slice())
        } else {
            let mut bytes = Exactly { file, left: length };
            let mut header = header(&known, EntryType::Regular, length);
            let added = stream.append_data(&mut header, name, &mut bytes);
            match added {
                Err(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(Added::Torn(Failed::at(path)(source)));
                }
                added => added,
            }
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

/// All that there is to read, whatever length was told: the kernel's own files say 0, or a page.
fn whole(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MOST_UNTOLD + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_UNTOLD {
        let why =
            format!("it told a length of {SMALL} bytes at most, and has more than {MOST_UNTOLD}");
        return Err(io::Error::other(why));
    }
    Ok(bytes)
}

/// As many bytes as were told, or an end that was not expected; what is appended meanwhile is left out.
struct Exactly {
    file: File,
    left: u64,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (&self.file).take(self.left).read(buffer)?;
        if count == 0 && self.left > 0 && !buffer.is_empty() {
            let why = "it became shorter while it was copied; copy it again";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        self.left -= count as u64;
        Ok(count)
    }
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

/// Up to this length a file is read before its length is told.
const SMALL: u64 = PIECE as u64;

/// How much is read of one that told less.
const MOST_UNTOLD: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(path: &Path) -> Vec<u8> {
        let mut stream = Vec::new();
        run(path, &mut stream).expect("copied");
        let mut archive = tar::Archive::new(stream.as_slice());
        let mut entries = archive.entries().expect("a stream");
        let mut entry = entries.next().expect("an entry").expect("is whole");
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("is read");
        bytes
    }

    #[test]
    fn what_tells_no_length_or_too_much_of_it_is_read_to_its_end() {
        for path in [
            "/proc/version",
            "/sys/kernel/mm/transparent_hugepage/enabled",
        ] {
            let path = Path::new(path);
            if let Ok(content) = fs::read(path) {
                assert_eq!(copied(path), content, "{}", path.display());
            }
        }
    }

    #[test]
    fn a_file_that_becomes_shorter_is_an_error_and_one_that_grows_is_as_it_was() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("f");
        fs::write(&path, b"0123456789").expect("written");
        let read = |left| {
            let file = File::open(&path).expect("opens");
            let mut bytes = Vec::new();
            let read = Exactly { file, left }.read_to_end(&mut bytes);
            read.map(|_| bytes).map_err(|error| error.kind())
        };

        assert_eq!(read(4), Ok(b"0123".to_vec()));
        assert_eq!(read(10), Ok(b"0123456789".to_vec()));
        assert_eq!(read(11), Err(io::ErrorKind::UnexpectedEof));
    }
}
