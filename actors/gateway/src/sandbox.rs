//! One sandbox, as the gateway sees it: hears of its processes, asks its [`Life`] what follows, and obeys.
//!
//! ```text
//! api · uplink · deaths · time ──▶ Life ──▶ the registry, when something durable changed ──▶ the commands ──▶ the status
//! ```
//!
//! What the registry does not know is never acted on: the row is on disk before a keeper is started. When it cannot be
//! written, or nobody can say whether a process lives, this actor falls, and its next life finds the processes again.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast_actor::{Actor, Address, Fault, Me, Moment, Reply, Task};
use holdfast_kernel::descriptors::Short;
use holdfast_kernel::fork::Ended;
use holdfast_policy::Policy;
use holdfast_wire::{v1, words};
use tokio::sync::watch;

use crate::directory::Posted;
use crate::host::Host;
use crate::life::{Ask, Denied, Event, Life, Stage};
use crate::processes::Watched;
use crate::refused::Refused;
use crate::registry::row::{Process, Revision, Row};
use crate::roster;
use crate::standing::{self, Known};
use crate::{clock, life};
use ground::Ground;
use revise::Revising;

mod adopt;
pub(crate) mod ground;
mod obey;
pub(crate) mod revise;

/// What a sandbox can be told.
pub(crate) enum Message {
    /// Somebody wants something. The answer comes when it is so.
    Ask(Ask, Reply<Result<(), Refused>>),
    /// A keeper says how it stands. The answer is until when that holds.
    Report(Box<v1::Report>, Origin, Reply<Result<i64, Refused>>),
    /// This stream of reports has ended.
    Unlinked(u64),
    /// Want this policy from now on, if the fence that stands lets it. The parsed one is to compare; with none it is let.
    Revise(
        Revision,
        Option<Arc<Policy>>,
        Reply<Result<Revising, Refused>>,
    ),
    /// A policy was refused: the one before is wanted again, and this one is none any more.
    Revert(u64, u64, Reply<()>),
    /// Bring what is wanted to the keeper, if that has something else in force.
    Bring,
    /// The keeper's process has ended.
    KeeperEnded(u32, Option<Ended>),
    /// The boundary's process has ended.
    BoundaryEnded(u32),
    /// The gateway is short of descriptors, or is no longer.
    Shortage,
    /// Time has passed.
    Woke,
}

/// Where a report comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The process at the other end, where the socket tells.
    pub(crate) pid: Option<u32>,
    /// Which stream of reports; numbered from 1.
    pub(crate) stream: u64,
}

/// What it is born with.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) host: Host,
    pub(crate) id: String,
    pub(crate) posted: Arc<watch::Sender<Posted>>,
    pub(crate) roster: Address<roster::Message>,
}

pub(crate) struct State {
    arguments: Arguments,
    ground: Ground,
    row: Row,
    /// What is on disk.
    stored: Row,
    /// It is not in the registry any more, and what comes late must not put it there again.
    removed: bool,
    life: Life,
    /// What this generation's keepers said last.
    last: Option<v1::Status>,
    /// Which stream it came over.
    stream: u64,
    /// Whether the directory was not there any more when it came.
    cut_off: bool,
    keeper: Option<Watched>,
    boundary: Option<Watched>,
    /// What the life wants done.
    commands: Vec<life::Command>,
    waiting: Vec<Waiting>,
    timer: Option<(Moment, Task)>,
    /// The revision that the present keeper was last seen not to have in force.
    behind: Option<u64>,
}

/// Somebody who waits for what was asked.
struct Waiting {
    /// It has to be removed; otherwise, no longer on its way out.
    removed: bool,
    reply: Reply<Result<(), Refused>>,
}

pub(crate) struct Sandbox;

impl Actor for Sandbox {
    type Message = Message;
    type Arguments = Arguments;
    type State = State;

