use std::io::Write;
use std::net::Ipv4Addr;
use std::time::Duration;

use hickory_proto::op::{Message as Packet, MessageType, OpCode, Query};
use hickory_proto::rr::{Name as Label, RecordType};
use holdfast_actor::{
    Address, Backoff, Change, Child, Clock, End, Root, Seed, Strategy, Supervisor, Tree,
};
use holdfast_kernel::listen;
use tokio::net::UdpSocket;

use super::*;
use crate::resolver::testing::{Book, Rules, ip};
use crate::resolver::{Config, Counters, Names, Patience, Source, Upstream};

fn resolver() -> Arc<Resolver> {
    let admission = Arc::new(Rules {
        hosts: vec![("origin.test", vec![ip("127.0.0.1")])],
    });
    let counters = Arc::new(Counters::default());
    let config = Config {
        source: Source::Servers(Vec::new()),
        patience: Patience::default(),
        clock: Clock::system(),
    };
    let upstream = Upstream::new(Arc::clone(&admission) as _, config, Arc::clone(&counters));
    let names = Arc::new(Names::new(Seed::new(1)));
    let book = Arc::new(Book::default());
    Arc::new(Resolver::new(
        names,
        Arc::new(upstream),
        admission,
        book,
        counters,
    ))
}

fn sockets() -> (Sockets, u16) {
    let udp = listen::udp(0).expect("bind");
    let port = udp.local_addr().expect("an address").port();
    let tcp = listen::tcp(0).expect("listen");
    (Sockets::new(udp.into(), tcp.into()), port)
}

/// Asks, and waits for the answer.
async fn answers(port: u16) {
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("bind");
    let mut query = Packet::new(1, MessageType::Query, OpCode::Query);
    let name = Label::from_ascii("origin.test.").expect("a name");
    query.add_query(Query::query(name, RecordType::A));
    let query = query.to_vec().expect("encodes");
    client
        .send_to(&query, (Ipv4Addr::LOCALHOST, port))
        .await
        .expect("send");
    let mut buffer = [0; 512];
    let length = client.recv(&mut buffer).await.expect("receive");
    let reply = Packet::from_vec(&buffer[..length]).expect("parses");
    assert_eq!(reply.answers.len(), 1);
}

/// A tree of one nameserver that holds these sockets.
async fn tree(held: &Arc<Mutex<Option<Sockets>>>) -> (Root, Address<Message>) {
    let pace = Backoff::between(Duration::from_millis(1), Duration::from_millis(5));
    let spec = Supervisor::new("root", Strategy::OneForOne)
        .intensity(100, Duration::from_secs(10))
        .child(Child::permanent("resolver").backoff(pace));
    let mut tree = Tree::new(spec);
    let arguments = Arguments {
        resolver: resolver(),
        sockets: Arc::clone(held),
        limits: Limits::default(),
    };
    let address = tree.bind::<Nameserver>("root/resolver", arguments);
    let root = tree
        .start(Seed::new(1), |_: &Change| {})
        .await
        .expect("a sound tree");
    root.up().await.expect("it starts");
    (root, address)
}

#[tokio::test]
async fn it_serves_the_sockets_it_is_born_with_until_it_is_stopped() {
    let (sockets, port) = sockets();
    let held = Arc::new(Mutex::new(Some(sockets)));

    let (root, _) = tree(&held).await;

    answers(port).await;
    assert_eq!(root.shutdown().await, End::ShutDown);
    let held = held.lock();
    let udp = held.as_ref().map(|sockets| Arc::strong_count(&sockets.udp));
    assert_eq!(udp, Some(1), "nobody serves any more");
}

#[tokio::test]
async fn it_waits_for_sockets_and_changes_to_new_ones() {
    let held = Arc::new(Mutex::new(None));
    let (root, address) = tree(&held).await;

    for _ in 0..3 {
        let (sockets, port) = sockets();
        address.send(Message::Adopt(sockets)).expect("it is there");
        answers(port).await;
    }

    assert_eq!(root.shutdown().await, End::ShutDown);
}

#[tokio::test]
async fn a_useless_socket_fails_it_and_the_next_start_takes_what_is_held_then() {
    let (good, port) = sockets();
    // A pipe that is ready to be read is no listener.
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(b"x").expect("write");
    let udp = listen::udp(0).expect("bind");
    let useless = Sockets::new(udp.into(), reader.into());
    let held = Arc::new(Mutex::new(Some(useless)));
    let (root, _) = tree(&held).await;

    *held.lock() = Some(good);

    answers(port).await;
    assert_eq!(root.shutdown().await, End::ShutDown);
}
