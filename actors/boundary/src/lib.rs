//! The half of a sandbox inside the fence.
//!
//! [`fence::plan`] says what the fence is made of, [`start`] and [`start_lasting`] fork the boundary, which builds it. From
//! then on the two halves speak over the handoff socket and the connections that travel through it.

mod admission;
pub mod broker;
pub mod fence;
mod grace;
mod guest;
mod hold;
mod holder;
mod inside;
mod launcher;
mod line;
mod link;
mod log;
mod loss;
mod placeholder;
mod pulse;
mod reading;
mod serve;
mod service;
mod sessions;
mod settle;
mod silence;
mod stock;
mod sweeper;
mod tree;
mod worker;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_kernel::Error;
use holdfast_kernel::descriptors;
use holdfast_kernel::fork::{Child, Ended, Forked, fork, leave, map_ids};
use holdfast_kernel::handoff::door::Door;
use holdfast_kernel::handoff::{self, Socket};
use holdfast_kernel::identity::Identity;
use holdfast_wire::v1::handoff::Kind;
use holdfast_wire::v1::{self, Handoff};
use nix::sched::CloneFlags;
use nix::sys::signal::Signal;
use prost::Message;

pub use settle::settle;

use fence::{Broken, Fence};
use sweeper::Sweeper;

/// A boundary that has been forked. One of [`start`] ends with this value, and with it everything inside; a lasting one
/// goes on.
#[derive(Debug)]
pub struct Boundary {
    child: Child,
    lasting: bool,
    /// Dropped after the boundary of [`start`] is gone: then it has swept.
    sweeper: Option<Sweeper>,
}

/// What a boundary needs to outlive its keeper.
#[derive(Debug)]
pub struct Lasting {
    /// Where the keepers after the first one knock: the path of a Unix socket, at most 107 bytes.
    pub door: PathBuf,
    /// Where its process is written down before it begins: whoever comes when its first keeper is dead has to find it.
    pub pid: PathBuf,
    /// Where its log goes, opened for reading and for appending. It is kept below 4 MiB.
    pub log: File,
    /// Where the log is kept that had no room any more; replaced as a whole.
    pub older: File,
    /// How long it lives without a keeper; [`GRACE`] unless a test is in a hurry.
    pub grace: Duration,
}

/// What the boundary's life depends on.
#[derive(Debug)]
pub(crate) enum Life {
    /// The process that has forked it.
    Tied,
    /// Any keeper, this one first.
    Lasting(Arc<Lasts>),
}

/// The open ends of [`Lasting`].
#[derive(Debug)]
pub(crate) struct Lasts {
    pub(crate) door: Arc<Door>,
    pid: PathBuf,
    pub(crate) log: File,
    pub(crate) older: File,
    pub(crate) grace: Duration,
}

/// Forks the boundary into namespaces of its own; it builds its fence and speaks over the socket. It ends with this
/// process. What this host does not give now is noted in what the fence lacks.
///
/// # Panics
///
/// When this process has more than one thread.
pub fn start(fence: &mut Fence) -> Result<(Boundary, Socket), Broken> {
    begin(fence, Life::Tied)
}

/// Forks a boundary that outlives this process, otherwise as [`start`]. The launch token is the one that the first keeper
/// attaches with, over the socket that is answered here.
///
/// The launcher and its children are copies of this process: the token must not have been in its memory before.
///
/// # Panics
///
/// When this process has more than one thread.
pub fn start_lasting(fence: &mut Fence, lasting: Lasting) -> Result<(Boundary, Socket), Broken> {
    let door = Door::bind(&lasting.door)
        .map_err(|error| Broken::new("bind the boundary's socket", &lasting.door, &error))?;
    begin(
        fence,
        Life::Lasting(Arc::new(Lasts {
            door: Arc::new(door),
            pid: lasting.pid,
            log: lasting.log,
            older: lasting.older,
            grace: lasting.grace,
        })),
    )
}

