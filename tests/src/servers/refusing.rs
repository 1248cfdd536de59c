//! Addresses where nobody answers: refused at once, or never.

use super::address;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, connect, getsockname,
    listen, socket,
};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::thread::JoinHandle;

/// A port that is taken and refuses every connection: bound, but not listening.
#[derive(Debug)]
pub struct Refusing {
    _socket: OwnedFd,
    port: u16,
}

impl Refusing {
    /// Takes a free port.
    pub fn at(ip: &str) -> Self {
        let (socket, address) = bound(address(ip), SockFlag::SOCK_CLOEXEC);
        Self {
            _socket: socket,
            port: address.port(),
        }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// A port where a connection attempt is neither accepted nor refused: the queue of the listener is full, and its kernel drops what comes.
#[derive(Debug)]
pub struct Blackhole {
    listener: OwnedFd,
    fillers: Vec<OwnedFd>,
    port: u16,
}

impl Blackhole {
    /// Takes a free port and fills its queue.
    pub fn at(ip: &str) -> Self {
        let (listener, to) = bound(address(ip), SockFlag::SOCK_CLOEXEC);
        listen(&listener, Backlog::new(0).expect("a queue of one")).expect("listen");
        let fillers = (0..3)
            .map(|_| {
                let filler = tcp(to.ip(), SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK);
                let _ = connect(filler.as_raw_fd(), &SockaddrStorage::from(to));
                filler
            })
            .collect();
        Self {
            listener,
            fillers,
            port: to.port(),
        }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Answers from now on: sends back what the first one says who says anything.
    pub fn open(self) -> JoinHandle<()> {
        drop(self.fillers);
        let listener = TcpListener::from(self.listener);
        std::thread::spawn(move || {
            let mut said = [0; 64];
            loop {
                let (mut stream, _) = listener.accept().expect("one comes");
                if let Ok(length @ 1..) = stream.read(&mut said) {
                    return stream.write_all(&said[..length]).expect("answered");
                }
            }
        })
    }
}

fn tcp(ip: IpAddr, flags: SockFlag) -> OwnedFd {
    let family = if ip.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    socket(family, SockType::Stream, flags, None).expect("make a socket")
}

fn bound(ip: IpAddr, flags: SockFlag) -> (OwnedFd, SocketAddr) {
    let socket = tcp(ip, flags);
    bind(
        socket.as_raw_fd(),
        &SockaddrStorage::from(SocketAddr::new(ip, 0)),
    )
    .expect("bind");
    let taken: SockaddrStorage = getsockname(socket.as_raw_fd()).expect("know the address");
    let port = match ip {
        IpAddr::V4(_) => taken
            .as_sockaddr_in()
            .map(nix::sys::socket::SockaddrIn::port),
        IpAddr::V6(_) => taken
            .as_sockaddr_in6()
            .map(nix::sys::socket::SockaddrIn6::port),
    };
    (
        socket,
        SocketAddr::new(ip, port.expect("an address of that family")),
    )
}
