//! One siege from its beginning to its end: the ground is prepared, all is broken and mended, and what was seen is judged.
//!
//! ```text
//!  ground ─▶ Calm ─▶ Faults ─▶ Settling ─▶ Settled ─▶ Over ─▶ judged
//!    probes  ├────────────────────────────┤
//!    load            ├────────┤
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use holdfast_clock::{Clock, Seed};
use holdfast_wire::v1;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use crate::checks::{self, Finding};
use crate::claim::Claim;
use crate::faults::{Field, STRIKE};
use crate::gate::Gate;
use crate::guest;
use crate::journal::Journal;
use crate::load::{self, Ground};
use crate::mark::Mark;
use crate::own::{Audit, Birth, Own, Root, SERVER, Server};
use crate::scenario::Scenario;
use crate::schedule::{Planned, schedule};
use crate::session::{Tried, failure, fresh_id};
use crate::siege::assail;
use crate::timeline::{Fact, Life, Phase, Shown, Stage, Timeline};
use crate::watch;

/// What is to be done.
pub(crate) struct Order {
    pub(crate) scenario: Scenario,
    pub(crate) seed: Seed,
    pub(crate) duration: Duration,
    pub(crate) target: Target,
    pub(crate) whole_machine: bool,
    /// Our program for the inside.
    pub(crate) inside: PathBuf,
    /// Where the logs of our own gateway and sandbox are copied before they are deleted.
    pub(crate) logs: Option<PathBuf>,
}

/// Whom it is done to.
#[derive(Clone)]
pub(crate) enum Target {
    /// A gateway of our own.
    Own {
        holdfast: PathBuf,
        /// Where its private directories are made, and whether the state directory is a file system of its own.
        home: Arc<Mutex<Option<TempDir>>>,
        small_disk: bool,
    },
    /// A sandbox that is there.
    Other {
        socket: PathBuf,
        sandbox: String,
        /// A server that its policy names, where the caller says so.
        server: Option<(String, u16)>,
    },
}

/// What came of it.
pub(crate) struct Report {
    pub(crate) scenario: Scenario,
    pub(crate) seed: Seed,
    pub(crate) date: SystemTime,
    pub(crate) planned: usize,
    pub(crate) findings: Vec<Finding>,
    pub(crate) timeline: Timeline,
}

impl Report {
    pub(crate) fn passed(&self) -> bool {
        self.findings.iter().all(|finding| finding.passed)
    }
}

/// Does it all. `begun` gets the journal and the plan, for whoever shows them meanwhile.
pub(crate) async fn run(
    order: &Order,
    begun: impl FnOnce(&Journal, &[Planned]),
) -> Result<Report, String> {
    let plan = schedule(&order.scenario, order.seed, order.duration);
    let journal = Journal::new(Clock::system());
    begun(&journal, &plan);
    let own = match &order.target {
        Target::Own { .. } => {
            on_own_ground(order, &plan, &journal).await?;
            true
        }
        Target::Other {
            socket,
            sandbox,
            server,
        } => {
            let gate = Gate::new(socket);
            let status = gate.status(sandbox, ANSWER).await;
            let id = status
                .map_err(|why| format!("look at the sandbox {sandbox}: {why}"))?
                .id;
            let _until_all_is_undone = Claim::take(sandbox, &id)?;
            let ground =
                guest::prepare(gate, sandbox, server.clone(), &order.inside, &journal).await?;
            let mark = Mark::new(ground.gate.clone(), sandbox, &id);
            let field = Field {
                ground,
                mark: mark.clone(),
                own: None,
                whole_machine: order.whole_machine,
                disk: None,
                loads: Mutex::default(),
            };
            tokio::select! {
                done = as_guest(order, &field, &plan) => done?,
                why = mark.gone() => {
                    // All that was broken is mended by now: it was dropped with the attack.
                    field.loads.lock().abort_all();
                    journal.tell(Fact::Lost(why));
                    journal.tell(Fact::Stage(Stage::Over));
                }
            }
            false
        }
    };
    let timeline = journal.read(Timeline::clone);
    Ok(Report {
        scenario: order.scenario.clone(),
        seed: order.seed,
        date: journal.date(),
        // Each sandbox gets all of it.
        planned: plan.len() * order.scenario.roots.len().max(1),
        findings: checks::all(&order.scenario.checks, own, &timeline),
        timeline,
    })
}

/// Besieges a sandbox that stays, and takes our program out of it.
async fn as_guest(order: &Order, field: &Field, plan: &[Planned]) -> Result<(), String> {
    let ground = &field.ground;
    ready(ground).await?;
    let reached = guest::reach(ground, order.scenario.probe.limit).await;
    if reached.is_ok() {
        besiege(order, field, plan, v1::CreateRequest::default(), None).await;
    }
    let leave = ground.program("leave", &[]);
    if let Some(why) = failure(&leave.once(&ground.gate, &fresh_id()).await) {
        let sandbox = &ground.sandbox;
        ground
            .journal
            .note(format!("our program stays in {sandbox}:/tmp: {why}"));
    }
    reached
}

