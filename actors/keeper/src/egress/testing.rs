//! A policy, names and a workload for the tests of the egress.

use super::attempt::Caller;
use super::budget::Budget;
use super::desk::{Arguments, Cookies, Desk};
use super::dial::Limits;
use super::lane;
use super::listener::{self, Listener, Standing};
use super::names::Names;
use super::relay::Means;
use crate::resolver::NameError;
use futures_util::future::BoxFuture;
use holdfast_clock::{Clock, Seed};
use holdfast_kernel::diag::Diag;
use holdfast_observability::{Audit, Record};
use holdfast_policy::{Identity, Name, Policy};
use holdfast_wire::v1::{self, from_broker::Kind, from_keeper};
use prost::Message;
use socket2::{Domain, SockRef, Socket, Type};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Packets;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What `policy` lets nobody but this program do.
pub(super) const CURL: &str = "/usr/bin/curl";

/// `open.test` for everybody, `curl.test` for curl, both on `port`. Their addresses are loopback ones, so the policy has to give them.
pub(super) fn policy(port: u16) -> Arc<Policy> {
    let text = format!(
        "version: 1\n\
         network_policies:\n  \
           open: {{endpoints: [{{host: open.test, port: {port}}}]}}\n  \
           curl: {{endpoints: [{{host: curl.test, port: {port}}}], binaries: [{{path: {CURL}}}]}}\n\
         resolver: {{hosts: {{open.test: [127.0.0.1], curl.test: [127.0.0.1]}}}}\n"
    );
    Arc::new(Policy::parse("test", &text).expect("a policy"))
}

/// A table of names whose addresses can be anything.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) names: HashMap<IpAddr, Name>,
    pub(super) addresses: HashMap<Name, Vec<IpAddr>>,
    /// The same, for who asks for IPv6.
    pub(super) others: HashMap<Name, Vec<IpAddr>>,
}

/// What a workload connects to for each name; in these tests an address of the loopback stands for a synthetic one.
pub(super) const OPEN: [u8; 4] = [127, 18, 0, 2];
pub(super) const GUARDED: [u8; 4] = [127, 18, 0, 3];
pub(super) const FOREIGN: [u8; 4] = [127, 18, 0, 4];

/// `open.test` and `curl.test` live on 127.0.0.1, `foreign.test` too, and nobody allows it.
pub(super) fn table() -> Table {
    let mut table = Table::default();
    for (address, name) in [
        (OPEN, "open.test"),
        (GUARDED, "curl.test"),
        (FOREIGN, "foreign.test"),
    ] {
        let name: Name = name.parse().expect("a name");
        table.names.insert(address.into(), name.clone());
        table.addresses.insert(name, vec![[127, 0, 0, 1].into()]);
    }
    table
}

impl Names for Table {
    fn name_of(&self, address: IpAddr) -> Option<Name> {
        self.names.get(&address).cloned()
    }

    fn resolve<'a>(
        &'a self,
        name: &'a Name,
        like: IpAddr,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, NameError>> {
        let of_family = if like.is_ipv4() {
            &self.addresses
        } else {
            &self.others
        };
        let found = of_family.get(name).cloned().ok_or(NameError::NoSuchName);
        Box::pin(std::future::ready(found))
    }
}

pub(super) fn at(address: [u8; 4], port: u16) -> SocketAddr {
    (address, port).into()
}

pub(super) fn curl() -> Caller {
    Caller {
        identity: Identity::of(CURL),
        pid: Some(7),
    }
}

pub(super) fn wget() -> Caller {
    Caller {
        identity: Identity::of("/usr/bin/wget"),
        pid: Some(8),
    }
}

/// The whole egress without a sandbox: the host's loopback stands for the captured namespace, and the test for broker and workload.
pub(super) struct World {
    /// What open.test, curl.test and foreign.test would lead to.
    pub(super) server: TcpListener,
    pub(super) port: u16,
    pub(super) desk: Arc<Desk>,
    pub(super) cookies: Arc<dyn Cookies>,
    pub(super) standing: watch::Receiver<Standing>,
    pub(super) broker: UnixStream,
    audit: Audit,
    calls: u64,
    /// Lane and listeners; they end with the test.
    _actors: JoinSet<()>,
}

/// How a test connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Blocking,
    NonBlocking,
}

impl World {
    pub(super) async fn new() -> World {
        World::with(Budget::new(64)).await
    }

    pub(super) async fn with(budget: Budget) -> World {
        World::recording(budget, Audit::memory()).await
    }

