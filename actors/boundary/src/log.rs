//! The log of a lasting boundary: what it says on standard error, as JSON, in a file that does not grow for ever.
//!
//! In its own root it has no files to rename: it was given two, and when the first is full it is copied over the second.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_actor::Fault;

use crate::Lasts;

/// Keeps the log below [`MOST`]; the older one gets what was in it.
pub(crate) async fn bound(lasts: Arc<Lasts>) -> Result<(), Fault> {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        turn(&lasts.log, &lasts.older, MOST)?;
    }
}

/// Moves what is in `log` to `older` if it is more than `most`.
fn turn(log: &File, mut older: &File, most: u64) -> io::Result<()> {
    let length = log.metadata()?.len();
    if length <= most {
        return Ok(());
    }
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
    // Both processes that write here append, so the next line begins the file.
    log.set_len(0)
}

/// How large the log may become.
pub(crate) const MOST: u64 = 4 << 20;

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
}