/// Our own gateway and server, while they are used.
struct Grounds<'o> {
    order: &'o Order,
    own: Arc<Own>,
    gate: Gate,
    server: Server,
    small_disk: bool,
}

/// What came to our server, and what the audit says was allowed to.
#[derive(Clone, Copy, Default)]
struct Egress {
    arrived: u64,
    allowed: u64,
}

async fn on_own_ground(order: &Order, plan: &[Planned], journal: &Journal) -> Result<(), String> {
    let Target::Own {
        holdfast,
        home,
        small_disk,
    } = &order.target
    else {
        return Ok(());
    };
    let home = home
        .lock()
        .take()
        .ok_or("the private directory is in use")?;
    let roots = home.path().join("roots");
    let birth = Birth {
        holdfast: holdfast.clone(),
        nofile: order.scenario.nofile,
    };
    let own = Arc::new(Own::start(birth, home)?);
    let manager = reaping(&own);
    let grounds = Grounds {
        order,
        gate: Gate::new(&own.socket()),
        own,
        server: Server::start().await?,
        small_disk: *small_disk,
    };
    grounds.own.serves(&grounds.gate).await?;

    let mut ids = Vec::new();
    let mut total = Egress::default();
    let mut entries: Vec<Option<u64>> = order.scenario.roots.iter().copied().map(Some).collect();
    if entries.is_empty() {
        entries.push(None);
    }
    for entries in entries {
        let root = match entries {
            Some(count) => {
                let at = roots.join(count.to_string());
                Some(Root::make(&at, count, &order.inside)?)
            }
            None => None,
        };
        let seen = grounds
            .one(root.as_ref(), entries, plan, journal)
            .await
            .map_err(|why| format!("{why}\n{}", grounds.own.last_words()))?;
        total.arrived += seen.arrived;
        total.allowed += seen.allowed;
        clean(
            &grounds.gate,
            journal,
            &mut ids,
            order.scenario.load.lives > 0,
        )
        .await;
    }
    // The sandboxes that came and went had records of their own, which went with them; they connected nowhere.
    journal.tell(Fact::Counted {
        arrived: total.arrived,
        allowed: total.allowed,
    });
    drop(manager);
    for what in grounds.own.end(&ids).await {
        journal.tell(Fact::Left(what));
    }
    Ok(())
}

impl Grounds<'_> {
    /// Creates a sandbox and besieges it.
    async fn one(
        &self,
        root: Option<&Root>,
        entries: Option<u64>,
        plan: &[Planned],
        journal: &Journal,
    ) -> Result<Egress, String> {
        let (own, order, server) = (&self.own, self.order, &self.server);
        let request = own.request(NAME, &order.inside, server.port(), root);
        let created = self.gate.create(request.clone()).await;
        let created = created.map_err(|why| format!("create a sandbox: {why}"))?;
        let inside = match root {
            Some(_) => "/holdfast-chaos-inside".to_owned(),
            None => order.inside.display().to_string(),
        };
        let field = Field {
            ground: Ground {
                gate: self.gate.clone(),
                journal: journal.clone(),
                sandbox: NAME.to_owned(),
                inside,
                server: Some(load::Server {
                    host: SERVER.to_owned(),
                    port: server.port(),
                    echoes: true,
                }),
            },
            mark: Mark::new(self.gate.clone(), NAME, &created.id),
            own: Some(Arc::clone(own)),
            whole_machine: order.whole_machine,
            disk: self.small_disk.then(|| own.state()),
            loads: Mutex::default(),
        };
        ready(&field.ground).await?;
        let of_it = own.state().join("sandboxes").join(&created.id);
        let mut audit = Audit::new(of_it.join("audit.jsonl"), server.port());
        let before = server.arrived();
        let mut counting = interval(COUNT);
        let siege = besiege(order, &field, plan, request, entries);
        tokio::pin!(siege);
        loop {
            tokio::select! {
                () = &mut siege => break,
                // Often enough that no rotation is missed.
                _ = counting.tick() => drop(audit.count()),
            }
        }
        sleep(WRITTEN).await;
        if let Some(to) = &order.logs {
            own.copy_logs(&created.id, to);
        }
        Ok(Egress {
            arrived: server.arrived() - before,
            allowed: audit.count(),
        })
    }
}