    pub(super) async fn recording(budget: Budget, audit: Audit) -> World {
        let server = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = server.local_addr().expect("address").port();
        let desk = Arc::new(Desk::new(Arguments {
            sandbox: "test".to_owned(),
            policy: policy(port),
            names: Arc::new(table()),
            audit: audit.clone(),
            clock: Clock::system(),
            budget,
            own: Vec::new(),
            limits: Limits::default(),
            means: Means::default(),
        }));
        let cookies: Arc<dyn Cookies> =
            Arc::new(parking_lot::Mutex::new(Diag::open().expect("diag")));
        let (standing_in, standing) = watch::channel(Standing::Serving);
        let mut actors = JoinSet::new();
        for address in [OPEN, GUARDED, FOREIGN] {
            let arguments = listener::Arguments {
                socket: Arc::new(std::net::TcpListener::bind(at(address, port)).expect("bind")),
                desk: Arc::clone(&desk),
                cookies: Arc::clone(&cookies),
                clock: Clock::system(),
                dice: Seed::new(1).dice(),
                standing: standing_in.clone(),
            };
            let listener = Listener::new(arguments).expect("a listener");
            actors.spawn(async move { panic!("{}", listener.serve().await) });
        }
        let (ours, theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).expect("a pair");
        let lane = lane::apart(
            Arc::new(ours.into()),
            Arc::clone(&desk),
            Arc::clone(&cookies),
            Arc::new(|_| ()),
        );
        actors.spawn(async move { lane.await.expect("no fault") });
        theirs.set_nonblocking(true).expect("non-blocking");
        let broker = UnixStream::from_std(Packets::from(OwnedFd::from(theirs))).expect("a broker");
        World {
            server,
            port,
            desk,
            cookies,
            standing,
            broker,
            audit,
            calls: 0,
            _actors: actors,
        }
    }

    /// A connect as a workload makes it and the broker announces it.
    pub(super) async fn connect(
        &mut self,
        to: [u8; 4],
        who: Caller,
        how: How,
    ) -> Result<TcpStream, i32> {
        let socket = TcpSocket::new_v4().expect("socket");
        match self.announce(&socket, to, who, how).await.errno {
            0 => Ok(self.arrive(socket, to).await),
            errno => Err(errno),
        }
    }

    pub(super) async fn announce(
        &mut self,
        socket: &TcpSocket,
        to: [u8; 4],
        who: Caller,
        how: How,
    ) -> v1::Verdict {
        self.calls += 1;
        let caller = match who.identity {
            Identity::Observed {
                executable,
                ancestors,
            } => v1::Caller {
                observed: true,
                executable,
                ancestors,
                pid: 7,
            },
            Identity::Unobservable => v1::Caller::default(),
        };
        let attempt = v1::Attempt {
            id: self.calls,
            cookie: SockRef::from(socket).cookie().expect("SO_COOKIE"),
            address: to.to_vec(),
            port: u32::from(self.port),
            blocking: how == How::Blocking,
            timeout_us: 0,
            caller: Some(caller),
            thread: 7,
        };
        self.say(Kind::Attempt(attempt)).await;
        let verdict = self.hear().await;
        assert_eq!(verdict.id, self.calls);
        verdict
    }

    pub(super) async fn arrive(&self, socket: TcpSocket, to: [u8; 4]) -> TcpStream {
        socket.connect(at(to, self.port)).await.expect("captured")
    }

    pub(super) async fn say(&mut self, kind: Kind) {
        let packet = v1::FromBroker { kind: Some(kind) }.encode_to_vec();
        self.broker.write_all(&packet).await.expect("one packet");
    }

    pub(super) async fn hear(&mut self) -> v1::Verdict {
        let mut packet = [0; 256];
        let length = self.broker.read(&mut packet).await.expect("one packet");
        let message = v1::FromKeeper::decode(&packet[..length]).expect("a message");
        let Some(from_keeper::Kind::Verdict(verdict)) = message.kind else {
            panic!("{message:?}");
        };
        verdict
    }

    /// The records so far, each in one line.
    pub(super) fn records(&self) -> Vec<String> {
        self.audit.records().iter().map(line).collect()
    }
}

fn line(record: &Record) -> String {
    let host = record.host.as_deref().unwrap_or("-");
    let binary = record.binary.as_deref().unwrap_or("-");
    let outcome = record.outcome.as_deref().unwrap_or("-");
    format!("{host} {binary} {} {outcome}", record.reason)
}
