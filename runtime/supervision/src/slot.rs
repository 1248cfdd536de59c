//! One place in a tree and the life that fills it.
//!
//! ```text
//!           ┌────────────────────── Due ◀── Woke ── Waiting ◀──────────────┐
//!           ▼                                          ▲                   │
//!  Idle ─▶ Starting ── Started ─▶ Up ── Fell ──────────┴──────▶ Done       │ when it is to
//!           │                     │ │                   not needed         │ come back
//!           │ too long     told to│ │Stuck                                 │
//!           │             ┌───────┘ │                                      │
//!           ▼             ▼         ▼                                      │
//!           └────────▶ Killing ◀─ Stopping ── its end ─▶ Idle, Done or ────┘
//!                         │       overdue
//!                         └─ outlives even that ─▶ Lost
//! ```
//!
//! `Starting`, `Up`, `Stopping`, `Killing` and `Lost` are the states in which there may be a process of that name in
//! the world. The way back to `Starting` leads through a report that it ended, and from `Lost` there is no way back.

use holdfast_clock::{Dice, Moment};

use crate::level::Level;
use crate::{
    Backoff, Change, Child, Command, Generation, Next, Path, Reason, Restart, Timer, What,
};

/// One place in a tree.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) path: Path,
    pub(crate) role: Role,
    pub(crate) state: State,
    /// Failures in a row.
    pub(crate) failures: u32,
    pub(crate) restarts: u32,
    pub(crate) past: Past,
    pub(crate) dice: Dice,
}

#[derive(Debug)]
pub(crate) enum Role {
    Leaf(Child),
    Branch(Box<Level>),
}

#[derive(Debug)]
pub(crate) enum State {
    Idle,
    Starting {
        generation: Generation,
        alarm: Ticket,
    },
    Up {
        generation: Generation,
        since: Moment,
    },
    Stopping {
        generation: Generation,
        alarm: Ticket,
        then: Then,
    },
    Killing {
        generation: Generation,
        alarm: Ticket,
        then: Then,
    },
    Waiting {
        alarm: Ticket,
        until: Moment,
        counted: bool,
    },
    Due {
        counted: bool,
    },
    Lost,
    Done,
}

/// What follows an end that was brought about.
#[derive(Debug)]
pub(crate) enum Then {
    /// It starts again when its turn comes.
    Rest,
    /// It is not needed any more.
    Leave,
    /// It has failed.
    Fail(Reason),
}

/// What is remembered of earlier lives.
#[derive(Debug)]
pub(crate) enum Past {
    /// It was never up.
    None,
    /// It was up and has not fallen.
    Served,
    /// Its latest fall.
    Fell(Reason),
}

/// A wish to be woken; the world says it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(pub(crate) u64);

impl Ticket {
    /// Never given out: nobody will wake us.
    pub(crate) const NONE: Self = Self(0);
}

/// One step of a tree: its moment, and what it has led to so far.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) now: Moment,
    pub(crate) numbers: &'a mut Numbers,
    pub(crate) commands: Vec<Command>,
    /// One that cannot be killed. Only the end of the process takes back its thread, so all of it has to end.
    pub(crate) wedged: Option<Path>,
    /// Whether the whole tree is going down, where no start makes sense any more.
    pub(crate) ending: bool,
}

/// The numbers given out so far.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    generation: u64,
    ticket: u64,
}

impl Turn<'_> {
    pub(crate) fn order(&mut self, command: Command) {
        self.commands.push(command);
    }

    pub(crate) fn generation(&mut self) -> Generation {
        self.numbers.generation += 1;
        Generation(self.numbers.generation)
    }

    pub(crate) fn wake(&mut self, path: &Path, at: Moment) -> Ticket {
        self.numbers.ticket += 1;
        let ticket = self.numbers.ticket;
        self.order(Command::Wake {
            timer: Timer {
                path: path.clone(),
                ticket,
            },
            at,
        });
        Ticket(ticket)
    }
}

impl Slot {
    pub(crate) fn new(path: Path, role: Role, dice: Dice) -> Self {
        Self {
            path,
            role,
            state: State::Idle,
            failures: 0,
            restarts: 0,
            past: Past::None,
            dice,
        }
    }

    /// Whether there may be something of this name in the world that has yet to end.
    pub(crate) fn lives(&self) -> bool {
        match self.state {
            State::Starting { .. }
            | State::Up { .. }
            | State::Stopping { .. }
            | State::Killing { .. } => true,
            // A lost one may live, but nobody waits for it.
            State::Idle | State::Waiting { .. } | State::Due { .. } | State::Lost | State::Done => {
                false
            }
        }
    }

