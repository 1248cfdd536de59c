//! Whether the sandbox is ready, and if not, why not: what is known of its parts, judged at a moment.
//!
//! ```text
//!  supervision ── Changed ──┐                       ┌── eight conditions, in the contract's order
//!  boundary ── Linked, Beat,│                       │
//!              Boundary ────┤                       │
//!  canary ── Walked ────────┼──> step(event, now) ──┼── phase, reason, message
//!  pressure ── Descriptors,
//!              Recording ───┤                       │
//!  rulebook ── Policy ──────┘                       └── whether a canary is wanted now
//!
//!  Pending ── all True ──> Ready ── one is not, or its end is known ──> Degraded ── all True ──> Ready
//!      └───────────┴── given up, or the fence is unproven ──> Failed    └── ended ──> Stopped
//! ```
//!
//! Two kinds of evidence make a condition true. Some things are seen directly: the beat of the boundary, a count of
//! descriptors. The way of an agent is proved by the canary alone. Every observation ages, and one that is too old is
//! none.
//!
//! The invariant: Ready is shown only while every condition is True by an observation that is fresh, and after anything
//! has failed only when a canary that began after it was mended has gone the whole way.

mod conditions;
mod judge;
mod parts;
mod ports;

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_actor::{Change, Moment};
use holdfast_wire::v1;

pub use self::conditions::{Condition, Kind, Phase, Report, Truth};
use self::parts::{Fallen, Part};
use self::ports::Unheard;

/// What is heard of the sandbox's parts.
#[derive(Clone, Debug)]
pub enum Event {
    /// Something happened in the keeper's own tree.
    Changed(Change),
    /// Something happened to an actor of the boundary.
    Boundary(v1::Changed),
    /// The fence was proved, or a gap was found.
    Fence(Result<(), String>),
    /// The boundary is attached.
    Linked,
    /// The boundary gave the sign of life that it was asked for at this moment.
    Beat(Moment, Box<v1::BeatReply>),
    /// The boundary cannot be spoken with, and why.
    Unlinked(Unlinked, String),
    /// A canary has come home, or has not.
    Walked(Walked),
    /// A session could not be started.
    Refused(Want),
    /// The keeper's descriptors were counted, not before this moment.
    Descriptors(Moment, Sample),
    /// How the listeners stand.
    Listening(Listening),
    /// The ports that rules name and nobody can listen on, and why: all of them.
    Unheard(BTreeMap<u16, i32>),
    /// The same of ports that somebody asked for under a rule for every port: more of them.
    Asked(BTreeMap<u16, i32>),
    /// Whether what is allowed can be recorded.
    Recording(bool),
    /// Which policy is wanted and which is in force.
    Policy {
        /// The revision that is wanted.
        desired: u64,
        /// The one in force.
        enforced: u64,
        /// Why the one that is wanted cannot be in force; empty if it can.
        error: String,
    },
    /// It will come to its end: nobody may begin anything in it any more.
    Ending {
        /// One word of the contract.
        reason: &'static str,
        /// One sentence.
        message: String,
    },
    /// The sandbox came to its end.
    Over {
        /// `Stopped` or `Failed`.
        phase: Phase,
        /// One word of the contract.
        reason: &'static str,
        /// One sentence.
        message: String,
    },
    /// Time has passed.
    Passed,
}

/// What a session was refused for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// A process had no descriptors for it.
    Descriptors {
        /// In which process.
        process: Process,
        /// The refusal, as its asker is told it.
        message: String,
    },
    /// Something else was short.
    Other {
        /// What, in one word of the contract.
        reason: &'static str,
        /// The refusal, as its asker is told it.
        message: String,
    },
    /// Nothing was short: something did not work.
    Nothing,
}

/// A process whose descriptors are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// This one.
    Keeper,
    /// The other half.
    Boundary,
}

/// A session was refused for want of descriptors, and no count has said since that there is room.
#[derive(Clone, Debug)]
struct Short {
    since: Moment,
    message: String,
}

/// Why the boundary cannot be spoken with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlinked {
    /// The connection is lost, or no answer comes.
    Lost,
    /// The boundary's process is gone.
    Gone,
    /// The two do not speak a common version.
    Version,
}