fn begin(fence: &mut Fence, life: Life) -> Result<(Boundary, Socket), Broken> {
    room_for(fence.ports.len() + usize::from(fence.every_port))?;
    // Before the boundary: whenever this process is killed, somebody is there who knows of the file.
    let sweeper = fence.make_place();
    let broken = |step| move |error| Broken::new(step, "", &error);
    let (ours, theirs) = handoff::pair().map_err(broken("make the handoff socket"))?;
    let namespaces = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWPID;
    match fork(namespaces).map_err(broken("make user, mount, net, ipc, uts and pid namespaces"))? {
        Forked::Child => {
            drop(ours);
            leave(inside::run(fence, theirs, life))
        }
        Forked::Parent(child) => {
            drop(theirs);
            let lasting = matches!(life, Life::Lasting(_));
            let mut boundary = Boundary {
                child,
                lasting,
                sweeper,
            };
            let pidfd = boundary.pidfd();
            let sweeper = boundary.sweeper.as_mut();
            let begun = sweeper
                .map_or(Ok(()), |sweeper| sweeper.watch(&pidfd))
                .map_err(broken("have the boundary watched"))
                .and_then(|()| {
                    map_ids(boundary.child.pid).map_err(broken("map the ids of the user namespace"))
                })
                .and_then(|()| match &life {
                    Life::Tied => Ok(()),
                    Life::Lasting(lasts) => {
                        // Without the word that follows, the process ends; so there is none that lives and is not written
                        // down.
                        Identity::of(boundary.pid())
                            .and_then(|it| it.write(&lasts.pid))
                            .map_err(|error| {
                                Broken::new("write the boundary down", &lasts.pid, &error)
                            })
                    }
                })
                .and_then(|()| {
                    let mapped = Handoff {
                        kind: Some(Kind::Mapped(v1::Mapped {})),
                    };
                    ours.send(&mapped.encode_to_vec(), &[])
                        .map_err(broken("let the boundary begin"))
                });
            match begun {
                Ok(()) => Ok((boundary, ours)),
                Err(broken) => {
                    boundary.kill();
                    Err(broken)
                }
            }
        }
    }
}

/// Whether a process with as many descriptors as this one may open what the boundary opens, a listener for each of `ports`
/// included; its keeper opens about as many. Asked before anything is started: where it is refused on the way depends on
/// who is quicker.
fn room_for(ports: usize) -> Result<(), Broken> {
    let seen = descriptors::observe()
        .map_err(|error| Broken::new("count the open descriptors", "", &error))?;
    let (needed, free) = (ports as u64 + SERVING, seen.free());
    if needed <= free {
        return Ok(());
    }
    let limit = seen.limit;
    let sandbox = match ports {
        0 => "a sandbox".to_owned(),
        1 => "a sandbox that listens on a port".to_owned(),
        ports => format!("a sandbox that listens on {ports} ports"),
    };
    Err(Broken::told(
        format!("find room for {sandbox}"),
        format!("too many open files: reserve {needed} descriptors: {free} of {limit} are free"),
    ))
}

impl Boundary {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.pid.as_raw().unsigned_abs()
    }

    /// A pidfd of its process: readable when it has ended.
    pub fn pidfd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.child.pidfd)
    }

    /// Waits until it has ended and takes its status, so that it is no zombie of this process any more. Blocks.
    pub fn wait(&self) -> Result<Ended, Error> {
        self.child.wait()
    }

    fn kill(&self) {
        // One that has ended already is gone either way.
        let _ = self.child.signal(Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

impl Drop for Boundary {
    fn drop(&mut self) {
        if !self.lasting {
            self.kill();
        }
    }
}

impl Life {
    /// What a lasting one has besides.
    pub(crate) fn lasts(self) -> Option<Arc<Lasts>> {
        match self {
            Self::Tied => None,
            Self::Lasting(lasts) => Some(lasts),
        }
    }
}

/// How long a boundary lives without a keeper: after it nobody is expected to come back, and it fails closed.
pub const GRACE: Duration = Duration::from_mins(1);

/// So many have to be free, beside those for listeners, that keeper and boundary start and serve a session.
const SERVING: u64 = 22;
