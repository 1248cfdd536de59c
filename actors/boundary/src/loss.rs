//! What becomes of the workload while the keeper is silent.
//!
//! ```text
//!  Running ── no sign of life for 5 s ──> Frozen ── a sign of life ──> Running
//! ```
//!
//! Only a policy that says `on_link_loss: freeze` stops the workload; otherwise it goes on computing, and its connections
//! wait either way. Before the keeper's first sign of life nothing is lost. A boundary that was stopped itself has heard
//! nobody, and nobody was silent ([`Silence`]).

use std::sync::Arc;
use std::time::Duration;

use holdfast_actor::{Clock, Fault, Moment};
use parking_lot::Mutex;

use crate::sessions::Sessions;
use crate::silence::Silence;

/// When the keeper was heard last, and what came of it. Outlives whoever looks after it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard(Arc<Mutex<Signs>>);

#[derive(Debug, Default)]
struct Signs {
    last: Option<Moment>,
    workload: Workload,
}

/// How the workload stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Workload {
    #[default]
    Running,
    Frozen,
}

impl Heard {
    /// The keeper has been heard.
    pub(crate) fn note(&self, now: Moment) {
        self.0.lock().last = Some(now);
    }

    /// When that was; `None` before the first time.
    pub(crate) fn last(&self) -> Option<Moment> {
        self.0.lock().last
    }

    /// What the workload changes to, if it does.
    fn change(&self, silent: bool) -> Option<Workload> {
        self.0.lock().workload.step(silent)
    }

    /// It has changed to that.
    fn changed(&self, workload: Workload) {
        self.0.lock().workload = workload;
    }
}

impl Workload {
    /// What it changes to, if it does.
    fn step(self, silent: bool) -> Option<Self> {
        match (self, silent) {
            (Self::Running, true) => Some(Self::Frozen),
            (Self::Frozen, false) => Some(Self::Running),
            (Self::Running, false) | (Self::Frozen, true) => None,
        }
    }
}

/// Freezes the workload whenever the keeper is silent. Ends only with the launcher.
pub(crate) async fn freeze(
    heard: Heard,
    sessions: Arc<Sessions>,
    clock: Clock,
) -> Result<(), Fault> {
    let mut silence = Silence::new(TICK + TICK / 4);
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let silent = is_silent(&mut silence, heard.last(), clock.now());
        if let Some(next) = heard.change(silent) {
            sessions.hold(next == Workload::Frozen).await?;
            heard.changed(next);
        }
    }
}

/// Whether the link is lost.
fn is_silent(silence: &mut Silence, last: Option<Moment>, now: Moment) -> bool {
    last.is_some_and(|last| silence.look_after(last, now) > SILENCE)
}

/// A keeper that is silent for longer is lost: it is heard every second.
const SILENCE: Duration = Duration::from_secs(5);

/// How often it is looked after.
const TICK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_is_lost_when_the_keeper_is_silent_for_too_long_and_not_before() {
        let mut silence = Silence::new(TICK);
        let mut look = |last: Option<u64>, seconds| {
            let at = |seconds| Moment::after_origin(Duration::from_secs(seconds));
            is_silent(&mut silence, last.map(at), at(seconds))
        };
        assert!(!look(None, 60), "it has not been heard yet");

        for second in 61..66 {
            assert!(!look(Some(60), second), "after {second}");
        }
        assert!(look(Some(60), 66));
        assert!(!look(Some(67), 67), "it is heard again");
        assert!(!look(Some(67), 167), "it was us who stood still");
    }

    #[test]
    fn whoever_looks_after_it_anew_knows_that_it_is_frozen() {
        let heard = Heard::default();
        let frozen = heard.change(true).expect("silence freezes it");
        heard.changed(frozen);

        assert_eq!(heard.clone().change(false), Some(Workload::Running));
    }

    #[test]
    fn the_workload_is_frozen_once_and_thawed_once() {
        assert_eq!(Workload::Running.step(true), Some(Workload::Frozen));
        assert_eq!(Workload::Frozen.step(true), None);
        assert_eq!(Workload::Frozen.step(false), Some(Workload::Running));
        assert_eq!(Workload::Running.step(false), None);
    }
}