/// One canary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walked {
    /// When it was sent.
    pub began: Moment,
    /// When it was home, or was given up.
    pub ended: Moment,
    /// Which condition it did not meet, and why; nothing if it went the whole way.
    pub fell: Option<(Kind, String)>,
}

/// The descriptors of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// How many it may have.
    pub limit: u64,
    /// How many it has.
    pub used: u64,
    /// Whether that leaves too few.
    pub pressed: bool,
    /// Whether it is the host that has no more.
    pub host_full: bool,
}

/// How the listeners stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listening {
    /// So many hold their connections back until others end.
    pub full: usize,
    /// So many wait for a resource of the process.
    pub starved: usize,
}

/// What a step has brought about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// A status, a reason or the phase is another one: those who watch should know at once.
    pub changed: bool,
    /// A canary should go now.
    pub canary: bool,
}

/// What is known, and what follows from it.
#[derive(Clone, Debug)]
pub struct Health {
    fence: Option<Result<(), String>>,
    link: Link,
    /// The parts that do not serve, by their paths.
    down: BTreeMap<String, Part>,
    /// The one that fell last, of itself, until a canary has proved that all is well again.
    fallen: Option<Fallen>,
    /// How often each part of the boundary has been restarted.
    restarts: BTreeMap<String, u64>,
    /// When each part of the boundary was told of last, apart from the beat.
    told: BTreeMap<String, Moment>,
    /// When a part that this condition needs came back last.
    back: [Moment; Kind::ALL.len()],
    /// What the canaries say, for the conditions on their way.
    proofs: [Option<Proof>; Kind::ALL.len()],
    /// When the last canary was over.
    walked: Option<Moment>,
    /// Since when nothing is missing but a canary.
    whole: Option<Moment>,
    keeper: Option<(Sample, Moment)>,
    boundary: Option<(Sample, Moment)>,
    /// By [`Process`].
    short: [Option<Short>; 2],
    listening: Listening,
    unheard: Unheard,
    policy: Option<(u64, u64, String)>,
    end: Option<End>,
    was_ready: bool,
    report: Report,
    now: Moment,
}

