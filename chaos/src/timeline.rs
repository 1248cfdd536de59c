//! All that was seen in a siege, in order. Checks judge it, reports draw it, and nothing else is kept.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// What was seen, the earliest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    entries: Vec<Entry>,
    /// How many facts found no room.
    missed: u64,
}

/// One thing that was seen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// From the start of the siege.
    pub(crate) at: Duration,
    /// What.
    pub(crate) fact: Fact,
}

/// What was seen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fact {
    /// The siege went on to its next part.
    Stage(Stage),
    /// What the sandbox said of itself, where it differs from what it said before.
    Shown(Shown),
    /// A fault was made.
    Broken {
        /// Its number in the schedule.
        number: usize,
        /// What it is.
        fault: String,
        /// Whom it hit.
        victim: String,
    },
    /// A fault was undone.
    Mended {
        /// Its number in the schedule.
        number: usize,
    },
    /// A fault could not be made here.
    Spared {
        /// Its number in the schedule.
        number: usize,
        /// What it is.
        fault: String,
        /// Why not.
        why: String,
    },
    /// An exec that connects to an allowed server was tried.
    Probed(Probed),
    /// A program of the load came to its end.
    Session(Session),
    /// A supervision tree as it was told.
    Tree(Tree),
    /// A connection that was held from inside was closed, by nobody inside.
    Cut,
    /// Something of a sandbox that comes and goes.
    Life(Life),
    /// What our own server and the audit have counted, from the start.
    Counted {
        /// Connections that arrived at the server.
        arrived: u64,
        /// Records that allowed one to it.
        allowed: u64,
    },
    /// Something of ours that should be gone is still there.
    Left(String),
    /// The sandbox that was attacked is gone, or another has its name: what became of it.
    Lost(String),
    /// Something that people should know.
    Noted(String),
}

/// The parts of a siege.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A sandbox is there and has been Ready; nothing is broken yet. With how many entries its root has, if it has one of its own.
    Calm {
        /// Entries at the top of its root.
        root: Option<u64>,
    },
    /// Faults are made.
    Faults,
    /// All is undone; the sandbox recovers.
    Settling,
    /// Settled; the last look has been taken.
    Settled,
    /// The sandbox is gone, or no longer ours.
    Over,
}

/// What a user sees who asks how the sandbox stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shown {
    /// The phase; `Silent` when nobody answers.
    pub(crate) phase: Phase,
    /// Why it is not Ready.
    pub(crate) reason: String,
    /// Which conditions do not hold, with their reasons.
    pub(crate) failing: BTreeMap<String, String>,
    /// By process.
    pub(crate) descriptors: BTreeMap<String, Descriptors>,
    /// By process.
    pub(crate) pids: BTreeMap<String, u32>,
    /// Which life of the boundary.
    pub(crate) generation: u64,
    /// Which of its keepers.
    pub(crate) epoch: u64,
    /// Restarts of all actors.
    pub(crate) restarts: u64,
}

/// The phases, and one for nobody who answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) enum Phase {
    #[default]
    Silent,
    Pending,
    Ready,
    Degraded,
    Failed,
    Stopped,
    Deleting,
}

/// The descriptors of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptors {
    pub(crate) limit: u64,
    pub(crate) used: u64,
    pub(crate) high_water: u64,
    pub(crate) shed: u64,
    pub(crate) waiting: u64,
}

/// One try of the whole way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probed {
    /// When it was started; the entry's own time is that of its end.
    pub(crate) started: Duration,
    /// Why it failed; `None` when it succeeded.
    pub(crate) failure: Option<String>,
}

/// One program of the load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// The id that we chose.
    pub(crate) request: String,
    /// When it was asked for.
    pub(crate) started: Duration,
    /// What became of it.
    pub(crate) outcome: Outcome,
}

/// What became of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its program ended by itself.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
    /// Not known, with a reason.
    Unknown(String),
    /// It was not started, with a reason.
    Refused(String),
    /// Its stream ended without a word.
    Closed,
    /// Nobody could say, however often we asked.
    Lost(String),
}

