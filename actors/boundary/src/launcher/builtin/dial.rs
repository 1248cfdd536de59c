//! Carries bytes between standard input and output and a port of the sandbox's own loopback.
//!
//! Both directions end by themselves: the end of the input is a half-close, and what the port still says comes out. Nobody
//! outside can be told that only the output has ended, so when the port has said its last, input is carried on only as long
//! as it flows.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};

use super::{Failed, PIECE};

/// Dials `port` and carries until both ends have said everything.
pub(super) fn run(port: u32) -> Result<(), Failed> {
    let name = format!("connect to 127.0.0.1:{port}");
    let port = u16::try_from(port).map_err(|_| Failed::with(&name, Errno::EINVAL))?;
    let failed = |source| Failed {
        object: name.clone(),
        source,
    };
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
    // An urgent byte keeps its place; left out of it, it would be lost.
    setsockopt(&socket, sockopt::OobInline, &true).map_err(|errno| Failed::with(&name, errno))?;
    carry(&socket).map_err(failed)
}

/// What is on its way in one direction.
struct Way {
    buffer: Box<[u8]>,
    from: usize,
    to: usize,
    /// Nothing more will come.
    ended: bool,
}

impl Way {
    fn new() -> Self {
        Self {
            buffer: vec![0; PIECE].into(),
            from: 0,
            to: 0,
            ended: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.from == self.to
    }

    fn wants(&self) -> bool {
        self.is_empty() && !self.ended
    }

    /// Reads what is there now; true when the end has come with it.
    fn fill(&mut self, mut source: impl Read) -> io::Result<bool> {
        match source.read(&mut self.buffer) {
            Ok(0) => {
                self.ended = true;
                return Ok(true);
            }
            Ok(length) => (self.from, self.to) = (0, length),
            Err(error) if is_later(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(false)
    }

    /// Writes what there is room for now.
    fn drain(&mut self, mut sink: impl Write) -> io::Result<()> {
        match sink.write(&self.buffer[self.from..self.to]) {
            Ok(length) => self.from += length,
            Err(error) if is_later(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn carry(socket: &TcpStream) -> io::Result<()> {
    let (input, output) = (io::stdin(), io::stdout());
    for fd in [input.as_fd(), output.as_fd(), socket.as_fd()] {
        fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    }
    // Past the standard library's own buffers, which would wait.
    let (input, output) = (Plain(input.as_fd()), Plain(output.as_fd()));
    let (mut out, mut back) = (Way::new(), Way::new());
    let mut closed = false;
    loop {
        if out.ended && out.is_empty() && !std::mem::replace(&mut closed, true) {
            // A peer that is gone already needs not be told.
            let _ = socket.shutdown(Shutdown::Write);
        }
        let said = back.ended && back.is_empty();
        if said && closed {
            return Ok(());
        }
        let mut waited = Vec::with_capacity(4);
        for (wanted, fd, flag) in [
            (out.wants(), input.0, PollFlags::POLLIN),
            (!out.is_empty(), socket.as_fd(), PollFlags::POLLOUT),
            (back.wants(), socket.as_fd(), PollFlags::POLLIN),
            (!back.is_empty(), output.0, PollFlags::POLLOUT),
        ] {
            if wanted {
                waited.push(PollFd::new(fd, flag));
            }
        }
        let limit = if said {
            PollTimeout::from(IDLE)
        } else {
            PollTimeout::NONE
        };
        match poll(&mut waited, limit) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if out.wants() {
            out.fill(input)?;
        }
        if !out.is_empty()
            && let Err(error) = out.drain(socket)
        {
            if said {
                return Ok(());
            }
            return Err(error);
        }
        if back.wants() {
            back.fill(socket)?;
        }
        if !back.is_empty() {
            back.drain(output)?;
        }
    }
}

/// A descriptor, read and written as it is.
#[derive(Clone, Copy)]
struct Plain<'a>(BorrowedFd<'a>);

impl Read for Plain<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(nix::unistd::read(self.0, buffer)?)
    }
}

impl Write for Plain<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(nix::unistd::write(self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// How long input may pause when the port has said its last, in milliseconds.
const IDLE: u16 = 250;
