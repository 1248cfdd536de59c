//! A namespace's network, set up by a few messages to the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

use super::Outcome;
use crate::netlink::loopback::Own;

/// Whether there are sockets of IPv6.
pub(super) fn ipv6() -> Outcome {
    let kind = SockType::Stream;
    match socket(AddressFamily::Inet6, kind, SockFlag::SOCK_CLOEXEC, None) {
        Ok(_) => Outcome::Works,
        Err(errno) => Outcome::Fails(errno),
    }
}

/// `ip link set lo up`
pub(super) fn loopback_up() -> nix::Result<()> {
    let mut message = Message::new(libc::RTM_NEWLINK, 0);
    // struct ifinfomsg: family, padding, type, index, flags, change.
    message.put(&[0; 4]);
    message.put(&LOOPBACK.to_ne_bytes());
    message.put(&(libc::IFF_UP as u32).to_ne_bytes());
    message.put(&(libc::IFF_UP as u32).to_ne_bytes());
    message.ask(SockProtocol::NetlinkRoute)
}

/// `ip route add local 0.0.0.0/0 dev lo`, and a connect to an address of the documentation's.
pub(super) fn any_ipv4() -> nix::Result<()> {
    all_local(libc::AF_INET)?;
    arrives(
        Ipv4Addr::UNSPECIFIED.into(),
        Ipv4Addr::new(192, 0, 2, 1).into(),
    )
}

/// `ip -6 route add local ::/0 dev lo`, and a connect to an address of the documentation's.
pub(super) fn any_ipv6() -> nix::Result<()> {
    all_local(libc::AF_INET6)?;
    arrives(
        Ipv6Addr::UNSPECIFIED.into(),
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    )
}

/// `ip rule add ipproto udp prohibit`
pub(super) fn refuse_udp() -> nix::Result<()> {
    let mut message = Message::new(libc::RTM_NEWRULE, libc::NLM_F_CREATE);
    // struct fib_rule_hdr: family, two lengths, tos, table, two reserved bytes, action, flags.
    message.put(&[family(libc::AF_INET), 0, 0, 0, 0, 0, 0, PROHIBIT]);
    message.put(&[0; 4]);
    message.attribute(FRA_PRIORITY, &1000_u32.to_ne_bytes());
    message.attribute(FRA_IP_PROTO, &[family(libc::IPPROTO_UDP)]);
    message.ask(SockProtocol::NetlinkRoute)
}

/// The requests that lead strays to one listener.
pub(super) fn strays() -> Vec<u8> {
    let own = Own {
        v4: Ipv4Addr::LOCALHOST,
        v6: Ipv6Addr::LOCALHOST,
    };
    let (batch, _) = crate::netlink::strays::requests(1, own, &[]);
    batch.close().0
}

/// Sends them.
pub(super) fn lead(strays: &[u8]) -> nix::Result<()> {
    exchange(strays, SockProtocol::NetlinkNetFilter)
}

/// Asks for one TCP socket that does not exist: an answer of ENOENT means that there is somebody to ask.
pub(super) fn ask_for_sockets() -> nix::Result<()> {
    let mut message = Message::new(SOCK_DIAG_BY_FAMILY, 0);
    // struct inet_diag_req_v2: family, protocol, extensions, padding, states, then a socket's identity (48 bytes).
    message.put(&[
        family(libc::AF_INET),
        family(libc::IPPROTO_TCP),
        0,
        0,
        255,
        255,
        255,
        255,
    ]);
    message.put(&[0; 40]);
    message.put(&[255; 8]);
    match message.ask(SockProtocol::NetlinkSockDiag) {
        Err(Errno::ENOENT) => Ok(()),
        answer => answer,
    }
}

fn all_local(of: i32) -> nix::Result<()> {
    let mut message = Message::new(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
    // struct rtmsg: family, two lengths, tos, table, protocol, scope, type, flags.
    message.put(&[
        family(of),
        0,
        0,
        0,
        libc::RT_TABLE_MAIN,
        libc::RTPROT_STATIC,
        libc::RT_SCOPE_HOST,
        libc::RTN_LOCAL,
    ]);
    message.put(&[0; 4]);
    message.attribute(libc::RTA_OIF, &LOOPBACK.to_ne_bytes());
    message.ask(SockProtocol::NetlinkRoute)
}

/// Whether a connect to `address` reaches a listener on `every` address.
fn arrives(every: IpAddr, address: IpAddr) -> nix::Result<()> {
    let errno = |error: std::io::Error| {
        // A limit that passed has no errno of its own.
        error
            .raw_os_error()
            .map_or(Errno::ETIMEDOUT, Errno::from_raw)
    };
    let listener = TcpListener::bind(SocketAddr::new(every, 0)).map_err(errno)?;
    let port = listener.local_addr().map_err(errno)?.port();
    let there = SocketAddr::new(address, port);
    TcpStream::connect_timeout(&there, Duration::from_millis(500))
        .map(drop)
        .map_err(errno)
}

/// One request to the kernel, built on the stack.
struct Message {
    bytes: [u8; 128],
    length: usize,
}

impl Message {
    fn new(kind: u16, flags: i32) -> Self {
        let mut message = Self {
            bytes: [0; 128],
            length: 0,
        };
        let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags;
        // struct nlmsghdr: length (filled in when it is sent), type, flags, sequence, port.
        message.put(&[0; 4]);
        message.put(&kind.to_ne_bytes());
        message.put(&u16::try_from(flags).unwrap_or_default().to_ne_bytes());
        message.put(&[0; 8]);
        message
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        self.bytes[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }

    /// struct rtattr: length, type, value, padded to four bytes.
    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = u16::try_from(4 + value.len()).unwrap_or_default();
        self.put(&length.to_ne_bytes());
        self.put(&kind.to_ne_bytes());
        self.put(value);
        self.length = self.length.next_multiple_of(4);
    }

    /// Sends the request and hears the kernel's answer.
    fn ask(mut self, protocol: SockProtocol) -> nix::Result<()> {
        let length = u32::try_from(self.length).unwrap_or_default();
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        exchange(&self.bytes[..self.length], protocol)
    }
}

/// Sends what is asked and hears the kernel's first answer.
fn exchange(asked: &[u8], protocol: SockProtocol) -> nix::Result<()> {
    let (family, flags) = (AddressFamily::Netlink, SockFlag::SOCK_CLOEXEC);
    let socket: OwnedFd = socket(family, SockType::Raw, flags, protocol)?;
    send(socket.as_raw_fd(), asked, MsgFlags::empty())?;
    let mut answer = [0; 1024];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    errno_of(&answer[..length])
}

/// struct nlmsgerr: behind the header stands a negative errno, or 0.
fn errno_of(answer: &[u8]) -> nix::Result<()> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok());
    let code = answer.get(16..20).and_then(|bytes| bytes.try_into().ok());
    match (kind.map(u16::from_ne_bytes), code.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(code)) => Err(Errno::from_raw(-code)),
        (Some(_), _) => Ok(()),
        (None, _) => Err(Errno::EBADMSG),
    }
}

/// Families and protocols are small numbers in a byte here.
fn family(number: i32) -> u8 {
    u8::try_from(number).unwrap_or_default()
}

/// `lo` is the first interface of every namespace.
const LOOPBACK: u32 = 1;
/// `linux/netlink.h`
const NLMSG_ERROR: u16 = 2;
/// `linux/sock_diag.h`
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `linux/fib_rules.h`
const PROHIBIT: u8 = 8;
const FRA_PRIORITY: u16 = 6;
const FRA_IP_PROTO: u16 = 22;
