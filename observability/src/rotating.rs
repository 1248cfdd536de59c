//! A file of lines that never outgrows its bound: full, it becomes `NAME.1`, and the older one of that name is gone.
//!
//! Two processes may append to the same file. Whoever puts it aside holds its lock and has seen that it still has its
//! name; the other one finds another file under the name and goes on there. So no file is put aside twice, and none that
//! was just begun takes the place of a full one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

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

    /// Appends whole lines. What was written counts also when it was not all.
    pub fn write_lines(&mut self, mut lines: &[u8]) -> io::Result<()> {
        self.make_room(lines)?;
        while !lines.is_empty() {
            match self.file.write(lines) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    lines = &lines[written..];
                    self.length = self.length.saturating_add(written as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// How many bytes it has, as far as it was written by this.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Appends whole lines by one `write(2)`, between which and the file nobody else's lines come.
    pub(crate) fn write_at_once(&mut self, lines: &[u8]) -> io::Result<()> {
        self.make_room(lines)?;
        let written = loop {
            match self.file.write(lines) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => break written?,
            }
        };
        self.length = self.length.saturating_add(written as u64);
        if written < lines.len() {
            // What a disk that runs full takes. The rest would follow behind somebody else's line.
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    /// Is it a file on a disk? Anything else may make its writer wait for a reader.
    pub(crate) fn is_regular(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.is_file())
    }

    /// Is what it says last not a whole line?
    pub(crate) fn ends_inside_a_line(&self) -> io::Result<bool> {
        let file = File::open(&self.path)?;
        let Some(last) = file.metadata()?.len().checked_sub(1) else {
            return Ok(false);
        };
        let mut byte = [0];
        file.read_exact_at(&mut byte, last)?;
        Ok(byte != *b"\n")
    }

    /// Cuts off what stands behind the last whole line.
    pub(crate) fn cut_half_line(&mut self) -> io::Result<()> {
        let file = File::open(&self.path)?;
        let length = file.metadata()?.len();
        let from = length.saturating_sub(MOST_HALF);
        let mut tail = vec![0; usize::try_from(length - from).unwrap_or_default()];
        file.read_exact_at(&mut tail, from)?;
        let whole = match tail.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => from + last as u64 + 1,
            None if from == 0 => 0,
            None => return Err(io::ErrorKind::InvalidData.into()),
        };
        // Another writer may have finished it meanwhile.
        if whole < length {
            self.file.set_len(whole)?;
        }
        self.length = whole;
        Ok(())
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// May it be put aside?
    pub(crate) fn is_bounded(&self) -> bool {
        self.most < u64::MAX
    }

    fn make_room(&mut self, lines: &[u8]) -> io::Result<()> {
        let grown = self.length.saturating_add(lines.len() as u64);
        if self.length > 0 && grown > self.most {
            // Short of a descriptor for a new file the old one is used a little longer.
            let turned = self.turn();
            if grown > self.most.saturating_mul(2) {
                turned?;
            }
        }
        Ok(())
    }

    fn turn(&mut self) -> io::Result<()> {
        if self.is_named()? {
            match self.file.try_lock() {
                Ok(()) => {}
                // Another is about to put it aside. It may stand still, so nobody waits for it.
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // Looked at again under the lock: only who holds it takes the name away.
            let turned = match self.is_named() {
                Ok(true) => fs::rename(&self.path, older(&self.path)),
                other => other.map(drop),
            };
            let unlocked = self.file.unlock();
            turned.and(unlocked)?;
        }
        let next = append(&self.path)?;
        self.length = next.metadata()?.len();
        self.file = next;
        Ok(())
    }

    /// Does the file still have its name? Another may have put it aside.
    fn is_named(&self) -> io::Result<bool> {
        let own = self.file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (own.dev(), own.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// What `path` is called once it has been put aside.
pub fn older(path: &Path) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(".1");
    name.into()
}

/// Opening a pipe waits for its reader, and some devices wait for their line: nobody here does. Writing to them may.
fn append(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    let flags = OFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GETFL)?);
    fcntl(&file, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK))?;
    Ok(file)
}

/// How far back the end of the last whole line is looked for: a record is far shorter.
const MOST_HALF: u64 = 1 << 20;

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
    fn two_writers_put_a_file_aside_once_and_lose_nothing() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("log");
        let [mut one, mut two] = [(); 2].map(|()| Rotating::open(&path, 64).expect("opened"));

        for round in 0..6 {
            one.write_at_once(format!("one {round:06}\n").as_bytes())
                .expect("written");
            two.write_at_once(format!("two {round:06}\n").as_bytes())
                .expect("written");
        }

        let read = |path: &Path| fs::read_to_string(path).expect("read");
        let (newer, aside) = (read(&path), read(&older(&path)));
        assert_eq!((aside.lines().count(), newer.lines().count()), (10, 2));
        let lines: std::collections::BTreeSet<_> = aside.lines().chain(newer.lines()).collect();
        assert_eq!(lines.len(), 12);
    }

    #[test]
    fn writers_that_find_a_file_full_at_the_same_time_lose_nothing() {
        const FULL: usize = 4000;
        let place = tempfile::tempdir().expect("a directory");
        for round in 0..200 {
            let path = place.path().join(format!("log{round}"));
            let start = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for writer in 0..4 {
                    let (path, start) = (&path, &start);
                    scope.spawn(move || {
                        let mut log = Rotating::open(path, FULL as u64).expect("opened");
                        start.wait();
                        let full = format!("{writer} {}\n", "x".repeat(FULL / 2 - 2));
                        for _ in 0..2 {
                            log.write_at_once(full.as_bytes()).expect("written");
                        }
                    });
                }
            });

            let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
            let lines = read(&path).lines().count() + read(&older(&path)).lines().count();
            assert_eq!(lines, 8, "round {round}");
        }
    }

    #[test]
    fn a_file_whose_name_was_taken_away_is_begun_anew() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("log");
        let mut log = Rotating::open(&path, 10).expect("opened");
        log.write_lines(b"before.\n").expect("written");
        // As one who was killed between the two steps leaves it.
        fs::rename(&path, older(&path)).expect("renamed");

        log.write_lines(b"behind.\n").expect("written");

        let read = |path: &Path| fs::read_to_string(path).expect("read");
        assert_eq!(
            (read(&older(&path)), read(&path)),
            ("before.\n".into(), "behind.\n".into())
        );
    }

    #[test]
    fn what_is_written_to_waits_for_its_reader() {
        let device = append(Path::new("/dev/null")).expect("opened");

        let flags = fcntl(&device, FcntlArg::F_GETFL).expect("asked");

        let flags = OFlag::from_bits_retain(flags);
        assert!(flags.contains(OFlag::O_APPEND) && !flags.contains(OFlag::O_NONBLOCK));
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
