//! Everything a keeper works with once its boundary is held, and the actors that work with it.
//!
//! What stands here outlives the actors: a restarted one finds sockets, names and attempts where they were.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_actor::{Clock, Fault, Seed, Tree};
use holdfast_kernel::diag::Diag;
use holdfast_observability::{Audit, Races};
use holdfast_policy::Policy;
use holdfast_wire::v1;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::arrivals::{self, Arrivals, Unbuilt, gather};
use crate::canary::{self, Canary};
use crate::capture::{self, Capture, Captured};
use crate::coverage::{Coverage, by_port};
use crate::egress::actor::{Kept, LaneActor, LaneArguments};
use crate::egress::budget::Budget;
use crate::egress::desk::{self, Cookies, Desk};
use crate::egress::dial;
use crate::egress::lane::{Aside, Asides};
use crate::egress::names::Directory;
use crate::egress::relay::Means;
use crate::health::Event;
use crate::link::{self, Approach, Client, Dialler, Link};
use crate::pressure::{self, Ledger, Pressure, Standings};
use crate::resolver::nameserver::{self, Nameserver};
use crate::resolver::{self, Counters, Patience, Resolver, Source, Trail, Upstream};
use crate::rulebook::{Revision, Rules};
use crate::sentinel::Sentinel;
use crate::status::Vitals;

/// What a keeper is given.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// The sandbox's name.
    pub sandbox: String,
    /// The policy in force.
    pub policy: Arc<Policy>,
    /// Where verdicts are recorded; started.
    pub audit: Audit,
    /// How many descriptors this process may have open.
    pub descriptors: u64,
    /// What makes this keeper one of a row; `None` for one that ends with its boundary and takes it along.
    pub tenure: Option<Tenure>,
}

/// One keeper in the row of those that hold a lasting boundary.
#[derive(Clone, Debug)]
pub struct Tenure {
    /// Higher than that of every keeper before.
    pub epoch: u64,
    /// What the boundary knows its keepers by.
    pub token: Vec<u8>,
    /// Where the names' addresses are kept for the keeper after this one.
    pub names: PathBuf,
    /// How often the keepers before had to find the boundary again.
    pub reconnects: u64,
}

/// A boundary, as its holder sees it.
#[derive(Clone, Debug)]
pub struct Held {
    /// What it told at the attach: the sessions that were there among it.
    pub attached: v1::AttachReply,
    /// How the link stands, now and at each change; a beat is one.
    pub link: watch::Receiver<link::State>,
    /// Its process, as this one numbers it.
    pub pid: u32,
    /// Readable when that process has ended.
    pub pidfd: Arc<OwnedFd>,
}

/// What there is before there are actors.
pub(crate) struct Works {
    pub(crate) control: Client,
    pub(crate) dialler: Dialler,
    /// What the boundary told at the attach.
    pub(crate) attached: v1::AttachReply,
    /// How the fence was built.
    pub(crate) standing: v1::Standing,
    pub(crate) rules: Arc<Rules>,
    pub(crate) desk: Arc<Desk>,
    /// The ports that rules name are listened on.
    pub(crate) coverage: Arc<Coverage>,
    /// Who may take how many descriptors.
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) seed: Seed,
    names: Names,
    arrivals: Arrivals,
    lasting: bool,
    tell: watch::Sender<link::State>,
    process: (u32, Arc<OwnedFd>),
    vitals: Option<Vitals>,
}

