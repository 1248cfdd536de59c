//! Decides what follows in the life of one sandbox. Pure: told what happened and when, answers what is to be done.
//!
//! ```text
//!             start                        report
//! Pending ───────────────▶ Starting ─────────────────▶ Up ◀──────┐
//!    ▲    at its time      ▲  │  │                     │  lapsed │ report
//!    │                     │  │  └─ too long ──────────┼─▶ Silent┘
//!    │       next epoch    │  │ keeper fell            │      │ too long: the keeper is killed
//!    │                     │  ▼                        ▼      ▼
//!    │                    KeeperDown ◀── keeper fell ──┴──────┘      the workload lives on
//!    │
//!    │  any of these four ── stop · restart · delete · main exited · boundary fell · refused ──▶ Ending
//!    │                                                                                            │ both are gone
//!    └──── begin ──────────── Ending ──── stop ──▶ Stopped      fail ──▶ Failed      delete ──▶ Deleting
//! ```
//!
//! A keeper that the last gateway left is Adopting for one lease, then Silent. A boundary that ends after its keeper's last
//! words is not one that fell: what those words say follows.
//!
//! What holds: no keeper is started while another one is known to live; epochs grow within a generation, generations for
//! ever; nothing waits without a deadline; from every stage `start`, `stop` and `delete --force` lead on.

use std::time::Duration;

use holdfast_actor::{Backoff, Moment, Seed};
use holdfast_wire::LEASE;
use holdfast_wire::words::unnumbered;

mod end;
pub(crate) mod pace;
mod wish;

use pace::Pace;
use wish::asked;

/// One sandbox's life.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) stage: Stage,
    pub(crate) generation: u64,
    pub(crate) epoch: u64,
    /// Generations that were begun by the restart policy.
    pub(crate) restarts: u64,
    /// Keepers that took over from another one.
    pub(crate) keepers: u64,
    policy: Restart,
    alive: Alive,
    /// When this generation's keeper reported for the first time.
    up: Option<Moment>,
    generations: Pace,
    takeovers: Pace,
}

/// Where a life stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No generation runs; the next one begins at `at`.
    Pending {
        at: Moment,
        why: Why,
    },
    /// A keeper was started and has not reported.
    Starting {
        until: Moment,
    },
    /// The keeper's last report holds until then.
    Up {
        until: Moment,
    },
    /// Another gateway's keeper, which has until then to report to this one; then it is silent.
    Adopting {
        until: Moment,
    },
    /// The keeper has not reported for too long. It is killed when that goes on.
    Silent {
        until: Moment,
    },
    /// The keeper is gone; the next one takes over at `at`.
    KeeperDown {
        at: Moment,
        why: Why,
    },
    /// This generation ends; what is left at `until` is killed.
    Ending {
        until: Moment,
        after: After,
    },
    Stopped {
        why: Why,
    },
    Failed {
        why: Why,
    },
    /// Nothing runs; what is on disk is being removed, again at `at`.
    Deleting {
        at: Moment,
    },
}

/// What follows the end of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Stop(Why),
    Fail(Why),
    Begin { at: Moment, why: Why },
    Delete,
}

/// What the last gateway left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A generation that ran; `gone` is why it is over if nothing of it lives.
    Running { gone: Why },
    /// One that was wanted, and nothing more came of it.
    Unbegun,
    /// One that has ended in good order.
    Over(End),
    /// One that was being ended.
    Ending(After),
}

/// A reason, and a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Why {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// When a new generation is begun by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    Never,
    OnFailure,
    Always,
}

/// Which processes may live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alive {
    pub(crate) keeper: bool,
    pub(crate) boundary: bool,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The keeper that was to be started could not be.
    NotSpawned(Why),
    /// The present keeper reported that the sandbox works, well or not.
    Reported,
    /// The present keeper reported that the sandbox is over. It is on its way out.
    ToldOver(End),
    /// The present keeper's reports have ended.
    Unlinked,
    KeeperFell(End),
    BoundaryFell,
    /// The boundary ended after the keeper had said how the sandbox did. The keeper itself is on its way out.
    BoundaryLeft(End),
    /// What is on disk could not be removed.
    NotRemoved,
    /// Time has passed.
    Woke,
}

/// How a keeper ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The sandbox was halted.
    Halted,
    /// The main process ended, and the sandbox with it.
    MainExited { success: bool, why: Why },
    /// Everything inside is dead.
    BoundaryLost(Why),
    /// Nothing was started: the fence cannot be built.
    Refused(Why),
    /// It died. Whether its boundary lives.
    Crashed { boundary: bool, why: Why },
}

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Start,
    Stop { grace: Duration },
    Restart { grace: Duration },
    Delete { force: bool },
}

/// Why that is not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    StillRunning,
    Deleting,
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Start the keeper of this generation and epoch.
    Spawn,
    KillBoundary,
    KillKeeper,
    /// Have the keeper end the workload, the boundary and itself.
    Halt {
        grace: Duration,
    },
    /// Remove everything that is on disk.
    Remove,
}

