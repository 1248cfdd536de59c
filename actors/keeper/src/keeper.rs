//! One keeper: takes over a boundary that is building its fence, and serves its sandbox.

use std::sync::Arc;
use std::time::Duration;

use holdfast_actor::{Change, Clock, End, Fault, Root, Seed, Tree};
use holdfast_kernel::handoff::Socket;
use holdfast_observability::{Audit, Races};
use holdfast_policy::Policy;
use holdfast_wire::v1;
use parking_lot::Mutex;

use crate::arrivals::{Arrivals, Unbuilt, gather};
use crate::capture::{self, Capture};
use crate::egress::actor::{Kept, LaneActor, LaneArguments};
use crate::egress::budget::Budget;
use crate::egress::desk::{self, Desk};
use crate::egress::names::Directory;
use crate::egress::relay::Means;
use crate::egress::{self, dial};
use crate::link::{self, Client, Dialler, Link};
use crate::resolver::nameserver::{self, Nameserver};
use crate::resolver::{self, Counters, Patience, Resolver, Source, Trail, Upstream};
use crate::sessions::{Launcher, NotStarted, Program, Session};
use crate::tree;

/// What a keeper is given.
#[derive(Debug)]
pub struct Arguments {
    /// The sandbox's name.
    pub sandbox: String,
    /// The policy in force.
    pub policy: Arc<Policy>,
    /// Where verdicts are recorded; started.
    pub audit: Audit,
    /// How many descriptors this process may have open.
    pub descriptors: u64,
}

/// A keeper at work.
pub struct Keeper {
    root: Root,
    launcher: Launcher,
    desk: Arc<Desk>,
    standing: v1::Standing,
}

impl Keeper {
    /// Waits until the fence at the other end of `handoff` stands, attaches to its boundary and starts serving.
    pub async fn start(arguments: &Arguments, handoff: Socket) -> Result<Self, Unbuilt> {
        let dialler = Dialler::new(Arc::new(handoff))?;
        let arrivals = gather(dialler.handoff()).await?;
        let mut control = dialler.dial().await?;
        link::attach(&mut control, FIRST_EPOCH).await?;
        let seed = Seed::fresh();
        let names = Names::of(arguments, seed);
        let desk = Arc::new(desk(arguments, &names));
        let mut tree = Tree::new(tree::keeper());
        let sessions = tree.dynamic("keeper/sessions");
        let standing = arrivals.standing.clone();
        bind(&mut tree, arrivals, &names, &desk, (&control, &dialler));
        let root = tree
            .start(seed, |change: &Change| {
                tracing::debug!(?change, "supervision");
            })
            .await
            .map_err(|unfit| Fault::bug(unfit.to_string()))?;
        root.up()
            .await
            .map_err(|end| Fault::failed(format!("start the keeper's actors: {end:?}")))?;
        let launcher = Launcher {
            control,
            dialler,
            sessions,
        };
        Ok(Self {
            root,
            launcher,
            desk,
            standing,
        })
    }

    /// How the fence was built, and what was measured.
    pub fn standing(&self) -> &v1::Standing {
        &self.standing
    }

    /// Starts a program in the sandbox.
    pub async fn launch(&self, program: Program) -> Result<Session, NotStarted> {
        self.launcher.launch(program).await
    }

    /// Waits until the keeper gives up, and says why.
    pub async fn ended(&self) -> End {
        self.root.ended().await
    }

    /// Ends every process of the sandbox and delivers what they have written, for [`FINISH`] at most.
    pub async fn finish(&self) {
        let mut control = self.launcher.control.clone();
        // A boundary that does not answer is ended by its owner in any case.
        let _ = tokio::time::timeout(PATIENCE, control.clear(v1::Nothing {})).await;
        self.desk.finish(FINISH).await;
    }

    /// Stops serving. What [`Keeper::finish`] has not delivered before is lost.
    pub async fn shutdown(self) {
        let _ = tokio::time::timeout(PATIENCE, self.root.shutdown()).await;
        self.desk.close().await;
    }
}