/// Looks what is there, then deletes all of it.
async fn clean(gate: &Gate, journal: &Journal, ids: &mut Vec<String>, lives: bool) {
    let Ok(list) = gate.list().await else {
        journal.note("nobody lists the sandboxes at the end");
        return;
    };
    if lives {
        let names = list
            .sandboxes
            .iter()
            .map(|sandbox| sandbox.name.clone())
            .collect();
        journal.tell(Fact::Life(Life::Listed(names)));
    }
    for sandbox in list.sandboxes {
        if let Err(why) = gate.delete(&sandbox.name).await {
            journal.tell(Fact::Left(format!("the sandbox {}: {why}", sandbox.name)));
        }
        ids.push(sandbox.id);
    }
}

/// Waits until the sandbox is Ready and a program has gone the whole way.
async fn ready(ground: &Ground) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..TRIES {
        match ground.gate.status(&ground.sandbox, ANSWER).await {
            Ok(status) if status.phase() == v1::Phase::Ready => {
                ground.journal.show(watch::shown(&status));
                let tried = ground
                    .program("nothing", &[])
                    .once(&ground.gate, &fresh_id())
                    .await;
                match failure(&tried) {
                    None => return Ok(()),
                    Some(why) => last = format!("a program does not run: {why}"),
                }
                if let Tried::Ended {
                    outcome: crate::timeline::Outcome::Refused(reason),
                    ..
                } = &tried
                    && reason.starts_with("Program")
                {
                    break;
                }
            }
            Ok(status) => {
                last = format!(
                    "{} {} {}",
                    status.phase().as_str_name(),
                    status.reason,
                    status.message
                );
            }
            Err(why) => last = why.to_string(),
        }
        sleep(AGAIN).await;
    }
    Err(format!(
        "the sandbox {} does not become Ready: {last}",
        ground.sandbox
    ))
}

/// All stages of one sandbox.
async fn besiege(
    order: &Order,
    field: &Field,
    plan: &[Planned],
    create: v1::CreateRequest,
    root: Option<u64>,
) {
    let (ground, journal) = (&field.ground, &field.ground.journal);
    let mut looking = JoinSet::new();
    looking.spawn(watch::look(
        ground.gate.clone(),
        ground.sandbox.clone(),
        journal.clone(),
    ));
    journal.tell(Fact::Stage(Stage::Calm { root }));
    let mut probing = JoinSet::new();
    probing.spawn(load::probe(ground.clone(), order.scenario.probe));
    sleep(CALM).await;

    journal.tell(Fact::Stage(Stage::Faults));
    let mut loading = JoinSet::new();
    let seed = order.seed.derive("load");
    loading.spawn(load::bear(
        ground.clone(),
        order.scenario.load,
        create,
        seed,
    ));
    let began = journal.now();
    assail(field, plan, journal, STRIKE).await;
    // A shuffle is over when all are drawn.
    if order.scenario.shuffle.is_none() {
        sleep((began + order.duration).saturating_sub(journal.now())).await;
    }
    loading.shutdown().await;
    field.loads.lock().abort_all();

    journal.tell(Fact::Stage(Stage::Settling));
    sleep(order.scenario.settle).await;
    let mut patience = order.scenario.checks.recovery.unwrap_or(CALM);
    while journal.last().phase != Phase::Ready && !patience.is_zero() {
        sleep(AGAIN).await;
        patience = patience.saturating_sub(AGAIN);
    }
    sleep(CALM).await;
    probing.shutdown().await;
    ground.sweep().await;
    // What the last probe had open is closed, and has been told.
    sleep(CALM).await;
    journal.tell(Fact::Stage(Stage::Settled));
    looking.shutdown().await;
    journal.tell(Fact::Stage(Stage::Over));
    // What comes next is another sandbox.
    journal.show(Shown::default());
}

/// Reaps for our gateway as an init would, and starts it again as a service manager would, as long as there is one.
fn reaping(own: &Arc<Own>) -> JoinSet<()> {
    let own = Arc::downgrade(own);
    let mut set = JoinSet::new();
    set.spawn(async move {
        // Of a gateway that ended by itself; a fault that killed it has it started again sooner.
        let mut dead_for = Duration::ZERO;
        while let Some(own) = own.upgrade() {
            own.reap();
            dead_for = if own.has_ended() {
                dead_for + REAP
            } else {
                Duration::ZERO
            };
            if dead_for > MANAGED {
                own.start_again();
            }
            drop(own);
            sleep(REAP).await;
        }
    });
    set
}

const NAME: &str = "siege";
const CALM: Duration = Duration::from_secs(2);
const COUNT: Duration = Duration::from_secs(1);
/// Until the last keeper has told what it owes.
const WRITTEN: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(200);
const TRIES: usize = 300;
/// How long a gateway that gave up stays dead.
const MANAGED: Duration = Duration::from_secs(2);
const REAP: Duration = Duration::from_millis(50);
