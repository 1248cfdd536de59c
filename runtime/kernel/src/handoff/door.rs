//! A named socket for packets: whoever may come to its path may knock.
//!
//! The kernel tells a client who listens, and the listener who knocks (`SO_PEERCRED`, `unix(7)`): for a client that is the
//! process that called `listen`, so a socket that is to name a child is bound before the fork and listened on after it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, connect, listen, socket,
};

use super::Socket;
use crate::descriptors::noted;
use crate::fork::open_pidfd;
use crate::{Called, Error, Result};

/// A named socket on which others knock.
#[derive(Debug)]
pub struct Door(OwnedFd);

impl Door {
    /// Binds `path`, for its owner only; what a dead process has left there is replaced. A path that is too long is
    /// `ENAMETOOLONG`.
    pub fn bind(path: &Path) -> Result<Self> {
        let address = UnixAddr::new(path).called("bind")?;
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err::<Self, _>(error).called("unlink");
            }
            Ok(()) | Err(_) => {}
        }
        let door = fresh()?;
        bind(door.as_raw_fd(), &address).called("bind")?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).called("chmod")?;
        Ok(Self(door))
    }

    /// Lets others knock; from now on they see the calling process behind the door.
    pub fn listen(&self) -> Result<()> {
        let waiting = Backlog::new(WAITING).called("listen")?;
        listen(&self.0, waiting).called("listen")
    }

    /// Takes one who has knocked; `EAGAIN` when nobody has.
    pub fn accept(&self) -> Result<Socket> {
        let flags = SockFlag::SOCK_CLOEXEC;
        accept4(&self.0, flags)
            .called("accept4")
            .map(|guest| Socket(noted(guest)))
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Knocks at the door at `path`; `EAGAIN` when too many have knocked already. Nothing on the socket ever waits.
pub fn knock(path: &Path) -> Result<Socket> {
    let address = UnixAddr::new(path).called("connect")?;
    let socket = fresh()?;
    connect(socket.as_raw_fd(), &address).called("connect")?;
    Ok(Socket(socket))
}

/// A pidfd of the process behind the other end of `socket`; `ESRCH` when it has ended.
pub fn peer_pidfd(socket: &impl AsFd) -> Result<OwnedFd> {
    let mut number: libc::c_int = -1;
    let mut length: libc::socklen_t = size_of::<libc::c_int>().try_into().unwrap_or(0);
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes, one int, to `number`; both live here.
    let answer = unsafe {
        libc::getsockopt(
            descriptor,
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut number).cast(),
            &raw mut length,
        )
    };
    if answer == 0 {
        // SAFETY: the kernel has just made this descriptor for us alone.
        return Ok(noted(unsafe { OwnedFd::from_raw_fd(number) }));
    }
    let error = Error::last("getsockopt SO_PEERPIDFD");
    if error.errno() != libc::ENOPROTOOPT {
        return Err(error);
    }
    // Before Linux 6.5 there is the number only; whoever has it now is asked for.
    let pid = super::peer(socket)?.pid;
    open_pidfd(pid.unsigned_abs(), false)
}

fn fresh() -> Result<OwnedFd> {
    socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        None,
    )
    .map(noted)
    .called("socket")
}

/// How many may have knocked and not been taken.
const WAITING: i32 = 8;

/// `asm-generic/socket.h`, since Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::{Forked, fork, leave};
    use crate::handoff::{Received, peer};
    use nix::sched::CloneFlags;
    use nix::sys::signal::Signal;

    #[test]
    fn the_process_that_listens_is_the_one_behind_the_door() {
        crate::apart::apart(|| {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("door");
            let door = Door::bind(&path).expect("bound");
            let (ours, theirs) = crate::handoff::pair().expect("a pair");
            let child = match fork(CloneFlags::empty()).expect("fork") {
                Forked::Child => {
                    door.listen().expect("listening");
                    theirs.send(b"open", &[]).expect("told");
                    drop(ours);
                    let _ = theirs.receive(&mut [0; 8]);
                    leave(0)
                }
                Forked::Parent(child) => child,
            };
            drop((theirs, door));
            let _ = ours.receive(&mut [0; 8]).expect("open");

            let socket = knock(&path).expect("open");
            let pidfd = peer_pidfd(&socket).expect("somebody");

            assert_eq!(peer(&socket).expect("told").pid, child.pid.as_raw());
            crate::fork::signal_by(&pidfd, Signal::SIGKILL as i32).expect("signal");
            assert_eq!(
                child.wait().expect("its end"),
                crate::fork::Ended::Signalled(9)
            );
        });
    }

    #[test]
    fn packets_go_through_and_a_stale_name_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("door");
        drop(Door::bind(&path).expect("bound"));
        let refused = knock(&path).expect_err("nobody listens");
        assert_eq!(refused.errno(), libc::ECONNREFUSED);

        let door = Door::bind(&path).expect("bound again");
        door.listen().expect("listening");
        assert_eq!(door.accept().expect_err("nobody").errno(), libc::EAGAIN);
        let one = knock(&path).expect("open");
        let other = door.accept().expect("somebody");
        one.send(b"hello", &[]).expect("sent");

        let mut buffer = [0; 16];
        let received = other.receive(&mut buffer).expect("a packet");
        assert!(matches!(received, Received::Packet { length: 5, .. }));
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_path_that_is_too_long_is_refused_by_name() {
        let refused = Door::bind(Path::new(&"x".repeat(200))).expect_err("too long");

        assert_eq!(refused.errno(), libc::ENAMETOOLONG);
    }
}
