//! Which part of the keeper and the boundary each condition needs, and which of them do not serve.

use std::time::Duration;

use holdfast_actor::{Change, Moment, Next, What};
use holdfast_wire::v1;

use super::{Health, Kind, Link, Phase, Sample};

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
                let message = format!("the keeper gave up: {reason}");
                self.over = Some((Phase::Failed, "ActorGivenUp", message));
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
    pub(super) fn hear_beat(&mut self, beat: &v1::BeatReply, now: Moment) -> bool {
        self.link = Link::Up { heard: now };
        if let Some(descriptors) = &beat.descriptors {
            let (limit, used) = (descriptors.limit, descriptors.used);
            let pressed = limit.saturating_sub(used) < BOUNDARY_NEEDS;
            let sample = Sample {
                limit,
                used,
                pressed,
            };
            self.boundary = Some((sample, now));
        }
        let mut restarted = false;
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

/// Descriptors that the boundary should have left: for one session with three pipes, and for one to look at a caller.
const BOUNDARY_NEEDS: u64 = 10;
