//! The keeper of a lasting sandbox: serves it until it is over, whoever comes and goes.
//!
//! ```text
//! start ──> serving ─┬─ Halt ────────────> TERM, the grace, KILL ──┐
//!                    ├─ main ends ───────────────────────────> KILL ┴─> the boundary ended ──> Over::Ended
//!                    ├─ the boundary is gone ─────────────────────────────────────────────────> Over::Lost
//!                    ├─ another keeper has it ────────────────────────────────────────────────> Over::Fenced
//!                    └─ its own tree gave up ─────────────────────────────────────────────────> Over::GaveUp
//! ```
//!
//! Only the first two end the sandbox. After the last the workload goes on, and the next keeper takes it over.

use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_actor::{Change, Clock, End, Fault, Root, Tree};
use holdfast_kernel::descriptors::Spares;
use holdfast_wire::v1;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::arrivals::Unbuilt;
use crate::board::Board;
use crate::egress::desk::Desk;
use crate::health::{self, Event};
use crate::link::{Approach, Client, Parting, Standing, State};
use crate::rulebook::{self, Read, Rulebook};
use crate::service::door::Door;
use crate::service::serve::{self, Server};
use crate::service::{Halt, Service};
use crate::sessions::book::BOUNDARY_LOST;
use crate::sessions::errand::Home;
use crate::sessions::lasting::Sessions;
use crate::sessions::pool::Pool;
use crate::status::Vitals;
use crate::tree;
use crate::trees::Trees;
use crate::uplink::{self, Uplink};
use crate::workload::{self, Workload};
use crate::works::{Arguments, Held, Works};

/// What a keeper is told besides: one sandbox, one of its generations, one of its keepers.
#[derive(Clone)]
pub struct Assignment {
    /// The sandbox.
    pub id: String,
    /// Which life of it.
    pub generation: u64,
    /// The number of the policy that is in force at the start.
    pub revision: u64,
    /// Where the keeper's socket is.
    pub socket: PathBuf,
    /// Where the main process's output is written.
    pub log: PathBuf,
    /// The gateway's socket.
    pub gateway: PathBuf,
    /// Where sessions start, and with what.
    pub home: Home,
    /// The main process; empty for none.
    pub program: Vec<Vec<u8>>,
    /// What is left to let somebody in under a limit that is below what is open.
    pub spares: Arc<Spares>,
    /// Reads a policy as this host's programs are to be judged by it.
    pub read: Read,
    /// Whether actors may be made to fail, to see what follows.
    pub chaos: bool,
}

/// A keeper at work.
pub struct Lasting {
    root: Root,
    sessions: Arc<Sessions>,
    desk: Arc<Desk>,
    control: Client,
    board: Board,
    vitals: Vitals,
    held: Held,
    halts: mpsc::Receiver<Halt>,
    has_program: bool,
    main: watch::Receiver<Option<v1::Ending>>,
}

/// How a keeper's work ended.
#[derive(Debug)]
pub enum Over {
    /// The sandbox is over, as it should be; this is its last status.
    Ended(Box<v1::Status>),
    /// The boundary is gone; this is the sandbox's last status.
    Lost(Box<v1::Status>),
    /// Another keeper holds the boundary.
    Fenced(String),
    /// Its own actors gave up; the sandbox goes on.
    GaveUp(String),
}