impl Life {
    /// A life that has yet to begin.
    pub(crate) fn new(policy: Restart, seed: Seed, now: Moment) -> Self {
        let generations = Backoff::between(Duration::from_secs(1), Duration::from_mins(1));
        let takeovers = Backoff::between(Duration::from_millis(100), Duration::from_secs(30));
        Self {
            stage: Stage::Pending {
                at: now,
                why: Why::new("Starting", "it starts"),
            },
            generation: 0,
            epoch: 0,
            restarts: 0,
            keepers: 0,
            policy,
            alive: Alive::default(),
            up: None,
            generations: Pace::new(generations, MOST_TRIES, WINDOW, seed.derive("generations")),
            takeovers: Pace::new(takeovers, MOST_TRIES, WINDOW, seed.derive("takeovers")),
        }
    }

    /// The same life, found by another gateway: a generation ran or was being ended, and these of its processes live.
    pub(crate) fn adopted(self, alive: Alive, found: Found, now: Moment) -> (Self, Vec<Command>) {
        let mut life = Self { alive, ..self };
        let commands = match found {
            Found::Ending(after) => life.end(after, now, now),
            Found::Over(end) => life.ended(end, now),
            // As new: it is begun yet.
            Found::Unbegun => {
                life.generation -= 1;
                Vec::new()
            }
            Found::Running { .. } if alive.keeper => {
                life.stage = Stage::Adopting { until: now + LEASE };
                Vec::new()
            }
            Found::Running { .. } if alive.boundary => {
                life.stage = Stage::KeeperDown {
                    at: now,
                    why: Why::new("KeeperLost", "the keeper died while no gateway was there"),
                };
                life.step(Event::Woke, now)
            }
            Found::Running { gone } => life.over(gone, now),
        };
        (life, commands)
    }

