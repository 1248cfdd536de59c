//! Writes a program's output to one of our ends, byte for byte, on a thread of its own, which most streams never need.
//!
//! ```text
//! Quiet ──a first chunk──> a thread writes ──end, reader gone, failure──> told
//!   └──end──> told
//! ```
//!
//! A slow reader holds the program back through the bounded channel. A reader who has gone closes the channel. Output
//! that is wanted as a document is kept in memory instead, up to a bound.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::mem;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::terminal;

/// Where output goes.
#[derive(Debug)]
pub(crate) enum Sink {
    /// To a file, a pipe or a terminal.
    File(OwnedFd),
    /// Into memory.
    Memory(Capture),
}

/// Output that is kept, up to a bound; what exceeds it is counted only.
#[derive(Debug, Clone, Default)]
pub(crate) struct Capture(Arc<Mutex<Captured>>);

/// What was kept.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    /// The first bytes.
    pub(crate) bytes: Vec<u8>,
    /// How many there were in all.
    pub(crate) total: u64,
}

impl Capture {
    /// The most that is kept of one stream.
    pub(crate) const MOST: usize = 1 << 20;

    /// Takes out what was kept.
    pub(crate) fn take(&self) -> Captured {
        mem::take(&mut self.0.lock())
    }

    fn add(&self, chunk: &[u8]) {
        let mut captured = self.0.lock();
        captured.total += chunk.len() as u64;
        let room = Self::MOST - captured.bytes.len();
        captured
            .bytes
            .extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
}

/// One of a program's two outputs, on its way to one of our ends.
#[derive(Debug)]
pub(crate) struct Printer {
    name: &'static str,
    flow: Flow,
}

#[derive(Debug)]
enum Flow {
    /// Nothing has come yet; the first chunk starts the thread.
    Quiet(OwnedFd, mpsc::Receiver<Bytes>),
    /// The thread says whether all was written that anybody wanted to read.
    Writing(oneshot::Receiver<io::Result<()>>),
    /// What comes is kept.
    Keeping(Capture, mpsc::Receiver<Bytes>),
    /// Nothing comes any more.
    Over(io::Result<()>),
}

impl Printer {
    /// What comes out of `source` goes to `output`; `name` is its thread's.
    pub(crate) fn new(name: &'static str, output: Sink, source: mpsc::Receiver<Bytes>) -> Self {
        let flow = match output {
            Sink::File(output) => Flow::Quiet(output, source),
            Sink::Memory(capture) => Flow::Keeping(capture, source),
        };
        Self { name, flow }
    }

    /// Has the bytes flow until there is nothing left to write, or nobody who reads it. May be broken off and called again.
    pub(crate) async fn run(&mut self) -> Result<(), &io::Error> {
        loop {
            match &mut self.flow {
                Flow::Quiet(_, source) => {
                    let first = source.recv().await;
                    let quiet = mem::replace(&mut self.flow, Flow::Over(Ok(())));
                    if let (Some(first), Flow::Quiet(output, source)) = (first, quiet) {
                        self.flow = write(self.name, output, first, source);
                    }
                }
                Flow::Writing(ended) => {
                    let silent = |_| Err(io::Error::other("its thread has ended"));
                    self.flow = Flow::Over(ended.await.unwrap_or_else(silent));
                }
                Flow::Keeping(capture, source) => match source.recv().await {
                    Some(chunk) => capture.add(&chunk),
                    None => self.flow = Flow::Over(Ok(())),
                },
                Flow::Over(_) => break,
            }
        }
        match &self.flow {
            Flow::Over(Err(error)) => Err(error),
            Flow::Over(Ok(())) | Flow::Quiet(..) | Flow::Writing(_) | Flow::Keeping(..) => Ok(()),
        }
    }
}

/// On a thread: a write takes as long as the reader likes.
fn write(name: &str, output: OwnedFd, first: Bytes, source: mpsc::Receiver<Bytes>) -> Flow {
    let (end, ended) = oneshot::channel();
    let thread = thread::Builder::new().name(name.into()).stack_size(STACK);
    let started = thread.spawn(move || {
        let printed = write_all(File::from(output), first, source);
        let _nobody_waits = end.send(printed);
    });
    match started {
        Ok(_) => Flow::Writing(ended),
        Err(error) => Flow::Over(Err(error)),
    }
}

fn write_all(mut output: File, first: Bytes, mut source: mpsc::Receiver<Bytes>) -> io::Result<()> {
    let _unstopped = terminal::never_stopped();
    let at_terminal = output.is_terminal();
    let mut next = Some(first);
    while let Some(chunk) = next {
        if let Err(error) = write_chunk(&mut output, &chunk) {
            // A reader who went away before the end, as in `| head`, has what he wanted. A terminal that was hung up answers EIO:
            // its reader has gone like that of a pipe.
            let hung_up = at_terminal && error.raw_os_error() == Some(libc::EIO);
            let closed = hung_up || error.kind() == io::ErrorKind::BrokenPipe;
            return if closed { Ok(()) } else { Err(error) };
        }
        next = source.blocking_recv();
    }
    Ok(())
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
