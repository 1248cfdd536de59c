//! The half of a sandbox inside the fence.
//!
//! [`fence::plan`] says what the fence is made of, [`start`] forks the boundary, which builds it. From then on the two
//! halves speak over the handoff socket and the connections that travel through it.

pub mod broker;
pub mod fence;
mod inside;
mod launcher;
mod loss;
mod serve;
mod service;
mod sessions;
mod tree;

use holdfast_kernel::fork::{Child, Forked, fork, leave, map_ids};
use holdfast_kernel::handoff::{self, Socket};
use holdfast_wire::v1::handoff::Kind;
use holdfast_wire::v1::{self, Handoff};
use nix::sched::CloneFlags;
use nix::sys::signal::Signal;
use prost::Message;

use fence::{Broken, Fence};

/// A boundary that has been forked. Whoever lets go of it ends it, and with it everything inside.
#[derive(Debug)]
pub struct Boundary(Child);

/// Forks the boundary into namespaces of its own; it builds its fence and speaks over the socket. It ends with this
/// process.
///
/// # Panics
///
/// When this process has more than one thread.
pub fn start(fence: &Fence) -> Result<(Boundary, Socket), Broken> {
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
        Forked::Parent(child) => {
            drop(theirs);
            let boundary = Boundary(child);
            map_ids(boundary.0.pid).map_err(broken("map the ids of the user namespace"))?;
            let mapped = Handoff {
                kind: Some(Kind::Mapped(v1::Mapped {})),
            }
            .encode_to_vec();
            ours.send(&mapped, &[])
                .map_err(broken("let the boundary begin"))?;
            Ok((boundary, ours))
        }
    }
}

impl Drop for Boundary {
    fn drop(&mut self) {
        // One that has ended already is gone either way.
        let _ = self.0.signal(Signal::SIGKILL);
        let _ = self.0.wait();
    }
}
