//! Packets with descriptors: how two processes hand sockets to each other.
//!
//! A packet arrives whole or not at all, and its descriptors arrive with it. The one exception is a receiver that is
//! short of descriptors: the kernel then delivers the bytes and drops what it could not install. That is never silent
//! here: it is [`Received::Exhausted`].

pub mod door;

use std::io::IoSlice;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, getsockopt, sendmsg, socketpair,
    sockopt,
};

use crate::descriptors::{both_noted, noted};
use crate::ready::Ready;
use crate::{Called, Error, Result};

/// The most descriptors one packet carries.
pub const DESCRIPTORS: usize = 16;

/// One end of a connected `AF_UNIX`, `SOCK_SEQPACKET` socket.
#[derive(Debug)]
pub struct Socket(OwnedFd);

/// What a receive found.
#[derive(Debug)]
pub enum Received {
    /// A packet of `length` bytes and every descriptor that was sent with it.
    Packet {
        /// How much of the buffer was filled.
        length: usize,
        /// In the order in which they were sent; closed on `exec`.
        descriptors: Vec<OwnedFd>,
    },
    /// A packet whose descriptors could not all be installed: this process is at its limit. Those that did arrive
    /// are closed again; the sender has to send them once more.
    Exhausted {
        /// How much of the buffer was filled.
        length: usize,
    },
    /// The peer is gone and all it sent has been received.
    Closed,
}

/// Who created the other end, as the namespaces of the caller see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials {
    /// The process; 0 when it is outside the caller's pid namespace.
    pub pid: i32,
    /// The effective user.
    pub uid: u32,
    /// The effective group.
    pub gid: u32,
}

/// Two connected ends, both closed on `exec`.
pub fn pair() -> Result<(Socket, Socket)> {
    let made = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    );
    let (one, other) = both_noted(made.called("socketpair")?);
    Ok((Socket(one), Socket(other)))
}

impl Ready<Arc<Socket>> {
    /// The same as [`Socket::send`] in tokio.
    ///
    /// # Panics
    ///
    /// As [`Socket::send`].
    pub async fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let mut looks = LOOKS;
        loop {
            let sent = self.write(|socket| socket.try_send(bytes, descriptors));
            match sent.await {
                Err(error) if is_crowded(&error) && looks > 0 => {
                    looks -= 1;
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                sent => return sent,
            }
        }
    }
}

/// Whether so many descriptors of this user are on their way that no more may be sent. They may be another program's, and arrive soon.
fn is_crowded(error: &Error) -> bool {
    error.errno() == libc::ETOOMANYREFS
}

/// Who created the other end of a connected Unix socket (`SO_PEERCRED`).
pub fn peer(socket: &impl AsFd) -> Result<Credentials> {
    let found = getsockopt(socket, sockopt::PeerCredentials).called("getsockopt SO_PEERCRED")?;
    Ok(Credentials {
        pid: found.pid(),
        uid: found.uid(),
        gid: found.gid(),
    })
}

