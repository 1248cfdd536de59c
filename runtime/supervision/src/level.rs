//! One supervisor: who starts, falls and comes back with whom.
//!
//! ```text
//!          told to rise            all have had their turn
//!   Down ───────────────▶ Rising ─────────────────────────▶ Serving
//!    ▲                       │                                 │
//!    │      all are down     │   told to fall, or gave up      │
//!    └─────────── Falling ◀──┴─────────────────────────────────┘
//! ```
//!
//! After each piece of news [`Level::settle`] compares what is with what should be and gives the next orders: first
//! what lies behind the `cut` goes down, the last one first; then whoever is due starts, the first one first. So there
//! is never a plan that a new event could find half carried out, and a shutdown always gets in.

mod dynamic;
mod news;

use std::collections::HashMap;
use std::time::Duration;

use holdfast_clock::Seed;

use crate::slot::{Past, Role, Slot, State, Then, Ticket, Turn};
use crate::window::Window;
use crate::{
    Backoff, Change, Command, Intensity, Node, Path, Reason, Restart, Strategy, Supervisor, What,
};

pub(crate) use news::News;

/// One supervisor of a tree.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) path: Path,
    strategy: Strategy,
    intensity: Intensity,
    backoff: Backoff,
    pub(crate) slots: Vec<Slot>,
    /// Where those of a dynamic supervisor are, which may be many; empty for all others.
    index: HashMap<Path, usize>,
    /// Who is to be removed from a dynamic supervisor at the end of the step.
    retired: Vec<Path>,
    window: Window,
    stage: Stage,
    /// From this place on all must be down before anyone starts; past the last one when nobody must.
    cut: usize,
    restarts: u32,
    seed: Seed,
}

#[derive(Debug)]
enum Stage {
    Down,
    Rising,
    Serving,
    Falling(Verdict),
}

/// Why a supervisor went down.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Told,
    GaveUp(Reason),
}

/// What a step meant for the supervisor as a whole.
#[derive(Debug)]
pub(crate) enum Outcome {
    Nothing,
    Rose,
    Sank(Verdict),
}

impl Level {
    /// How long a killed child may take to be gone. A kill takes effect at the next point where the child waits; one
    /// that reaches no such point blocks a thread.
    pub(crate) const KILL_DEADLINE: Duration = Duration::from_secs(10);

    pub(crate) fn new(spec: &Supervisor, path: Path, seed: Seed) -> Self {
        let slots = spec
            .children
            .iter()
            .map(|node| {
                let (place, seed) = (path.join(node.id()), seed.derive(node.id()));
                let role = match node {
                    Node::Child(child) => Role::Leaf(child.clone()),
                    Node::Supervisor(spec) => {
                        Role::Branch(Box::new(Self::new(spec, place.clone(), seed)))
                    }
                };
                Slot::new(place, role, seed.dice())
            })
            .collect();
        Self {
            path,
            strategy: spec.strategy,
            intensity: spec.intensity,
            backoff: spec.backoff,
            slots,
            index: HashMap::new(),
            retired: Vec::new(),
            window: Window::default(),
            stage: Stage::Down,
            cut: usize::MAX,
            restarts: 0,
            seed,
        }
    }

    pub(crate) fn backoff(&self) -> Backoff {
        self.backoff
    }

    pub(crate) fn strategy(&self) -> Strategy {
        self.strategy
    }

    pub(crate) fn restarts(&self) -> u32 {
        self.restarts
    }

