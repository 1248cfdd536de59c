use std::net::{Ipv4Addr, TcpListener, UdpSocket};

use nix::sched::CloneFlags;

use super::*;
use crate::apart::apart;
use crate::fork::{Ended, Forked, fork, leave};

const WORD: &[u8] = b"0123456789abcdef0123456789abcdef";

/// What the canary meets: the code of the name server's answer, and the word of the server that it connects to.
struct World {
    names: UdpSocket,
    server: TcpListener,
}

impl World {
    fn new() -> Self {
        Self {
            names: UdpSocket::bind("127.0.0.1:0").expect("bound"),
            server: TcpListener::bind("127.0.0.1:0").expect("bound"),
        }
    }

    fn port(&self) -> u16 {
        self.server.local_addr().expect("bound").port()
    }

    /// Sends a canary on its way to `port` and serves it.
    fn walk(&self, port: u16, code: u8, word: Option<&[u8]>) -> Walk {
        let asked = self.names.local_addr().expect("bound").port();
        let task = Task {
            server: SocketAddrV4::new(Ipv4Addr::LOCALHOST, asked),
            name: "c-12ab.holdfast.internal".to_owned(),
            port,
            word: WORD.to_vec(),
        };
        match fork(CloneFlags::empty()).expect("forked") {
            Forked::Child => {
                let _ = execute(&task);
                leave(125)
            }
            Forked::Parent(child) => {
                self.answer(code);
                if let Some(word) = word {
                    let (mut stream, _) = self.server.accept().expect("connected");
                    stream.write_all(word).expect("written");
                }
                match child.wait().expect("its end") {
                    Ended::Exited(status) => Walk::of(status),
                    Ended::Signalled(signal) => panic!("ended by signal {signal}"),
                }
            }
        }
    }

    fn answer(&self, code: u8) {
        let mut packet = [0; 512];
        let (length, from) = self.names.recv_from(&mut packet).expect("a question");
        let mut answer = packet[..length].to_vec();
        answer[2..12].copy_from_slice(&[0x81, 0x80 | code, 0, 1, 0, 1, 0, 0, 0, 0]);
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
        self.names.send_to(&answer, from).expect("answered");
    }
}

fn fell(walk: &Walk) -> Option<Step> {
    match walk {
        Walk::Whole => None,
        Walk::Fell(step, _) => Some(*step),
    }
}

#[test]
fn the_program_is_smaller_than_a_page() {
    assert!(
        (1..4096).contains(&PROGRAM.len()),
        "{} bytes",
        PROGRAM.len()
    );
}

#[test]
fn a_canary_that_hears_the_word_has_gone_the_whole_way() {
    apart(|| {
        let world = World::new();

        assert_eq!(world.walk(world.port(), 0, Some(WORD)), Walk::Whole);
    });
}

/// SV-01: what is broken is named by the step that failed.
#[test]
fn a_canary_that_fails_names_its_step() {
    apart(|| {
        let world = World::new();
        let port = world.port();

        let denied = world.walk(port, 3, None);
        let other = world.walk(port, 0, Some(&[b'x'; 32]));
        let closed = world.walk(port, 0, Some(b"short"));
        let nobody = TcpListener::bind("127.0.0.1:0").expect("bound");
        let free = nobody.local_addr().expect("bound").port();
        drop(nobody);
        let refused = world.walk(free, 0, None);

        assert_eq!(fell(&denied), Some(Step::Resolve));
        assert_eq!(fell(&other), Some(Step::Answer));
        assert_eq!(fell(&closed), Some(Step::Answer));
        let nobody_listens = Cause::Errno(libc::ECONNREFUSED);
        assert_eq!(refused, Walk::Fell(Step::Connect, nobody_listens));
    });
}

#[test]
fn every_status_is_explained() {
    for status in 0..=255 {
        assert_eq!(Walk::of(status) == Walk::Whole, status == 0);
    }
}
