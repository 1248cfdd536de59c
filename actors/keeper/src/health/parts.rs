//! Which part of the keeper and the boundary each condition needs, and which of them do not serve.

use std::time::Duration;

use holdfast_actor::{Change, Moment, Next, What};
use holdfast_wire::v1;

use crate::coverage::by_port;

use super::{Health, Kind, Link, Process, Proof, Sample, Short, Want};

/// A part that does not serve.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) kind: Kind,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Health {
    /// Something happened in the keeper's tree; true if a canary should go for it.
    pub(super) fn hear_change(&mut self, change: &Change, now: Moment) -> bool {
        let path = change.path.as_str();
        if path == ROOT {
            if let What::GaveUp { reason } = &change.what {
                // Not Failed: the sandbox lives, and whether its next keeper is the last one is for the gateway to say.
                let message = format!("the keeper gave up: {reason}; it is being replaced");
                self.approach("ActorGivenUp", message);
            }
            return false;
        }
        let Some(kind) = needs(path) else {
            return change.what == What::Up && change.restarts > 0 && !is_session(path);
        };
        match stand(change, now) {
            Stand::Up => {
                self.down.remove(path);
                // What a supervisor had before it fell is forgotten, and is added again under the same names.
                self.forget_below(path);
                self.back[kind as usize] = now;
                change.restarts > 0
            }
            Stand::Gone if is_added(path) => {
                self.down.remove(path);
                false
            }
            Stand::Gone => {
                let message = format!("{path} is stopped");
                self.fell(path, kind, ("ActorRestarting", message));
                false
            }
            Stand::Down(reason, message) => {
                self.fell(path, kind, (reason, message));
                false
            }
        }
    }

    /// The boundary tells how its own parts stand; true if a canary should go for it.
    pub(super) fn hear_beat(&mut self, beat: &v1::BeatReply, asked: Moment, now: Moment) -> bool {
        self.link = Link::Up { heard: now };
        if let Some(descriptors) = &beat.descriptors {
            let (limit, used) = (descriptors.limit, descriptors.used);
            let free = limit.saturating_sub(used);
            let was_pressed = self.boundary.is_some_and(|(before, _)| before.pressed);
            let pressed = free
                < if was_pressed {
                    RELIEVED
                } else {
                    BOUNDARY_NEEDS
                };
            let sample = Sample {
                limit,
                used,
                pressed,
                host_full: false,
            };
            self.boundary = Some((sample, now));
            self.relieve(Process::Boundary, sample, asked);
        }
        let mut restarted = self.hear_launcher(beat.launcher_silent_ms, now);
        restarted |= self.hear_unheard(by_port(&beat.unheard), asked, now);
        for row in beat.tree.iter().flat_map(|tree| &tree.rows) {
            let Some(kind) = needs(&row.path) else {
                continue;
            };
            let before = self.restarts.insert(row.path.clone(), row.restarts);
            if before.is_some_and(|before| before < row.restarts) {
                self.back[kind as usize] = now;
                restarted = true;
            }
            if SERVING.contains(&row.state.as_str()) {
                if self.down.remove(&row.path).is_some() {
                    self.back[kind as usize] = now;
                    restarted = true;
                }
            } else {
                let path = &row.path;
                let message = format!("{path} does not serve: {}", row.last_reason);
                self.fell(path, kind, ("ActorRestarting", message));
            }
        }
        restarted
    }

    /// The launcher has been silent for so long; true if a canary should go for it.
    fn hear_launcher(&mut self, silent_ms: u64, now: Moment) -> bool {
        if Duration::from_millis(silent_ms) > LAUNCHER_PATIENCE {
            let message = format!(
                "the launcher, which starts and ends every process here, has not answered for {}.{} s; if it is stopped, `kill -CONT` the child of the boundary named `holdfast launcher`; if it hangs, restart the sandbox",
                silent_ms / 1000,
                silent_ms % 1000 / 100
            );
            self.fell(LAUNCHER, Kind::ExecAdmitting, ("LauncherSilent", message));
            return false;
        }
        let answers = self.down.remove(LAUNCHER).is_some();
        if answers {
            self.back[Kind::ExecAdmitting as usize] = now;
        }
        answers
    }

    /// What is allowed can be recorded, or cannot; true if a canary should go for it.
    pub(super) fn hear_recording(&mut self, writes: bool, now: Moment) -> bool {
        if !writes {
            let message = "the audit cannot be written to, so no connection is allowed; make room on its disk (`df` of the state directory), and it goes on by itself";
            let told = ("AuditUnwritable", message.to_owned());
            self.fell(AUDIT, Kind::ProxyServing, told);
            return false;
        }
        let writes_again = self.down.remove(AUDIT).is_some();
        if writes_again {
            self.back[Kind::ProxyServing as usize] = now;
        }
        writes_again
    }

    pub(super) fn is_launcher_silent(&self) -> bool {
        self.down.contains_key(LAUNCHER)
    }

    /// A session was refused; true if a canary should go for it.
    pub(super) fn hear_refusal(&mut self, want: Want, now: Moment) -> bool {
        match want {
            Want::Descriptors { process, message } => {
                let since = now;
                self.short[process as usize] = Some(Short { since, message });
                // It would be refused, too. It goes when a count has said that there is room.
                false
            }
            Want::Other { reason, message } => {
                let (began, ended) = (now, now);
                let failed = Some((reason, message));
                self.proofs[Kind::ExecAdmitting as usize] = Some(Proof {
                    began,
                    ended,
                    failed,
                });
                // A canary that is on its way was started before this.
                self.walked = Some(now);
                true
            }
            Want::Nothing => true,
        }
    }

    /// A count that was taken at `counted` or later says how many descriptors `process` has.
    pub(super) fn relieve(&mut self, process: Process, sample: Sample, counted: Moment) {
        let short = &mut self.short[process as usize];
        if !sample.pressed && short.as_ref().is_some_and(|short| short.since < counted) {
            *short = None;
        }
    }

    fn fell(&mut self, path: &str, kind: Kind, (reason, message): (&'static str, String)) {
        let part = Part {
            kind,
            reason,
            message,
        };
        self.down.insert(path.to_owned(), part);
    }

    fn forget_below(&mut self, path: &str) {
        let below = format!("{path}/");
        self.down.retain(|part, _| !part.starts_with(&below));
    }
}