    async fn start(me: &Me<Message>, arguments: Arguments) -> Result<State, Fault> {
        let posted = Arc::clone(&arguments.posted);
        let found = find(me, arguments).await;
        // What the life before this one said holds no more.
        let state = found.inspect_err(|fault| unobserved(&posted, fault))?;
        // What comes after this is heard, and what came before is in the first status.
        watch_shortage(me, state.arguments.host.shortage.watch());
        state.publish(me.now());
        // What follows is done as the first message, so that nobody waits for it.
        me.after(Duration::ZERO, Message::Woke);
        state.watch_keeper(me);
        state.watch_boundary(me);
        Ok(state)
    }

    async fn handle(me: &Me<Message>, message: Message, state: &mut State) -> Result<(), Fault> {
        let now = me.now();
        match message {
            Message::Ask(ask, reply) => state.asked(ask, reply, now),
            Message::Report(report, origin, reply) => {
                reply.send(state.reported(me, *report, origin));
            }
            Message::Unlinked(stream) => state.unlinked(stream, now),
            Message::Revise(revision, policy, reply) => {
                reply.send(state.revise(me, revision, policy).await?);
                return Ok(());
            }
            Message::Revert(from, to, reply) => {
                state.revert(from, to).await?;
                state.publish(now);
                reply.send(());
            }
            Message::Bring => state.bring(me),
            Message::KeeperEnded(pid, ended) => state.keeper_ended(me, pid, ended)?,
            Message::BoundaryEnded(pid) => state.boundary_ended(pid, now),
            // Whatever is told, it is told of below.
            Message::Shortage => {}
            Message::Woke => {
                state.timer = None;
                state.step(Event::Woke, now);
            }
        }
        state.settle(me).await
    }
}

/// Hears when the gateway itself cannot serve, and when it can again.
fn watch_shortage(me: &Me<Message>, mut shortage: watch::Receiver<Option<Short>>) {
    let this = me.clone();
    me.spawn(async move {
        while shortage.changed().await.is_ok() {
            this.after(Duration::ZERO, Message::Shortage);
        }
        Ok(())
    });
}

/// Tells everybody that nobody knows how it stands.
fn unobserved(posted: &watch::Sender<Posted>, fault: &Fault) {
    posted.send_if_modified(|posted| {
        let status = standing::unobserved(&posted.status, &fault.to_string(), clock::wall_ms());
        let told = status.is_some();
        if let Some(status) = status {
            posted.status = Arc::new(status);
        }
        told
    });
}

/// Finds a sandbox in the registry, and its processes.
async fn find(me: &Me<Message>, arguments: Arguments) -> Result<State, Fault> {
    let row = arguments.host.ledger.row(&arguments.id).await?;
    if let Some(row) = row {
        return Ok(adopt::adopt(me, arguments, row)?);
    }
    // The life before this one fell when all of it was removed but its place.
    arguments.host.directory.remove(&arguments.id);
    let _ = arguments.roster.send(roster::Message::Gone(arguments.id));
    Err(Fault::failed(
        "find the sandbox in the registry: it is deleted",
    ))
}

impl State {
    fn step(&mut self, event: Event, now: Moment) {
        let commands = self.life.step(event, now);
        self.commands.extend(commands);
    }

    fn asked(&mut self, ask: Ask, reply: Reply<Result<(), Refused>>, now: Moment) {
        let name = self.row.name().to_owned();
        if self.waiting.len() >= MOST_WAITING {
            return reply.send(Err(Refused::Busy(name)));
        }
        match self.life.ask(ask, now) {
            Ok(commands) => {
                self.commands.extend(commands);
                let removed = matches!(ask, Ask::Delete { .. });
                self.waiting.push(Waiting { removed, reply });
            }
            Err(Denied::StillRunning) => reply.send(Err(Refused::StillRunning(name))),
            Err(Denied::Deleting) => reply.send(Err(Refused::Deleting(name))),
        }
    }

