//! From the two addresses of a TCP connection to the cookie of the socket at one end (`sock_diag(7)`).
//!
//! A cookie names one socket of one network namespace for good: it is never used again, and it stays when the socket
//! has no process any more (`FIN_WAIT`, orphaned, `TIME_WAIT`). It is what `getsockopt(SO_COOKIE)` answers.

use std::collections::HashSet;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, connect, recv, send,
    socket,
};

use crate::descriptors::noted;
use crate::{Called, Error, Result};

/// A socket that answers for the network namespace in which it was opened, wherever it is handed.
///
/// Asking takes `&mut`, and the descriptor has one user at a time: two would take each other's answers.
#[derive(Debug)]
pub struct Diag {
    socket: OwnedFd,
    sequence: u32,
}

impl Diag {
    /// Opens a socket for the caller's network namespace.
    pub fn open() -> Result<Self> {
        Self::connected(Self::unconnected()?)
    }

    /// A socket for the caller's network namespace, to be handed to who asks over it: for a caller that may not connect.
    pub fn unconnected() -> Result<OwnedFd> {
        socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkSockDiag,
        )
        .map(noted)
        .called("socket NETLINK_SOCK_DIAG")
    }

    /// Asks over `socket`. Connected to the kernel, it takes messages from nobody else.
    pub fn connected(socket: OwnedFd) -> Result<Self> {
        connect(socket.as_raw_fd(), &NetlinkAddr::new(0, 0)).called("connect NETLINK_SOCK_DIAG")?;
        Ok(Self::from(socket))
    }

    /// The cookie of the TCP socket whose own address is `local` and whose peer is `remote`; `None` if there is none.
    ///
    /// IPv4-mapped addresses are the IPv4 addresses they stand for. A listener is nobody's connection.
    pub fn cookie(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<Option<u64>> {
        // The kernel falls back to a listener on the port when the connection is not there.
        let found = self.ask(local, remote)?;
        Ok(found.and_then(|(state, cookie)| (state != LISTEN).then_some(cookie)))
    }

    /// Whether a TCP socket listens at `local`, or at every address on its port.
    pub fn is_listened_on(&mut self, local: SocketAddr) -> Result<bool> {
        let nobody = match local.ip().to_canonical() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let found = self.ask(local, SocketAddr::new(nobody, 0))?;
        Ok(found.is_some_and(|(state, _)| state == LISTEN))
    }

    /// The cookies of all TCP sockets that have a peer or are on their way to it, also of those that no process has any more.
    ///
    /// The kernel goes through its whole table, which takes milliseconds. A socket whose neighbours in the table come and go
    /// meanwhile may be left out.
    pub fn connections(&mut self) -> Result<HashSet<u64>> {
        let mut found = HashSet::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            self.list(family, &mut found)?;
        }
        Ok(found)
    }

    fn list(&mut self, family: libc::c_int, found: &mut HashSet<u64>) -> Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        send(
            self.socket.as_raw_fd(),
            &question_about_all(self.sequence, family),
            MsgFlags::empty(),
        )
        .called("send NETLINK_SOCK_DIAG")?;
        let mut buffer = vec![0; PART];
        loop {
            // The kernel writes the next part within the receive of the one before.
            let length = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT)
                .called("recv NETLINK_SOCK_DIAG")?;
            let mut part = &buffer[..length];
            while let Some((message, rest)) = first_of(part) {
                part = rest;
                if word(message, offset_of!(libc::nlmsghdr, nlmsg_seq)) != Some(self.sequence) {
                    continue;
                }
                if message.get(4..6) == Some(&DONE.to_ne_bytes()) {
                    return Ok(());
                }
                found.extend(read(message)?.map(|(_, cookie)| cookie));
            }
        }
    }

    /// The state and the cookie of the socket with these ends.
    fn ask(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<Option<(u8, u64)>> {
        self.sequence = self.sequence.wrapping_add(1);
        let question = question(self.sequence, local, remote);
        send(self.socket.as_raw_fd(), &question, MsgFlags::empty())
            .called("send NETLINK_SOCK_DIAG")?;
        let mut buffer = [0; ANSWER];
        loop {
            // The kernel has answered within the send: what is not there now will never come.
            let length = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT)
                .called("recv NETLINK_SOCK_DIAG")?;
            let answer = &buffer[..length];
            // The answer to an earlier question, whose asker gave up.
            if word(answer, offset_of!(libc::nlmsghdr, nlmsg_seq)) != Some(self.sequence) {
                continue;
            }
            return read(answer);
        }
    }
}