    /// When it wants to be woken; `None`: it waits for somebody's wish.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        match &self.stage {
            Stage::Pending { at, .. } | Stage::KeeperDown { at, .. } | Stage::Deleting { at } => {
                Some(*at)
            }
            Stage::Starting { until }
            | Stage::Up { until, .. }
            | Stage::Adopting { until }
            | Stage::Silent { until }
            | Stage::Ending { until, .. } => Some(*until),
            Stage::Stopped { .. } | Stage::Failed { .. } => None,
        }
    }

    /// Which processes may live.
    pub(crate) fn alive(&self) -> Alive {
        self.alive
    }

    /// Something happened.
    pub(crate) fn step(&mut self, event: Event, now: Moment) -> Vec<Command> {
        match &event {
            Event::NotSpawned(_) => self.alive.keeper = false,
            Event::KeeperFell(end) => {
                self.alive.keeper = false;
                // One that leaves in good order has ended its boundary, or has seen its end.
                self.alive.boundary &= matches!(end, End::Crashed { boundary: true, .. });
            }
            Event::BoundaryFell | Event::BoundaryLeft(_) => self.alive.boundary = false,
            Event::Reported
            | Event::ToldOver(_)
            | Event::Unlinked
            | Event::NotRemoved
            | Event::Woke => {}
        }
        match (&self.stage, event) {
            (_, Event::Woke) if self.deadline().is_none_or(|deadline| deadline > now) => Vec::new(),
            (_, Event::Woke) => self.woke(now),
            (
                Stage::Starting { .. }
                | Stage::Up { .. }
                | Stage::Adopting { .. }
                | Stage::Silent { .. },
                event,
            ) => self.ran(event, now),
            (Stage::KeeperDown { .. }, Event::BoundaryFell) => self.over(lost(), now),
            (Stage::KeeperDown { .. }, Event::BoundaryLeft(end)) => self.ended(end, now),
            (Stage::Ending { .. }, event) => self.ending(&event, now),
            (Stage::Deleting { .. }, Event::NotRemoved) => {
                self.stage = Stage::Deleting { at: now + AGAIN };
                Vec::new()
            }
            // A keeper that nobody knew of any more, and so is what it keeps.
            (
                Stage::Stopped { .. } | Stage::Failed { .. } | Stage::Pending { .. },
                Event::Reported,
            ) => {
                vec![Command::KillBoundary, Command::KillKeeper]
            }
            // Late news.
            (
                Stage::Pending { .. }
                | Stage::KeeperDown { .. }
                | Stage::Stopped { .. }
                | Stage::Failed { .. }
                | Stage::Deleting { .. },
                _,
            ) => Vec::new(),
        }
    }

    /// News of a generation that runs.
    fn ran(&mut self, event: Event, now: Moment) -> Vec<Command> {
        match event {
            Event::Reported => {
                self.alive.keeper = true;
                // It serves only once there is a boundary, and that one's end would have been told.
                self.alive.boundary = true;
                self.up.get_or_insert(now);
                self.stage = Stage::Up { until: now + LEASE };
                Vec::new()
            }
            // It may be about to fall, or only its uplink did: no lease holds without one.
            Event::Unlinked => match self.stage {
                Stage::Up { .. } => self.woke(now),
                Stage::Pending { .. }
                | Stage::Starting { .. }
                | Stage::Adopting { .. }
                | Stage::Silent { .. }
                | Stage::KeeperDown { .. }
                | Stage::Ending { .. }
                | Stage::Stopped { .. }
                | Stage::Failed { .. }
                | Stage::Deleting { .. } => Vec::new(),
            },
            // The keeper sees that, too, and leaves by itself.
            Event::BoundaryFell => self.over(lost(), now),
            Event::NotSpawned(why) if self.epoch == 1 => {
                self.alive.boundary = false;
                self.over(why, now)
            }
            Event::NotSpawned(why) => self.keeper_fell(why, now),
            Event::KeeperFell(end) | Event::BoundaryLeft(end) | Event::ToldOver(end) => {
                self.ended(end, now)
            }
            Event::NotRemoved | Event::Woke => Vec::new(),
        }
    }

    /// A generation ended, as its keeper says or as its keeper's end says.
    fn ended(&mut self, end: End, now: Moment) -> Vec<Command> {
        match end {
            // Whoever is left leaves by itself, or is killed.
            End::Halted => self.end(After::Stop(asked("")), now + LEAVE, now),
            End::MainExited { success, why } => self.main_exited(success, why, now),
            End::BoundaryLost(why) | End::Refused(why) => self.over(why, now),
            End::Crashed { why, .. } => self.keeper_fell(why, now),
        }
    }

    fn woke(&mut self, now: Moment) -> Vec<Command> {
        match &mut self.stage {
            Stage::Pending { .. } => self.begin(now),
            Stage::KeeperDown { .. } => self.take_over(now),
            Stage::Up { .. } | Stage::Adopting { .. } => {
                self.stage = Stage::Silent {
                    until: now + SILENCE,
                };
                Vec::new()
            }
            Stage::Starting { .. } | Stage::Silent { .. } if !self.alive.keeper => {
                let why = Why::new("KeeperLost", "the keeper did not come back");
                self.keeper_fell(why, now)
            }
            Stage::Starting { .. } | Stage::Silent { .. } => {
                // Its death is told; if it is not, it is killed again.
                self.stage = Stage::Silent { until: now + AGAIN };
                vec![Command::KillKeeper]
            }
            Stage::Ending { until, .. } => {
                *until = now + AGAIN;
                vec![Command::KillBoundary, Command::KillKeeper]
            }
            Stage::Deleting { at } => {
                *at = now + AGAIN;
                vec![Command::Remove]
            }
            Stage::Stopped { .. } | Stage::Failed { .. } => Vec::new(),
        }
    }

    /// The next generation begins.
    fn begin(&mut self, now: Moment) -> Vec<Command> {
        self.generation += 1;
        self.epoch = 1;
        self.up = None;
        self.spawn(now)
    }

    /// The next keeper of this generation begins.
    fn take_over(&mut self, now: Moment) -> Vec<Command> {
        self.epoch += 1;
        self.keepers += 1;
        self.spawn(now)
    }

    fn spawn(&mut self, now: Moment) -> Vec<Command> {
        self.alive.keeper = true;
        // A first keeper makes the boundary, when nobody can tell.
        self.alive.boundary |= self.epoch == 1;
        self.stage = Stage::Starting { until: now + START };
        vec![Command::Spawn]
    }

    fn keeper_fell(&mut self, why: Why, now: Moment) -> Vec<Command> {
        if !self.alive.boundary {
            return self.over(why, now);
        }
        if let Some(delay) = self.takeovers.failed(self.up, now) {
            self.stage = Stage::KeeperDown {
                at: now + delay,
                why,
            };
            return Vec::new();
        }
        let message = format!(
            "{MOST_TRIES} keepers fell within {} minutes, the last one because {}",
            WINDOW.as_secs() / 60,
            why.message
        );
        let commands = self.over(Why::new("KeeperGivenUp", message), now);
        std::iter::once(Command::KillBoundary)
            .chain(commands)
            .collect()
    }
}

impl Why {
    pub(crate) fn new(reason: &str, message: impl Into<String>) -> Self {
        Self {
            reason: reason.to_owned(),
            message: unnumbered(&message.into()),
        }
    }
}

fn lost() -> Why {
    Why::new(
        "BoundaryLost",
        "the boundary died, and everything inside with it",
    )
}

/// The reason of a stop that somebody asked for.
pub(crate) const ASKED: &str = "Stopped";

/// How long a keeper may take to its first report.
const START: Duration = Duration::from_secs(30);

/// How long a keeper may be silent before it is killed and replaced.
const SILENCE: Duration = Duration::from_secs(10);

/// How long those who leave by themselves may take.
const LEAVE: Duration = Duration::from_secs(5);

/// How soon what did not work is done again.
const AGAIN: Duration = Duration::from_secs(2);

/// So many restarts within [`WINDOW`] are the last.
const MOST_TRIES: usize = 10;
const WINDOW: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests;