/// A supervision tree of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    /// Whose.
    pub(crate) process: String,
    /// Its process id, where it is known.
    pub(crate) pid: Option<u32>,
    /// Its places.
    pub(crate) rows: Vec<Row>,
}

/// One place of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// "keeper/egress".
    pub(crate) path: String,
    /// "Running", "Waiting", "`GivenUp`" …
    pub(crate) state: String,
    /// How often it was restarted.
    pub(crate) restarts: u64,
}

/// A sandbox that comes and goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Its creation was acknowledged.
    Created(String),
    /// A program ran in it.
    Used(String),
    /// Its deletion was asked for.
    Ending(String),
    /// Its deletion was acknowledged.
    Deleted(String),
    /// These are there, after all has settled.
    Listed(Vec<String>),
}

impl Timeline {
    /// Adds what was seen at this time. A full timeline counts what it misses.
    pub(crate) fn add(&mut self, at: Duration, fact: Fact) {
        if self.entries.len() < MOST_ENTRIES {
            self.entries.push(Entry { at, fact });
        } else {
            self.missed += 1;
        }
    }

    /// All of it.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// How many facts found no room.
    pub(crate) fn missed(&self) -> u64 {
        self.missed
    }

    /// When the last thing was seen.
    pub(crate) fn end(&self) -> Duration {
        self.entries.last().map_or(Duration::ZERO, |entry| entry.at)
    }

    /// What the sandbox said, each time until the next.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (Duration, &Shown)> {
        self.entries.iter().filter_map(|entry| {
            let Fact::Shown(shown) = &entry.fact else {
                return None;
            };
            Some((entry.at, shown))
        })
    }

    /// The times at which Ready was shown: from, until.
    pub(crate) fn ready(&self) -> Vec<(Duration, Duration)> {
        let mut spans = Vec::new();
        let mut since = None;
        for (at, shown) in self.shown() {
            match (since, shown.phase == Phase::Ready) {
                (None, true) => since = Some(at),
                (Some(from), false) => {
                    spans.push((from, at));
                    since = None;
                }
                (None, false) | (Some(_), true) => {}
            }
        }
        spans.extend(since.map(|from| (from, self.end())));
        spans
    }

    /// When each fault was in force: number, from, until.
    pub(crate) fn broken(&self) -> Vec<(usize, Duration, Duration)> {
        let mut spans: Vec<(usize, Duration, Duration)> = Vec::new();
        for entry in &self.entries {
            if let Fact::Broken { number, .. } = &entry.fact {
                spans.push((*number, entry.at, self.end()));
            } else if let Fact::Mended { number } = &entry.fact
                && let Some((_, _, until)) =
                    spans.iter_mut().rev().find(|(broken, ..)| broken == number)
            {
                *until = entry.at;
            }
        }
        spans
    }

    /// When and how the sandbox was lost to somebody else.
    pub(crate) fn lost(&self) -> Option<(Duration, &str)> {
        self.entries.iter().find_map(|entry| {
            let Fact::Lost(why) = &entry.fact else {
                return None;
            };
            Some((entry.at, why.as_str()))
        })
    }

    /// When this part began, the first time.
    pub(crate) fn stage(&self, wanted: impl Fn(Stage) -> bool) -> Option<Duration> {
        self.entries.iter().find_map(|entry| {
            let Fact::Stage(stage) = entry.fact else {
                return None;
            };
            wanted(stage).then_some(entry.at)
        })
    }
}

impl Phase {
    /// As it is written.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Silent => "Silent",
            Self::Pending => "Pending",
            Self::Ready => "Ready",
            Self::Degraded => "Degraded",
            Self::Failed => "Failed",
            Self::Stopped => "Stopped",
            Self::Deleting => "Deleting",
        }
    }
}

/// A day of a busy siege.
const MOST_ENTRIES: usize = 2_000_000;
