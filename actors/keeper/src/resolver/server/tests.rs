use std::collections::HashSet;
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Condvar;
use std::sync::Mutex;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name as Label, RecordType};
use holdfast_clock::Seed;
use holdfast_kernel::listen;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket as Client};

use super::*;
use crate::resolver::testing::{Asked, Book, NameServer, Rules, Script, ip};
use crate::resolver::{Config, Counters, Names, Outcome, Patience, Source, Upstream};

struct World {
    server: Server,
    port: u16,
    _upstream: NameServer,
}

fn world(limits: Limits, play: impl Fn(&Asked) -> Script + Send + Sync + 'static) -> World {
    let upstream = NameServer::start(play);
    let admission = Arc::new(Rules::default());
    let counters = Arc::new(Counters::default());
    let config = Config {
        source: Source::Servers(vec![upstream.address]),
        patience: Patience::default(),
        clock: Clock::system(),
    };
    let lookups = Upstream::new(Arc::clone(&admission) as _, config, Arc::clone(&counters));
    let resolver = Resolver::new(
        Arc::new(Names::new(Seed::new(5))),
        Arc::new(lookups),
        admission,
        Arc::new(Book::default()),
        counters,
    );
    let (udp, tcp, port) = sockets();
    World {
        server: Server {
            resolver: Arc::new(resolver),
            sockets: Sockets::new(udp, tcp),
            limits,
            clock: Clock::system(),
        },
        port,
        _upstream: upstream,
    }
}

/// A UDP and a TCP socket with the same number, as the boundary makes them.
fn sockets() -> (OwnedFd, OwnedFd, u16) {
    loop {
        let tcp = listen::tcp(0).expect("listen");
        let port = tcp.local_addr().expect("an address").port();
        if let Ok(udp) = listen::udp(port) {
            return (udp.into(), tcp.into(), port);
        }
    }
}

impl World {
    /// Runs `test` beside the server, which must outlive it.
    async fn serve<T>(&self, test: impl Future<Output = T>) -> T {
        tokio::select! {
            ended = self.server.run() => panic!("the server ended: {ended}"),
            done = test => done,
        }
    }

    fn at(&self, address: impl Into<IpAddr>) -> SocketAddr {
        SocketAddr::new(address.into(), self.port)
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.at(Ipv4Addr::LOCALHOST))
            .await
            .expect("connect")
    }
}

fn anything(_: &Asked) -> Script {
    Script::Addresses(30, vec![ip("192.0.2.1"), ip("2001:db8::1")])
}

fn query(id: u16, name: &str) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    let name = Label::from_ascii(name).expect("a name");
    message.add_query(Query::query(name, RecordType::A));
    message.to_vec().expect("encodes")
}

fn framed(packet: &[u8]) -> Vec<u8> {
    let length = u16::try_from(packet.len()).expect("short");
    [&length.to_be_bytes(), packet].concat()
}

async fn next(stream: &mut TcpStream) -> Message {
    let length = stream.read_u16().await.expect("a length");
    let mut packet = vec![0; usize::from(length)];
    stream.read_exact(&mut packet).await.expect("a reply");
    Message::from_vec(&packet).expect("parses")
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read_u8().await {
        Ok(_) => false,
        Err(error) => {
            assert!(matches!(
                error.kind(),
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
            ));
            true
        }
    }
}

/// Holds the name server's answers to `slow…` back until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().expect("unpoisoned") = true;
        self.0.1.notify_all();
    }

    fn script(&self) -> impl Fn(&Asked) -> Script + Send + Sync + 'static {
        let gate = self.clone();
        move |asked| {
            if !asked.name.starts_with("slow") {
                return anything(asked);
            }
            if *gate.0.0.lock().expect("unpoisoned") {
                anything(asked)
            } else {
                Script::Silence
            }
        }
    }
}

