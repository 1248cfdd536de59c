//! The log of a lasting boundary: what it says on standard error, as JSON, in a file that does not grow for ever.
//!
//! In its own root it has no files to rename: it was given two, and when the first is full it is copied over the second.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_actor::Fault;
use holdfast_observability::MOST_LOGGED;

use crate::Lasts;

/// Keeps the log below [`MOST_LOGGED`]; the older one gets what was in it. No trouble with a log ends a sandbox.
pub(crate) async fn bound(lasts: Arc<Lasts>) -> Result<(), Fault> {
    let mut ticks = tokio::time::interval(TICK);
    let mut complained = false;
    loop {
        ticks.tick().await;
        match turn(&lasts.log, &lasts.older, MOST_LOGGED) {
            Ok(()) => complained = false,
            Err(error) if !complained => {
                tracing::warn!(%error, "put the log aside: lines before this one may be lost");
                complained = true;
            }
            Err(_) => {}
        }
    }
}

/// Moves what is in `log` to `older` if it is more than `most`. The log is short afterwards, whether that went well or not: a
/// disk that is full is no reason to fill it further.
fn turn(log: &File, older: &File, most: u64) -> io::Result<()> {
    let length = log.metadata()?.len();
    if length <= most {
        return Ok(());
    }
    let kept = keep(log, older, length);
    // Both processes that write here append, so the next line begins the file.
    log.set_len(0).and(kept)
}

/// Copies the first `length` bytes of `log` over `older`.
fn keep(log: &File, mut older: &File, length: u64) -> io::Result<()> {
    older.set_len(0)?;
    older.seek(SeekFrom::Start(0))?;
    let mut buffer = vec![0; PIECE];
    let mut offset = 0;
    while offset < length {
        let read = log.read_at(&mut buffer, offset)?;
        if read == 0 {
            break;
        }
        io::Write::write_all(&mut older, &buffer[..read])?;
        offset += read as u64;
    }
    Ok(())
}

/// How often that is looked at.
const TICK: Duration = Duration::from_secs(1);

/// How much is copied at a time.
const PIECE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_full_log_moves_to_the_older_file_and_begins_anew() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = |name: &str| {
            let mut options = File::options();
            let options = options.create(true).read(true).append(true);
            options.open(directory.path().join(name)).expect("opened")
        };
        let (mut log, older) = (open("log"), open("log.1"));
        let text = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect("read");
        for round in ["first\n", "second\n"] {
            log.write_all(round.as_bytes()).expect("written");
            turn(&log, &older, 3).expect("turned");
        }
        log.write_all(b"new").expect("written");
        turn(&log, &older, 3).expect("small enough");

        assert_eq!(text("log"), "new");
        assert_eq!(text("log.1"), "second\n");
    }

    #[test]
    fn a_log_that_cannot_be_put_aside_does_not_grow_either() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        std::fs::write(&path, "a line\n").expect("written");
        let log = File::options().read(true).append(true).open(&path);
        let log = log.expect("opened");
        // The kernel refuses every write to it, as a full disk does.
        let full = File::options().write(true).open("/dev/full");

        let turned = turn(&log, &full.expect("opened"), 3);

        assert!(turned.is_err());
        assert_eq!(log.metadata().expect("looked at").len(), 0);
        assert!(turn(&log, &log, 3).is_ok(), "it is short");
    }
}
