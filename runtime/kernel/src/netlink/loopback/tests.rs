use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use super::*;
use crate::apart::{arrived, in_fresh_netns};
use crate::listen;

const OWN: Own = Own {
    v4: Ipv4Addr::new(198, 18, 0, 1),
    v6: Ipv6Addr::new(0xfd48, 0x6f6c, 0x6466, 0x6173, 0, 0, 0, 1),
};

fn captured(test: impl FnOnce(&[&str])) {
    in_fresh_netns(|| match capture(OWN).expect("captured") {
        Captured::Both => test(&["8.8.8.8", "198.18.3.7", "2001:4860:4860::8888", "fd48::7"]),
        Captured::V4(_) => test(&["8.8.8.8", "198.18.3.7"]),
    });
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().expect("an address"), port)
}

#[test]
fn a_connect_to_any_address_reaches_the_one_listener_which_knows_the_destination() {
    captured(|world| {
        let listener = listen::tcp(443).expect("free");
        for address in world {
            let destination = at(address, 443);

            let client = TcpStream::connect(destination).expect("connected");

            arrived(&listener);
            let (accepted, peer) = listener.accept().expect("waiting");
            let reached = accepted.local_addr().expect("an address");
            assert_eq!(reached.ip().to_canonical(), destination.ip());
            assert_eq!(reached.port(), 443);
            assert_eq!(client.peer_addr().expect("a peer"), destination);
            let from = client.local_addr().expect("an address");
            assert_eq!(peer.ip().to_canonical(), from.ip());
            let own: [IpAddr; 2] = [OWN.v4.into(), OWN.v6.into()];
            assert!(own.contains(&from.ip()), "{from}");
        }
    });
}

#[test]
fn a_connect_that_nobody_listens_for_is_refused_at_once() {
    captured(|world| {
        for address in world.iter().chain(&["127.0.0.1"]) {
            let refused = TcpStream::connect(at(address, 81)).expect_err("nobody listens");

            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{address}");
        }
    });
}

#[test]
fn udp_to_the_world_is_refused_at_once() {
    captured(|world| {
        for address in world.iter().chain(&["255.255.255.255", "224.0.0.251"]) {
            for port in [443, 123, 5353] {
                let any = if address.contains(':') {
                    "::"
                } else {
                    "0.0.0.0"
                };
                let socket = UdpSocket::bind(at(any, 0)).expect("a socket");
                socket.set_broadcast(true).expect("allowed");

                let sent = socket.send_to(b"x", at(address, port)).expect_err("no way");
                let connected = socket.connect(at(address, port)).expect_err("no way");

                assert_eq!(sent.raw_os_error(), Some(libc::EACCES), "{address}");
                assert_eq!(connected.raw_os_error(), Some(libc::EACCES), "{address}");
            }
        }
    });
}

#[test]
fn udp_among_the_own_addresses_works() {
    captured(|world| {
        let v6 = ["::1", "fd48:6f6c:6466:6173::1"];
        let v6 = if world.len() > 2 { &v6[..] } else { &[] };
        for address in ["127.0.0.1", "127.9.9.9", "198.18.0.1"].iter().chain(v6) {
            let one = UdpSocket::bind(at(address, 0)).expect("a socket");
            let other = UdpSocket::bind(at(address, 0)).expect("a socket");
            other
                .connect(one.local_addr().expect("an address"))
                .expect("connected");

            other.send(b"question").expect("sent");

            let mut buffer = [0; 16];
            let (length, peer) = one.recv_from(&mut buffer).expect("received");
            assert_eq!(&buffer[..length], b"question");
            one.send_to(b"answer", peer).expect("answered");
            assert_eq!(other.recv(&mut buffer).expect("received"), 6);
        }
    });
}

#[test]
fn names_asked_of_any_server_are_answered_from_the_address_that_was_asked() {
    captured(|world| {
        let server = listen::udp(DOMAIN).expect("free");
        let v6 = if world.len() > 2 { &["::1"][..] } else { &[] };
        for address in world.iter().chain(&["127.0.0.53", "198.18.0.1"]).chain(v6) {
            let any = if address.contains(':') {
                "::"
            } else {
                "0.0.0.0"
            };
            let client = UdpSocket::bind(at(any, 0)).expect("a socket");
            client.send_to(b"name", at(address, 53)).expect("sent");

            let mut buffer = [0; 512];
            arrived(&server);
            let asked = listen::receive(&server, &mut buffer).expect("a question");
            assert_eq!(asked.asked, at(address, 53).ip());
            listen::reply(&server, b"answer", asked.peer, asked.asked).expect("answered");

            let (length, from) = client.recv_from(&mut buffer).expect("an answer");
            assert_eq!((&buffer[..length], from), (&b"answer"[..], at(address, 53)));

            // A resolver with a connected socket takes answers from the server it asked, and from no other.
            client.connect(at(address, 53)).expect("connected");
            client.send(b"again").expect("sent");
            arrived(&server);
            let asked = listen::receive(&server, &mut buffer).expect("a question");
            listen::reply(&server, b"answer", asked.peer, asked.asked).expect("answered");
            assert_eq!(client.recv(&mut buffer).expect("an answer"), 6);
        }
        let nothing = listen::receive(&server, &mut [0; 512]).expect_err("all answered");
        assert_eq!(nothing.errno(), libc::EAGAIN);
    });
}

#[test]
fn sorting_addresses_as_getaddrinfo_does_harms_nobody() {
    captured(|_| {
        let listener = listen::tcp(443).expect("free");

        // The C library connects a UDP socket to each address to learn the source; here it is refused.
        let found = std::net::ToSocketAddrs::to_socket_addrs(&("8.8.8.8", 443)).expect("found");

        for address in found {
            TcpStream::connect(address).expect("connected");
            arrived(&listener);
            listener.accept().expect("waiting");
        }
    });
}

#[test]
fn without_ipv6_the_rest_is_captured_and_the_reason_told() {
    in_fresh_netns(|| {
        let switch = "/proc/sys/net/ipv6/conf/all/disable_ipv6";
        if std::fs::write(switch, "1").is_err() {
            return; // The host has none, as every other test here has seen.
        }

        let Captured::V4(absent) = capture(OWN).expect("captured") else {
            panic!("IPv6 without IPv6");
        };

        assert_eq!(absent.call(), "netlink RTM_NEWADDR");
        let listener = listen::tcp(443).expect("free");
        TcpStream::connect(at("8.8.8.8", 443)).expect("connected");
        arrived(&listener);
        listener.accept().expect("waiting");
        TcpStream::connect(at("2001:db8::1", 443)).expect_err("no IPv6");
    });
}

#[test]
fn a_network_in_use_is_left_alone() {
    in_fresh_netns(|| {
        capture(OWN).expect("captured");

        let refused = capture(OWN).expect_err("captured already");

        assert_eq!(refused.errno(), libc::EEXIST);
        let _listener = TcpListener::bind("127.0.0.1:0").expect("still there");
    });
}

#[test]
fn a_refused_request_is_named_and_the_rest_is_done() {
    in_fresh_netns(|| {
        let netlink = Netlink::open().expect("a socket");
        let mut batch = Batch::new();
        batch.add_local_default(OWN.v4.into());
        batch.loopback_up();

        let refused = netlink.apply(batch).expect_err("the source is not ours");

        assert_eq!(refused.call(), "netlink RTM_NEWROUTE");
        assert!(netlink.is_loopback_up().expect("told"));
    });
}
