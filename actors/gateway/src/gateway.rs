//! One gateway: its directories locked, its registry opened, its sockets bound, then its tree.

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_actor::{Change, End, Root, Seed, Tree, Unfit};
use holdfast_kernel::descriptors::Spares;
use nix::sys::prctl::set_child_subreaper;
use tokio::net::TcpListener;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use crate::accept::Door;
use crate::api::{self, Api};
use crate::directory::Directory;
use crate::host::Host;
use crate::http::{self, Http};
use crate::lock::{Lock, Untaken};
use crate::places::{Misplaced, Places};
use crate::processes::{Processes, Reaper};
use crate::registry::store::{Store, Unopened};
use crate::registry::{Ledger, Registry};
use crate::roster::{self, Roster};
use crate::shortage::Shortage;
use crate::tree;

/// What a gateway is given.
#[derive(Debug)]
pub struct Settings {
    /// Its directories.
    pub places: Places,
    /// Unix sockets to serve on, besides its own.
    pub sockets: Vec<PathBuf>,
    /// Addresses to serve on, with mutual TLS.
    pub addresses: Vec<SocketAddr>,
    /// What TLS needs; nothing without addresses.
    pub tls: Option<Tls>,
    /// Where probes and scrapers are served, if anywhere.
    pub http: Option<SocketAddr>,
    /// Whether that may be elsewhere than on loopback.
    pub http_anywhere: bool,
    /// The environment of this process; keepers get the part that is meant for them.
    pub environment: Vec<(OsString, OsString)>,
    /// Whether an actor may be made to fail, for tests of what follows.
    pub chaos: bool,
    /// What is left to let somebody in under a limit that is below what is open.
    pub spares: Arc<Spares>,
}

/// Files for mutual TLS, PEM.
#[derive(Debug)]
pub struct Tls {
    /// The gateway's certificate and those up to its authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authority of those who may come.
    pub client_authority: PathBuf,
}

