use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use std::os::fd::AsRawFd;

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use super::*;
use crate::apart::{arrived, in_fresh_netns};
use crate::listen;
use crate::netlink::loopback::{self, Captured};
use crate::privilege::{Capabilities, keep_only};

const OWN: Own = Own {
    v4: Ipv4Addr::new(198, 18, 0, 1),
    v6: Ipv6Addr::new(0xfd48, 0x6f6c, 0x6466, 0x6173, 0, 0, 0, 1),
};

/// Where every connection that nobody listens for is led to the listener; `test` has some of the world's addresses, too.
fn led(to: &[Prefix], test: impl FnOnce(&TcpListener, &[&str])) {
    in_fresh_netns(|| {
        let world: &[&str] = match loopback::capture(OWN).expect("captured") {
            Captured::Both => &["8.8.8.8", "198.18.3.7", "2001:4860:4860::8888", "fd48::7"],
            Captured::V4(_) => &["8.8.8.8", "198.18.3.7"],
        };
        let listener = listen::transparent().expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        lead(port, OWN, to).expect("led");
        test(&listener, world);
    });
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().expect("an address"), port)
}

/// The connection is accepted here, knows where it was to go, and carries bytes both ways.
fn reaches(listener: &TcpListener, destination: SocketAddr) {
    let mut client = TcpStream::connect(destination).expect("connected");
    arrived(listener);
    let (mut accepted, _) = listener.accept().expect("waiting");
    let reached = accepted.local_addr().expect("an address");
    assert_eq!(reached.ip().to_canonical(), destination.ip());
    assert_eq!(reached.port(), destination.port());
    assert_eq!(client.peer_addr().expect("a peer"), destination);
    accepted.set_nonblocking(false).expect("set");
    let mut there = [0; 4];
    client.write_all(b"ping").expect("sent");
    accepted.read_exact(&mut there).expect("received");
    accepted.write_all(&there).expect("sent back");
    client.read_exact(&mut there).expect("received");
    assert_eq!(&there, b"ping");
}

#[test]
fn a_connection_to_any_port_of_the_world_reaches_the_one_listener() {
    led(&[], |listener, world| {
        let own = listener.local_addr().expect("an address").port();
        for address in world {
            for port in [1, 443, 65535, own] {
                reaches(listener, at(address, port));
            }
        }
    });
}

#[test]
fn the_sandboxs_own_addresses_refuse_as_ever() {
    led(&[], |_, world| {
        let own = match world.len() {
            4 => &[
                "127.0.0.1",
                "127.9.9.9",
                "198.18.0.1",
                "::1",
                "fd48:6f6c:6466:6173::1",
            ][..],
            _ => &["127.0.0.1", "127.9.9.9", "198.18.0.1"],
        };
        for address in own {
            let refused = TcpStream::connect(at(address, 81)).expect_err("nobody listens");

            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{address}");
        }
    });
}

#[test]
fn own_addresses_that_are_listed_are_led_where_nobody_listens() {
    let prefix = (IpAddr::V4(Ipv4Addr::new(127, 0, 8, 77)), 22);
    led(&[prefix], |listener, _| {
        let _theirs = TcpListener::bind("127.0.0.1:8080").expect("free");

        reaches(listener, at("127.0.8.1", 80));
        reaches(listener, at("127.0.11.255", 8080));
        let refused = TcpStream::connect(at("127.0.12.1", 80)).expect_err("not listed");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        TcpStream::connect(at("127.0.0.1", 8080)).expect("theirs");
        assert!(listener.accept().is_err(), "it was not for this one");
    });
}

#[test]
fn a_list_of_addresses_of_the_world_needs_no_room() {
    let world: Vec<Prefix> = (0..=u16::MAX)
        .map(|it| {
            (
                IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | u32::from(it))),
                32,
            )
        })
        .collect();
    led(&world, |listener, _| reaches(listener, at("10.0.0.7", 81)));

    let prefix = |address: &str, bits| (address.parse().expect("an address"), bits);
    let loopback = prefix("127.0.0.0", 8);
    for (other, both) in [
        (prefix("127.3.0.0", 16), true),
        (prefix("0.0.0.0", 0), true),
        (prefix("96.0.0.0", 3), true),
        (prefix("128.0.0.0", 1), false),
        (prefix("::", 0), false),
    ] {
        assert_eq!(overlap(loopback, other), both, "{other:?}");
        assert_eq!(overlap(other, loopback), both, "{other:?}");
    }
    assert!(overlap(prefix("::1", 128), prefix("::", 8)));
    assert!(!overlap(prefix("::1", 128), prefix("::2", 127)));
}

#[test]
fn whoever_listens_there_has_the_connection() {
    led(&[], |listener, world| {
        let port = 4430;
        let theirs = listen::tcp(port).expect("free");
        for address in world {
            reaches(&theirs, at(address, port));
        }

        assert!(listener.accept().is_err(), "it was not for this one");
    });
}

/// Connects from `from`, or from where the kernel likes; gives up after two seconds.
fn connected_from(from: Option<SocketAddr>, destination: SocketAddr) -> TcpStream {
    let family = match destination {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC;
    let client = socket(family, SockType::Stream, flags, None).expect("a socket");
    setsockopt(&client, sockopt::ReuseAddr, &true).expect("set");
    setsockopt(&client, sockopt::SendTimeout, &TimeVal::seconds(2)).expect("set");
    if let Some(from) = from {
        bind(client.as_raw_fd(), &SockaddrStorage::from(from)).expect("free again");
    }
    connect(client.as_raw_fd(), &SockaddrStorage::from(destination)).expect("connected");
    TcpStream::from(client)
}

/// How many packets of TCP have been sent again in this namespace.
fn sent_again() -> String {
    let counts = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("counts");
    let mut lines = counts.lines().filter(|line| line.starts_with("Tcp:"));
    let mut words = || lines.next().expect("a line").split(' ');
    let (names, values) = (words(), words());
    let mut count = names.zip(values).filter(|(name, _)| *name == "RetransSegs");
    count.next().expect("it is counted").1.to_owned()
}

/// The end that closes first keeps the addresses for a minute.
#[test]
fn addresses_of_a_connection_that_is_over_can_be_used_again_at_once() {
    led(&[], |listener, world| {
        for address in world {
            let mut from = None;
            for _ in 0..3 {
                let mut client = connected_from(from, at(address, 81));
                from = client.local_addr().ok();
                arrived(listener);
                drop(listener.accept().expect("waiting"));
                assert_eq!(client.read(&mut [0; 1]).expect("an end"), 0);
            }
        }
        assert_eq!(sent_again(), "0");
    });
}

#[test]
fn without_the_capability_nothing_is_led() {
    in_fresh_netns(|| {
        keep_only(Capabilities::NONE).expect("let go");

        let refused = lead(4430, OWN, &[]).expect_err("not allowed");

        assert_eq!(refused.errno(), libc::EPERM);
    });
}