impl Lasting {
    /// Attaches to the boundary at the other end of `approach`, as soon as its fence stands, and starts serving.
    pub async fn start(
        arguments: &Arguments,
        assignment: Assignment,
        approach: Approach,
    ) -> Result<Self, Unbuilt> {
        let works = Works::take(arguments, assignment.revision, approach).await?;
        let held = works.held();
        let epoch = held.link.borrow().epoch;
        let (board, vitals) = shown(arguments, &assignment, &works, &held);
        let works = works.watched(&vitals);
        let mut tree = Tree::new(tree::lasting());
        let pool = Pool::new(works.dialler.clone(), Arc::clone(&works.ledger));
        let sessions = Arc::new(Sessions::new(
            works.control.clone(),
            pool,
            tree.dynamic("keeper/sessions"),
            &held.attached,
            vitals.clone(),
        ));
        let main = bind_workload(&mut tree, &assignment, &sessions, &board, &vitals);
        let rulebook = tree.bind::<Rulebook>(
            "keeper/rulebook",
            rulebook::Arguments {
                rules: Arc::clone(&works.rules),
                read: Arc::clone(&assignment.read),
                desk: Arc::clone(&works.desk),
                coverage: Arc::clone(&works.coverage),
                board: board.clone(),
                vitals: vitals.clone(),
            },
        );
        let (halt, halts) = mpsc::channel(1);
        let closing = Arc::new(watch::Sender::new(false));
        let service = Service {
            sessions: Arc::clone(&sessions),
            home: Arc::new(assignment.home.clone()),
            board: board.clone(),
            vitals: vitals.clone(),
            rulebook,
            trees: Trees::new("keeper", tree.lookout()),
            halt,
            closing: closing.subscribe(),
            chaos: assignment.chaos,
        };
        bind_service(&mut tree, &assignment, service, closing)?;
        tree.bind::<Uplink>(
            "keeper/outside/uplink",
            uplink::Arguments {
                gateway: assignment.gateway.clone(),
                id: assignment.id.clone(),
                generation: assignment.generation,
                epoch,
                status: board.watch(),
            },
        );
        let (desk, control, seed) = (Arc::clone(&works.desk), works.control.clone(), works.seed);
        works.bind(&mut tree)?;
        let root = tree::grow(tree, seed, observer(&vitals, &sessions, &held.link)).await?;
        vitals.note(Event::Linked);
        vitals.note(Event::Fence(Ok(())));
        Ok(Self {
            root,
            sessions,
            desk,
            control,
            board,
            vitals,
            held,
            halts,
            has_program: !assignment.program.is_empty(),
            main,
        })
    }

    /// How the sandbox stands, now and at each change.
    pub fn status(&self) -> watch::Receiver<v1::Status> {
        self.board.watch()
    }

    /// Serves until there is nothing left to serve. `last` writes the sandbox's last status where it outlives this process.
    pub async fn serve(mut self, last: impl FnOnce(&v1::Status)) -> Over {
        let mut main = self.main.clone();
        let halt = tokio::select! {
            Some(halt) = self.halts.recv() => Some(halt),
            // With the boundary the main process is lost, and with the tree the one who would tell of it: neither is an end of its own.
            Ok(_) = main.wait_for(|main| main.as_ref().is_some_and(workload::ended_itself)) => None,
            end = self.root.ended() => return self.fallen(&end, last).await,
        };
        let ending = match &halt {
            Some(halt) => {
                tracing::info!(grace = ?halt.grace, "asked to end the sandbox");
                self.vitals.note(Event::Ending {
                    reason: "Stopping",
                    message: "it is being stopped on request".to_owned(),
                });
                self.sessions.halt(halt.grace).await;
                None
            }
            None => main.borrow().clone(),
        };
        self.finish().await;
        let ending = ending.or_else(|| self.main.borrow().clone());
        let (reason, message) = match (&halt, &ending) {
            (None, Some(ending)) => (workload::EXITED, workload::exited(ending)),
            (Some(_), _) | (None, None) => ("Halted", "it was stopped".to_owned()),
        };
        self.board.revise(|status| {
            status.main.clone_from(&ending);
            status.sessions = Some(self.sessions.counts());
        });
        self.vitals.note(Event::Over {
            phase: health::Phase::Stopped,
            reason,
            message,
        });
        let status = self.board.status();
        last(&status);
        if let Some(halt) = halt {
            let _asker_is_gone = halt.reply.send(ending);
        }
        // The service's last answers and the uplink's last report need the tree, and none of them the boundary.
        let _ = timeout(PATIENCE, self.root.shutdown()).await;
        self.desk.close().await;
        let mut control = self.control;
        // One that does not answer is killed by its owner.
        let _ = timeout(PATIENCE, control.end(v1::Nothing {})).await;
        Over::Ended(Box::new(status))
    }

    /// Ends every process, delivers what they have written, and hears how they ended.
    async fn finish(&self) {
        self.sessions.fell().await;
        let mut control = self.control.clone();
        let _ = timeout(PATIENCE, control.clear(v1::Nothing {})).await;
        tokio::join!(self.desk.finish(FINISH), self.sessions.drained());
        // The workload writes the last of it down.
        if self.has_program {
            let mut main = self.main.clone();
            let told = main.wait_for(Option::is_some);
            let _there_was_none = timeout(LAST_LINE, told).await;
        }
    }

    /// Whether the boundary's process has ended.
    fn gone(&self) -> bool {
        let mut process = [PollFd::new(self.held.pidfd.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut process, PollTimeout::ZERO), Ok(1))
    }

