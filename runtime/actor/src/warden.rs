//! Obeys the tree: starts, stops, kills and wakes as it is told, and reports what came of it.
//!
//! It never waits for a child. A start runs in the child's own task; a stop or kill is a signal; the end of a life comes
//! back in two parts, the end of its actor and the end of the last thing that belongs to it.

mod alarm;
mod crew;
mod journal;

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use holdfast_clock::{Clock, Seed};
use holdfast_supervision::{
    Change, Child, Command, Event, Fault, Generation, Path, Reason, Refusal, Supervisor, Tree,
    View, What,
};
use ractor::{ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::{oneshot, watch};

use crate::Observer;
use crate::mailbox::{Blow, Prod};
use crate::root::Stage;
use crate::shell::{Failure, Post};
use crate::tree::{Parts, Role};
use alarm::Alarm;
use crew::{Crew, Parting};
use journal::Journal;

/// What a warden can be told.
pub(crate) enum Order {
    /// Start the tree.
    Launch,
    /// Time may be up for something.
    Woke,
    /// Nothing is left of this life.
    Vacated(Generation),
    /// Another child is wanted.
    Add {
        parent: Path,
        child: Child,
        role: Box<dyn Role>,
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
    /// A child is not wanted any more.
    Remove(Path),
    /// Somebody wants to know how all are doing.
    Look(oneshot::Sender<Vec<View>>),
    /// An actor shall fail.
    Strike {
        path: Path,
        blow: Blow,
        reply: oneshot::Sender<bool>,
    },
    /// Stop everything.
    Shutdown,
}

/// What a warden is born with.
pub(crate) struct Plan {
    pub(crate) spec: Supervisor,
    pub(crate) parts: Parts,
    pub(crate) clock: Clock,
    pub(crate) seed: Seed,
    pub(crate) observer: Box<dyn Observer>,
}

/// The one actor of a tree that has no supervisor.
pub(crate) struct Warden;

/// What it remembers.
pub(crate) struct Ward {
    tree: Tree,
    root: Path,
    parts: Parts,
    crew: Crew,
    alarm: Alarm,
    /// Those who wait for a child they wanted.
    wanted: HashMap<Path, oneshot::Sender<Result<(), Refusal>>>,
    journal: Journal,
    clock: Clock,
    seed: Seed,
    observer: Box<dyn Observer>,
    stage: watch::Sender<Stage>,
}

impl Warden {
    pub(crate) async fn start(plan: Plan, stage: watch::Sender<Stage>) -> ActorRef<Order> {
        let (warden, _) = ractor::Actor::spawn(None, Self, (plan, stage))
            .await
            .unwrap_or_else(|error| unreachable!("a warden has nothing to fail at: {error}"));
        warden
    }
}

impl ractor::Actor for Warden {
    type Msg = Order;
    type State = Ward;
    type Arguments = (Plan, watch::Sender<Stage>);

    async fn pre_start(
        &self,
        me: ActorRef<Order>,
        (plan, stage): Self::Arguments,
    ) -> Result<Ward, ActorProcessingErr> {
        Ok(Ward {
            tree: Tree::new(&plan.spec, plan.seed),
            root: Path::new(&plan.spec.id),
            parts: plan.parts,
            crew: Crew::new(&plan.spec),
            alarm: Alarm::new(me, plan.clock.clone()),
            wanted: HashMap::new(),
            journal: Journal::default(),
            clock: plan.clock,
            seed: plan.seed,
            observer: plan.observer,
            stage,
        })
    }

    async fn handle(
        &self,
        me: ActorRef<Order>,
        order: Order,
        ward: &mut Ward,
    ) -> Result<(), ActorProcessingErr> {
        let mut events = VecDeque::new();
        match order {
            Order::Launch => events.push_back(Event::Launched),
            Order::Shutdown => {
                ward.journal.stop();
                events.push_back(Event::ShutdownRequested);
            }
            Order::Remove(path) => events.push_back(Event::Unwanted { path }),
            Order::Look(reply) => {
                // Whoever asked may have lost patience.
                let _ = reply.send(ward.tree.view());
            }
            Order::Strike { path, blow, reply } => {
                let _ = reply.send(ward.crew.prod(&path, Prod::Strike(blow)));
            }
            Order::Vacated(generation) => events.extend(ward.crew.vacated(generation)),
            Order::Woke => {
                let now = ward.clock.now();
                events.extend(ward.alarm.due(now).into_iter().map(Event::Woke));
                events.extend(ward.crew.watch(now));
            }
            Order::Add {
                parent,
                child,
                role,
                reply,
            } => events.extend(ward.want(parent, child, role, reply)),
        }
        ward.obey(&me, events).await;
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<Order>,
        event: SupervisionEvent,
        ward: &mut Ward,
    ) -> Result<(), ActorProcessingErr> {
        let event = match event {
            SupervisionEvent::ActorStarted(cell) => ward.crew.started(&cell),
            SupervisionEvent::ActorTerminated(cell, cabin, why) => {
                // Dropping the cabin lets go of the life, which comes back as an order of its own.
                drop(cabin);
                let reason = match why.as_deref() {
                    Some("killed" | "actor_task_cancelled") => Reason::Killed,
                    Some(_) | None => Reason::Ended,
                };
                ward.crew.parted(&cell, Parting(reason))
            }
            SupervisionEvent::ActorFailed(cell, error) => {
                let fault = match error.downcast::<Failure>() {
                    Ok(failure) => failure.0,
                    Err(panic) => Fault::bug(format!("panicked: {panic}")),
                };
                ward.crew.parted(&cell, Parting(fault.into()))
            }
            SupervisionEvent::ProcessGroupChanged(_) => None,
        };
        ward.obey(&me, event.into_iter().collect()).await;
        Ok(())
    }
}

impl Ward {
    /// Does what follows from these events, and from those that come of that.
    async fn obey(&mut self, me: &ActorRef<Order>, mut events: VecDeque<Event>) {
        while let Some(event) = events.pop_front() {
            for command in self.tree.step(event, self.clock.now()) {
                match command {
                    Command::Tell(change) => self.tell(&change),
                    Command::Start { path, generation } => {
                        events.extend(self.start(me, path, generation).await);
                    }
                    Command::Stop { generation, .. } => self.crew.stop(generation),
                    Command::Kill { generation, .. } => self.crew.kill(generation),
                    Command::Wake { timer, at } => self.alarm.set(timer, at),
                    Command::Refuse { path, refusal } => {
                        self.answer(&path, Err(refusal));
                    }
                    Command::Forget { path } => {
                        self.parts.remove(&path);
                        self.alarm.forget(&path);
                        self.journal.forget(&path);
                        self.crew.forget(&path);
                        // Without an answer so far the wish came to nothing.
                        self.wanted.remove(&path);
                    }
                    Command::Finish(end) => {
                        self.stage.send_replace(Stage::Over(end));
                        me.stop(None);
                    }
                }
            }
        }
        self.alarm.arm(self.crew.next_watch(self.clock.now()));
    }

    async fn start(
        &mut self,
        me: &ActorRef<Order>,
        path: Path,
        generation: Generation,
    ) -> Option<Event> {
        let hired = match self.parts.get(&path) {
            Some(role) => {
                let post = Post {
                    path: path.clone(),
                    generation,
                    warden: me.clone(),
                    clock: self.clock.clone(),
                    seed: self.seed.derive(path.as_str()),
                };
                role.hire(post).await.map_err(|error| error.to_string())
            }
            None => Err("no actor is bound to this child".to_owned()),
        };
        match hired {
            Ok(hired) => {
                self.crew.join(path, generation, hired);
                None
            }
            Err(error) => Some(Event::StartFailed {
                path,
                generation,
                reason: Fault::bug(format!("spawn: {error}")).into(),
            }),
        }
    }

    fn want(
        &mut self,
        parent: Path,
        child: Child,
        role: Box<dyn Role>,
        reply: oneshot::Sender<Result<(), Refusal>>,
    ) -> Option<Event> {
        let path = parent.join(&child.id);
        if self.parts.has(&path) {
            // Whoever asked may have lost patience.
            let _ = reply.send(Err(Refusal::Duplicate));
            return None;
        }
        self.crew.expect(path.clone(), child.ping);
        self.parts.insert(path.clone(), role);
        self.wanted.insert(path, reply);
        Some(Event::Wanted { parent, child })
    }

    fn tell(&mut self, change: &Change) {
        if catch_unwind(AssertUnwindSafe(|| self.observer.observe(change))).is_err() {
            tracing::error!(actor = %change.path, "the observer of the tree panicked");
        }
        self.journal.write(change, self.clock.now());
        if change.what == What::Up {
            if change.path == self.root {
                self.stage.send_replace(Stage::Up);
            }
            self.answer(&change.path.clone(), Ok(()));
        }
    }

    fn answer(&mut self, path: &Path, answer: Result<(), Refusal>) {
        if let Some(reply) = self.wanted.remove(path) {
            if answer.is_err() {
                self.parts.remove(path);
                self.crew.forget(path);
            }
            // Whoever asked may have lost patience.
            let _ = reply.send(answer);
        }
    }
}
