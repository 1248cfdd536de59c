//! Counts the records that allowed a connection to our server, while the file grows and is rotated.

use std::fs::{File, Metadata};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use serde::Deserialize;

/// A reader that has seen all up to a place.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    port: u16,
    inode: u64,
    read: u64,
    /// The beginning of a line whose end is not written yet.
    rest: Vec<u8>,
    allowed: u64,
}

#[derive(Deserialize)]
struct Record {
    #[serde(default)]
    activity: String,
    #[serde(default)]
    verdict: String,
    #[serde(default)]
    port: u16,
}

impl Audit {
    pub(crate) fn new(path: PathBuf, port: u16) -> Self {
        Self {
            path,
            port,
            inode: 0,
            read: 0,
            rest: Vec::new(),
            allowed: 0,
        }
    }

    /// Reads what is new; the number of records since the beginning.
    pub(crate) fn count(&mut self) -> u64 {
        let Ok(file) = File::open(&self.path) else {
            return self.allowed;
        };
        let inode = file
            .metadata()
            .map(|known: Metadata| known.ino())
            .unwrap_or_default();
        if self.inode != 0 && inode != self.inode {
            // Rotated: the rest of the old one first.
            let older = PathBuf::from(format!("{}.1", self.path.display()));
            if let Ok(older) = File::open(older)
                && older
                    .metadata()
                    .is_ok_and(|known| known.ino() == self.inode)
            {
                self.take(older);
            }
            self.read = 0;
            self.rest.clear();
        }
        self.inode = inode;
        self.take(file);
        self.allowed
    }

    fn take(&mut self, mut file: File) {
        let mut new = std::mem::take(&mut self.rest);
        let kept = new.len();
        if file.seek(SeekFrom::Start(self.read)).is_ok() && file.read_to_end(&mut new).is_ok() {
            self.read += (new.len() - kept) as u64;
        }
        let end = new
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |last| last + 1);
        self.rest = new.split_off(end);
        for line in new.split(|byte| *byte == b'\n') {
            let Ok(record) = serde_json::from_slice::<Record>(line) else {
                continue;
            };
            if record.activity == "connect"
                && record.verdict == "allowed"
                && record.port == self.port
            {
                self.allowed += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::*;

    const LINE: &str = "{\"activity\":\"connect\",\"verdict\":\"allowed\",\"port\":7}\n";

    #[test]
    fn records_are_counted_over_half_lines_and_rotation() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("audit.jsonl");
        let mut audit = Audit::new(path.clone(), 7);
        assert_eq!(audit.count(), 0);

        let mut file = File::create(&path).expect("created");
        let (half, rest) = LINE.split_at(20);
        write!(file, "{LINE}{half}").expect("written");
        assert_eq!(audit.count(), 1);
        write!(file, "{rest}").expect("written");
        write!(file, "{}", LINE.replace(":7", ":8")).expect("written");
        assert_eq!(audit.count(), 2);

        write!(file, "{LINE}").expect("written");
        fs::rename(&path, directory.path().join("audit.jsonl.1")).expect("rotated");
        fs::write(&path, LINE).expect("written");
        assert_eq!(audit.count(), 4);
        assert_eq!(audit.count(), 4);
    }
}
