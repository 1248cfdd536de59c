//! What somebody wants of a sandbox, and what that means from where it stands.

use std::time::Duration;

use holdfast_actor::Moment;

use super::{ASKED, After, Ask, Command, Denied, Life, Stage, Why};

impl Life {
    /// Somebody wants something.
    pub(crate) fn ask(&mut self, ask: Ask, now: Moment) -> Result<Vec<Command>, Denied> {
        match ask {
            Ask::Delete { .. } if self.deletes() => Ok(Vec::new()),
            _ if self.deletes() => Err(Denied::Deleting),
            Ask::Start => Ok(self.asked_to_start(now)),
            Ask::Stop { grace } => Ok(self.asked_to_stop(grace, now)),
            Ask::Restart { grace } => Ok(self.asked_to_restart(grace, now)),
            Ask::Delete { force } if force || !self.works() => {
                Ok(self.end(After::Delete, now, now))
            }
            Ask::Delete { .. } => Err(Denied::StillRunning),
        }
    }

    /// Whether it is on its way out for good: nothing is wanted of it any more.
    pub(crate) fn deletes(&self) -> bool {
        matches!(
            self.stage,
            Stage::Deleting { .. }
                | Stage::Ending {
                    after: After::Delete,
                    ..
                }
        )
    }

    /// Whether the workload runs or is about to.
    fn works(&self) -> bool {
        match &self.stage {
            Stage::Starting { .. }
            | Stage::Up { .. }
            | Stage::Adopting { .. }
            | Stage::Silent { .. }
            | Stage::KeeperDown { .. } => true,
            Stage::Ending { after, .. } => match after {
                After::Stop(why) => why.reason == ASKED,
                After::Begin { .. } => true,
                After::Fail(_) | After::Delete => false,
            },
            Stage::Pending { .. }
            | Stage::Stopped { .. }
            | Stage::Failed { .. }
            | Stage::Deleting { .. } => false,
        }
    }

    fn asked_to_start(&mut self, now: Moment) -> Vec<Command> {
        match &self.stage {
            Stage::Pending { .. } | Stage::Stopped { .. } | Stage::Failed { .. } => {
                self.forgive();
                self.begin(now)
            }
            Stage::KeeperDown { .. } => {
                self.forgive();
                self.take_over(now)
            }
            Stage::Ending { until, .. } => {
                let until = *until;
                self.forgive();
                let after = After::Begin {
                    at: now,
                    why: restarting(),
                };
                self.stage = Stage::Ending { until, after };
                Vec::new()
            }
            Stage::Starting { .. }
            | Stage::Up { .. }
            | Stage::Adopting { .. }
            | Stage::Silent { .. }
            | Stage::Deleting { .. } => Vec::new(),
        }
    }

    fn asked_to_stop(&mut self, grace: Duration, now: Moment) -> Vec<Command> {
        match &self.stage {
            Stage::Stopped { .. }
            | Stage::Deleting { .. }
            | Stage::Ending {
                after: After::Stop(_),
                ..
            } => Vec::new(),
            Stage::Pending { .. } => {
                self.stage = Stage::Stopped { why: asked("") };
                Vec::new()
            }
            Stage::Failed { why } => {
                self.stage = Stage::Stopped {
                    why: asked(&why.message),
                };
                Vec::new()
            }
            Stage::Ending { until, after } => {
                let before = match after {
                    After::Fail(why) => &*why.message,
                    After::Stop(_) | After::Begin { .. } | After::Delete => "",
                };
                self.stage = Stage::Ending {
                    until: *until,
                    after: After::Stop(asked(before)),
                };
                Vec::new()
            }
            Stage::Starting { .. }
            | Stage::Up { .. }
            | Stage::Adopting { .. }
            | Stage::Silent { .. }
            | Stage::KeeperDown { .. } => self.halt(After::Stop(asked("")), grace, now),
        }
    }

    fn asked_to_restart(&mut self, grace: Duration, now: Moment) -> Vec<Command> {
        match &self.stage {
            Stage::Starting { .. }
            | Stage::Up { .. }
            | Stage::Adopting { .. }
            | Stage::Silent { .. }
            | Stage::KeeperDown { .. } => {
                self.forgive();
                self.halt(
                    After::Begin {
                        at: now,
                        why: restarting(),
                    },
                    grace,
                    now,
                )
            }
            Stage::Pending { .. }
            | Stage::Ending { .. }
            | Stage::Stopped { .. }
            | Stage::Failed { .. }
            | Stage::Deleting { .. } => self.asked_to_start(now),
        }
    }

    fn forgive(&mut self) {
        self.generations.forgive();
        self.takeovers.forgive();
    }
}

pub(super) fn asked(before: &str) -> Why {
    let message = match before {
        "" => "it was stopped on request".to_owned(),
        before => format!("it was stopped on request; before that: {before}"),
    };
    Why::new(ASKED, message)
}

fn restarting() -> Why {
    Why::new("Restarting", "it was asked to start anew")
}