/// The end, with its reason, as soon as it is known.
#[derive(Clone, Debug)]
enum End {
    Coming(&'static str, String),
    Come(Phase, &'static str, String),
}

/// How the boundary stands.
#[derive(Clone, Debug)]
enum Link {
    Unreached,
    Up { heard: Moment },
    Down(Unlinked, String),
}

/// What a canary says about one condition.
#[derive(Clone, Debug)]
struct Proof {
    began: Moment,
    ended: Moment,
    /// With which reason, and why.
    failed: Option<(&'static str, String)>,
}

impl Health {
    /// Nothing is known yet. One that takes a running sandbox over is not Pending but Degraded until it is Ready.
    pub fn new(now: Moment, takes_over: bool) -> Self {
        let mut health = Self {
            fence: None,
            link: Link::Unreached,
            down: BTreeMap::new(),
            fallen: None,
            restarts: BTreeMap::new(),
            told: BTreeMap::new(),
            back: [now; Kind::ALL.len()],
            proofs: Default::default(),
            walked: None,
            whole: None,
            keeper: None,
            boundary: None,
            short: [None, None],
            listening: Listening::default(),
            unheard: Unheard::new(now),
            policy: None,
            end: None,
            was_ready: takes_over,
            report: Report::unknown(now),
            now,
        };
        health.report = health.judged(now);
        health
    }

    /// Takes in what happened.
    pub fn step(&mut self, event: Event, now: Moment) -> Turn {
        let now = now.max(self.now);
        self.now = now;
        let probe = self.hear(event, now);
        let whole = self.is_whole(now);
        let mended = whole && self.whole.is_none();
        self.whole = whole.then(|| self.whole.unwrap_or(now));
        let report = self.judged(now);
        let changed = report.differs_from(&self.report);
        self.was_ready |= report.phase == Phase::Ready;
        self.report = report;
        Turn {
            changed,
            canary: self.end.is_none() && (probe || mended),
        }
    }

    /// How it stood at the last step.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// When the first of its observations is too old, if nothing is heard until then.
    pub fn expires(&self) -> Option<Moment> {
        let beat = match self.link {
            Link::Up { heard } => Some(heard + BEAT_AGE),
            Link::Unreached | Link::Down(..) => None,
        };
        let sample = self.keeper.map(|(_, seen)| seen + SAMPLE_AGE);
        let proofs = self
            .proofs
            .iter()
            .flatten()
            .map(|proof| proof.ended + CANARY_AGE);
        let all = beat.into_iter().chain(sample).chain(proofs);
        all.filter(|end| *end >= self.now).min()
    }

    /// Whether a canary could prove anything: not while boundary or launcher are away or descriptors are short.
    pub fn admits_canary(&self) -> bool {
        let linked = matches!(self.link, Link::Up { heard } if self.now.since(heard) <= BEAT_AGE);
        self.end.is_none() && linked && !self.is_pressed() && !self.is_launcher_silent()
    }

    fn is_pressed(&self) -> bool {
        let samples = [self.keeper, self.boundary];
        samples.iter().flatten().any(|(sample, _)| sample.pressed)
            || self.short.iter().any(Option::is_some)
    }

    /// Notes what happened; true if a canary should go for that.
    fn hear(&mut self, event: Event, now: Moment) -> bool {
        match event {
            Event::Changed(change) => return self.hear_change(&change, now),
            Event::Boundary(changed) => return self.hear_boundary(changed, now),
            Event::Fence(proved) => self.fence = Some(proved),
            Event::Linked => self.link = Link::Up { heard: now },
            Event::Beat(asked, beat) => return self.hear_beat(&beat, asked, now),
            Event::Unlinked(how, why) => self.link = Link::Down(how, why),
            Event::Walked(walked) => self.hear_canary(walked),
            Event::Refused(want) => return self.hear_refusal(want, now),
            Event::Descriptors(counted, sample) => {
                self.keeper = Some((sample, now));
                self.relieve(Process::Keeper, sample, counted);
            }
            Event::Listening(listening) => self.listening = listening,
            Event::Unheard(ports) => return self.hear_unheard(ports, now, now),
            Event::Asked(more) => {
                let ports = self.unheard.ports.clone().into_iter().chain(more);
                return self.hear_unheard(ports.collect(), now, now);
            }
            Event::Recording(writes) => return self.hear_recording(writes, now),
            Event::Policy {
                desired,
                enforced,
                error,
            } => self.policy = Some((desired, enforced, error)),
            Event::Over {
                phase,
                reason,
                message,
            } => self.end = Some(End::Come(phase, reason, message)),
            Event::Ending { reason, message } => self.approach(reason, message),
            Event::Passed => {}
        }
        false
    }

    /// What was known first is why: the rest follows from it.
    fn approach(&mut self, reason: &'static str, message: String) {
        self.end.get_or_insert(End::Coming(reason, message));
    }

    /// A canary proves every condition that it has met, and disproves the one that it has not.
    fn hear_canary(&mut self, walked: Walked) {
        let Walked { began, ended, fell } = walked;
        // One goes after the other: one that began before the last was over is late news, and mends nothing that fell.
        if self.walked.is_some_and(|over| over > began) {
            return;
        }
        self.walked = Some(ended);
        for kind in Kind::WAY {
            let failed = fell.as_ref().filter(|(at, _)| *at == kind);
            let over = failed.is_some();
            self.proofs[kind as usize] = Some(Proof {
                began,
                ended,
                failed: failed.map(|(_, why)| ("CanaryFailed", why.clone())),
            });
            if over {
                return;
            }
        }
        if self.whole.is_some_and(|whole| whole <= began) {
            self.fallen = None;
        }
    }
}

/// How old a canary may be: two may be lost, and the third is under way.
pub const CANARY_AGE: Duration = Duration::from_secs(12);

/// How old a sign of life of the boundary may be. It comes every 700 ms; a boundary that stands still is known within 2 s.
pub const BEAT_AGE: Duration = Duration::from_millis(1600);

/// How old a count of descriptors may be.
pub const SAMPLE_AGE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests;