    fn reported(
        &mut self,
        me: &Me<Message>,
        report: v1::Report,
        Origin { pid, stream }: Origin,
    ) -> Result<i64, Refused> {
        let fenced = |why| Refused::Fenced {
            id: self.row.id.clone(),
            why,
        };
        let name = self.row.name().to_owned();
        let unwatched = |error: io::Error| Refused::Host {
            what: format!("watch the processes of {name}"),
            why: error.to_string(),
        };
        if (report.generation, report.epoch) != (self.life.generation, self.life.epoch) {
            return Err(fenced("another keeper has taken its place"));
        }
        match (&self.keeper, pid) {
            (Some(keeper), Some(pid)) if keeper.pid() != pid => {
                return Err(fenced(STRANGER));
            }
            (None, Some(pid)) => {
                // As it has written itself down: its number alone may be another process's by now.
                let keeper = self.find_keeper().map_err(unwatched)?;
                let keeper = keeper.filter(|keeper| keeper.pid() == pid);
                self.keeper = Some(keeper.ok_or_else(|| fenced(STRANGER))?);
                self.watch_keeper(me);
            }
            (Some(_) | None, _) => {}
        }
        let status = report.status.unwrap_or_default();
        let boundary = status.pids.get("boundary").copied().unwrap_or_default();
        if boundary != 0 && self.boundary.is_none() {
            self.boundary = self.find_boundary().map_err(unwatched)?;
            self.watch_boundary(me);
        }
        let event = match ground::told_over(&status) {
            Some(end) => {
                self.row.main.clone_from(&status.main);
                Event::ToldOver(end)
            }
            None => Event::Reported,
        };
        self.last = Some(status);
        self.stream = stream;
        self.cut_off = self.ground.is_removed();
        self.look_behind(me);
        self.step(event, me.now());
        let lease = i64::try_from(holdfast_wire::LEASE.as_millis()).unwrap_or(i64::MAX);
        Ok(clock::wall_ms().saturating_add(lease))
    }

    /// The keeper may have another stream by now.
    fn unlinked(&mut self, stream: u64, now: Moment) {
        if self.stream == stream {
            self.step(Event::Unlinked, now);
        }
    }

    fn keeper_ended(&mut self, me: &Me<Message>, pid: u32, ended: Option<Ended>) -> io::Result<()> {
        if self.keeper.as_ref().map(Watched::pid) != Some(pid) {
            return Ok(());
        }
        if self.boundary.is_none() && self.life.alive().boundary {
            self.boundary = self.find_boundary()?;
            self.watch_boundary(me);
        }
        self.keeper = None;
        let end = self.ground.end(ended, self.boundary.is_some());
        if let Some(last) = self.ground.last() {
            self.row.main.clone_from(&last.main);
            self.last = Some(last);
        }
        tracing::info!(sandbox = self.row.name(), pid, ?end, "the keeper ended");
        self.step(Event::KeeperFell(end), me.now());
        Ok(())
    }

    fn boundary_ended(&mut self, pid: u32, now: Moment) {
        if self.boundary.as_ref().map(Watched::pid) == Some(pid) {
            self.boundary = None;
            // The keeper writes down how the sandbox ended before it ends the boundary.
            let last = self.ground.last();
            let end = ground::ended_well(last.as_ref().or(self.last.as_ref()));
            tracing::info!(sandbox = self.row.name(), pid, ?end, "the boundary ended");
            if let (Some(last), true) = (last, end.is_some()) {
                self.row.main.clone_from(&last.main);
                self.last = Some(last);
            }
            self.step(end.map_or(Event::BoundaryFell, Event::BoundaryLeft), now);
        }
    }

    /// Writes down what changed, does what follows, and tells everybody.
    async fn settle(&mut self, me: &Me<Message>) -> Result<(), Fault> {
        let follows = self.note() || !self.commands.is_empty();
        // That it is not Ready any more cannot wait for a disk.
        if follows && self.arguments.posted.borrow().status.phase() == v1::Phase::Ready {
            self.publish(me.now());
        }
        loop {
            self.renew()?;
            // Before anything is done: the next gateway must not give the same epoch to another keeper.
            self.persist().await?;
            if self.commands.is_empty() {
                break;
            }
            // What one command leads to comes after those beside it.
            for command in std::mem::take(&mut self.commands) {
                self.obey(me, command).await?;
            }
        }
        let now = me.now();
        self.publish(now);
        self.answer();
        self.arm(me, now);
        Ok(())
    }

