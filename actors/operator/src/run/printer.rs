//! Writes a program's output to one of our ends, byte for byte, on a thread of its own.
//!
//! A slow reader holds the program back through the bounded channel. A reader who has gone closes the channel.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread;

use bytes::Bytes;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::{mpsc, oneshot};

use super::terminal;

/// How the writing ended.
#[derive(Debug)]
pub(crate) enum Printed {
    /// Everything was written.
    Whole,
    /// The reader went away before the end, as in `| head`.
    Closed,
    /// A write failed.
    Failed(io::Error),
}

/// Writes what comes out of `source` to `output`; the end is told when there is nothing left to write.
pub(crate) fn print(
    name: &str,
    output: OwnedFd,
    source: mpsc::Receiver<Bytes>,
) -> io::Result<oneshot::Receiver<Printed>> {
    let (end, ended) = oneshot::channel();
    let thread = thread::Builder::new().name(name.into()).stack_size(STACK);
    thread.spawn(move || {
        let printed = write_all(File::from(output), source);
        let _nobody_waits = end.send(printed);
    })?;
    Ok(ended)
}

fn write_all(mut output: File, mut source: mpsc::Receiver<Bytes>) -> Printed {
    let _unstopped = terminal::never_stopped();
    let at_terminal = output.is_terminal();
    while let Some(chunk) = source.blocking_recv() {
        if let Err(error) = write_chunk(&mut output, &chunk) {
            // A terminal that was hung up answers EIO: its reader has gone like that of a pipe.
            let hung_up = at_terminal && error.raw_os_error() == Some(libc::EIO);
            let closed = hung_up || error.kind() == io::ErrorKind::BrokenPipe;
            return if closed {
                Printed::Closed
            } else {
                Printed::Failed(error)
            };
        }
    }
    Printed::Whole
}

fn write_chunk(output: &mut File, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        match output.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Somebody has made our output non-blocking: wait for room.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut writable = [PollFd::new(output.as_fd(), PollFlags::POLLOUT)];
                let _looked_at_by_the_next_write = poll(&mut writable, PollTimeout::NONE);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

const STACK: usize = 64 * 1024;
