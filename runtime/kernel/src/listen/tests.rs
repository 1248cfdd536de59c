use nix::sys::socket::getsockopt;

use super::*;
use crate::apart::in_fresh_netns;

#[test]
fn a_taken_port_is_told_by_its_number() {
    in_fresh_netns(|| {
        let _theirs = TcpListener::bind("127.0.0.1:443").expect("free");

        let refused = tcp(443).expect_err("taken");

        assert!(matches!(refused, Unheard::Taken { port: 443 }));
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
fn sockets_are_closed_on_exec_and_do_not_block() -> std::result::Result<(), Unheard> {
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
