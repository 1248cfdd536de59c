//! How a sandbox stands: what its keeper last said, and what the gateway knows better. The one evaluation behind every
//! surface.

use std::path::Path;
use std::time::Duration;

use holdfast_actor::Moment;
use holdfast_kernel::descriptors::Short;
use holdfast_wire::v1;
use holdfast_wire::words::CONDITIONS;

use crate::life::{ASKED, After, Life, Stage, Why};
use crate::registry::row::Row;

/// What a status is made of.
#[derive(Debug)]
pub(crate) struct Known<'a> {
    pub(crate) row: &'a Row,
    pub(crate) life: &'a Life,
    /// What the keepers of this generation said last.
    pub(crate) last: Option<&'a v1::Status>,
    /// The directory that it shares with its keeper, when somebody has removed that.
    pub(crate) removed: Option<&'a Path>,
    /// What the gateway itself lacks to serve.
    pub(crate) short: Option<Short>,
    /// The status before this one.
    pub(crate) before: &'a v1::Status,
    pub(crate) now: Moment,
    pub(crate) wall_ms: i64,
}

impl Known<'_> {
    /// The status for all surfaces.
    pub(crate) fn status(&self) -> v1::Status {
        let (row, life) = (self.row, self.life);
        let mut status = self.last.cloned().unwrap_or_default();
        match &life.stage {
            Stage::Up { until, .. } => {
                status.lease_expires_ms = self.wall(*until);
                if let Some(directory) = self.removed {
                    self.cut_off(&mut status, directory);
                }
                if let Some(short) = self.short {
                    self.starve(&mut status, short);
                }
            }
            Stage::Pending { .. }
            | Stage::Starting { .. }
            | Stage::Adopting { .. }
            | Stage::Silent { .. }
            | Stage::KeeperDown { .. }
            | Stage::Ending { .. }
            | Stage::Stopped { .. }
            | Stage::Failed { .. }
            | Stage::Deleting { .. } => self.overrule(&mut status),
        }
        let request = row.request.as_ref();
        request
            .map_or("", |request| &request.name)
            .clone_into(&mut status.name);
        status.labels = request
            .map(|request| request.labels.clone())
            .unwrap_or_default();
        status.id.clone_from(&row.id);
        status.generation = life.generation;
        status.created_ms = row.created_ms;
        env!("CARGO_PKG_VERSION").clone_into(&mut status.version);
        for (actor, count) in [("keeper", life.keepers), ("sandbox", life.restarts)] {
            if count > 0 {
                status.restarts.insert(actor.to_owned(), count);
            }
        }
        if status.main.is_none() {
            status.main.clone_from(&row.main);
        }
        let policy = status.policy.get_or_insert_default();
        policy.desired = row.policy;
        let before = self.before;
        let same = (before.phase, &before.reason) == (status.phase, &status.reason);
        if same && before.since_ms != 0 {
            status.since_ms = before.since_ms;
        } else if status.since_ms <= before.since_ms || !matches!(life.stage, Stage::Up { .. }) {
            // Something else was shown after the keeper came to stand so.
            status.since_ms = self.wall_ms;
        }
        status
    }

    /// The keeper does not know that nobody reaches it any more: its sockets are gone with their directory.
    fn cut_off(&self, status: &mut v1::Status, directory: &Path) {
        let message = format!(
            "its directory {} was removed, and its sockets with it: the workload goes on, and nothing can be started in it; \
             `holdfast restart {}` makes it anew",
            directory.display(),
            self.row.name()
        );
        let admitting = v1::ConditionType::ExecAdmitting;
        self.fail(status, admitting, DIRECTORY_REMOVED, &message);
    }

    /// Nobody reaches it through a gateway that has no descriptors left.
    fn starve(&self, status: &mut v1::Status, short: Short) {
        let Short {
            needed,
            free,
            limit,
        } = short;
        let message = format!(
            "the gateway has {free} of {limit} descriptors free, and a session needs {needed}: the workload goes on; \
             raise the gateway's limit of open files, or end some sessions"
        );
        let available = v1::ConditionType::DescriptorsAvailable;
        self.fail(status, available, DESCRIPTOR_PRESSURE, &message);
    }

    /// A condition does not hold, whatever the keeper of a sandbox that serves says. One that it knows not to hold has its reason
    /// already.
    fn fail(&self, status: &mut v1::Status, kind: v1::ConditionType, reason: &str, message: &str) {
        match status.phase() {
            v1::Phase::Ready | v1::Phase::Degraded => {}
            v1::Phase::Unspecified
            | v1::Phase::Pending
            | v1::Phase::Failed
            | v1::Phase::Stopped
            | v1::Phase::Deleting => return,
        }
        let of_kind = |condition: &&v1::Condition| condition.r#type() == kind;
        let known = self.before.conditions.iter().find(of_kind);
        let known = known.filter(|known| known.reason == reason);
        let since_ms = known.map_or(self.wall_ms, |known| known.since_ms);
        for condition in &mut status.conditions {
            if condition.r#type() == kind && condition.reason != reason {
                condition.status = v1::Truth::False.into();
                reason.clone_into(&mut condition.reason);
                message.clone_into(&mut condition.message);
                condition.since_ms = since_ms;
            }
        }
        status.phase = v1::Phase::Degraded.into();
        let mut failing = CONDITIONS.iter().filter_map(|kind| {
            let of_kind = |condition: &&v1::Condition| condition.r#type() == *kind;
            let condition = status.conditions.iter().find(of_kind)?;
            (condition.status() != v1::Truth::True).then_some(condition)
        });
        if let Some(first) = failing.next() {
            status.reason.clone_from(&first.reason);
            status.message.clone_from(&first.message);
        }
    }

    /// The keeper has no say, or none any more.
    fn overrule(&self, status: &mut v1::Status) {
        let (phase, why) = self.phase();
        status.phase = phase.into();
        status.lease_expires_ms = 0;
        status.since_ms = 0;
        doubt(status, &why, self.wall_ms);
        let alive = self.life.alive();
        // Before a first report there is what the registry knows.
        let known = [
            ("keeper", &self.row.keeper),
            ("boundary", &self.row.boundary),
        ];
        for (process, known) in known {
            if let Some(known) = known {
                status.pids.entry(process.to_owned()).or_insert(known.pid);
            }
        }
        if !alive.keeper {
            status.pids.remove("keeper");
            status.descriptors.remove("keeper");
        }
        if !alive.boundary {
            status.pids.remove("boundary");
            status.descriptors.remove("boundary");
            // Whatever ran inside died with it.
            if let Some(sessions) = &mut status.sessions {
                sessions.running = 0;
            }
            if let Some(egress) = &mut status.egress {
                egress.open = 0;
            }
        }
        if let Some(link) = &mut status.link {
            link.connected = false;
        }
        status.reason = why.reason;
        status.message = why.message;
    }

    fn phase(&self) -> (v1::Phase, Why) {
        let life = self.life;
        match &life.stage {
            Stage::Pending { why, at } => {
                (v1::Phase::Pending, self.later(why, *at, "it starts again"))
            }
            Stage::Starting { .. } if life.epoch > 1 => (
                v1::Phase::Degraded,
                Why::new(
                    "KeeperRestarting",
                    "a new keeper takes the sandbox over; the workload goes on",
                ),
            ),
            Stage::Starting { .. } | Stage::Up { .. } => (
                v1::Phase::Pending,
                Why::new("Starting", "the keeper builds the fence"),
            ),
            Stage::Adopting { .. } => (
                v1::Phase::Degraded,
                Why::new(
                    "Adopting",
                    "the gateway has just been started and waits for the keeper's report",
                ),
            ),
            Stage::Silent { .. } => (
                v1::Phase::Degraded,
                Why::new(
                    "KeeperSilent",
                    "the keeper has not reported in time; if that goes on, it is replaced",
                ),
            ),
            Stage::KeeperDown { why, at } => (
                v1::Phase::Degraded,
                self.later(
                    why,
                    *at,
                    "the workload goes on, and the next keeper takes over",
                ),
            ),
            Stage::Ending { after, .. } => self.ending(after),
            Stage::Stopped { why } => (v1::Phase::Stopped, why.clone()),
            Stage::Failed { why } => (v1::Phase::Failed, why.clone()),
            Stage::Deleting { .. } => deleting(),
        }
    }

    fn ending(&self, after: &After) -> (v1::Phase, Why) {
        match after {
            After::Stop(why) if why.reason == ASKED => (
                v1::Phase::Degraded,
                Why::new("Stopping", "it is being stopped on request"),
            ),
            After::Stop(why) => (v1::Phase::Stopped, why.clone()),
            After::Fail(why) => (v1::Phase::Failed, why.clone()),
            After::Begin { at, why } => {
                (v1::Phase::Pending, self.later(why, *at, "it starts again"))
            }
            After::Delete => deleting(),
        }
    }

    /// A reason, and what follows when.
    fn later(&self, why: &Why, at: Moment, what: &str) -> Why {
        if at <= self.now {
            return why.clone();
        }
        let seconds = (at - self.now).as_secs_f64();
        Why::new(
            &why.reason,
            format!("{}; {what} in {seconds:.1} s", why.message),
        )
    }

    fn wall(&self, at: Moment) -> i64 {
        let left: Duration = at - self.now;
        self.wall_ms
            .saturating_add(i64::try_from(left.as_millis()).unwrap_or(i64::MAX))
    }
}