// DN-14
#[tokio::test]
async fn two_hundred_queries_from_one_port_are_answered_from_the_address_that_was_asked() {
    let world = world(Limits::default(), anything);
    let own: IpAddr = Ipv4Addr::LOCALHOST.into();
    let other: IpAddr = Ipv4Addr::new(127, 0, 0, 53).into();
    let six: IpAddr = Ipv6Addr::LOCALHOST.into();

    for (asked, any) in [(own, own), (other, own), (six, six)] {
        let client = Client::bind((any, 0)).await.expect("bind");
        let answered = world.serve(async {
            for id in 0..200 {
                let packet = query(id, &format!("N{}.Test.", id % 7));
                client
                    .send_to(&packet, world.at(asked))
                    .await
                    .expect("send");
            }
            let mut answered = HashSet::new();
            while answered.len() < 200 {
                let mut buffer = [0; 512];
                let (length, peer) = client.recv_from(&mut buffer).await.expect("receive");
                assert_eq!(peer, world.at(asked));
                let reply = Message::from_vec(&buffer[..length]).expect("parses");
                let id = reply.metadata.id;
                let name = reply.queries[0].name.to_ascii();
                assert_eq!(name, format!("N{}.Test.", id % 7));
                assert_eq!(reply.answers.len(), 1);
                assert!(answered.insert(id), "{id} was answered twice");
            }
        });
        answered.await;
    }
}

// DN-04
#[tokio::test]
async fn a_quick_answer_overtakes_a_slow_one_on_the_same_connection() {
    let gate = Gate::default();
    let world = world(Limits::default(), gate.script());

    world
        .serve(async {
            let mut stream = world.connect().await;
            let both = [
                framed(&query(1, "slow.test.")),
                framed(&query(2, "denied.test.")),
            ];
            stream.write_all(&both.concat()).await.expect("write");

            let quick = next(&mut stream).await;
            gate.open();
            let slow = next(&mut stream).await;

            assert_eq!((quick.metadata.id, slow.metadata.id), (2, 1));
            assert_eq!(slow.answers.len(), 1);
        })
        .await;
}

// DN-04
#[tokio::test]
async fn a_query_that_comes_byte_by_byte_is_one_query() {
    let world = world(Limits::default(), anything);

    world
        .serve(async {
            let mut stream = world.connect().await;
            stream.set_nodelay(true).expect("nodelay");
            for byte in framed(&query(9, "origin.test.")) {
                stream.write_all(&[byte]).await.expect("write");
                tokio::task::yield_now().await;
            }
            assert_eq!(next(&mut stream).await.metadata.id, 9);

            let pipelined: Vec<u8> = (0..100)
                .flat_map(|id| framed(&query(id, "origin.test.")))
                .collect();
            stream.write_all(&pipelined).await.expect("write");
            for id in 0..100 {
                assert_eq!(next(&mut stream).await.metadata.id, id);
            }
        })
        .await;
}

#[tokio::test]
async fn half_a_close_still_gets_its_answers() {
    let gate = Gate::default();
    let world = world(Limits::default(), gate.script());

    world
        .serve(async {
            let mut stream = world.connect().await;
            stream
                .write_all(&framed(&query(3, "slow.test.")))
                .await
                .expect("write");
            stream.shutdown().await.expect("shutdown");
            gate.open();

            assert_eq!(next(&mut stream).await.metadata.id, 3);
            assert!(is_closed(&mut stream).await);
        })
        .await;
}

// DN-04
#[tokio::test]
async fn an_idle_connection_is_closed_and_so_is_one_that_never_finishes_its_query() {
    let limits = Limits {
        idle: Duration::from_millis(50),
        ..Limits::default()
    };
    let world = world(limits, anything);

    world
        .serve(async {
            let mut idle = world.connect().await;
            let mut unfinished = world.connect().await;
            unfinished.write_all(&[0, 40, 1, 2]).await.expect("write");
            let mut finished = world.connect().await;
            finished
                .write_all(&framed(&query(4, "origin.test.")))
                .await
                .expect("write");

            assert_eq!(next(&mut finished).await.metadata.id, 4);
            for stream in [&mut idle, &mut unfinished, &mut finished] {
                assert!(is_closed(stream).await);
            }
        })
        .await;
}

#[tokio::test]
async fn a_query_longer_than_any_query_ends_the_connection() {
    let world = world(Limits::default(), anything);

    world
        .serve(async {
            let mut stream = world.connect().await;
            stream.write_all(&[0xff, 0xff, 1]).await.expect("write");
            assert!(is_closed(&mut stream).await);
        })
        .await;
}

