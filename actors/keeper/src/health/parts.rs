//! Which part of the keeper and the boundary each condition needs, and which of them do not serve.

use std::time::Duration;

use holdfast_actor::{Change, Moment, Next, Reason, What};
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

/// A part that fell of itself. What falls with it says so.
#[derive(Clone, Debug)]
pub(super) struct Fallen {
    pub(super) kind: Kind,
    /// Which, and of what.
    pub(super) cause: String,
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
            return false;
        };
        match stand(change, now) {
            Stand::Up => {
                self.rose(path, kind, now);
                return change.restarts > 0;
            }
            Stand::Gone if is_added(path) => drop(self.down.remove(path)),
            Stand::Gone => self.follows(path, kind, "is stopped"),
            Stand::Follows(how) => self.follows(path, kind, how),
            Stand::Fell {
                reason,
                cause,
                then,
            } => {
                self.fell(path, kind, (reason, format!("{cause}{then}")));
                self.fallen = Some(Fallen { kind, cause });
            }
        }
        false
    }

    /// Something happened to an actor of the boundary; true if a canary should go for it.
    pub(super) fn hear_boundary(&mut self, changed: v1::Changed, now: Moment) -> bool {
        let v1::Changed {
            path,
            up,
            fell,
            restarts,
        } = changed;
        let Some(kind) = needs(&path) else {
            return false;
        };
        self.told.insert(path.clone(), now);
        self.restarts.insert(path.clone(), restarts);
        if up {
            self.rose(&path, kind, now);
            return restarts > 0;
        }
        if fell.is_empty() {
            self.follows(&path, kind, "is being restarted");
        } else {
            self.fell_in_boundary(&path, kind, &fell);
        }
        false
    }

    fn fell_in_boundary(&mut self, path: &str, kind: Kind, reason: &str) {
        let cause = format!("{path} fell: {reason}");
        let then = format!("{cause}; it is being restarted");
        self.fell(path, kind, ("ActorRestarting", then));
        self.fallen = Some(Fallen { kind, cause });
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
            restarted |= self.hear_row(row, asked, now);
        }
        restarted
    }

    /// A beat finds what was not told of: before this keeper came, or for want of memory. True if a canary should go for it.
    fn hear_row(&mut self, row: &v1::TreeRow, asked: Moment, now: Moment) -> bool {
        let path = &row.path;
        let Some(kind) = needs(path) else {
            return false;
        };
        // What was told since the question is later than the answer.
        if self.told.get(path).is_some_and(|told| *told >= asked) {
            return false;
        }
        let before = self.restarts.insert(path.clone(), row.restarts);
        let fell = before.is_some_and(|before| before < row.restarts);
        let serves = SERVING.contains(&row.state.as_str());
        // Of one that is known to be down the reason is known, too: the row has that of its last fall.
        if fell || !serves && !self.down.contains_key(path) {
            self.fell_in_boundary(path, kind, &row.last_reason);
        }
        if serves && self.down.contains_key(path) {
            self.rose(path, kind, now);
            return true;
        }
        false
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

    fn rose(&mut self, path: &str, kind: Kind, now: Moment) {
        self.down.remove(path);
        // What a supervisor had before it fell is forgotten, and is added again under the same names.
        self.forget_below(path);
        self.back[kind as usize] = now;
    }

    /// A part does not serve because of another one, or begins.
    fn follows(&mut self, path: &str, kind: Kind, how: &str) {
        let message = match &self.fallen {
            Some(Fallen { cause, .. }) => format!("{path} {how}: {cause}"),
            None => format!("{path} {how}"),
        };
        self.fell(path, kind, ("ActorRestarting", message));
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
    /// Not up, for another one's sake or at its beginning.
    Follows(&'static str),
    /// It fell of itself.
    Fell {
        reason: &'static str,
        /// Which, and of what.
        cause: String,
        /// What follows.
        then: String,
    },
}

fn stand(change: &Change, now: Moment) -> Stand {
    let path = &change.path;
    let fell = |reason: &Reason, then: String| Stand::Fell {
        reason: "ActorRestarting",
        cause: format!("{path} fell: {reason}"),
        then,
    };
    let lost = |cause: String, then: &str| Stand::Fell {
        reason: "ActorGivenUp",
        cause,
        then: then.to_owned(),
    };
    match &change.what {
        What::Up => Stand::Up,
        What::Stopped => Stand::Gone,
        What::Starting => Stand::Follows("is starting"),
        What::Stopping => Stand::Follows("is stopping"),
        What::Overdue => Stand::Follows("takes too long to stop and is being ended"),
        What::Dying { reason } => fell(reason, String::new()),
        What::Stuck => fell(&Reason::Stuck, "; it is being replaced".to_owned()),
        What::StartTooLong => fell(&Reason::StartTooLong, "; it is tried again".to_owned()),
        What::Fell { reason, next } => match next {
            Next::Nothing => Stand::Gone,
            Next::Restart { at } => {
                let wait = at.since(now).max(Duration::ZERO).as_millis();
                fell(reason, format!("; it starts again in {wait} ms"))
            }
            Next::WithSiblings => fell(reason, "; it starts again with what it needs".to_owned()),
            Next::Escalation => lost(format!("{path} fell once too often: {reason}"), ""),
        },
        What::Wedged => lost(
            format!("{path} cannot be ended"),
            "; the keeper has to be replaced",
        ),
        What::GaveUp { reason } => lost(format!("{path} gave up: {reason}"), ""),
    }
}

/// The condition that needs the part with this path; `None` of single sessions. What stands outside serves no agent, but without it
/// nobody knows how the sandbox stands: it is not Ready either.
pub(super) fn needs(path: &str) -> Option<Kind> {
    let mut places = path.split('/');
    let process = places.next()?;
    let place = places.next()?;
    let child = places.next();
    match (process, place) {
        ("keeper", "outside") if child == Some("pressure") => Some(Kind::DescriptorsAvailable),
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