/// How a sandbox stands that the gateway itself cannot look at: what was told of it before holds no more. `None` where nothing
/// runs that could be otherwise by now.
pub(crate) fn unobserved(before: &v1::Status, why: &str, wall_ms: i64) -> Option<v1::Status> {
    match before.phase() {
        v1::Phase::Ready | v1::Phase::Degraded => {}
        v1::Phase::Unspecified
        | v1::Phase::Pending
        | v1::Phase::Failed
        | v1::Phase::Stopped
        | v1::Phase::Deleting => return None,
    }
    let message = format!(
        "the gateway cannot find out how it stands, and tries again: {why}; the workload goes on"
    );
    let why = Why::new(UNOBSERVED, message);
    let mut status = before.clone();
    doubt(&mut status, &why, wall_ms);
    if (status.phase(), &status.reason) != (v1::Phase::Degraded, &why.reason) {
        status.since_ms = wall_ms;
    }
    status.phase = v1::Phase::Degraded.into();
    status.lease_expires_ms = 0;
    (status.reason, status.message) = (why.reason, why.message);
    Some(status)
}

/// The reason where the gateway itself does not know how a sandbox stands.
pub(crate) const UNOBSERVED: &str = "Unobserved";

/// Every condition is unknown.
fn doubt(status: &mut v1::Status, why: &Why, wall_ms: i64) {
    for kind in CONDITIONS {
        if !status.conditions.iter().any(|known| known.r#type() == kind) {
            status.conditions.push(v1::Condition {
                r#type: kind.into(),
                ..v1::Condition::default()
            });
        }
    }
    for condition in &mut status.conditions {
        if condition.status() != v1::Truth::Unknown || condition.reason != why.reason {
            condition.since_ms = wall_ms;
        }
        condition.status = v1::Truth::Unknown.into();
        condition.reason.clone_from(&why.reason);
        condition.message.clone_from(&why.message);
    }
}

/// Whether somebody who watches wants to hear of it: everything but what changes all the time.
pub(crate) fn differs(one: &v1::Status, other: &v1::Status) -> bool {
    still(one) != still(other)
}

fn still(status: &v1::Status) -> v1::Status {
    let mut status = v1::Status {
        lease_expires_ms: 0,
        canary: None,
        egress: None,
        broker: None,
        descriptors: std::collections::HashMap::new(),
        ..status.clone()
    };
    for condition in &mut status.conditions {
        condition.observed_ms = 0;
    }
    status
}

fn deleting() -> (v1::Phase, Why) {
    (
        v1::Phase::Deleting,
        Why::new("Deleting", "it is being deleted"),
    )
}

const DIRECTORY_REMOVED: &str = "DirectoryRemoved";
const DESCRIPTOR_PRESSURE: &str = "DescriptorPressure";

#[cfg(test)]
mod tests;
