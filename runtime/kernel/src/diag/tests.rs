use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream};

use nix::sys::socket::{SockaddrIn, bind, setsockopt, sockopt};

use super::*;
use crate::apart::{arrived, in_fresh_netns};
use crate::netlink::loopback::{self, Captured, Own};
use crate::{handoff, listen};

/// A connection through the capture, and what names its client.
struct Connection {
    client: TcpStream,
    accepted: TcpStream,
    ends: Ends,
}

#[derive(Clone, Copy)]
struct Ends {
    local: SocketAddr,
    remote: SocketAddr,
    cookie: u64,
}

fn captured(test: impl FnOnce(&[&str])) {
    let own = Own {
        v4: Ipv4Addr::new(198, 18, 0, 1),
        v6: Ipv6Addr::new(0xfd48, 0, 0, 0, 0, 0, 0, 1),
    };
    in_fresh_netns(|| match loopback::capture(own).expect("captured") {
        Captured::Both => test(&["8.8.8.8", "127.0.0.1", "2001:db8::1", "::1"]),
        Captured::V4(_) => test(&["8.8.8.8", "127.0.0.1"]),
    });
}

fn connect_to(listener: &TcpListener, address: &str) -> Connection {
    let ip: IpAddr = address.parse().expect("an address");
    let client = TcpStream::connect((ip, 443)).expect("connected");
    arrived(listener);
    let (accepted, peer) = listener.accept().expect("waiting");
    Connection {
        ends: Ends {
            local: peer,
            remote: accepted.local_addr().expect("an address"),
            cookie: cookie_of(&client),
        },
        client,
        accepted,
    }
}

fn cookie_of(socket: &impl AsFd) -> u64 {
    let mut cookie = 0_u64;
    let mut length: libc::socklen_t = 8;
    // SAFETY: the kernel writes at most `length` bytes, the size of `cookie`, and both outlive the call.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    assert_eq!((answer, length), (0, 8));
    cookie
}

/// Waits until the client of a connection is in `state`: its packets may still be on their way.
fn reached(diag: &Diag, ends: Ends, state: u8) {
    let question = question(0, ends.local, ends.remote);
    let mut answer = [0; ANSWER];
    while answer[HEADER + 1] != state {
        send(diag.socket.as_raw_fd(), &question, MsgFlags::empty()).expect("sent");
        recv(diag.socket.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT).expect("an answer");
    }
}

// include/net/tcp_states.h
const FIN_WAIT_2: u8 = 5;
const TIME_WAIT: u8 = 6;

#[test]
fn the_cookie_is_the_one_the_socket_tells_in_every_form_of_address() {
    captured(|world| {
        let listener = listen::tcp(443).expect("free");
        let mut diag = Diag::open().expect("a socket");
        for address in world {
            let one = connect_to(&listener, address);
            let other = connect_to(&listener, address);
            assert_ne!(one.ends.cookie, other.ends.cookie);

            // As the dual-stack listener tells them: IPv4 in its mapped form.
            for Ends {
                local,
                remote,
                cookie,
            } in [one.ends, other.ends]
            {
                let found = diag.cookie(local, remote).expect("asked");
                assert_eq!(found, Some(cookie), "{address}");
                // As the client tells them.
                let plain = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
                let found = diag.cookie(plain(local), plain(remote)).expect("asked");
                assert_eq!(found, Some(cookie), "{address}");
            }

            // From the other side it is the other socket.
            let found = diag.cookie(one.ends.remote, one.ends.local);
            assert_eq!(found.expect("asked"), Some(cookie_of(&one.accepted)));
        }
    });
}

#[test]
fn a_listener_is_found_where_it_listens_and_not_beside() {
    captured(|world| {
        let mut diag = Diag::open().expect("a socket");
        let mut asks = |address: &str| diag.is_listened_on(address.parse().expect("an address"));
        let listener = TcpListener::bind("127.0.0.1:443").expect("free");
        let _connected = TcpStream::connect("127.0.0.1:443").expect("connected");
        assert!(asks("127.0.0.1:443").expect("asked"));
        assert!(asks("[::ffff:127.0.0.1]:443").expect("asked"));
        for beside in ["127.0.0.9:443", "127.0.0.1:444", "[::1]:443"] {
            assert!(!asks(beside).expect("asked"), "{beside}");
        }
        drop(listener);
        assert!(!asks("127.0.0.1:443").expect("asked"));

        let _listener = listen::tcp(443).expect("free");
        for address in world {
            let ip: IpAddr = address.parse().expect("an address");
            let at = SocketAddr::new(ip, 443).to_string();
            assert!(asks(&at).expect("asked"), "{at}");
        }
    });
}

#[test]
fn a_mapped_client_is_found_as_the_ipv4_client_it_is() {
    captured(|world| {
        if world.len() == 2 {
            return; // Without IPv6 there is no mapped form.
        }
        let listener = listen::tcp(443).expect("free");
        let mut diag = Diag::open().expect("a socket");

        let Ends {
            local,
            remote,
            cookie,
        } = connect_to(&listener, "::ffff:9.9.9.9").ends;

        let found = diag.cookie(local, remote).expect("asked");
        assert_eq!(found, Some(cookie));
    });
}

