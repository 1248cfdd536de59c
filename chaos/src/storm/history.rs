//! All that happened in a world, in order.

use std::fmt;

use holdfast_clock::Moment;
use holdfast_supervision::{Change, Child, End, Generation, Path, Reason, Refusal};

/// All that happened, the earliest first.
#[derive(Debug, Default)]
pub struct History(Vec<Entry>);

/// One thing that happened.
#[derive(Clone, Debug)]
pub struct Entry {
    /// When.
    pub at: Moment,
    /// What.
    pub fact: Fact,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Fact {
    /// The tree had a child started.
    Start {
        /// Which child.
        path: Path,
        /// Which life of it.
        generation: Generation,
    },
    /// A child was up.
    Up {
        /// Which child.
        path: Path,
        /// Which life of it.
        generation: Generation,
    },
    /// The tree asked a child to stop.
    Stop {
        /// Which child.
        path: Path,
        /// Which life of it.
        generation: Generation,
    },
    /// The tree had a child killed.
    Kill {
        /// Which child.
        path: Path,
        /// Which life of it.
        generation: Generation,
    },
    /// Nothing was left of a life.
    Ended {
        /// Which child.
        path: Path,
        /// Which life of it.
        generation: Generation,
        /// Why.
        reason: Reason,
    },
    /// The tree told those who watch.
    Told(Change),
    /// Somebody wanted a child.
    Wanted {
        /// Which child.
        path: Path,
        /// As it was written.
        child: Child,
    },
    /// And the tree said no.
    Refused {
        /// Which child.
        path: Path,
        /// Why.
        refusal: Refusal,
    },
    /// From here on nothing goes wrong any more.
    Calm {
        /// How long the tree then has to heal.
        rest: std::time::Duration,
    },
    /// Somebody asked for the end.
    ShutdownRequested,
    /// The tree was over.
    Finished(End),
    /// The tree was not over when it should have been.
    TimeIsUp,
}

impl History {
    /// What happened, the earliest first.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    pub(crate) fn note(&mut self, at: Moment, fact: Fact) {
        self.0.push(Entry { at, fact });
    }

    /// A history as a test would have it.
    pub fn of(facts: impl IntoIterator<Item = (u64, Fact)>) -> Self {
        let entry = |(millis, fact)| Entry {
            at: Moment::ORIGIN + std::time::Duration::from_millis(millis),
            fact,
        };
        Self(facts.into_iter().map(entry).collect())
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:>14?} {:?}", self.at.since_origin(), self.fact)
    }
}
