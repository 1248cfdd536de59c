//! No socket leads out but a TCP one through a verdict; the sandbox's own work. (Promise 1.)

use holdfast_tests::probe::probe;
use holdfast_tests::servers::{FOUR, tcp};
use holdfast_tests::{Finished, Policy, Run, everyone};
use std::net::{TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::time::Duration;

#[track_caller]
fn refused(done: &Finished, names: &[&str]) {
    for name in names {
        let answer = done.answer(name);
        assert!(!answer.is_empty(), "{name} was not tried: {done}");
        assert_ne!(answer, "ok", "{name} got through: {done}");
    }
}

/// SB-04, SB-24: by each call that sends, at once, with an errno on which clients fall back.
#[test]
fn udp_is_refused_at_once_and_nothing_arrives() {
    if probe().is_none() {
        return;
    }
    let host = UdpSocket::bind((FOUR, 0)).expect("bind");
    host.set_nonblocking(true).expect("do not wait");
    let port = host.local_addr().expect("an address").port();
    for area in everyone() {
        for ip in ["192.0.2.1", "198.18.0.9", "2001:db8::1", "origin.test"] {
            let policy = Policy::origin(port);
            let done = Run::new(&area, &policy)
                .attempt(&format!("udp {ip} {port}"))
                .finish();
            refused(&done, &["sendto", "sendmsg", "sendmmsg", "send"]);
            assert_eq!(
                done.answer("sendto"),
                "EACCES",
                "clients fall back on it: {done}"
            );
            let took: u64 = done.answer("ms").parse().expect("milliseconds");
            assert!(took < 500, "{took} ms: {done}");
        }
        assert!(host.recv(&mut [0]).is_err(), "a datagram arrived");
    }
}

#[test]
fn fast_open_carries_no_data_past_the_verdict() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let (allowed, denied) = (tcp::echo(FOUR), tcp::echo(FOUR));
        let policy = Policy::origin(allowed.port()).rule_for(
            "other",
            ("origin.test", denied.port()),
            &[std::path::Path::new("/usr/bin/somebody-else")],
        );
        for ip in ["origin.test", "127.0.0.1", "192.0.2.1"] {
            let done = Run::new(&area, &policy)
                .attempt(&format!("fastopen {ip} {}", denied.port()))
                .finish();
            done.exited(0);
            assert_eq!(denied.accepted(), 0, "{ip}: {done}");
            assert!(
                !done.records.iter().any(holdfast_tests::Record::allowed),
                "{ip}: {done}"
            );
        }
    }
}

#[test]
fn other_protocols_have_no_sockets() {
    if probe().is_none() {
        return;
    }
    // Domain, type, protocol, and what it is.
    let kinds = [
        ("2 1 262", "MPTCP"),
        ("10 1 262", "MPTCP on IPv6"),
        ("2 1 132", "SCTP"),
        ("2 5 132", "SCTP, many to many"),
        ("2 3 1", "raw ICMP"),
        ("2 3 255", "raw IP"),
        ("10 3 58", "raw ICMPv6"),
        ("17 3 768", "packets"),
        ("17 2 768", "packets without headers"),
        ("40 1 0", "vsock"),
        ("16 3 9", "audit netlink"),
        ("16 3 12", "netfilter netlink"),
        ("31 3 1", "bluetooth"),
        ("38 5 0", "kernel crypto"),
        ("44 1 0", "XDP"),
    ];
    for area in everyone() {
        for (numbers, what) in kinds {
            let done = Run::new(&area, &Policy::offline())
                .attempt(&format!("socket {numbers}"))
                .finish();
            assert_ne!(done.answer("socket"), "ok", "{what}: {done}");
            assert!(done.answer("socket").starts_with('E'), "{what}: {done}");
        }
    }
}

#[test]
fn listening_without_bind_is_reachable_from_nowhere_outside() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let mut run = Run::new(&area, &Policy::offline())
            .attempt("listen-without-bind")
            .held_input()
            .start();
        let said = run.expect("at=");
        if let Some((_, port)) = said
            .lines()
            .find_map(|line| line.strip_prefix("at=")?.split_once('|'))
        {
            let port: u16 = port.parse().expect("a port");
            for ip in [FOUR, "::1"] {
                let to = (ip.parse::<std::net::IpAddr>().expect("an address"), port).into();
                let reached = TcpStream::connect_timeout(&to, Duration::from_secs(2));
                assert!(reached.is_err(), "{ip}:{port} answers from inside");
            }
        }
        run.end_input();
        assert_eq!(run.finish().answer("visited"), "no");
    }
}

/// SB-08, SB-09: named or abstract, directly or through a link.
#[test]
fn sockets_of_the_host_are_out_of_reach() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        // A named socket beside the grants, reached directly and through a link inside the working directory.
        let path = area.root().join("host.sock");
        let _named = UnixListener::bind(&path).expect("listen");
        let datagrams = area.root().join("host.dgram");
        let _datagrams = UnixDatagram::bind(&datagrams).expect("bind");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("chmod");
        std::os::unix::fs::symlink(&path, area.work().join("link")).expect("link");
        let word = format!("holdfast-tests-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(word.as_bytes()).expect("a name");
        let _abstract = UnixListener::bind_addr(&abstract_name).expect("listen");

        let attempts = [
            format!("unix stream {}", path.display()),
            format!("unix stream {}", area.work().join("link").display()),
            format!("unix dgram {}", datagrams.display()),
            format!("unix stream @{word}"),
            format!("unix dgram @{word}"),
        ];
        for attempt in attempts {
            let done = Run::new(&area, &Policy::offline())
                .attempt(&attempt)
                .finish();
            let answer = done.answer("connect") + &done.answer("sendto");
            assert!(answer.starts_with('E'), "{attempt}: {done}");
        }
    }
}

/// SB-07, SB-09, SB-28: Unix sockets and loopback need no rule.
#[test]
fn the_sandboxs_own_sockets_work() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let socket = area.work().join("own.sock");
        let done = Run::new(&area, &Policy::offline())
            .attempt(&format!("unix-inside {}", socket.display()))
            .finish();
        for (name, answer) in holdfast_tests::probe::answers(&done.stdout) {
            assert_eq!(answer, "ok", "{name}: {done}");
        }
        let done = Run::new(&area, &Policy::offline())
            .attempt("loopback")
            .finish();
        for name in ["four", "six", "mapped", "udp_send"] {
            assert_eq!(done.answer(name), "ok", "{name}: {done}");
        }
        assert_eq!(done.answer("udp_arrived"), "yes", "{done}");
        assert!(done.records.is_empty(), "nothing left the sandbox: {done}");
    }
}
