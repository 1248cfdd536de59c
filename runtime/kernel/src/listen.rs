//! The sockets that capture what a network namespace sends: TCP on one port of every address, and names on port 53.
//!
//! Where every address is local (`netlink::loopback`), a listener on the wildcard address receives what was meant for
//! any address in the world, and the accepted socket's own address is the destination that was asked for.
//!
//! Sockets are dual-stack, so IPv4 peers and destinations appear as `::ffff:a.b.c.d`; on a host without IPv6 they are
//! IPv4 sockets.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::sys::socket::{
    self, AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SetSockOpt,
    SockFlag, SockType, SockaddrIn, SockaddrIn6, SockaddrStorage, setsockopt, sockopt,
};

use crate::descriptors::noted;
use crate::{Called, Error, Result};

/// The port of names.
pub const DOMAIN: u16 = 53;

/// How many bytes of datagrams may wait to be received; the kernel caps it at `net.core.rmem_max`.
const DATAGRAMS: usize = 4 << 20;

/// How many connections may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// A datagram that has been received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// How much of the buffer was filled.
    pub length: usize,
    /// Who sent it, in the form that [`reply`] takes.
    pub peer: SocketAddr,
    /// The address it was sent to; never an IPv4-mapped one.
    pub asked: IpAddr,
}

/// Listens for TCP on `port` of every address of the caller's network namespace, without blocking.
///
/// Port 0 takes a free one. `EADDRINUSE`: somebody in the namespace has the port on some address.
pub fn tcp(port: u16) -> Result<TcpListener> {
    let socket = bound(SockType::Stream, port, |socket, _| {
        // Connections of an earlier listener in TIME_WAIT do not hold the port; a living listener does.
        set(socket, sockopt::ReuseAddr, "setsockopt SO_REUSEADDR")
    })?;
    let backlog = Backlog::new(BACKLOG).called("listen")?;
    socket::listen(&socket, backlog).called("listen")?;
    Ok(TcpListener::from(socket))
}

/// As [`tcp`] on a free port, and connections to every other port can be led to it ([`strays::lead`]): needs `CAP_NET_ADMIN` over
/// the namespace.
///
/// [`strays::lead`]: crate::netlink::strays::lead
pub fn transparent() -> Result<TcpListener> {
    let listener = tcp(0)?;
    setsockopt(&listener, sockopt::IpTransparent, &true).called("setsockopt IP_TRANSPARENT")?;
    Ok(listener)
}

/// Receives UDP on `port` of every address of the caller's network namespace, without blocking, and can answer from
/// whichever address was asked.
///
/// Port 0 takes a free one.
pub fn udp(port: u16) -> Result<UdpSocket> {
    bound(SockType::Datagram, port, answers_from_anywhere).map(UdpSocket::from)
}

/// Receives one datagram if there is one now (`EAGAIN` if not) and says which address it was sent to.
///
/// `EMSGSIZE` is a datagram longer than `buffer`, which is lost: the peer's fault and no reason to stop.
pub fn receive(socket: &impl AsFd, buffer: &mut [u8]) -> Result<Datagram> {
    let mut control = nix::cmsg_space!(libc::in6_pktinfo);
    let mut room = [IoSliceMut::new(buffer)];
    let received = socket::recvmsg::<SockaddrStorage>(
        socket.as_fd().as_raw_fd(),
        &mut room,
        Some(&mut control),
        MsgFlags::MSG_DONTWAIT,
    )
    .called("recvmsg")?;
    if received.flags.contains(MsgFlags::MSG_TRUNC) {
        return Err(Error::new("recvmsg", libc::EMSGSIZE));
    }
    let length = received.bytes;
    let asked = received
        .cmsgs()
        .called("recvmsg")?
        .find_map(|message| address(&message));
    let peer = received.address.as_ref().and_then(standard);
    match (peer, asked) {
        (Some(peer), Some(asked)) => Ok(Datagram {
            length,
            peer,
            asked,
        }),
        _ => Err(Error::new("recvmsg IPV6_PKTINFO", libc::ENODATA)),
    }
}