impl Works {
    /// Waits until the fence at the other end of `approach` stands, attaches to its boundary and takes what it hands over.
    pub(crate) async fn take(
        arguments: &Arguments,
        revision: u64,
        approach: Approach,
    ) -> Result<Self, Unbuilt> {
        let Approach { socket, pid, pidfd } = approach;
        let dialler = Dialler::new(Arc::new(socket))?;
        arrivals::stands(dialler.handoff()).await?;
        let mut control = dialler.dial().await?;
        let (epoch, token) = match &arguments.tenure {
            Some(tenure) => (tenure.epoch, tenure.token.as_slice()),
            None => (ONLY_EPOCH, &[][..]),
        };
        let attached = link::attach(&mut control, epoch, token).await?;
        let arrivals = gather(dialler.handoff()).await?;
        for lack in arrivals.standing.evidence.iter().flat_map(|it| &it.lacking) {
            tracing::warn!("{lack}");
        }
        let (tell, _) = watch::channel(link::State::fresh(
            epoch,
            attached.version.clone(),
            reconnects(arguments, attached.takeovers),
            Clock::tokio().now(),
        ));
        let rules = Arc::new(Rules::new(Revision {
            number: revision,
            policy: Arc::clone(&arguments.policy),
        }));
        let names = Names::of(arguments, &rules)?;
        let desk = Arc::new(desk(arguments, &names));
        desk.answer_canaries(Arc::clone(&names.sentinel));
        // They were opened for the policy that the fence was built for.
        desk.stand_on(arrivals.listeners.iter().map(|(port, _)| *port).collect());
        Ok(Self {
            control,
            dialler,
            attached,
            standing: arrivals.standing.clone(),
            rules,
            desk,
            coverage: Arc::new(Coverage::of(arguments.policy.captured_ports())),
            ledger: Arc::default(),
            seed: Seed::fresh(),
            names,
            arrivals,
            lasting: arguments.tenure.is_some(),
            tell,
            process: (pid, pidfd),
            vitals: None,
        })
    }

    /// The same, with its health followed, and proved by canaries: for a tree with a place for both.
    pub(crate) fn watched(self, vitals: &Vitals) -> Self {
        vitals.count(&self.desk);
        Self {
            vitals: Some(vitals.clone()),
            ..self
        }
    }

    /// The boundary that is held.
    pub(crate) fn held(&self) -> Held {
        Held {
            attached: self.attached.clone(),
            link: self.tell.subscribe(),
            pid: self.process.0,
            pidfd: Arc::clone(&self.process.1),
        }
    }

    /// Puts the actors that every keeper has in their places.
    pub(crate) fn bind(self, tree: &mut Tree) -> Result<(), Fault> {
        self.bind_watchers(tree);
        let Self {
            control,
            dialler,
            desk,
            coverage,
            names,
            arrivals,
            lasting,
            tell,
            process,
            vitals,
            ..
        } = self;
        tree.bind::<Link>(
            "keeper/link",
            link::Arguments {
                control: control.clone(),
                dialler: dialler.clone(),
                pid: process.0,
                process: process.1,
                lasting,
                state: tell,
            },
        );
        let (udp, tcp) = arrivals.names;
        let cookies: Arc<dyn Cookies> = Arc::new(Mutex::new(Diag::connected(arrivals.diag)?));
        tree.bind::<Nameserver>(
            "keeper/network/resolver",
            nameserver::Arguments {
                resolver: Arc::clone(&names.resolver),
                sockets: Arc::new(Mutex::new(Some(resolver::Sockets::new(udp, tcp)))),
                limits: resolver::Limits::default(),
            },
        );
        tree.bind::<LaneActor>(
            "keeper/network/lane",
            LaneArguments {
                source: Arc::new(Kept(Arc::new(arrivals.lane.into()))),
                desk: Arc::clone(&desk),
                cookies: Arc::clone(&cookies),
                asides: asides(vitals.clone()),
            },
        );
        let listeners = tree.dynamic("keeper/network/egress");
        tree.bind::<Capture>(
            "keeper/network/capture",
            capture::Arguments {
                control,
                dialler,
                coverage,
                vitals: vitals.clone(),
                captured: Arc::new(Mutex::new(Captured::of(arrivals.listeners))),
                listeners,
                desk: Arc::clone(&desk),
                cookies,
                standings: Standings::new(vitals),
            },
        );
        Ok(())
    }

    /// Puts the actors that look after the health in their places, if it is followed.
    fn bind_watchers(&self, tree: &mut Tree) {
        let Some(vitals) = &self.vitals else {
            return;
        };
        tree.bind::<Pressure>(
            "keeper/outside/pressure",
            pressure::Arguments {
                ledger: Arc::clone(&self.ledger),
                desk: Arc::clone(&self.desk),
                link: self.tell.subscribe(),
                vitals: vitals.clone(),
            },
        );
        tree.bind::<Canary>(
            "keeper/outside/canary",
            canary::Arguments {
                control: self.control.clone(),
                sentinel: Arc::clone(&self.names.sentinel),
                vitals: vitals.clone(),
            },
        );
    }
}

