//! The half of a sandbox inside the fence.
//!
//! [`fence::plan`] says what the fence is made of, [`start`] forks the boundary, which builds it. From then on the two
//! halves speak over the handoff socket and the connections that travel through it.

pub mod broker;
pub mod fence;
mod inside;
mod launcher;
mod serve;
mod service;
mod sessions;
mod tree;

use std::os::fd::{AsFd, BorrowedFd};

use holdfast_kernel::fork::{Child, Forked, fork, leave, map_ids};
use holdfast_kernel::handoff::{self, Socket};
use holdfast_wire::v1::handoff::Kind;
use holdfast_wire::v1::{self, Handoff};
use nix::sched::CloneFlags;
use nix::sys::signal::Signal;
use prost::Message;

use fence::{Broken, Fence};

/// A boundary that has been forked and is building its fence.
#[derive(Debug)]
pub struct Started {
    boundary: Child,
    /// Where it hands over what it makes.
    pub handoff: Socket,
}

/// Forks the boundary into namespaces of its own. It ends with this process.
///
/// # Panics
///
/// When this process has more than one thread.
pub fn start(fence: &Fence) -> Result<Started, Broken> {
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
            leave(inside::run(fence, theirs))
        }
        Forked::Parent(boundary) => {
            drop(theirs);
            let started = Started {
                boundary,
                handoff: ours,
            };
            map_ids(started.boundary.pid).map_err(broken("map the ids of the user namespace"))?;
            let mapped = Handoff {
                kind: Some(Kind::Mapped(v1::Mapped {})),
            };
            started
                .handoff
                .send(&mapped.encode_to_vec(), &[])
                .map_err(broken("let the boundary begin"))?;
            Ok(started)
        }
    }
}

impl Started {
    /// The boundary's process.
    pub fn pid(&self) -> u32 {
        self.boundary.pid.as_raw().unsigned_abs()
    }

    /// Readable when the boundary has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.boundary.pidfd.as_fd()
    }
}

/// Whoever lets go of the boundary ends it, and with it everything inside.
impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.boundary.signal(Signal::SIGKILL);
        let _ = self.boundary.wait();
    }
}