    /// The word for its stage.
    pub(crate) fn stage(&self) -> &'static str {
        match self.stage {
            Stage::Down => "down",
            Stage::Rising => "starting",
            Stage::Serving => "up",
            Stage::Falling(_) => "stopping",
        }
    }

    /// Starts its children, all from a clean slate.
    pub(crate) fn rise(&mut self, restarts: u32, turn: &mut Turn<'_>) -> Outcome {
        self.restarts = restarts;
        self.window = Window::default();
        self.cut = usize::MAX;
        self.stage = Stage::Rising;
        for slot in &mut self.slots {
            // A lost one may still be running: nothing is started in its place.
            if !matches!(slot.state, State::Lost) {
                slot.state = State::Idle;
            }
            slot.failures = 0;
        }
        self.settle(turn)
    }

    /// Stops its children, the last one first.
    pub(crate) fn fall(&mut self, turn: &mut Turn<'_>) -> Outcome {
        match self.stage {
            Stage::Falling(_) => {}
            Stage::Down | Stage::Rising | Stage::Serving => {
                self.cut = 0;
                self.stage = Stage::Falling(Verdict::Told);
            }
        }
        self.settle(turn)
    }

    /// Stops its children and leaves the rest to its parent.
    pub(crate) fn give_up(&mut self, child: Path, because: Reason, turn: &mut Turn<'_>) {
        if self.is_falling() {
            return;
        }
        let reason = Reason::GaveUp {
            child,
            because: Box::new(because),
        };
        turn.order(Command::Tell(Change {
            path: self.path.clone(),
            what: What::GaveUp {
                reason: reason.clone(),
            },
            restarts: self.restarts,
        }));
        self.cut = 0;
        self.stage = Stage::Falling(Verdict::GaveUp(reason));
    }

    /// Gives the orders that are possible now.
    pub(crate) fn settle(&mut self, turn: &mut Turn<'_>) -> Outcome {
        let outcome = match self.stage {
            Stage::Down => Outcome::Nothing,
            Stage::Falling(_) => {
                if self.clear(turn) {
                    self.sink(turn)
                } else {
                    Outcome::Nothing
                }
            }
            Stage::Rising | Stage::Serving => {
                // Nobody starts in a tree that is ending.
                if self.clear(turn) && !turn.ending {
                    self.cut = usize::MAX;
                    self.raise(turn)
                } else {
                    Outcome::Nothing
                }
            }
        };
        self.bury();
        outcome
    }

    /// Where the one is who has this path or stands over it.
    fn find(&self, path: &Path) -> Option<usize> {
        if self.is_dynamic() {
            return self.index.get(path).copied();
        }
        self.slots.iter().position(|slot| slot.path.covers(path))
    }

    /// Takes down what lies behind the cut, one after the other; true when none of it is left.
    fn clear(&mut self, turn: &mut Turn<'_>) -> bool {
        let behind = (self.cut.min(self.slots.len())..self.slots.len()).rev();
        if self.is_dynamic() {
            // All at once, and once.
            behind.for_each(|index| self.take_down(index, Then::Rest, turn));
            self.cut = usize::MAX;
            return !self.is_falling() || !self.slots.iter().any(Slot::lives);
        }
        for index in behind {
            self.take_down(index, Then::Rest, turn);
            if self.slots[index].lives() {
                return false;
            }
        }
        true
    }

    /// Orders the end of the one in this place, if it has not been ordered yet.
    fn take_down(&mut self, index: usize, then: Then, turn: &mut Turn<'_>) {
        let slot = &mut self.slots[index];
        let (generation, up) = match slot.state {
            State::Starting { generation, .. } => (generation, false),
            State::Up { generation, .. } => (generation, true),
            State::Idle
            | State::Stopping { .. }
            | State::Killing { .. }
            | State::Waiting { .. }
            | State::Due { .. }
            | State::Lost
            | State::Done => return,
        };
        match &mut slot.role {
            // What has not started yet has promised nothing to anyone.
            Role::Leaf(child) if !up || child.shutdown.is_zero() => {
                slot.kill(generation, then, turn);
            }
            Role::Leaf(child) => {
                let deadline = turn.now + child.shutdown;
                slot.stop(generation, deadline, then, turn);
            }
            Role::Branch(level) => {
                slot.state = State::Stopping {
                    generation,
                    alarm: Ticket::NONE,
                    then,
                };
                let outcome = level.fall(turn);
                self.absorb(index, outcome, turn);
            }
        }
    }

    /// All are down.
    fn sink(&mut self, turn: &mut Turn<'_>) -> Outcome {
        for index in 0..self.slots.len() {
            if self.is_dynamic() {
                self.retire(index, turn);
            } else if !matches!(self.slots[index].state, State::Lost) {
                self.slots[index].state = State::Idle;
            }
        }
        match std::mem::replace(&mut self.stage, Stage::Down) {
            Stage::Falling(verdict) => Outcome::Sank(verdict),
            Stage::Down | Stage::Rising | Stage::Serving => Outcome::Sank(Verdict::Told),
        }
    }

    /// Starts whoever is due and may.
    fn raise(&mut self, turn: &mut Turn<'_>) -> Outcome {
        let rising = matches!(self.stage, Stage::Rising);
        // The children of a dynamic supervisor start by themselves as they come.
        let written = if self.is_dynamic() {
            0
        } else {
            self.slots.len()
        };
        for index in 0..written {
            // Those who fall together come back together.
            if self.strategy == Strategy::OneForAll && self.anyone_waits() {
                return Outcome::Nothing;
            }
            self.start_if_due(index, turn);
            let (passed, waits) = match self.slots[index].state {
                State::Up { .. } | State::Done => (true, false),
                State::Waiting { .. } => (false, true),
                State::Idle
                | State::Starting { .. }
                | State::Stopping { .. }
                | State::Killing { .. }
                | State::Due { .. }
                | State::Lost => (false, false),
            };
            let next_may = match self.strategy {
                Strategy::OneForAll | Strategy::RestForOne => passed,
                Strategy::OneForOne => passed || waits || !rising,
                Strategy::Dynamic { .. } => true,
            };
            if !next_may {
                return Outcome::Nothing;
            }
        }
        if rising {
            self.stage = Stage::Serving;
            Outcome::Rose
        } else {
            Outcome::Nothing
        }
    }

    fn start_if_due(&mut self, index: usize, turn: &mut Turn<'_>) {
        let slot = &mut self.slots[index];
        match slot.state {
            State::Due { counted: true } => self.window.note(self.intensity, turn.now),
            State::Idle | State::Due { counted: false } => {}
            State::Starting { .. }
            | State::Up { .. }
            | State::Stopping { .. }
            | State::Killing { .. }
            | State::Waiting { .. }
            | State::Lost
            | State::Done => return,
        }
        if !matches!(slot.past, Past::None) {
            slot.restarts = slot.restarts.saturating_add(1);
        }
        slot.tell(What::Starting, turn);
        match &mut slot.role {
            Role::Leaf(child) => {
                let deadline = turn.now + child.start;
                slot.start(deadline, turn);
            }
            Role::Branch(level) => {
                let outcome = level.rise(slot.restarts, turn);
                let generation = turn.generation();
                slot.state = State::Starting {
                    generation,
                    alarm: Ticket::NONE,
                };
                self.absorb(index, outcome, turn);
            }
        }
    }

    fn anyone_waits(&self) -> bool {
        self.slots
            .iter()
            .any(|slot| matches!(slot.state, State::Waiting { .. }))
    }

    pub(crate) fn is_falling(&self) -> bool {
        matches!(self.stage, Stage::Falling(_))
    }

    fn is_serving(&self) -> bool {
        matches!(self.stage, Stage::Serving)
    }

    fn is_dynamic(&self) -> bool {
        matches!(self.strategy, Strategy::Dynamic { .. })
    }

    /// It is not needed any more.
    fn retire(&mut self, index: usize, turn: &mut Turn<'_>) {
        let slot = &mut self.slots[index];
        slot.state = State::Done;
        if self.is_dynamic() {
            let path = self.slots[index].path.clone();
            self.retired.push(path.clone());
            turn.order(Command::Forget { path });
        }
    }

    /// It is down and comes back when its turn comes, unless it is one that never does.
    fn rest(&mut self, index: usize, turn: &mut Turn<'_>) {
        if self.slots[index].restart() == Restart::Temporary {
            self.retire(index, turn);
        } else {
            self.slots[index].state = State::Idle;
        }
    }
}