    /// Whether news of this life concern the present one.
    pub(crate) fn is(&self, life: Generation) -> bool {
        match self.state {
            State::Starting { generation, .. }
            | State::Up { generation, .. }
            | State::Stopping { generation, .. }
            | State::Killing { generation, .. } => generation == life,
            State::Idle | State::Waiting { .. } | State::Due { .. } | State::Lost | State::Done => {
                false
            }
        }
    }

    /// Whether a restart of it has been counted but not made.
    pub(crate) fn claims_a_restart(&self) -> bool {
        match self.state {
            State::Waiting { counted, .. } | State::Due { counted } => counted,
            State::Idle
            | State::Starting { .. }
            | State::Up { .. }
            | State::Stopping { .. }
            | State::Killing { .. }
            | State::Lost
            | State::Done => false,
        }
    }

    /// Whether it has to come back after this end.
    pub(crate) fn returns_after(&self, reason: &Reason) -> bool {
        match self.restart() {
            Restart::Permanent => true,
            Restart::Transient => *reason != Reason::Ended,
            Restart::Temporary => false,
        }
    }

    pub(crate) fn restart(&self) -> Restart {
        match &self.role {
            Role::Leaf(child) => child.restart,
            Role::Branch(_) => Restart::Permanent,
        }
    }

    fn backoff(&self) -> Backoff {
        match &self.role {
            Role::Leaf(child) => child.backoff,
            Role::Branch(level) => level.backoff(),
        }
    }

    pub(crate) fn tell(&self, what: What, turn: &mut Turn<'_>) {
        turn.order(Command::Tell(Change {
            path: self.path.clone(),
            what,
            restarts: self.restarts,
        }));
    }

    /// It serves.
    pub(crate) fn rise(&mut self, generation: Generation, turn: &mut Turn<'_>) {
        self.state = State::Up {
            generation,
            since: turn.now,
        };
        self.past = match std::mem::replace(&mut self.past, Past::Served) {
            Past::None | Past::Served => Past::Served,
            Past::Fell(reason) => Past::Fell(reason),
        };
        self.tell(What::Up, turn);
    }

    /// Waits for its next try.
    pub(crate) fn wait(&mut self, reason: Reason, counted: bool, turn: &mut Turn<'_>) {
        self.credit(turn);
        let until = turn.now + self.backoff().delay(self.failures, &mut self.dice);
        self.failures = self.failures.saturating_add(1);
        self.fell(reason, Next::Restart { at: until }, turn);
        let alarm = turn.wake(&self.path, until);
        self.state = State::Waiting {
            alarm,
            until,
            counted,
        };
    }

    /// Takes it for cured when it has been up for long enough.
    pub(crate) fn credit(&mut self, turn: &Turn<'_>) {
        if let State::Up { since, .. } = self.state
            && turn.now - since >= self.backoff().reset_after
        {
            self.failures = 0;
        }
    }

    /// Is gone, with what follows.
    pub(crate) fn fell(&mut self, reason: Reason, next: Next, turn: &mut Turn<'_>) {
        self.tell(
            What::Fell {
                reason: reason.clone(),
                next,
            },
            turn,
        );
        self.past = Past::Fell(reason);
    }

    /// Starts what does the work. A supervisor in this place is started by the level it is on.
    pub(crate) fn start(&mut self, deadline: Moment, turn: &mut Turn<'_>) {
        let generation = turn.generation();
        turn.order(Command::Start {
            path: self.path.clone(),
            generation,
        });
        let alarm = turn.wake(&self.path, deadline);
        self.state = State::Starting { generation, alarm };
    }

    /// Asks it to stop, and says when that is overdue.
    pub(crate) fn stop(
        &mut self,
        generation: Generation,
        deadline: Moment,
        then: Then,
        turn: &mut Turn<'_>,
    ) {
        self.tell(What::Stopping, turn);
        turn.order(Command::Stop {
            path: self.path.clone(),
            generation,
        });
        let alarm = turn.wake(&self.path, deadline);
        self.state = State::Stopping {
            generation,
            alarm,
            then,
        };
    }

    /// Ends it without asking.
    pub(crate) fn kill(&mut self, generation: Generation, then: Then, turn: &mut Turn<'_>) {
        turn.order(Command::Kill {
            path: self.path.clone(),
            generation,
        });
        let alarm = turn.wake(&self.path, turn.now + Level::KILL_DEADLINE);
        self.state = State::Killing {
            generation,
            alarm,
            then,
        };
    }
}
