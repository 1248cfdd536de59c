//! How a keeper comes to a boundary: it has forked it, or it knocks at its door.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use holdfast_kernel::handoff::door::{knock, peer_pidfd};
use holdfast_kernel::handoff::{Socket, peer};
use holdfast_kernel::{Error, Result};

use super::Unlinked;

/// A way to a boundary, and its process.
#[derive(Debug)]
pub struct Approach {
    /// The handoff socket.
    pub socket: Socket,
    /// The boundary's process, as this one numbers it.
    pub pid: u32,
    /// Readable when it has ended.
    pub pidfd: Arc<OwnedFd>,
}

/// Knocks at the door of a lasting boundary. Nothing is taken over before the keeper attaches.
pub fn connect(path: &Path) -> std::result::Result<Approach, Unlinked> {
    approach(path).map_err(|error| Unlinked::Unreachable {
        path: path.display().to_string(),
        source: io::Error::from(error),
    })
}

fn approach(path: &Path) -> Result<Approach> {
    let socket = knock(path)?;
    let process = peer(&socket)?;
    if process.uid != nix::unistd::geteuid().as_raw() {
        return Err(Error::new("getsockopt SO_PEERCRED", libc::EPERM));
    }
    let pidfd = peer_pidfd(&socket)?;
    Ok(Approach {
        socket,
        pid: process.pid.unsigned_abs(),
        pidfd: Arc::new(pidfd),
    })
}