/// Sends one datagram to `peer` so that it comes from `from`; `EAGAIN` if there is no room now.
pub fn reply(socket: &impl AsFd, bytes: &[u8], peer: SocketAddr, from: IpAddr) -> Result<()> {
    let packet = [IoSlice::new(bytes)];
    let number = socket.as_fd().as_raw_fd();
    let to = SockaddrStorage::from(peer);
    let sent = match (peer, from) {
        (SocketAddr::V4(_), IpAddr::V6(_)) => Err(nix::Error::EAFNOSUPPORT),
        (SocketAddr::V4(_), IpAddr::V4(from)) => {
            let source = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr {
                    s_addr: u32::from_ne_bytes(from.octets()),
                },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            let control = [ControlMessage::Ipv4PacketInfo(&source)];
            socket::sendmsg(number, &packet, &control, MsgFlags::MSG_DONTWAIT, Some(&to))
        }
        (SocketAddr::V6(_), from) => {
            let from = match from {
                IpAddr::V4(from) => from.to_ipv6_mapped(),
                IpAddr::V6(from) => from,
            };
            let source = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr {
                    s6_addr: from.octets(),
                },
                ipi6_ifindex: 0,
            };
            let control = [ControlMessage::Ipv6PacketInfo(&source)];
            socket::sendmsg(number, &packet, &control, MsgFlags::MSG_DONTWAIT, Some(&to))
        }
    };
    sent.map(drop).called("sendmsg")
}

/// A socket bound to `port` of the wildcard address, of both families where the host has both.
fn bound(
    kind: SockType,
    port: u16,
    prepare: impl Fn(&OwnedFd, AddressFamily) -> Result<()>,
) -> Result<OwnedFd> {
    match bound_in(AddressFamily::Inet6, kind, port, &prepare) {
        // No IPv6 in this kernel, or none in this namespace (`disable_ipv6`).
        Err(error) if matches!(error.errno(), libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL) => {
            bound_in(AddressFamily::Inet, kind, port, &prepare)
        }
        answer => answer,
    }
}

fn bound_in(
    family: AddressFamily,
    kind: SockType,
    port: u16,
    prepare: &impl Fn(&OwnedFd, AddressFamily) -> Result<()>,
) -> Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = noted(socket::socket(family, kind, flags, None).called("socket")?);
    prepare(&socket, family)?;
    let number = socket.as_raw_fd();
    if family == AddressFamily::Inet {
        let any = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
        socket::bind(number, &any).called("bind")?;
    } else {
        setsockopt(&socket, sockopt::Ipv6V6Only, &false).called("setsockopt IPV6_V6ONLY")?;
        let any = SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0));
        socket::bind(number, &any).called("bind")?;
    }
    Ok(socket)
}

/// Has the kernel tell where a datagram was sent to, and let the answer leave from there.
fn answers_from_anywhere(socket: &OwnedFd, family: AddressFamily) -> Result<()> {
    // Hundreds of threads may ask at once. The kernel gives what it gives.
    let _ = setsockopt(socket, sockopt::RcvBuf, &DATAGRAMS);
    // On a dual-stack socket, too: its IPv4 half obeys it.
    set(socket, sockopt::IpFreebind, "setsockopt IP_FREEBIND")?;
    if family == AddressFamily::Inet {
        return set(socket, sockopt::Ipv4PacketInfo, "setsockopt IP_PKTINFO");
    }
    set(socket, Ipv6Freebind, "setsockopt IPV6_FREEBIND")?;
    set(
        socket,
        sockopt::Ipv6RecvPacketInfo,
        "setsockopt IPV6_RECVPKTINFO",
    )
}

fn set(socket: &OwnedFd, option: impl SetSockOpt<Val = bool>, call: &'static str) -> Result<()> {
    setsockopt(socket, option, &true).called(call)
}

/// The address a datagram was sent to, from its control message.
fn address(message: &ControlMessageOwned) -> Option<IpAddr> {
    if let ControlMessageOwned::Ipv6PacketInfo(info) = message {
        let address = Ipv6Addr::from(info.ipi6_addr.s6_addr);
        return Some(IpAddr::V6(address).to_canonical());
    }
    if let ControlMessageOwned::Ipv4PacketInfo(info) = message {
        return Some(IpAddr::V4(Ipv4Addr::from(
            info.ipi_addr.s_addr.to_ne_bytes(),
        )));
    }
    None
}

fn standard(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address
        .as_sockaddr_in()
        .map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| {
        address
            .as_sockaddr_in6()
            .map(|v6| SocketAddr::V6((*v6).into()))
    })
}

nix::setsockopt_impl!(
    Ipv6Freebind,
    libc::IPPROTO_IPV6,
    libc::IPV6_FREEBIND,
    bool,
    sockopt::SetBool
);

/// `IPV6_FREEBIND` of `ipv6(7)`: the source of a datagram need not be an address of an interface.
#[derive(Clone, Copy, Debug)]
struct Ipv6Freebind;

#[cfg(test)]
mod tests;
