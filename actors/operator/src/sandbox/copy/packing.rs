//! Packs a file or a tree of this host.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::failed;
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

/// Packs `source` into the stream. Links are packed as links.
pub(super) fn pack(stream: mpsc::Sender<Bytes>, source: &Path) -> Result<(), Failure> {
    match packed(stream, source) {
        // The other side has all that it wants, or has failed; its exit says which.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(failed(
            &format!("copy {}", source.display()),
            &error.to_string(),
        )),
        Ok(()) => Ok(()),
    }
}

fn packed(stream: mpsc::Sender<Bytes>, source: &Path) -> io::Result<()> {
    let writer = BufWriter::with_capacity(CHUNK, Writer(stream));
    let mut archive = tar::Builder::new(writer);
    archive.follow_symlinks(false);
    let name = name(source);
    // A last slash follows a link, as everywhere.
    if source.as_os_str().as_bytes().ends_with(b"/") || fs::symlink_metadata(source)?.is_dir() {
        archive.append_dir_all(name, source)?;
    } else {
        archive.append_path_with_name(source, name)?;
    }
    archive.into_inner()?.flush()
}

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
