//! The ends of a session's pipes, or its terminal, on this side.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_kernel::descriptors::{both_noted, noted};
use holdfast_kernel::ready::Ready;
use holdfast_kernel::{Called, Error, Result};
use holdfast_wire::v1;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{pipe2, read, write};
use prost::Message;

use super::session::{Output, Session};

/// Our ends of the three pipes of a session without a terminal.
#[derive(Debug)]
pub(super) struct Pipes {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

/// What remains here once the session runs.
pub(super) struct Parts {
    pub(super) input: Input,
    pub(super) outputs: Vec<(v1::Stream, Arc<Ready<OwnedFd>>)>,
    pub(super) master: Option<Arc<Ready<OwnedFd>>>,
}

/// Where a session's input is written.
#[derive(Debug)]
pub(crate) enum Input {
    /// A pipe: dropping it is the end of the input.
    Pipe(Ready<OwnedFd>),
    /// A terminal, which has no end of input but a character for it.
    Terminal(Arc<Ready<OwnedFd>>),
}

/// Reads one stream of a session until its end. Dropped before, it tells that there will be no more.
#[derive(Debug)]
pub(crate) struct Reader {
    session: Arc<Session>,
    stream: v1::Stream,
    source: Arc<Ready<OwnedFd>>,
    /// Whether the session has been told that its stream is read.
    told: bool,
}

/// A file in memory that holds what is to be done, for the launcher's child to read.
pub(super) fn request_file(what: v1::launch_request::What) -> Result<OwnedFd> {
    let request = v1::LaunchRequest {
        what: Some(what),
        ..v1::LaunchRequest::default()
    };
    let file = noted(memfd_create(c"program", MFdFlags::MFD_CLOEXEC).called("memfd_create")?);
    let mut file = std::fs::File::from(file);
    file.write_all(&request.encode_to_vec())
        .called("write the program")?;
    Ok(file.into())
}

impl Pipes {
    /// Makes them. Answers the session's own ends, too: input, output, error.
    pub(super) fn new() -> Result<(Self, [OwnedFd; 3])> {
        let pipe = || {
            let ends = pipe2(OFlag::O_CLOEXEC).map(both_noted).called("pipe2")?;
            // Programs open `/dev/stdout`, also those that run as somebody else than this process.
            let everyone = Mode::from_bits_truncate(0o666);
            fchmod(&ends.0, everyone).called("fchmod")?;
            Ok::<_, Error>(ends)
        };
        let (stdin, stdout, stderr) = (pipe()?, pipe()?, pipe()?);
        let ours = Self {
            stdin: stdin.1,
            stdout: stdout.0,
            stderr: stderr.0,
        };
        Ok((ours, [stdin.0, stdout.1, stderr.1]))
    }
}

impl Parts {
    /// Keeps our ends of `pipes` or the terminal's `master`.
    pub(super) fn new(pipes: Option<Pipes>, master: Option<OwnedFd>) -> Result<Self> {
        let ready = |fd: OwnedFd| -> Result<Ready<OwnedFd>> {
            let flags = FcntlArg::F_SETFL(OFlag::O_NONBLOCK);
            fcntl(&fd, flags).called("fcntl O_NONBLOCK")?;
            Ready::new(fd)
        };
        match (pipes, master) {
            (_, Some(master)) => {
                let flags = FcntlArg::F_SETFL(OFlag::O_NONBLOCK | OFlag::O_RDWR);
                fcntl(&master, flags).called("fcntl O_NONBLOCK")?;
                let master = Arc::new(Ready::new(master)?);
                Ok(Self {
                    input: Input::Terminal(Arc::clone(&master)),
                    outputs: vec![(v1::Stream::Stdout, Arc::clone(&master))],
                    master: Some(master),
                })
            }
            (Some(pipes), None) => Ok(Self {
                input: Input::Pipe(ready(pipes.stdin)?),
                outputs: vec![
                    (v1::Stream::Stdout, Arc::new(ready(pipes.stdout)?)),
                    (v1::Stream::Stderr, Arc::new(ready(pipes.stderr)?)),
                ],
                master: None,
            }),
            (None, None) => Err(Error::new("receive the terminal", libc::EPROTO)),
        }
    }
}

impl Input {
    /// Writes all of `bytes`, waiting for room. `EPIPE`: the session reads no more.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> Result<()> {
        let ready = match self {
            Self::Pipe(ready) => ready,
            Self::Terminal(ready) => ready.as_ref(),
        };
        while !bytes.is_empty() {
            let written = ready.write(|fd| write(fd, bytes).called("write")).await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Ends the input: a pipe is closed by dropping it, a terminal gets its character.
    pub(crate) async fn end(self) -> Result<()> {
        match self {
            Self::Pipe(_) => Ok(()),
            terminal @ Self::Terminal(_) => terminal.write_all(&[END_OF_TRANSMISSION]).await,
        }
    }
}

impl Reader {
    pub(super) fn new(
        session: Arc<Session>,
        stream: v1::Stream,
        source: Arc<Ready<OwnedFd>>,
    ) -> Self {
        Self {
            session,
            stream,
            source,
            told: false,
        }
    }