/// A gateway that serves.
#[derive(Debug)]
pub struct Gateway {
    root: Root,
    sockets: Vec<PathBuf>,
    addresses: Vec<SocketAddr>,
    http: Option<SocketAddr>,
    pid: Lock,
    _state: Lock,
}

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum Unstarted {
    /// A directory cannot be used.
    #[error(transparent)]
    Misplaced(#[from] Misplaced),
    /// Another gateway is there.
    #[error(transparent)]
    Untaken(#[from] Untaken),
    /// The registry cannot be used.
    #[error(transparent)]
    Unopened(#[from] Unopened),
    /// A socket cannot be made.
    #[error("listen on {place}")]
    Unbound {
        /// Where.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// A file of TLS cannot be read.
    #[error("read {}", path.display())]
    Unread {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// TCP without mutual TLS.
    #[error(
        "listen on tcp:{0}: TCP needs mutual TLS; give --tls-cert, --tls-key and --tls-client-ca, or listen on a Unix socket"
    )]
    Unprotected(SocketAddr),
    /// HTTP where everybody could reach it.
    #[error(
        "serve HTTP on {0}: it asks nobody who they are, so it is served on loopback only; use 127.0.0.1, or say --http-anywhere"
    )]
    Exposed(SocketAddr),
    /// Its parts do not start.
    #[error("start the gateway: {0}")]
    Unfit(String),
}

impl Gateway {
    /// Starts a gateway; it serves when this returns. Must be called within a tokio runtime.
    pub async fn start(settings: Settings) -> Result<Self, Unstarted> {
        if let (Some(address), None) = (settings.addresses.first(), &settings.tls) {
            return Err(Unstarted::Unprotected(*address));
        }
        if let Some(address) = settings.http
            && !address.ip().is_loopback()
            && !settings.http_anywhere
        {
            return Err(Unstarted::Exposed(address));
        }
        let places = Arc::new(settings.places.clone());
        places.prepare()?;
        let state = Lock::take(&places.lock())?;
        let pid = Lock::take(&places.pid_file())?;
        let store = Store::open(&places.registry())?;
        let mut sockets = vec![places.socket()];
        sockets.extend(settings.sockets.iter().cloned());
        sockets.dedup();
        let mut doors = Vec::new();
        for path in &sockets {
            let door = Door::unix(path, Arc::clone(&settings.spares)).map_err(|source| {
                Unstarted::Unbound {
                    place: format!("unix:{}", path.display()),
                    source,
                }
            })?;
            doors.push((door, None));
        }
        let mut addresses = Vec::new();
        for address in &settings.addresses {
            let tls = settings
                .tls
                .as_ref()
                .ok_or(Unstarted::Unprotected(*address))?;
            let door = tcp(*address).await?;
            addresses.extend(door.address());
            doors.push((door, Some(tls.read()?)));
        }
        let http = match settings.http {
            Some(address) => Some(tcp(address).await?),
            None => None,
        };
        let http_address = http.as_ref().and_then(Door::address);
        let processes = Processes::new(&settings.environment)
            .map_err(|error| Unstarted::Unfit(format!("read the host's boot id: {error}")))?;
        // What a dead keeper leaves becomes our child, and is reaped.
        set_child_subreaper(true)
            .map_err(|errno| Unstarted::Unfit(format!("become the reaper of orphans: {errno}")))?;
        let seeds = Seeds {
            places,
            store,
            processes,
            chaos: settings.chaos,
        };
        let root = plant(seeds, doors, http).await?;
        root.up().await.map_err(|end| unfit(&end))?;
        Ok(Self {
            root,
            sockets,
            addresses,
            http: http_address,
            pid,
            _state: state,
        })
    }

    /// Where it serves on Unix sockets; its own is the first.
    pub fn sockets(&self) -> &[PathBuf] {
        &self.sockets
    }

    /// Where it serves on TCP.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where it serves probes and scrapers.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Waits until it gives up, and says why.
    pub async fn ended(&self) -> End {
        self.root.ended().await
    }

    /// Stops serving, in order. Keepers and their workloads go on.
    pub async fn shutdown(self) -> End {
        let end = self.root.shutdown().await;
        for socket in &self.sockets {
            // One that is gone already is what we want.
            let _ = fs::remove_file(socket);
        }
        self.pid.remove();
        end
    }
}

/// What the tree grows from.
struct Seeds {
    places: Arc<Places>,
    store: Store,
    processes: Processes,
    chaos: bool,
}

async fn plant(
    seeds: Seeds,
    doors: Vec<(Door, Option<ServerTlsConfig>)>,
    http: Option<Door>,
) -> Result<Root, Unstarted> {
    let mut tree = Tree::new(tree::gateway());
    tree.bind::<Reaper>("gateway/reaper", seeds.processes.clone());
    let ledger = tree.bind::<Registry>("gateway/registry", Arc::new(seeds.store));
    let host = Host {
        places: seeds.places,
        directory: Directory::default(),
        ledger: Ledger::new(ledger),
        processes: seeds.processes,
        shortage: Shortage::default(),
        lookout: tree.lookout(),
        chaos: seeds.chaos,
    };
    let sandboxes = tree.dynamic("gateway/sandboxes");
    let address = tree.address("gateway/roster");
    let roster = tree.bind::<Roster>(
        "gateway/roster",
        roster::Arguments {
            host: host.clone(),
            sandboxes,
            roster: address,
        },
    );
    tree.bind::<Http>(
        "gateway/http",
        http::Arguments {
            host: host.clone(),
            door: http,
            api: doors.iter().map(|(door, _)| door.clone()).collect(),
        },
    );
    tree.bind::<Api>(
        "gateway/api",
        api::Arguments {
            host,
            roster,
            doors,
        },
    );
    let watch = |change: &Change| tracing::debug!(?change, "supervision");
    tree.start(Seed::fresh(), watch)
        .await
        .map_err(|unfit: Unfit| Unstarted::Unfit(unfit.to_string()))
}

async fn tcp(address: SocketAddr) -> Result<Door, Unstarted> {
    match TcpListener::bind(address).await {
        Ok(socket) => Ok(Door::tcp(socket)),
        Err(source) => Err(Unstarted::Unbound {
            place: format!("tcp:{address}"),
            source,
        }),
    }
}

impl Tls {
    fn read(&self) -> Result<ServerTlsConfig, Unstarted> {
        let read = |path: &PathBuf| {
            fs::read(path).map_err(|source| Unstarted::Unread {
                path: path.clone(),
                source,
            })
        };
        let identity = Identity::from_pem(read(&self.certificate)?, read(&self.key)?);
        let authority = Certificate::from_pem(read(&self.client_authority)?);
        Ok(ServerTlsConfig::new()
            .identity(identity)
            .client_ca_root(authority))
    }
}

fn unfit(end: &End) -> Unstarted {
    Unstarted::Unfit(match end {
        End::ShutDown => "it was told to stop".to_owned(),
        End::GaveUp(reason) => reason.root_cause().1.to_string(),
    })
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