/// Puts every actor in its place.
fn bind(
    tree: &mut Tree,
    arrivals: Arrivals,
    names: &Names,
    desk: &Arc<Desk>,
    (control, dialler): (&Client, &Dialler),
) {
    tree.bind::<Link>(
        "keeper/link",
        link::Arguments {
            control: control.clone(),
        },
    );
    let (udp, tcp) = arrivals.names;
    tree.bind::<Nameserver>(
        "keeper/resolver",
        nameserver::Arguments {
            resolver: Arc::clone(&names.resolver),
            sockets: Arc::new(Mutex::new(Some(resolver::Sockets::new(udp, tcp)))),
            limits: resolver::Limits::default(),
        },
    );
    tree.bind::<LaneActor>(
        "keeper/lane",
        LaneArguments {
            source: Arc::new(Kept(arrivals.lane)),
            desk: Arc::clone(desk),
            races: races(),
        },
    );
    let kept = |(port, socket)| (port, Arc::new(Kept(socket)));
    let listeners = tree.dynamic("keeper/egress");
    tree.bind::<Capture>(
        "keeper/capture",
        capture::Arguments {
            dialler: dialler.clone(),
            sockets: Arc::new(Mutex::new(
                arrivals.listeners.into_iter().map(kept).collect(),
            )),
            listeners,
            desk: Arc::clone(desk),
            cookies: Arc::new(capture::Sockets::new(arrivals.diag)),
        },
    );
}

/// What answers names in this sandbox, and finds what they stand for.
struct Names {
    resolver: Arc<Resolver>,
    directory: Arc<Directory>,
}

impl Names {
    fn of(arguments: &Arguments, seed: Seed) -> Self {
        let clock = Clock::tokio();
        let policy = &arguments.policy;
        let counters = Arc::new(Counters::default());
        let config = resolver::Config {
            source: Source::default(),
            patience: Patience::default(),
            clock: clock.clone(),
        };
        let upstream = Upstream::new(Arc::clone(policy) as _, config, Arc::clone(&counters));
        let directory = Arc::new(Directory {
            names: Arc::new(resolver::Names::new(seed.derive("names"))),
            upstream: Arc::new(upstream),
        });
        let trail = Trail {
            audit: arguments.audit.clone(),
            sandbox: arguments.sandbox.clone(),
            clock,
        };
        let resolver = Arc::new(Resolver::new(
            Arc::clone(&directory.names),
            Arc::clone(&directory.upstream),
            Arc::clone(policy) as _,
            Arc::new(trail),
            counters,
        ));
        Self {
            resolver,
            directory,
        }
    }
}

/// Where attempts to connect are kept and judged.
fn desk(arguments: &Arguments, names: &Names) -> Desk {
    Desk::new(desk::Arguments {
        sandbox: arguments.sandbox.clone(),
        policy: Arc::clone(&arguments.policy),
        names: Arc::clone(&names.directory) as _,
        audit: arguments.audit.clone(),
        clock: Clock::tokio(),
        budget: Budget::new(connections(arguments.descriptors)),
        own: Vec::new(),
        limits: dial::Limits::default(),
        means: Means::default(),
    })
}

/// How many connections a limit of descriptors bears: two each, besides what everything else needs.
fn connections(descriptors: u64) -> usize {
    let free = descriptors.saturating_sub(RESERVE) / 2;
    usize::try_from(free)
        .unwrap_or(usize::MAX)
        .clamp(1, MOST_CONNECTIONS)
}

/// Harmless races are counted, and told of once a minute.
fn races() -> egress::lane::Races {
    let clock = Clock::tokio();
    let (races, start) = (Mutex::new(Races::default()), clock.now());
    Arc::new(move |counted: v1::Races| {
        let mut races = races.lock();
        races.merge(
            counted
                .counts
                .iter()
                .map(|(race, count)| (race.as_str(), *count)),
        );
        if let Some(summary) = races.summary(clock.now() - start) {
            tracing::info!("{summary}");
        }
    })
}

/// The epoch of a sandbox's first keeper.
const FIRST_EPOCH: u64 = 1;

/// Descriptors for everything that is no connection.
const RESERVE: u64 = 64;

/// More connections than this are not admitted at a time, whatever the limit.
const MOST_CONNECTIONS: usize = 16_384;

/// How long the last bytes of a sandbox may take to their upstreams.
const FINISH: Duration = Duration::from_secs(10);

/// How long the parts may take to stop.
const PATIENCE: Duration = Duration::from_secs(5);
