//! Measures one announced connect and close through lane, dial, listener and relay, beside a native one:
//! `cargo bench -p holdfast-keeper --bench connect`.
//!
//! The bench plays workload and broker in one thread, so what is missing of a real connect is the seccomp notification and the broker's look at
//! the caller (about 13 µs).
#![expect(clippy::print_stdout, reason = "a benchmark's result is its output")]
#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures real time and owns its tasks"
)]

use futures_util::future::BoxFuture;
use holdfast_clock::{Clock, Seed};
use holdfast_keeper::egress::budget::Budget;
use holdfast_keeper::egress::desk::{Arguments, Cookies, Desk};
use holdfast_keeper::egress::dial::Limits;
use holdfast_keeper::egress::lane::{self, Asides};
use holdfast_keeper::egress::listener::{self, Listener, Standing};
use holdfast_keeper::egress::names::Names;
use holdfast_keeper::egress::relay::Means;
use holdfast_keeper::resolver::NameError;
use holdfast_kernel::diag::Diag;
use holdfast_observability::Audit;
use holdfast_policy::{Name, Policy};
use holdfast_wire::v1::{self, from_broker::Kind};
use parking_lot::Mutex;
use prost::Message;
use socket2::{Domain, SockAddr, Socket, Type};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

const CONNECTS: u64 = 3000;
const CALLER: &str = "/usr/bin/curl";

/// Every address is open.test, and lives on 127.0.0.1.
struct OneName(Name);

impl Names for OneName {
    fn name_of(&self, _: IpAddr) -> Option<Name> {
        Some(self.0.clone())
    }

    fn resolve<'a>(
        &'a self,
        _: &'a Name,
        _: IpAddr,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, NameError>> {
        Box::pin(std::future::ready(Ok(vec![[127, 0, 0, 1].into()])))
    }
}

fn main() {
    let server = TcpListener::bind("127.0.0.1:0").expect("bind");
    let direct = server.local_addr().expect("address");
    std::thread::spawn(move || server.incoming().for_each(drop));

    show("native", measure(|_| connect(direct)));
    for (what, threads) in [("one thread", 1), ("two threads", 2)] {
        let (runtime, broker, captured) = egress(direct.port(), threads);
        let mut verdicts = Vec::new();
        let whole = measure(|call| verdicts.push(announced(&broker, call, captured)));
        show(what, whole);
        show("  to verdict", verdicts);
        runtime.shutdown_background();
        // Past 14,000 sockets in TIME_WAIT every connect costs more.
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// The egress, its broker's end of the lane, and the address it captures.
fn egress(port: u16, threads: usize) -> (Runtime, Socket, SocketAddr) {
    let text = format!(
        "version: 1\nnetwork_policies: {{open: {{endpoints: [{{host: open.test, port: {port}}}], \
         binaries: [{{path: {CALLER}}}]}}}}\nresolver: {{hosts: {{open.test: [127.0.0.1]}}}}\n"
    );
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .expect("runtime");
    let inside = runtime.enter();
    let desk = Arc::new(Desk::new(Arguments {
        sandbox: "bench".to_owned(),
        policy: Arc::new(Policy::parse("bench", &text).expect("a policy")),
        names: Arc::new(OneName("open.test".parse().expect("a name"))),
        audit: Audit::off(),
        clock: Clock::system(),
        budget: Budget::new(1000),
        own: Vec::new(),
        limits: Limits::default(),
        means: Means::default(),
    }));
    let address = SocketAddr::from(([127, 18, 0, u8::try_from(threads).expect("few")], port));
    let cookies: Arc<dyn Cookies> = Arc::new(Mutex::new(Diag::open().expect("diag")));
    let arguments = listener::Arguments {
        socket: Arc::new(TcpListener::bind(address).expect("bind")),
        desk: Arc::clone(&desk),
        cookies: Arc::clone(&cookies),
        clock: Clock::system(),
        dice: Seed::new(1).dice(),
        standing: watch::channel(Standing::Serving).0,
    };
    let listener = Listener::new(arguments).expect("a listener");
    runtime.spawn(listener.serve());
    let (ours, theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).expect("a pair");
    let asides: Asides = Arc::new(|_| ());
    runtime.spawn(lane::apart(Arc::new(ours.into()), desk, cookies, asides));
    drop(inside);
    (runtime, theirs, address)
}

fn connect(to: SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("socket");
    socket.connect(&SockAddr::from(to)).expect("connect");
}

/// How long the verdict took.
fn announced(broker: &Socket, call: u64, to: SocketAddr) -> Duration {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("socket");
    let IpAddr::V4(address) = to.ip() else {
        return Duration::ZERO;
    };
    let (executable, ancestors) = (CALLER.to_owned(), vec!["/usr/bin/bash".to_owned()]);
    let attempt = v1::Attempt {
        id: call,
        cookie: socket.cookie().expect("SO_COOKIE"),
        address: address.octets().to_vec(),
        port: u32::from(to.port()),
        blocking: true,
        timeout_us: 0,
        caller: Some(v1::Caller {
            observed: true,
            executable,
            ancestors,
            pid: 7,
        }),
        thread: 7,
    };
    let packet = v1::FromBroker {
        kind: Some(Kind::Attempt(attempt)),
    }
    .encode_to_vec();
    let asked = Instant::now();
    broker.send(&packet).expect("send");
    let mut reply = [std::mem::MaybeUninit::uninit(); 64];
    let length = broker.recv(&mut reply).expect("receive");
    assert!(length > 0, "the lane is closed");
    let verdict = asked.elapsed();
    socket.connect(&SockAddr::from(to)).expect("connect");
    verdict
}

fn measure(mut one: impl FnMut(u64)) -> Vec<Duration> {
    (0..CONNECTS)
        .map(|call| {
            let begun = Instant::now();
            one(call + 1);
            begun.elapsed()
        })
        .collect()
}

fn show(what: &str, mut took: Vec<Duration>) {
    took.sort();
    let (median, late) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    println!("{what:<14} p50 {median:>8.1?}  p99 {late:>8.1?}");
}
