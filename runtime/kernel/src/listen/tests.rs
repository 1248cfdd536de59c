use nix::sys::socket::getsockopt;

use super::*;
use crate::apart::{arrived, in_fresh_netns};
use crate::netlink::loopback::{self, Captured, Own};

#[test]
fn a_taken_port_is_told() {
    in_fresh_netns(|| {
        let _theirs = TcpListener::bind("127.0.0.1:443").expect("free");

        let refused = tcp(443).expect_err("taken");

        assert_eq!(refused.errno(), libc::EADDRINUSE);
    });
}

#[test]
fn a_listener_cannot_be_shadowed_by_a_more_exact_address() {
    in_fresh_netns(|| {
        let _ours = tcp(443).expect("free");
        let _names = udp(DOMAIN).expect("free");

        // The standard library sets SO_REUSEADDR on a listener, as most servers do.
        let shadow = TcpListener::bind("127.0.0.1:443").expect_err("ours");
        let names = UdpSocket::bind("127.0.0.9:53").expect_err("ours");

        assert_eq!(shadow.kind(), std::io::ErrorKind::AddrInUse);
        assert_eq!(names.kind(), std::io::ErrorKind::AddrInUse);
    });
}

#[test]
fn sockets_are_closed_on_exec_and_do_not_block() -> Result<()> {
    let listener = tcp(0)?;
    let names = udp(0)?;

    for number in [OwnedFd::from(listener), OwnedFd::from(names)] {
        let flags = |ask| nix::fcntl::fcntl(&number, ask).expect("flags");
        assert_ne!(flags(nix::fcntl::F_GETFD) & libc::FD_CLOEXEC, 0);
        assert_ne!(flags(nix::fcntl::F_GETFL) & libc::O_NONBLOCK, 0);
        let only = getsockopt(&number, sockopt::Ipv6V6Only);
        // Dual-stack, or IPv4 alone on a host without IPv6.
        assert!(matches!(only, Ok(false) | Err(nix::Error::EOPNOTSUPP)));
    }
    Ok(())
}

#[test]
fn an_ipv4_socket_answers_from_the_address_that_was_asked() {
    in_fresh_netns(|| {
        let own = Own {
            v4: Ipv4Addr::new(198, 18, 0, 1),
            v6: Ipv6Addr::LOCALHOST,
        };
        // The kernel has ::1 already and refuses it, which is how a host without IPv6 looks.
        assert!(matches!(loopback::capture(own), Ok(Captured::V4(_))));
        let (family, kind) = (AddressFamily::Inet, SockType::Datagram);
        let server = bound_in(family, kind, DOMAIN, &answers_from_anywhere).expect("free");
        let client = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        client.connect("9.9.9.9:53").expect("connected");
        client.send(b"name").expect("sent");

        let mut buffer = [0; 64];
        arrived(&server);
        let asked = receive(&server, &mut buffer).expect("a question");
        reply(&server, b"answer", asked.peer, asked.asked).expect("answered");

        assert_eq!(asked.length, 4);
        assert_eq!(asked.asked, IpAddr::from([9, 9, 9, 9]));
        assert_eq!(client.recv(&mut buffer).expect("an answer"), 6);
    });
}

#[test]
fn a_question_longer_than_the_buffer_costs_nobody_else_the_answer() {
    in_fresh_netns(|| {
        let own = Own {
            v4: Ipv4Addr::new(198, 18, 0, 1),
            v6: Ipv6Addr::LOCALHOST,
        };
        loopback::capture(own).expect("captured");
        let server = udp(DOMAIN).expect("free");
        let client = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        client.send_to(&[0; 4096], "9.9.9.9:53").expect("sent");
        client.send_to(b"short", "9.9.9.9:53").expect("sent");

        let mut buffer = [0; 512];
        arrived(&server);
        let long = receive(&server, &mut buffer).expect_err("too long");
        arrived(&server);
        let short = receive(&server, &mut buffer).expect("a question");

        assert_eq!(long.errno(), libc::EMSGSIZE);
        assert_eq!(short.length, 5);
    });
}
