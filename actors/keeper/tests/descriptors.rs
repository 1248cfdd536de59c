//! The egress at the end of its descriptors. In a process of its own, because the limit is the process's.

use futures_util::future::BoxFuture;
use holdfast_clock::{Clock, Seed};
use holdfast_keeper::egress::budget::Budget;
use holdfast_keeper::egress::desk::{Arguments, Cookies, Desk};
use holdfast_keeper::egress::dial::Limits;
use holdfast_keeper::egress::listener::{self, Listener, Standing};
use holdfast_keeper::egress::names::Names;
use holdfast_keeper::egress::relay::Means;
use holdfast_keeper::resolver::NameError;
use holdfast_observability::Audit;
use holdfast_policy::{Name, Policy};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Every address is open.test, and lives on 127.0.0.1.
struct OneName;

impl Names for OneName {
    fn name_of(&self, _: IpAddr) -> Option<Name> {
        "open.test".parse().ok()
    }

    fn resolve<'a>(
        &'a self,
        _: &'a Name,
        _: IpAddr,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, NameError>> {
        Box::pin(std::future::ready(Ok(vec![[127, 0, 0, 1].into()])))
    }
}

struct Unknown;

impl Cookies for Unknown {
    fn cookie(&self, _: SocketAddr, _: SocketAddr) -> io::Result<Option<NonZeroU64>> {
        Ok(None)
    }

    fn connections(&self) -> io::Result<HashSet<NonZeroU64>> {
        Ok(HashSet::new())
    }
}

fn desk(port: u16) -> Arc<Desk> {
    let text = format!(
        "version: 1\nnetwork_policies: {{open: {{endpoints: [{{host: open.test, port: {port}}}]}}}}\n\
         resolver: {{hosts: {{open.test: [127.0.0.1]}}}}\n"
    );
    Arc::new(Desk::new(Arguments {
        sandbox: "test".to_owned(),
        policy: Arc::new(Policy::parse("test", &text).expect("a policy")),
        names: Arc::new(OneName),
        audit: Audit::memory(),
        clock: Clock::system(),
        budget: Budget::new(1000),
        own: Vec::new(),
        limits: Limits::default(),
        means: Means::default(),
    }))
}

/// Takes every descriptor that is left.
fn starve() -> Vec<File> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("getrlimit");
    setrlimit(Resource::RLIMIT_NOFILE, 128, hard).expect("setrlimit");
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    taken
}

async fn exchange(client: &mut TcpStream, served: &mut TcpStream) {
    served.write_all(b"x").await.expect("write");
    client.read_exact(&mut [0; 1]).await.expect("read");
}

#[tokio::test]
async fn a_starved_listener_waits_says_so_and_serves_what_waited() {
    // PX-01, SV-03, SB-26
    let origin = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = origin.local_addr().expect("address").port();
    let desk = desk(port);
    let socket = std::net::TcpListener::bind(("127.18.0.2", port)).expect("bind");
    let front = socket.local_addr().expect("address");
    let (standing, mut seen) = watch::channel(Standing::Serving);
    let (clock, dice) = (Clock::system(), Seed::new(1).dice());
    let (shared, cookies) = (Arc::clone(&desk), Arc::new(Unknown));
    let arguments = listener::Arguments {
        socket: Arc::new(socket),
        desk: shared,
        cookies,
        clock,
        dice,
        standing,
    };
    let listener = Listener::new(arguments).expect("a listener");
    let mut actors = JoinSet::new();
    actors.spawn(listener.serve());
    let mut running = TcpStream::connect(front).await.expect("captured");
    let (mut served, _) = origin.accept().await.expect("dialled");
    let late = TcpSocket::new_v4().expect("socket");

    // Given no descriptor at all.
    let taken = starve();
    let mut late = late.connect(front).await.expect("the backlog takes it");
    let starved = seen
        .wait_for(|standing| matches!(standing, Standing::Starved(_)))
        .await;
    starved.expect("published");
    assert_eq!(desk.counters.waiting.load(Ordering::Relaxed), 1);
    exchange(&mut running, &mut served).await;
    assert!(actors.try_join_next().is_none(), "the listener lives");

    // When they come back.
    drop(taken);
    let (mut served, _) = origin.accept().await.expect("dialled");

    // Then what waited is served.
    exchange(&mut late, &mut served).await;
    seen.wait_for(|standing| *standing == Standing::Serving)
        .await
        .expect("published");
    let errors = desk.counters.accept_exhausted.load(Ordering::Relaxed);
    assert!((1..100).contains(&errors), "{errors} errors: it backs off");
}