impl AsFd for Diag {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<OwnedFd> for Diag {
    fn from(socket: OwnedFd) -> Self {
        Self {
            socket,
            sequence: 0,
        }
    }
}

impl From<Diag> for OwnedFd {
    fn from(diag: Diag) -> Self {
        diag.socket
    }
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2` of `sock_diag(7)`.
fn question(sequence: u32, local: SocketAddr, remote: SocketAddr) -> [u8; QUESTION] {
    let (local_ip, remote_ip) = (local.ip().to_canonical(), remote.ip().to_canonical());
    let family = match (local_ip, remote_ip) {
        (IpAddr::V4(_), IpAddr::V4(_)) => libc::AF_INET,
        (IpAddr::V4(_) | IpAddr::V6(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {
            libc::AF_INET6
        }
    };
    let mut bytes = [0; QUESTION];
    let mut put = |offset: usize, value: &[u8]| {
        bytes[offset..offset + value.len()].copy_from_slice(value);
    };
    put(0, &LENGTH.to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &REQUEST.to_ne_bytes());
    put(8, &sequence.to_ne_bytes());
    put(HEADER, &family.to_ne_bytes()[..1]);
    put(HEADER + 1, &libc::IPPROTO_TCP.to_ne_bytes()[..1]);
    put(HEADER + 4, &u32::MAX.to_ne_bytes()); // every state
    let id = HEADER + 8;
    put(id + SOURCE_PORT, &local.port().to_be_bytes());
    put(id + PEER_PORT, &remote.port().to_be_bytes());
    for (offset, address) in [(id + SOURCE, local_ip), (id + PEER, remote_ip)] {
        match address {
            IpAddr::V4(address) => put(offset, &address.octets()),
            IpAddr::V6(address) => put(offset, &address.octets()),
        }
    }
    put(id + COOKIE, &[0xff; 8]); // INET_DIAG_NOCOOKIE: whichever it is
    bytes
}

/// The same about every socket of a family that is neither closed nor listens.
fn question_about_all(sequence: u32, family: libc::c_int) -> [u8; QUESTION] {
    let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let mut bytes = question(sequence, nobody, nobody);
    bytes[6..8].copy_from_slice(&(REQUEST | DUMP).to_ne_bytes());
    bytes[HEADER] = family.to_ne_bytes()[0];
    bytes[HEADER + 4..HEADER + 8].copy_from_slice(&CONNECTIONS.to_ne_bytes());
    bytes
}

/// The first of several messages, and those behind it; `None` if there is none that is whole.
fn first_of(messages: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::try_from(word(messages, 0)?).ok()?;
    let message = messages.get(..length).filter(|_| length >= HEADER)?;
    let behind = length.next_multiple_of(size_of::<u32>());
    Some((message, messages.get(behind..).unwrap_or_default()))
}

/// Reads `struct inet_diag_msg`, or the error.
fn read(answer: &[u8]) -> Result<Option<(u8, u64)>> {
    let kind = answer.get(4..6);
    if kind == Some(&ERROR.to_ne_bytes()) {
        return match word(answer, HEADER).map_or(libc::EBADMSG, |code| -code.cast_signed()) {
            libc::ENOENT => Ok(None),
            errno => Err(Error::new("sock_diag", errno)),
        };
    }
    let state = answer.get(HEADER + 1);
    let cookie = answer
        .get(HEADER + 4 + COOKIE..)
        .and_then(<[u8]>::first_chunk);
    match (kind, state, cookie) {
        (Some(kind), Some(&state), Some(cookie)) if kind == SOCK_DIAG_BY_FAMILY.to_ne_bytes() => {
            Ok(Some((state, u64::from_ne_bytes(*cookie))))
        }
        _ => Err(Error::new("recv NETLINK_SOCK_DIAG", libc::EBADMSG)),
    }
}

fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    let found = bytes.get(offset..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*found))
}

const HEADER: usize = size_of::<libc::nlmsghdr>();
/// The header, eight bytes of what is asked for, and the socket's identity.
const QUESTION: usize = HEADER + 8 + IDENTITY;
const LENGTH: u32 = 72;
const _: () = assert!(LENGTH as usize == QUESTION);
/// The beginning of an answer, as much as is read; attributes behind it may be cut.
const ANSWER: usize = 256;
/// As much of a long answer as the kernel gives at once.
const PART: usize = 32 << 10;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1; // NLM_F_REQUEST
const DUMP: u16 = 0x300; // NLM_F_DUMP
const ERROR: u16 = 2; // NLMSG_ERROR
const DONE: u16 = 3; // NLMSG_DONE

// include/net/tcp_states.h
const CLOSE: u8 = 7; // TCP_CLOSE
const LISTEN: u8 = 10; // TCP_LISTEN
const NEW_SYN_RECV: u8 = 12; // TCP_NEW_SYN_RECV, the last that has a peer
const CONNECTIONS: u32 = (2 << NEW_SYN_RECV) - 2 - (1 << CLOSE) - (1 << LISTEN);

// struct inet_diag_sockid
const SOURCE_PORT: usize = 0;
const PEER_PORT: usize = 2;
const SOURCE: usize = 4;
const PEER: usize = 20;
const COOKIE: usize = 40;
const IDENTITY: usize = 48;

#[cfg(test)]
mod tests;
