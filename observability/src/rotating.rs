//! A file of lines that never outgrows its bound: full, it becomes `NAME.1`, and the older one of that name is gone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A bounded file of lines.
#[derive(Debug)]
pub struct Rotating {
    path: PathBuf,
    file: File,
    length: u64,
    most: u64,
}

impl Rotating {
    /// Opens `path` to append at most `most` bytes before it is put aside. It is created for its owner only.
    pub fn open(path: &Path, most: u64) -> io::Result<Self> {
        let file = append(path)?;
        Ok(Self {
            path: path.to_owned(),
            length: file.metadata()?.len(),
            file,
            most,
        })
    }

    /// The same without a bound.
    pub fn unbounded(path: &Path) -> io::Result<Self> {
        Self::open(path, u64::MAX)
    }

    /// Another hand on the same file.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            path: self.path.clone(),
            file: self.file.try_clone()?,
            length: self.length,
            most: self.most,
        })
    }

    /// Appends whole lines.
    pub fn write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        let grown = self.length.saturating_add(lines.len() as u64);
        if self.length > 0 && grown > self.most {
            // Short of a descriptor for a new file the old one is used a little longer.
            let turned = self.turn();
            if grown > self.most.saturating_mul(2) {
                turned?;
            }
        }
        self.file.write_all(lines)?;
        self.length = self.length.saturating_add(lines.len() as u64);
        Ok(())
    }

    fn turn(&mut self) -> io::Result<()> {
        match fs::rename(&self.path, older(&self.path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        self.file = append(&self.path)?;
        self.length = 0;
        Ok(())
    }
}

/// What `path` is called once it has been put aside.
pub fn older(path: &Path) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(".1");
    name.into()
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

/// How long a log of the runtime grows before it is put aside.
pub const MOST_LOGGED: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_is_put_aside_and_one_older_is_kept() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("log");
        let mut log = Rotating::open(&path, 10).expect("opened");

        for line in ["first..\n", "second.\n", "third..\n"] {
            log.write_lines(line.as_bytes()).expect("written");
        }

        let read = |path: &Path| fs::read_to_string(path).expect("read");
        assert_eq!(read(&path), "third..\n");
        assert_eq!(read(&older(&path)), "second.\n");
        assert_eq!(fs::read_dir(place.path()).expect("listed").count(), 2);
    }

    #[test]
    fn what_was_there_counts() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("log");
        fs::write(&path, "12345678\n").expect("written");

        let mut log = Rotating::open(&path, 10).expect("opened");
        log.write_lines(b"next\n").expect("written");

        assert_eq!(fs::read_to_string(&path).expect("read"), "next\n");
    }
}
