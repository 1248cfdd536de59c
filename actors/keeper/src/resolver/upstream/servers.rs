//! Asks the host's own name servers, one after the other until one knows.
//!
//! ```text
//! ask ──> first server ──(silent for a while, or an error)──> next server beside it ──> …
//!          └────────────── the first real answer wins; after `Patience::total` all are given up
//! ```
//!
//! A server that stayed silent is asked last for a while, so that a dead one delays one lookup and
//! not all of them.
//!
//! hickory-resolver speaks the protocol: random ports and ids, retransmission, TCP for what was cut.
//! Its choice among servers is not used, because it takes a REFUSED or SERVFAIL of the first as the
//! last word, nor its cache, because time is an argument here.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hickory_proto::op::{DnsRequestOptions, Query as Question};
use hickory_proto::rr::{Name as Label, RecordType};
use hickory_resolver::config::{NameServerConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::xfer::DnsHandle;
use hickory_resolver::{NameServerPool, PoolContext, TlsConfig};
use holdfast_clock::{Clock, Moment};
use holdfast_policy::Name;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::reading::{Said, read};
use super::sockets::Sockets;
use crate::resolver::names::Family;

/// How long to wait for whom.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For one server, before the next is asked beside it.
    pub server: Duration,
    /// For all of them together.
    pub total: Duration,
    /// For all of them together, when addresses are known that will do.
    pub stale: Duration,
}

impl Default for Patience {
    /// Three servers are reached within two seconds, and nobody waits longer than five.
    fn default() -> Self {
        Self {
            server: Duration::from_millis(800),
            total: Duration::from_secs(5),
            stale: Duration::from_millis(1800),
        }
    }
}

pub(super) struct Servers {
    list: Vec<Server>,
    patience: Patience,
    clock: Clock,
}

impl Servers {
    /// Opens no socket yet.
    pub(super) fn new(
        addresses: &[SocketAddr],
        edns: bool,
        patience: Patience,
        clock: Clock,
    ) -> Result<Self, NetError> {
        let mut options = ResolverOpts::default();
        options.timeout = patience.total;
        options.edns0 = edns;
        options.num_concurrent_reqs = 1;
        let context = Arc::new(PoolContext::new(options, TlsConfig::new()?));
        let provider = Sockets::default();
        let server = |address: &SocketAddr| Server::new(*address, &context, &provider);
        Ok(Self {
            list: addresses.iter().take(MOST_SERVERS).map(server).collect(),
            patience,
            clock,
        })
    }

    /// The first real answer of any server, or why there is none.
    pub(super) async fn ask(&self, name: &Name, family: Family) -> Result<Said, String> {
        let asked = Label::from_ascii(format!("{name}.")).map_err(|error| error.to_string())?;
        let mut rest = self.order().into_iter();
        let mut answers = FuturesUnordered::new();
        let mut trouble = "no name server is configured".to_owned();
        loop {
            let latest = rest.next();
            match latest {
                Some(server) => answers.push(server.ask(&asked, family)),
                None if answers.is_empty() => return Err(trouble),
                None => {}
            }
            let patience = if rest.len() > 0 {
                self.patience.server
            } else {
                self.patience.total
            };
            match timeout(patience, answers.next()).await {
                Ok(Some((server, Ok(said)))) => {
                    server.trust();
                    return Ok(said);
                }
                Ok(Some((server, Err(error)))) => {
                    server.distrust_until(self.clock.now() + DISTRUST);
                    trouble = format!("{}: {error}", server.address);
                }
                Ok(None) => {}
                Err(_elapsed) => {
                    if let Some(server) = latest {
                        server.distrust_until(self.clock.now() + DISTRUST);
                        trouble = format!("{}: no answer", server.address);
                    }
                }
            }
        }
    }

    /// As configured, but those that failed of late stand last.
    fn order(&self) -> Vec<&Server> {
        let now = self.clock.now();
        let mut order: Vec<&Server> = self.list.iter().collect();
        order.sort_by_key(|server| server.distrusted(now));
        order
    }
}

struct Server {
    address: SocketAddr,
    pool: NameServerPool<Sockets>,
    distrusted: Mutex<Option<Moment>>,
}

impl Server {
    fn new(address: SocketAddr, context: &Arc<PoolContext>, provider: &Sockets) -> Self {
        let mut config = NameServerConfig::udp_and_tcp(address.ip());
        for connection in &mut config.connections {
            connection.port = address.port();
        }
        Self {
            address,
            pool: NameServerPool::from_config([config], Arc::clone(context), provider.clone()),
            distrusted: Mutex::new(None),
        }
    }

    async fn ask(&self, asked: &Label, family: Family) -> (&Self, Result<Said, String>) {
        let record_type = match family {
            Family::V4 => RecordType::A,
            Family::V6 => RecordType::AAAA,
        };
        let mut options = DnsRequestOptions::default();
        options.use_edns = self.pool.context().options.edns0;
        let question = Question::query(asked.clone(), record_type);
        let exchange = match self.pool.lookup(question, options).next().await {
            Some(exchange) => exchange,
            None => Err(NetError::from("the exchange ended without an answer")),
        };
        let said = match exchange {
            Ok(response) => read(asked, family, Ok(&response)),
            Err(error) => read(asked, family, Err(error)),
        };
        (self, said)
    }

    fn distrusted(&self, now: Moment) -> bool {
        self.distrusted.lock().is_some_and(|until| now < until)
    }

    fn distrust_until(&self, until: Moment) {
        *self.distrusted.lock() = Some(until);
    }

    fn trust(&self) {
        *self.distrusted.lock() = None;
    }
}

/// As many as the C library looks at (`MAXNS`, resolv.conf(5)).
const MOST_SERVERS: usize = 3;
const DISTRUST: Duration = Duration::from_secs(30);
