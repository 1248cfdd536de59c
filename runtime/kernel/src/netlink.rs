//! Speaking to the kernel's network configuration (`rtnetlink(7)`, `nf_tables`): many requests in one send.
//!
//! The kernel works through a batch in order, within the send, and goes on after a request that it refuses. Only the
//! last request asks to be acknowledged; a refused one answers in any case. So a batch costs one send and, if all
//! went well, one receive.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

use crate::descriptors::noted;
use crate::{Called, Error, Result};

mod batch;
pub mod loopback;
pub mod strays;

pub use batch::{Action, Batch, Family, Rule, Traffic};

/// A socket for the configuration of the network namespace in which it was opened.
#[derive(Debug)]
pub struct Netlink(OwnedFd);

impl Netlink {
    /// Opens a socket for the caller's network namespace.
    pub fn open() -> Result<Self> {
        Self::open_for(SockProtocol::NetlinkRoute).called("socket NETLINK_ROUTE")
    }

    fn open_for(protocol: SockProtocol) -> nix::Result<Self> {
        let (family, flags) = (AddressFamily::Netlink, SockFlag::SOCK_CLOEXEC);
        socket(family, SockType::Raw, flags, protocol).map(|socket| Self(noted(socket)))
    }

    /// Has the kernel obey every request of `batch`; the error is the first one refused, named after its request.
    ///
    /// Requests behind a refused one have been tried all the same.
    pub fn apply(&self, batch: Batch) -> Result<()> {
        let (bytes, calls) = batch.close_acknowledged();
        let Some(last) = calls.len().checked_sub(1) else {
            return Ok(());
        };
        send(self.0.as_raw_fd(), &bytes, MsgFlags::empty()).called("send NETLINK_ROUTE")?;
        let mut first = Ok(());
        let mut buffer = [0; ANSWER];
        loop {
            let length = recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty())
                .called("recv NETLINK_ROUTE")?;
            let answer = Answer::read(&buffer[..length])?;
            let request = usize::try_from(answer.sequence).unwrap_or(usize::MAX);
            let Some(call) = calls.get(request) else {
                continue;
            };
            if answer.errno != 0 && first.is_ok() {
                first = Err(Error::new(call, answer.errno));
            }
            if request == last {
                return first;
            }
        }
    }

    /// Has the kernel obey all of `batch` or nothing; the error is the first refusal. The request `acknowledged` is one that asks to be.
    fn transact(&self, batch: Batch, acknowledged: usize) -> Result<()> {
        let (bytes, calls) = batch.close();
        send(self.0.as_raw_fd(), &bytes, MsgFlags::empty()).called("send NETLINK_NETFILTER")?;
        let mut buffer = [0; ANSWER];
        loop {
            let length = recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty())
                .called("recv NETLINK_NETFILTER")?;
            let answer = Answer::read(&buffer[..length])?;
            let request = usize::try_from(answer.sequence).unwrap_or(usize::MAX);
            if answer.errno != 0 {
                let call = calls.get(request).copied().unwrap_or("nftables");
                return Err(Error::new(call, answer.errno));
            }
            if request == acknowledged {
                return Ok(());
            }
        }
    }

    /// Is the link `lo` up?
    pub fn is_loopback_up(&self) -> Result<bool> {
        let mut batch = Batch::new();
        batch.ask_loopback();
        let (bytes, _) = batch.close();
        send(self.0.as_raw_fd(), &bytes, MsgFlags::empty()).called("send NETLINK_ROUTE")?;
        let mut buffer = [0; ANSWER];
        let length = recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty())
            .called("recv NETLINK_ROUTE")?;
        let flags = HEADER + std::mem::offset_of!(libc::ifinfomsg, ifi_flags);
        match word(&buffer[..length], flags) {
            Some(flags) if kind(&buffer) == libc::RTM_NEWLINK => {
                Ok(flags & libc::IFF_UP.cast_unsigned() != 0)
            }
            _ => Err(Error::new(
                "netlink RTM_GETLINK",
                Answer::read(&buffer[..length])?.errno,
            )),
        }
    }
}

/// An acknowledgement: which request, and 0 or why not.
struct Answer {
    sequence: u32,
    errno: i32,
}

impl Answer {
    fn read(bytes: &[u8]) -> Result<Self> {
        let sequence = word(bytes, 8);
        let code = word(bytes, HEADER);
        match (sequence, code) {
            (Some(sequence), Some(code)) if i32::from(kind(bytes)) == libc::NLMSG_ERROR => {
                Ok(Self {
                    sequence,
                    errno: -code.cast_signed(),
                })
            }
            _ => Err(Error::new("recv NETLINK_ROUTE", libc::EBADMSG)),
        }
    }
}

/// The type of the message at the beginning of `bytes`; 0 (`NLMSG_NOOP` is 1) when there is none.
fn kind(bytes: &[u8]) -> u16 {
    bytes
        .get(4..6)
        .map_or(0, |kind| u16::from_ne_bytes([kind[0], kind[1]]))
}

fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    let found = bytes.get(offset..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*found))
}

/// The length of `nlmsghdr`.
const HEADER: usize = size_of::<libc::nlmsghdr>();
/// Longer than any acknowledgement; a description of a link may be cut, its head is what is read.
const ANSWER: usize = 2048;