    /// The tree is down. Why, decides what is left of the sandbox.
    async fn fallen(self, end: &End, last: impl FnOnce(&v1::Status)) -> Over {
        self.desk.close().await;
        let why = match &self.held.link.borrow().standing {
            Standing::Over { why, .. } => Some(why.to_string()),
            Standing::Linked { .. } | Standing::Lost { .. } => None,
        };
        let Some(why) = why else {
            return Over::GaveUp(format!("{end:?}"));
        };
        if !self.gone() {
            return Over::Fenced(why);
        }
        self.vitals.note(Event::Over {
            phase: health::Phase::Failed,
            reason: BOUNDARY_LOST,
            message: why,
        });
        let status = self.board.status();
        last(&status);
        Over::Lost(Box::new(status))
    }
}

fn bind_workload(
    tree: &mut Tree,
    assignment: &Assignment,
    sessions: &Arc<Sessions>,
    board: &Board,
    vitals: &Vitals,
) -> watch::Receiver<Option<v1::Ending>> {
    let (ended, main) = watch::channel(None);
    tree.bind::<Workload>(
        "keeper/workload",
        workload::Arguments {
            sessions: Arc::clone(sessions),
            home: Arc::new(assignment.home.clone()),
            program: assignment.program.clone(),
            generation: assignment.generation,
            log: assignment.log.clone(),
            ended: Arc::new(ended),
            board: board.clone(),
            vitals: vitals.clone(),
            session: Arc::new(Mutex::new(None)),
        },
    );
    main
}

fn bind_service(
    tree: &mut Tree,
    assignment: &Assignment,
    service: Service,
    closing: Arc<watch::Sender<bool>>,
) -> Result<(), Fault> {
    let door = Door::open(&assignment.socket, Arc::clone(&assignment.spares))
        .map_err(|error| Fault::from(error).during("listen on the keeper's socket"))?;
    tree.bind::<Server>(
        "keeper/service",
        serve::Arguments {
            door: Arc::new(door),
            service,
            closing,
        },
    );
    Ok(())
}

/// Hears of each change in the tree: the health first, and clients when the boundary is gone or another keeper's, before the
/// service falls too.
fn observer(
    vitals: &Vitals,
    sessions: &Arc<Sessions>,
    link: &watch::Receiver<State>,
) -> impl Fn(&Change) + Send + Sync + use<> {
    let (vitals, sessions, link) = (vitals.clone(), Arc::clone(sessions), link.clone());
    move |change: &Change| {
        tracing::debug!(?change, "supervision");
        vitals.note(Event::Changed(change.clone()));
        match &link.borrow().standing {
            Standing::Over { why, .. } => match why {
                Parting::Died => sessions.lose(),
                Parting::Left(_) => sessions.yield_up(),
            },
            Standing::Linked { .. } | Standing::Lost { .. } => {}
        }
    }
}

/// Where the sandbox's status and health are shown.
fn shown(
    arguments: &Arguments,
    assignment: &Assignment,
    works: &Works,
    held: &Held,
) -> (Board, Vitals) {
    let policy = rulebook::state(&works.rules.present(), assignment.revision, String::new());
    let news = rulebook::news(&policy);
    let epoch = held.link.borrow().epoch;
    let board = Board::new(first(arguments, assignment, works, held, policy));
    let vitals = Vitals::new(board.clone(), Clock::tokio(), epoch > 1);
    // What the keeper begins with is in force; from then on the rulebook tells.
    vitals.note(news);
    (board, vitals)
}

/// The status before anything has been seen.
fn first(
    arguments: &Arguments,
    assignment: &Assignment,
    works: &Works,
    held: &Held,
    policy: v1::PolicyState,
) -> v1::Status {
    let link = held.link.borrow();
    v1::Status {
        name: arguments.sandbox.clone(),
        id: assignment.id.clone(),
        generation: assignment.generation,
        evidence: works.standing.evidence.clone(),
        link: Some(v1::LinkState {
            epoch: link.epoch,
            connected: true,
            reconnects: link.reconnects,
            protocol: link.protocol.clone(),
        }),
        policy: Some(policy),
        pids: [
            ("keeper".to_owned(), std::process::id()),
            ("boundary".to_owned(), held.pid),
        ]
        .into(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..v1::Status::default()
    }
}

/// How long the last bytes of a sandbox may take to their upstreams.
const FINISH: Duration = Duration::from_secs(10);

/// How long a part may take to stop, and a question to be answered.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the workload's log may take to its last line.
const LAST_LINE: Duration = Duration::from_secs(2);
