//! The process that makes a [`Placeholder`] and removes it when the sandbox is gone.
//!
//! ```text
//!  Making ── it stands ──> Waiting ── the boundary is known ──> Watching ── it has ended ──> swept
//!     └── none is made       └── whoever forked it is gone ──────────────────────────────────^
//! ```
//!
//! A sandbox may be killed whole, `run` and all, by a signal that nobody can catch, and its boundary dies with `run`. So this
//! is a process of its own outside of it, with nothing but its caller's rights to the one directory. It hears nothing from
//! inside: only whether the boundary lives.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use holdfast_kernel::execute::close_all_but;
use holdfast_kernel::fork::{Child, Forked, fork, leave};
use holdfast_kernel::handoff::{self, Received, Socket};
use holdfast_kernel::title::retitle;
use holdfast_kernel::{Called, Error};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::CloneFlags;
use nix::sys::signal::SigSet;
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::setsid;

use crate::placeholder::Placeholder;

/// A sweeper whose placeholder stands. Dropped when the sandbox is gone, or was never there, it has swept.
#[derive(Debug)]
pub(crate) struct Sweeper {
    child: Child,
    duty: Duty,
}

#[derive(Debug)]
enum Duty {
    /// It hears of the boundary here; if it does not, it sweeps.
    Unknown(Socket),
    /// It watches the boundary with this pidfd.
    Watched(Arc<OwnedFd>),
}

/// What it tells first.
enum Told {
    Stands,
    /// What is there is somebody's own.
    Foreign,
    Failed(i32),
}

impl Sweeper {
    /// Forks one, and waits until the placeholder at `path` stands. `None`: nothing is needed there.
    ///
    /// # Panics
    ///
    /// When this process has more than one thread.
    pub(crate) fn start(path: &Path) -> Result<Option<Self>, Error> {
        let (ours, theirs) = handoff::pair()?;
        let child = match fork(CloneFlags::empty())? {
            Forked::Child => leave(live(path, &theirs)),
            Forked::Parent(child) => child,
        };
        drop(theirs);
        let told = hear(&ours);
        if let Ok(Told::Stands) = told {
            let duty = Duty::Unknown(ours);
            return Ok(Some(Self { child, duty }));
        }
        // Whether it could be heard or not: without anybody to hear from it sweeps and ends.
        drop(ours);
        let _ = child.wait();
        match told? {
            Told::Stands | Told::Foreign => Ok(None),
            Told::Failed(errno) => Err(Error::new("open", errno)),
        }
    }

    /// Lets it watch the sandbox's boundary.
    pub(crate) fn watch(&mut self, boundary: &Arc<OwnedFd>) -> Result<(), Error> {
        if let Duty::Unknown(channel) = &self.duty {
            channel.send(&[0], &[boundary.as_fd()])?;
            self.duty = Duty::Watched(Arc::clone(boundary));
        }
        Ok(())
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        let over = match &self.duty {
            Duty::Unknown(channel) => shutdown(channel.as_fd().as_raw_fd(), Shutdown::Both).is_ok(),
            Duty::Watched(boundary) => ends_within(boundary, PollTimeout::ZERO),
        };
        // A file system that answers late must not keep anybody: it goes on without us.
        let patience = PollTimeout::from(PATIENCE_MS);
        if over && ends_within(&self.child.pidfd, patience) {
            let _ = self.child.wait();
        }
    }
}

/// Whether the process behind `pidfd` has ended or does so in time.
fn ends_within(pidfd: &OwnedFd, patience: PollTimeout) -> bool {
    let mut process = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    matches!(poll(&mut process, patience), Ok(1))
}

/// The sweeper's own life. Answers its status.
fn live(path: &Path, channel: &Socket) -> i32 {
    if let Err(error) = apart(channel) {
        let _ = tell(channel, &Told::Failed(error.errno()));
        return 125;
    }
    let placeholder = match Placeholder::hold(path) {
        Ok(Some(placeholder)) => placeholder,
        Ok(None) => return tell(channel, &Told::Foreign),
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            return tell(channel, &Told::Failed(errno));
        }
    };
    // Whoever cannot hear it is gone, and that is heard below.
    let _ = tell(channel, &Told::Stands);
    if let Some(boundary) = boundary(channel) {
        wait_for(&boundary);
    }
    placeholder.let_go();
    0
}

/// Parts from whoever forked it: no signal meant for them ends it, and it keeps nothing of theirs.
fn apart(channel: &Socket) -> Result<(), Error> {
    SigSet::all().thread_block().called("block signals")?;
    setsid().called("setsid")?;
    close_all_but(&[channel.as_fd().as_raw_fd()])?;
    std::env::set_current_dir("/").called("chdir")?;
    retitle("holdfast sweeper")
}

/// The boundary that is to be watched; `None` when there will be none.
fn boundary(channel: &Socket) -> Option<OwnedFd> {
    match channel.receive(&mut [0; 8]) {
        Ok(Received::Packet { descriptors, .. }) => descriptors.into_iter().next(),
        Ok(Received::Exhausted { .. } | Received::Closed) | Err(_) => None,
    }
}

/// Waits until the boundary has ended, and everything inside with it: it is process 1 there.
fn wait_for(boundary: &OwnedFd) {
    let mut process = [PollFd::new(boundary.as_fd(), PollFlags::POLLIN)];
    while matches!(poll(&mut process, PollTimeout::NONE), Err(Errno::EINTR)) {}
}

fn tell(channel: &Socket, told: &Told) -> i32 {
    let word = match told {
        Told::Stands => 0,
        Told::Foreign => -1,
        Told::Failed(errno) => *errno,
    };
    i32::from(channel.send(&word.to_le_bytes(), &[]).is_err())
}

fn hear(channel: &Socket) -> Result<Told, Error> {
    let mut word = [0; 4];
    match channel.receive(&mut word)? {
        Received::Packet { length: 4, .. } => Ok(match i32::from_le_bytes(word) {
            0 => Told::Stands,
            -1 => Told::Foreign,
            errno => Told::Failed(errno),
        }),
        Received::Packet { .. } | Received::Exhausted { .. } | Received::Closed => {
            Err(Error::new("hear from the sweeper", libc::EPIPE))
        }
    }
}

/// How long it is waited for when the sandbox is gone, in milliseconds.
const PATIENCE_MS: u16 = 2000;
