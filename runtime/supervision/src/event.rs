//! What a tree is told and what it answers.

use std::fmt;

use holdfast_clock::Moment;

use crate::{Child, Generation, Path, Reason};

/// What happened. An event of a life that is over already is late news and changes nothing.
#[derive(Clone, Debug)]
pub enum Event {
    /// The tree was set up and may start.
    Launched,
    /// A child's start succeeded.
    Started {
        /// Which child.
        path: Path,
        /// Which life of it.
        generation: Generation,
    },
    /// A child's start did not succeed; nothing of it is left.
    StartFailed {
        /// Which child.
        path: Path,
        /// Which life of it.
        generation: Generation,
        /// What it failed with.
        reason: Reason,
    },
    /// A child is no more, but something that belongs to it has yet to end; its end is reported when that has.
    Dying {
        /// Which child.
        path: Path,
        /// Which life of it.
        generation: Generation,
        /// What it ended with.
        reason: Reason,
    },
    /// A child ended of itself; nothing of it is left.
    Fell {
        /// Which child.
        path: Path,
        /// Which life of it.
        generation: Generation,
        /// What it ended with.
        reason: Reason,
    },
    /// A child ended as it was told to; nothing of it is left.
    Stopped {
        /// Which child.
        path: Path,
        /// Which life of it.
        generation: Generation,
    },
    /// A child did not answer within its deadline.
    Stuck {
        /// Which child.
        path: Path,
        /// Which life of it.
        generation: Generation,
    },
    /// The moment of a [`Command::Wake`] came.
    Woke(Timer),
    /// Somebody asked for another child of a dynamic supervisor.
    Wanted {
        /// The dynamic supervisor.
        parent: Path,
        /// What to start.
        child: Child,
    },
    /// Somebody asked for the end of a child of a dynamic supervisor.
    Unwanted {
        /// Which child.
        path: Path,
    },
    /// The whole tree was asked to stop.
    ShutdownRequested,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Start this child. Answered by `Started` or `StartFailed`.
    Start {
        /// Which child.
        path: Path,
        /// The number of the life that begins.
        generation: Generation,
    },
    /// Ask this child to stop. Answered by its end.
    Stop {
        /// Which child.
        path: Path,
        /// Which life of it.
        generation: Generation,
    },
    /// End this child without asking. Answered by its end.
    Kill {
        /// Which child.
        path: Path,
        /// Which life of it.
        generation: Generation,
    },
    /// Say `Woke` at this moment or soon after. A later one for the same path replaces an earlier one.
    Wake {
        /// What to say then.
        timer: Timer,
        /// When.
        at: Moment,
    },
    /// Let those know who watch, before the next command is obeyed.
    Tell(Change),
    /// Say no to whoever wanted this child.
    Refuse {
        /// The child that will not be.
        path: Path,
        /// Why.
        refusal: Refusal,
    },
    /// This child will never be mentioned again: drop what is kept for it.
    Forget {
        /// Which child.
        path: Path,
    },
    /// All is down. Nothing follows.
    Finish(End),
}

/// Names one wish to be woken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Timer {
    /// Who has it. One child has one timer at most.
    pub path: Path,
    /// Never given twice in a tree.
    pub ticket: u64,
}

/// Something that happened to a child or a supervisor, for those who watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// To whom.
    pub path: Path,
    /// What.
    pub what: What,
    /// How often it has been restarted since the tree was launched.
    pub restarts: u32,
}

/// What a [`Change`] tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Its start began.
    Starting,
    /// It serves.
    Up,
    /// It serves no more; what belongs to it is being ended.
    Dying {
        /// Why.
        reason: Reason,
    },
    /// It is gone.
    Fell {
        /// Why.
        reason: Reason,
        /// What follows.
        next: Next,
    },
    /// It was asked to stop.
    Stopping,
    /// It is gone as it should be.
    Stopped,
    /// It does not answer and is being replaced.
    Stuck,
    /// Its start takes longer than it may and is being given up.
    StartTooLong,
    /// Its time to stop was over and it was killed.
    Overdue,
    /// It outlived its kill. Only the end of the process helps, so the tree ends.
    Wedged,
    /// A supervisor takes down what is under it and leaves the rest to its parent.
    GaveUp {
        /// Over what.
        reason: Reason,
    },
}

/// What follows a fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is started again, then or as soon after as what stands before it is up.
    Restart {
        /// The earliest moment.
        at: Moment,
    },
    /// It is stopped with its siblings and starts again with them.
    WithSiblings,
    /// It is not needed any more.
    Nothing,
    /// Its supervisor gives up.
    Escalation,
}

/// Why a wanted child will not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The supervisor has as many children as it may.
    Full {
        /// How many that is.
        most: usize,
    },
    /// There is one of that name.
    Duplicate,
    /// There is no dynamic supervisor of that name.
    Unknown,
    /// The supervisor is not up.
    Down,
    /// Its start did not succeed.
    StartFailed(Reason),
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { most } => {
                write!(out, "the supervisor has all {most} children it may have")
            }
            Self::Duplicate => out.write_str("a child of that name exists"),
            Self::Unknown => out.write_str("no dynamic supervisor has that name"),
            Self::Down => out.write_str("the supervisor is not up"),
            Self::StartFailed(reason) => write!(out, "start: {reason}"),
        }
    }
}

impl std::error::Error for Refusal {}

/// How a tree ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It was asked to.
    ShutDown,
    /// The root gave up.
    GaveUp(Reason),
}
