use super::*;
use crate::egress::testing::{How, OPEN, World, at, curl};
use holdfast_actor::{Backoff, Change, Child, End, Seed, Strategy, Supervisor, Tree};
use holdfast_kernel::diag::Diag;
use holdfast_wire::v1;
use parking_lot::Mutex;
use prost::Message;
use socket2::{Domain, Socket, Type};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The first socket it gives is spoiled; the second is good.
struct Healing {
    address: SocketAddr,
    fetched: AtomicUsize,
}

impl Source<TcpListener> for Healing {
    fn fetch(&self) -> io::Result<Arc<TcpListener>> {
        let first = self.fetched.fetch_add(1, Ordering::SeqCst) == 0;
        let socket = TcpListener::bind(self.address)?;
        if first {
            socket2::SockRef::from(&socket).shutdown(Shutdown::Read)?;
        }
        Ok(Arc::new(socket))
    }
}

#[tokio::test]
async fn a_listener_whose_socket_breaks_is_restarted_with_another() {
    // Given an open connection, and a listener beside it whose socket is spoiled.
    let mut world = World::new().await;
    let mut open = world
        .connect(OPEN, curl(), How::Blocking)
        .await
        .expect("allowed");
    let (mut served, _) = world.server.accept().await.expect("dialled");
    let address = at([127, 18, 0, 9], world.port);
    let source = Arc::new(Healing {
        address,
        fetched: AtomicUsize::new(0),
    });
    let (standing, _) = watch::channel(Standing::Serving);
    let arguments = ListenerArguments {
        source: Arc::clone(&source) as Arc<dyn Source<TcpListener>>,
        desk: Arc::clone(&world.desk),
        cookies: Arc::new(Mutex::new(Diag::open().expect("diag"))),
        standing,
    };
    let backoff = Backoff {
        min: Duration::from_millis(1),
        ..Backoff::default()
    };
    let child = Child::permanent("listener").backoff(backoff);
    let mut tree = Tree::new(Supervisor::new("egress", Strategy::OneForOne).child(child));
    tree.bind::<ListenerActor>("egress/listener", arguments);

    // When it runs.
    let root = tree
        .start(Seed::new(1), |_: &Change| {})
        .await
        .expect("a sound tree");
    let mut refused = loop {
        if let Ok(stream) = TcpStream::connect(address).await {
            break stream;
        }
        tokio::task::yield_now().await;
    };

    // Then it accepts on the second, and nobody else noticed.
    assert!(
        refused.read(&mut [0; 1]).await.is_err(),
        "judged, and refused"
    );
    assert_eq!(source.fetched.load(Ordering::SeqCst), 2);
    served.write_all(b"x").await.expect("write");
    open.read_exact(&mut [0; 1]).await.expect("read");
    assert_eq!(root.shutdown().await, End::ShutDown);
}

#[tokio::test]
async fn a_kept_socket_is_the_same_at_every_start() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = socket.local_addr().expect("address");
    let kept = Kept(Arc::new(socket));

    for _ in 0..2 {
        let again = kept.fetch().expect("the socket");
        assert_eq!(again.local_addr().expect("address"), address);
    }
}

#[tokio::test]
async fn a_lane_that_the_broker_closes_is_fetched_again() {
    // Given a lane actor, and a broker that leaves at once.
    let world = World::new().await;
    let broker = Arc::new(Brokers::default());
    let arguments = LaneArguments {
        source: Arc::clone(&broker) as Arc<dyn Source<UnixStream>>,
        desk: Arc::clone(&world.desk),
        cookies: Arc::clone(&world.cookies),
        asides: Arc::new(|_| ()),
    };
    let backoff = Backoff {
        min: Duration::from_millis(1),
        ..Backoff::default()
    };
    let child = Child::permanent("lane").backoff(backoff);
    let mut tree = Tree::new(Supervisor::new("egress", Strategy::OneForOne).child(child));
    tree.bind::<LaneActor>("egress/lane", arguments);
    let root = tree
        .start(Seed::new(1), |_: &Change| {})
        .await
        .expect("a sound tree");

    // When another one comes.
    let theirs = loop {
        if let Some(theirs) = broker.ends.lock().pop() {
            break theirs;
        }
        tokio::task::yield_now().await;
    };
    drop(theirs);
    let mut theirs = loop {
        if let Some(theirs) = broker.ends.lock().pop() {
            break tokio::net::UnixStream::from_std(theirs.into()).expect("registered");
        }
        tokio::task::yield_now().await;
    };

    // Then it is answered.
    let attempt = v1::Attempt {
        id: 5,
        ..v1::Attempt::default()
    };
    let packet = v1::FromBroker {
        kind: Some(v1::from_broker::Kind::Attempt(attempt)),
    };
    theirs
        .write_all(&packet.encode_to_vec())
        .await
        .expect("one packet");
    let mut reply = [0; 64];
    assert!(theirs.read(&mut reply).await.expect("one packet") > 0);
    assert_eq!(root.shutdown().await, End::ShutDown);
}

/// Gives a new lane at every start and keeps the broker's end of it.
#[derive(Default)]
struct Brokers {
    ends: Mutex<Vec<OwnedFd>>,
}

impl Source<UnixStream> for Brokers {
    fn fetch(&self) -> io::Result<Arc<UnixStream>> {
        let (ours, theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None)?;
        theirs.set_nonblocking(true)?;
        self.ends.lock().push(theirs.into());
        Ok(Arc::new(ours.into()))
    }
}