#[test]
fn the_cookie_outlives_the_process_and_the_connection() {
    captured(|world| {
        let listener = listen::tcp(443).expect("free");
        let mut diag = Diag::open().expect("a socket");
        for address in world {
            let Connection {
                client,
                accepted,
                ends,
            } = connect_to(&listener, address);
            let told = |diag: &mut Diag| diag.cookie(ends.local, ends.remote).expect("asked");

            // The client says that it has no more to send, and lives.
            client.shutdown(Shutdown::Write).expect("shut");
            reached(&diag, ends, FIN_WAIT_2);
            assert_eq!(told(&mut diag), Some(ends.cookie), "{address}");

            // No process has it any more, the peer has not closed yet.
            drop(client);
            reached(&diag, ends, FIN_WAIT_2);
            assert_eq!(told(&mut diag), Some(ends.cookie), "{address}");

            drop(accepted);
            reached(&diag, ends, TIME_WAIT);
            assert_eq!(told(&mut diag), Some(ends.cookie), "{address}");
        }
    });
}

#[test]
fn nobody_and_a_listener_are_no_ones_connection() {
    captured(|_| {
        let listener = TcpListener::bind("0.0.0.0:443").expect("free");
        let mut diag = Diag::open().expect("a socket");
        let Connection {
            client,
            accepted,
            ends,
        } = connect_to(&listener, "8.8.8.8");
        let stranger = SocketAddr::new(ends.remote.ip(), 9);

        // The client's port has no socket with this peer; the listener's port has the listener.
        assert_eq!(diag.cookie(ends.local, stranger).expect("asked"), None);
        assert_eq!(diag.cookie(ends.remote, stranger).expect("asked"), None);

        // A reset leaves nothing behind.
        setsockopt(
            &accepted,
            sockopt::Linger,
            &libc::linger {
                l_onoff: 1,
                l_linger: 0,
            },
        )
        .expect("set");
        drop(accepted);
        arrived(&client);
        assert_eq!(diag.cookie(ends.local, ends.remote).expect("asked"), None);
    });
}

#[test]
fn all_that_have_a_peer_are_told_and_nothing_else() {
    captured(|world| {
        let listener = listen::tcp(443).expect("free");
        let mut diag = Diag::open().expect("a socket");
        let mut told = || diag.connections().expect("asked");
        assert!(told().is_empty());

        // More than one part, of both families.
        let many: Vec<_> = (0..200)
            .flat_map(|_| world.iter().map(|address| connect_to(&listener, address)))
            .collect();
        let ends = many
            .iter()
            .flat_map(|it| [it.ends.cookie, cookie_of(&it.accepted)]);
        assert_eq!(told(), ends.collect());

        // Who was left by its process is there, and who only has a name is not.
        let (clients, accepted): (Vec<_>, Vec<_>) = many
            .into_iter()
            .map(|it| ((it.ends.cookie, it.client), it.accepted))
            .unzip();
        let cookies: Vec<_> = clients.into_iter().map(|(cookie, _)| cookie).collect();
        let (family, kind) = (AddressFamily::Inet, SockType::Stream);
        let named = socket(family, kind, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
        bind(named.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).expect("bound");
        let told = told();
        assert!(cookies.iter().all(|cookie| told.contains(cookie)));
        assert!(!told.contains(&cookie_of(&named)));
        drop(accepted);
    });
}

#[test]
fn the_answer_to_a_forgotten_question_is_nobodys() {
    captured(|_| {
        let listener = listen::tcp(443).expect("free");
        let mut diag = Diag::open().expect("a socket");
        let forgotten = connect_to(&listener, "8.8.8.8");
        let asked = connect_to(&listener, "8.8.4.4");
        for _ in 0..3 {
            let question = question(0, forgotten.ends.local, forgotten.ends.remote);
            send(diag.socket.as_raw_fd(), &question, MsgFlags::empty()).expect("sent");
        }

        let found = diag.cookie(asked.ends.local, asked.ends.remote);

        assert_eq!(found.expect("asked"), Some(asked.ends.cookie));
    });
}

#[test]
fn a_socket_that_was_handed_over_answers_for_where_it_was_opened() {
    captured(|_| {
        let listener = listen::tcp(443).expect("free");
        let connection = connect_to(&listener, "8.8.8.8");
        let diag = Diag::open().expect("a socket");
        let (ours, theirs) = handoff::pair().expect("a pair");
        ours.send(b"diag", &[diag.as_fd()]).expect("room");
        drop(diag);

        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("another network");
        let handoff::Received::Packet {
            mut descriptors, ..
        } = theirs.receive(&mut [0; 8]).expect("a packet")
        else {
            panic!("no packet");
        };
        let mut elsewhere = Diag::open().expect("a socket");
        let mut handed = Diag::from(descriptors.remove(0));

        let Ends {
            local,
            remote,
            cookie,
        } = connection.ends;
        assert_eq!(handed.cookie(local, remote).expect("asked"), Some(cookie));
        assert_eq!(elsewhere.cookie(local, remote).expect("asked"), None);
    });
}