/// What answers names in this sandbox, and finds what they stand for.
struct Names {
    resolver: Arc<Resolver>,
    directory: Arc<Directory>,
    /// Whom canaries ask for.
    sentinel: Arc<Sentinel>,
}

impl Names {
    fn of(arguments: &Arguments, rules: &Arc<Rules>) -> Result<Self, Fault> {
        let (table, seed) = match &arguments.tenure {
            Some(tenure) => {
                let seed = seed_of(&tenure.token);
                let kept = resolver::Names::kept(seed, &tenure.names)
                    .map_err(|error| Fault::from(error).during("read the names' addresses"))?;
                (kept, seed)
            }
            None => (resolver::Names::new(Seed::fresh()), Seed::fresh()),
        };
        let sentinel = Arc::new(Sentinel::new(seed));
        let clock = Clock::tokio();
        let counters = Arc::new(Counters::default());
        let config = resolver::Config {
            source: Source::default(),
            patience: Patience::default(),
            clock: clock.clone(),
        };
        let upstream = Upstream::new(Arc::clone(rules) as _, config, Arc::clone(&counters));
        let directory = Arc::new(Directory {
            names: Arc::new(table),
            upstream: Arc::new(upstream),
        });
        let trail = Trail {
            audit: arguments.audit.clone(),
            sandbox: arguments.sandbox.clone(),
            clock,
        };
        let resolver = Resolver::new(
            Arc::clone(&directory.names),
            Arc::clone(&directory.upstream),
            Arc::clone(rules) as _,
            Arc::new(trail),
            counters,
        );
        Ok(Self {
            resolver: Arc::new(resolver.with_sentinel(Arc::clone(&sentinel))),
            directory,
            sentinel,
        })
    }
}

/// Where a sandbox's addresses start: the same for all its keepers, and no way back to the token.
/// How often the boundary had to be found again until now: what its keepers told of, and a takeover is one more. The gateway
/// may not know of all; the boundary knows of the takeovers.
fn reconnects(arguments: &Arguments, takeovers: u64) -> u64 {
    let told = arguments
        .tenure
        .as_ref()
        .map_or(0, |tenure| tenure.reconnects);
    takeovers.max(told + u64::from(takeovers > 0))
}

fn seed_of(token: &[u8]) -> Seed {
    let digest = Sha256::new_with_prefix("holdfast names")
        .chain_update(token)
        .finalize();
    let (number, _) = digest.split_at(size_of::<u64>());
    let number = number
        .iter()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Seed::new(number)
}

/// Where attempts to connect are kept and judged.
fn desk(arguments: &Arguments, names: &Names) -> Desk {
    Desk::new(desk::Arguments {
        sandbox: arguments.sandbox.clone(),
        policy: Arc::clone(&arguments.policy),
        names: Arc::clone(&names.directory) as _,
        audit: arguments.audit.clone(),
        clock: Clock::tokio(),
        budget: Budget::new(pressure::bearable(arguments.descriptors)),
        own: Vec::new(),
        limits: dial::Limits::default(),
        means: Means::default(),
    })
}

/// Harmless races are counted, and told of once a minute; a port that nobody can listen on is told at once.
fn asides(vitals: Option<Vitals>) -> Asides {
    let clock = Clock::tokio();
    let (races, start) = (Mutex::new(Races::default()), clock.now());
    Arc::new(move |aside| {
        let counted = match aside {
            Aside::Races(counted) => counted,
            Aside::Unheard(unheard) => {
                if let Some(vitals) = &vitals {
                    vitals.note(Event::Asked(by_port(&[unheard])));
                }
                return;
            }
        };
        if let Some(vitals) = &vitals {
            vitals.count_races(&counted);
        }
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

/// The epoch of a keeper that has no successor.
const ONLY_EPOCH: u64 = 1;