/// How a part stands after a change.
enum Stand {
    Up,
    /// Stopped, and not by itself.
    Gone,
    Down(&'static str, String),
}

fn stand(change: &Change, now: Moment) -> Stand {
    let path = &change.path;
    let restarting = |what: String| Stand::Down("ActorRestarting", what);
    match &change.what {
        What::Up => Stand::Up,
        What::Stopped => Stand::Gone,
        What::Starting => restarting(format!("{path} is starting")),
        What::Stopping => restarting(format!("{path} is stopping")),
        What::Dying { reason } => restarting(format!("{path} fell: {reason}")),
        What::Stuck => restarting(format!("{path} does not answer and is being replaced")),
        What::StartTooLong => restarting(format!("{path} takes too long to start")),
        What::Overdue => restarting(format!("{path} takes too long to stop and is being ended")),
        What::Fell { reason, next } => match next {
            Next::Nothing => Stand::Gone,
            Next::Restart { at } => {
                let wait = at.since(now).max(Duration::ZERO).as_millis();
                restarting(format!(
                    "{path} fell: {reason}; it starts again in {wait} ms"
                ))
            }
            Next::WithSiblings => restarting(format!(
                "{path} fell: {reason}; it starts again with what it needs"
            )),
            Next::Escalation => Stand::Down(
                "ActorGivenUp",
                format!("{path} fell once too often: {reason}"),
            ),
        },
        What::Wedged => Stand::Down(
            "ActorGivenUp",
            format!("{path} cannot be ended; the keeper has to be replaced"),
        ),
        What::GaveUp { reason } => Stand::Down("ActorGivenUp", format!("{path} gave up: {reason}")),
    }
}

/// The condition that needs the part with this path; `None` for what no agent's way leads over.
pub(super) fn needs(path: &str) -> Option<Kind> {
    let mut places = path.split('/');
    let process = places.next()?;
    let place = places.next()?;
    let child = places.next();
    match (process, place) {
        ("keeper", "outside") => None,
        (_, "sessions") if child.is_some() => None,
        ("keeper", "link") | ("boundary", "service") => Some(Kind::BoundaryLinked),
        ("boundary", "broker") => Some(Kind::BrokerServing),
        ("keeper", "network") => match child {
            Some("resolver") => Some(Kind::ResolverServing),
            Some("lane") => Some(Kind::BrokerServing),
            Some(_) | None => Some(Kind::ProxyServing),
        },
        ("keeper", "rulebook") => Some(Kind::PolicyCurrent),
        // Sessions, the launcher, and whatever else stands in the trees: a launch needs it.
        _ => Some(Kind::ExecAdmitting),
    }
}

/// Whether it is a child that is added and removed while its supervisor runs.
fn is_added(path: &str) -> bool {
    is_session(path) || path.starts_with(LISTENERS)
}

fn is_session(path: &str) -> bool {
    path.starts_with(SESSIONS)
}

const ROOT: &str = "keeper";
const SESSIONS: &str = "keeper/sessions/";
const LISTENERS: &str = "keeper/network/egress/";

/// What a row of the boundary's tree says when the part serves.
const SERVING: [&str; 2] = ["Running", "up"];

/// Where the launcher's silence is kept among the parts that do not serve: it is in no tree.
const LAUNCHER: &str = "launcher";

/// The same for the audit.
const AUDIT: &str = "audit";

/// A launcher that owes a sign of life for longer does not start anything. It is asked for one with each beat: one that stands still is
/// asked 700 ms later at the latest, is suspect another 700 ms later, and is known with the next look.
pub(super) const LAUNCHER_PATIENCE: Duration = Duration::from_millis(850);

/// Descriptors that the boundary should have left: what a session needs at its start (7) and its connection (1), the same for
/// a canary, which has a connection already (7), and one to look at a caller.
const BOUNDARY_NEEDS: u64 = 16;

/// The shortage is over a little later than it begins, so that a session more or less does not flap it.
const RELIEVED: u64 = 20;
