//! How a generation ends, and what follows it.

use std::time::Duration;

use holdfast_actor::Moment;

use super::{AGAIN, After, Alive, Command, Event, LEAVE, Life, Restart, Stage, WINDOW, Why};

impl Life {
    pub(super) fn main_exited(&mut self, success: bool, why: Why, now: Moment) -> Vec<Command> {
        match (self.policy, success) {
            (Restart::Never, _) | (Restart::OnFailure, true) => {
                self.end(After::Stop(why), now + LEAVE, now)
            }
            (Restart::OnFailure, false) | (Restart::Always, _) => self.over(why, now),
        }
    }

    /// A generation is over, and not because anybody wanted it: the restart policy says what follows.
    pub(super) fn over(&mut self, why: Why, now: Moment) -> Vec<Command> {
        let after = match self.policy {
            Restart::Never => After::Fail(why),
            Restart::OnFailure | Restart::Always => match self.generations.failed(self.up, now) {
                Some(delay) => {
                    self.restarts += 1;
                    After::Begin {
                        at: now + delay,
                        why,
                    }
                }
                None => After::Fail(Why {
                    message: format!(
                        "{}; it was restarted {} times within {} minutes and is not tried again",
                        why.message,
                        self.generations.tries(),
                        WINDOW.as_secs() / 60
                    ),
                    reason: why.reason,
                }),
            },
        };
        // Whoever is left leaves by itself, or is killed.
        self.end(after, now + LEAVE, now)
    }

    /// Ends a generation in good order, through its keeper.
    pub(super) fn halt(&mut self, after: After, grace: Duration, now: Moment) -> Vec<Command> {
        // Before its first report a first keeper has no workload, and nobody to be asked.
        let early = self.up.is_none() && self.epoch == 1 && self.is_starting();
        if !self.alive.keeper || early {
            return self.end(after, now, now);
        }
        let until = now + grace + LEAVE;
        self.stage = Stage::Ending { until, after };
        vec![Command::Halt { grace }]
    }

    fn is_starting(&self) -> bool {
        matches!(self.stage, Stage::Starting { .. })
    }

    /// Ends a generation; what is left at `until` is killed.
    pub(super) fn end(&mut self, after: After, until: Moment, now: Moment) -> Vec<Command> {
        self.stage = Stage::Ending { until, after };
        let settled = self.settle(now);
        if matches!(self.stage, Stage::Ending { .. }) && until <= now {
            return self.woke(now);
        }
        settled
    }

    /// News while a generation ends.
    pub(super) fn ending(&mut self, event: &Event, now: Moment) -> Vec<Command> {
        if let (Stage::Ending { until, .. }, Event::KeeperFell(_)) = (&mut self.stage, event)
            && self.alive.boundary
        {
            // What is left leaves no more by itself.
            *until = now.max(*until - LEAVE);
        }
        self.settle(now)
    }

    /// Goes on when both processes are gone.
    pub(super) fn settle(&mut self, now: Moment) -> Vec<Command> {
        if self.alive != Alive::default() {
            return Vec::new();
        }
        let Stage::Ending { after, .. } = &self.stage else {
            return Vec::new();
        };
        match after.clone() {
            After::Stop(why) => {
                self.stage = Stage::Stopped { why };
                Vec::new()
            }
            After::Fail(why) => {
                self.stage = Stage::Failed { why };
                Vec::new()
            }
            After::Begin { at, .. } if at <= now => self.begin(now),
            After::Begin { at, why } => {
                self.stage = Stage::Pending { at, why };
                Vec::new()
            }
            After::Delete => {
                self.stage = Stage::Deleting { at: now + AGAIN };
                vec![Command::Remove]
            }
        }
    }
}