    /// Reads until the end of the stream, or until the session's process has ended and what it left behind is read. What
    /// other processes write to the stream after that is taken off their hands and dropped.
    ///
    /// Cut off at any point, it can be called again and loses nothing.
    pub(crate) async fn run(&mut self) {
        let mut buffer = vec![0; CHUNK];
        if !self.told {
            self.read_all(&mut buffer).await;
            self.tell();
        }
        if self.session.has_terminal() {
            // With its last reader a terminal hangs up, as it does when a login ends.
            return;
        }
        tokio::select! {
            () = self.closed() => {}
            () = self.discard(&mut buffer) => {}
        }
    }

    fn tell(&mut self) {
        if !std::mem::replace(&mut self.told, true) {
            self.session.drained();
        }
    }

    async fn read_all(&self, buffer: &mut [u8]) {
        let drained = self.drained();
        tokio::pin!(drained);
        loop {
            self.room().await;
            let taken = tokio::select! {
                biased;
                () = self.closed() => return,
                taken = self.source.read(|fd| read(fd, buffer).called("read")) => taken,
                () = &mut drained => break,
            };
            // EIO of a terminal's master: its last process has closed it (`tty_ioctl(4)`).
            let Ok(length @ 1..) = taken else { return };
            self.keep(&buffer[..length]);
        }
        // What the process itself wrote is in the pipe by now; a pipe holds no more than this.
        let mut left = PIPE;
        while left > 0 {
            self.room().await;
            let Ok(length @ 1..) = read(self.source.inner(), buffer) else {
                return;
            };
            self.keep(&buffer[..length]);
            left = left.saturating_sub(length);
        }
    }

    /// Waits until an attached client has room for more.
    async fn room(&self) {
        self.until(|output| {
            !output
                .unread()
                .is_some_and(|offset| output.ring.is_full_for(offset))
        })
        .await;
    }

    /// Waits until nobody will read the stream any more.
    async fn closed(&self) {
        self.until(|output| output.is_closed(self.stream)).await;
    }

    /// Waits until the client has brought about what `holds` wants.
    async fn until(&self, holds: impl Fn(&Output) -> bool) {
        loop {
            let taken = self.session.taken.notified();
            tokio::pin!(taken);
            taken.as_mut().enable();
            if holds(&self.session.output.lock()) {
                return;
            }
            taken.await;
        }
    }

    /// Waits until the session's process has ended and its pipes had a little time.
    async fn drained(&self) {
        loop {
            let arrived = self.session.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            if self.session.output.lock().exit.is_some() {
                break;
            }
            arrived.await;
        }
        tokio::time::sleep(DRAIN).await;
    }

    fn keep(&self, bytes: &[u8]) {
        let bytes = Bytes::copy_from_slice(bytes);
        self.session.output.lock().push(self.stream, bytes);
        self.session.arrived.notify_waiters();
    }

    /// A process left behind must not die of a full or broken pipe.
    async fn discard(&self, buffer: &mut [u8]) {
        loop {
            let taken = self.source.read(|fd| read(fd, buffer).called("read")).await;
            if !matches!(taken, Ok(1..)) {
                return;
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.tell();
    }
}

/// What is read at a time: as much as a pipe holds.
const CHUNK: usize = 64 * 1024;

/// The most that a pipe holds without privileges (`pipe(7)`).
const PIPE: usize = 1 << 20;

/// How long the pipes of a session are read after its process has ended, if others hold them open.
const DRAIN: Duration = Duration::from_millis(100);

/// Ctrl-D: a terminal in its usual mode takes it for the end of the input.
const END_OF_TRANSMISSION: u8 = 4;