impl Socket {
    /// Sends one packet, waiting for room. The peer's end gone is `EPIPE`.
    ///
    /// # Panics
    ///
    /// An empty packet could not be told from the end, and no packet carries more than [`DESCRIPTORS`]: both are bugs.
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let mut looks = LOOKS;
        loop {
            match self.send_once(bytes, descriptors, MsgFlags::empty()) {
                Err(error) if error.errno() == libc::EINTR => {}
                Err(error) if is_crowded(&error) && looks > 0 => {
                    looks -= 1;
                    std::thread::sleep(LOOK_AGAIN);
                }
                sent => return sent,
            }
        }
    }

    /// Sends one packet if there is room now; `EAGAIN` if not.
    ///
    /// # Panics
    ///
    /// As [`Socket::send`].
    pub fn try_send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        self.send_once(bytes, descriptors, MsgFlags::MSG_DONTWAIT)
    }

    /// Receives one packet into `buffer`, waiting for it. A packet longer than the buffer is lost: `EMSGSIZE`.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Received> {
        loop {
            match self.receive_once(buffer, 0) {
                Err(error) if error.errno() == libc::EINTR => {}
                received => return received,
            }
        }
    }

    /// Receives one packet if there is one now; `EAGAIN` if not.
    pub fn try_receive(&self, buffer: &mut [u8]) -> Result<Received> {
        self.receive_once(buffer, libc::MSG_DONTWAIT)
    }

    fn send_once(
        &self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        flags: MsgFlags,
    ) -> Result<()> {
        assert!(!bytes.is_empty(), "an empty packet reads as the end");
        assert!(
            descriptors.len() <= DESCRIPTORS,
            "{} descriptors in one packet",
            descriptors.len()
        );
        let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        let control = if numbers.is_empty() { &[] } else { &rights[..] };
        let packet = [IoSlice::new(bytes)];
        let flags = flags | MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(self.0.as_raw_fd(), &packet, control, flags, None).called("sendmsg")?;
        Ok(())
    }

    fn receive_once(&self, buffer: &mut [u8], flags: libc::c_int) -> Result<Received> {
        let mut control = Control([0; CONTROL]);
        let mut packet = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        // SAFETY: msghdr is plain data for which all zeroes (no name, no buffers, no flags) is a valid value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut packet;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL;
        let flags = flags | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: every pointer in `message` is to a local that outlives the call and has the length said beside it;
        // the kernel writes the packet into `buffer`, which is exclusively ours, and headers into `control`.
        let length = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, flags) };
        let length = usize::try_from(length).map_err(|_| Error::last("recvmsg"))?;
        // Taken before anything is judged, so that what the kernel installed is owned, and closed, on every path.
        let descriptors = rights(&control.0[..message.msg_controllen.min(CONTROL)]);
        if message.msg_flags & libc::MSG_TRUNC != 0 {
            return Err(Error::new("recvmsg", libc::EMSGSIZE));
        }
        if message.msg_flags & libc::MSG_CTRUNC != 0 {
            return Ok(Received::Exhausted { length });
        }
        if length == 0 {
            return Ok(Received::Closed);
        }
        Ok(Received::Packet {
            length,
            descriptors,
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Socket {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.0
    }
}

/// Room for the control messages of one packet, aligned as the kernel writes them.
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// One header and [`DESCRIPTORS`] numbers.
const CONTROL: usize = HEADER + DESCRIPTORS * NUMBER;
const HEADER: usize = size_of::<libc::cmsghdr>();
const NUMBER: usize = size_of::<RawFd>();

/// Takes the descriptors that the kernel has installed and announced in `control` (`cmsg(3)`).
fn rights(control: &[u8]) -> Vec<OwnedFd> {
    let mut owned = Vec::new();
    let mut rest = control;
    while let Some((header, _)) = rest.split_first_chunk::<HEADER>() {
        let length = usize::from_ne_bytes(field(header, offset_of!(libc::cmsghdr, cmsg_len)));
        let level = i32::from_ne_bytes(field(header, offset_of!(libc::cmsghdr, cmsg_level)));
        let kind = i32::from_ne_bytes(field(header, offset_of!(libc::cmsghdr, cmsg_type)));
        let Some(data) = rest.get(HEADER..length) else {
            break;
        };
        if (level, kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            for number in data.as_chunks::<NUMBER>().0 {
                let number = RawFd::from_ne_bytes(*number);
                // SAFETY: the kernel has just installed this number for us (recvmsg with SCM_RIGHTS), nobody else
                // knows it, and each number of the message is visited once.
                owned.push(noted(unsafe { OwnedFd::from_raw_fd(number) }));
            }
        }
        rest = rest
            .get(length.next_multiple_of(align_of::<libc::cmsghdr>())..)
            .unwrap_or_default();
    }
    owned
}

/// The `N` bytes of `header` that begin at `offset`.
fn field<const N: usize>(header: &[u8; HEADER], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[offset..offset + N]);
    bytes
}

/// How soon descriptors that crowd the way are looked for again, and how often: a second in all.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const LOOKS: u32 = 100;

#[cfg(test)]
mod tests;