#[tokio::test]
async fn connections_over_the_limit_wait_and_are_served_when_others_leave() {
    let limits = Limits {
        connections: 2,
        ..Limits::default()
    };
    let world = world(limits, anything);

    world
        .serve(async {
            let mut first = world.connect().await;
            let mut second = world.connect().await;
            for stream in [&mut first, &mut second] {
                stream
                    .write_all(&framed(&query(5, "origin.test.")))
                    .await
                    .expect("write");
                assert_eq!(next(stream).await.metadata.id, 5);
            }
            let mut third = world.connect().await;
            third
                .write_all(&framed(&query(6, "origin.test.")))
                .await
                .expect("write");
            first
                .write_all(&framed(&query(7, "origin.test.")))
                .await
                .expect("write");
            assert_eq!(next(&mut first).await.metadata.id, 7);
            let unserved = third.try_read(&mut [0]).map_err(|error| error.kind());
            assert_eq!(unserved, Err(ErrorKind::WouldBlock));

            drop(second);
            assert_eq!(next(&mut third).await.metadata.id, 6);
        })
        .await;
}

#[tokio::test]
async fn lookups_over_the_limit_fail_at_once_and_known_names_are_still_answered() {
    let limits = Limits {
        lookups: 3,
        ..Limits::default()
    };
    let world = world(limits, Gate::default().script());

    world
        .serve(async {
            let mut stream = world.connect().await;
            stream
                .write_all(&framed(&query(0, "known.test.")))
                .await
                .expect("write");
            next(&mut stream).await;
            let many: Vec<u8> = (1..=5)
                .flat_map(|id| framed(&query(id, &format!("slow{id}.test."))))
                .collect();
            stream.write_all(&many).await.expect("write");
            stream
                .write_all(&framed(&query(6, "known.test.")))
                .await
                .expect("write");

            for id in [4, 5] {
                let shed = next(&mut stream).await;
                assert_eq!(shed.metadata.id, id);
                assert_eq!(shed.metadata.response_code, ResponseCode::ServFail);
            }
            let known = next(&mut stream).await;
            assert_eq!((known.metadata.id, known.answers.len()), (6, 1));
        })
        .await;

    assert_eq!(world.server.resolver.counters().of(Outcome::Shed), 2);
}

#[tokio::test]
async fn what_is_not_a_query_does_not_stop_the_server() {
    let world = world(Limits::default(), anything);
    let client = Client::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind");

    world
        .serve(async {
            for junk in [
                vec![],
                vec![7],
                vec![0x80; 12],
                vec![0xff; 5000],
                vec![1; 600],
            ] {
                client
                    .send_to(&junk, world.at(Ipv4Addr::LOCALHOST))
                    .await
                    .expect("send");
            }
            client
                .send_to(&query(8, "origin.test."), world.at(Ipv4Addr::LOCALHOST))
                .await
                .expect("send");
            let mut buffer = [0; 512];
            loop {
                let length = client.recv(&mut buffer).await.expect("receive");
                let reply = Message::from_vec(&buffer[..length]).expect("parses");
                if reply.metadata.id == 8 {
                    assert_eq!(reply.answers.len(), 1);
                    break;
                }
                assert_ne!(reply.metadata.response_code, ResponseCode::NoError);
            }
        })
        .await;
}

#[tokio::test]
async fn a_useless_socket_ends_the_server_with_its_reason() {
    let mut world = world(Limits::default(), anything);
    // A pipe that is ready to be read is no listener.
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(b"x").expect("write");
    let (udp, _, _) = sockets();
    world.server.sockets = Sockets::new(udp, reader.into());

    let ended = world.server.run().await;

    assert_eq!(
        ended.to_string(),
        "serve names over TCP: fetch the socket again"
    );
}

#[tokio::test]
async fn a_server_that_is_started_again_serves_the_same_sockets() {
    let world = world(Limits::default(), anything);

    for id in 0..3 {
        world
            .serve(async {
                let mut stream = world.connect().await;
                stream
                    .write_all(&framed(&query(id, "origin.test.")))
                    .await
                    .expect("write");
                assert_eq!(next(&mut stream).await.metadata.id, id);
            })
            .await;
    }
}