    async fn persist(&mut self) -> Result<(), Fault> {
        if self.note() {
            let put = self.arguments.host.ledger.put(&self.row, None).await;
            if let Err(why) = put {
                return Err(self.unkept(why.into()));
            }
            self.stored.clone_from(&self.row);
        }
        Ok(())
    }

    /// How it stands could not be written: says so to everybody, and to who waits for what was asked.
    fn unkept(&mut self, fault: Fault) -> Fault {
        unobserved(&self.arguments.posted, &fault);
        for waiting in std::mem::take(&mut self.waiting) {
            let name = self.row.name().to_owned();
            let why = fault.to_string();
            waiting
                .reply
                .send(Err(Refused::OutcomeUnknown { name, why }));
        }
        fault
    }

    /// Tells everybody how it stands.
    fn publish(&self, now: Moment) {
        let posted = &self.arguments.posted;
        let before = Arc::clone(&posted.borrow().status);
        let status = Known {
            row: &self.row,
            life: &self.life,
            last: self.last.as_ref(),
            removed: self.cut_off.then_some(&*self.ground.0),
            short: self.arguments.host.shortage.now(),
            before: &before,
            now,
            wall_ms: clock::wall_ms(),
        }
        .status();
        let tell = standing::differs(&before, &status);
        if before.phase != status.phase || before.reason != status.reason {
            let phase = words::phase(status.phase());
            let said = match status.message.as_str() {
                "" => "every condition holds",
                message => message,
            };
            tracing::info!(
                sandbox = status.name,
                phase,
                reason = status.reason,
                "{said}"
            );
        }
        posted.send_if_modified(|posted| {
            posted.status = Arc::new(status);
            tell
        });
    }

    fn answer(&mut self) {
        let leaving = matches!(
            self.life.stage,
            Stage::Ending { .. } | Stage::Deleting { .. }
        );
        if leaving {
            return;
        }
        let (removal, done): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting| waiting.removed);
        self.waiting = removal;
        for waiting in done {
            waiting.reply.send(Ok(()));
        }
    }

    fn arm(&mut self, me: &Me<Message>, now: Moment) {
        let Some(at) = self.life.deadline() else {
            self.timer = None;
            return;
        };
        // One that comes too early asks again.
        let early = self
            .timer
            .as_ref()
            .is_some_and(|(armed, task)| *armed <= at && !task.is_over());
        if !early {
            if let Some((_, task)) = self.timer.take() {
                task.cancel();
            }
            self.timer = Some((at, me.after(at - now, Message::Woke)));
        }
    }

    fn watch_keeper(&self, me: &Me<Message>) {
        if let Some(keeper) = self.keeper.clone() {
            let this = me.clone();
            me.spawn(async move {
                let ended = keeper.ended().await;
                this.after(Duration::ZERO, Message::KeeperEnded(keeper.pid(), ended));
                Ok(())
            });
        }
    }

    fn watch_boundary(&self, me: &Me<Message>) {
        if let Some(boundary) = self.boundary.clone() {
            let this = me.clone();
            me.spawn(async move {
                boundary.ended().await;
                this.after(Duration::ZERO, Message::BoundaryEnded(boundary.pid()));
                Ok(())
            });
        }
    }

    fn process(watched: Option<&Watched>) -> Option<Process> {
        watched.map(|watched| watched.process().clone())
    }
}

const STRANGER: &str = "it comes from another process than the keeper's";

/// How soon one that is stuck is found. A disk may be slow.
pub(crate) const PING: Duration = Duration::from_mins(1);

/// So many may wait for the same sandbox.
const MOST_WAITING: usize = 64;

#[cfg(test)]
mod tests;
