//! `holdfast wait`: until a sandbox is where it should be, or cannot get there any more.
//!
//! ```text
//! Watching ──goal──> 0            ──cannot get there──> 125
//!    │  ▲     ──timeout──> 124
//!    └──┘ the gateway went away: another is reached, or started where it is ours to start, within ten seconds
//! ```

use std::process::ExitCode;
use std::time::Duration;

use holdfast_wire::v1;
use holdfast_wire::v1::Phase;
use tokio::time::{sleep, timeout};

use super::{request, status, words};
use crate::cli::sandboxes::{Goal, Wait};
use crate::client::{self, Client, is_lost, refused};
use crate::config::Config;
use crate::failure::{Failure, Kind};

/// Waits for a phase.
pub(crate) fn wait(arguments: &Wait, config: &Config) -> Result<ExitCode, Failure> {
    let limit = arguments.timeout.unwrap_or(Duration::MAX);
    // The time is that of the whole command: a gateway that does not answer takes its part of it, and all of it if it must.
    // Whoever has set none is told.
    let patience = arguments
        .timeout
        .map_or(client::ANSWER, |_limit| Duration::MAX);
    client::interruptible(async {
        let mut last = None;
        let judge = |status: &v1::Status| judge(status, arguments.goal);
        let waiting = async {
            let mut client = client::reach_within(patience, config).await?;
            let (way, goal) = ((&mut client, config, patience), (arguments.goal, judge));
            reached(way, &arguments.name, goal, &mut last).await
        };
        match timeout(limit, waiting).await {
            Ok(reached) => reached.map(|()| ExitCode::SUCCESS),
            Err(_late) => Err(late(&arguments.name, arguments.goal, limit, last.as_ref())),
        }
    })
}

/// Waits until it stands at the goal. An error: it never will. `last` is the status that was seen last.
pub(super) async fn reached(
    (client, config, patience): (&mut Client, &Config, Duration),
    name: &str,
    goal: (Goal, impl Fn(&v1::Status) -> Standing + Copy),
    last: &mut Option<v1::Status>,
) -> Result<(), Failure> {
    let mut tries = 0;
    loop {
        match watched(client, name, goal, last).await {
            Ok(()) => return Ok(()),
            Err(Lost::For(failure)) => return Err(failure),
            Err(Lost::Gateway) => {}
        }
        sleep(AGAIN).await;
        match client::reach_within(patience, config).await {
            Ok(another) => {
                *client = another;
                tries = 0;
            }
            Err(_) if tries < MOST_TRIES => tries += 1,
            Err(failure) => return Err(failure),
        }
    }
}

enum Lost {
    For(Failure),
    Gateway,
}

async fn watched(
    client: &mut Client,
    name: &str,
    (goal, judge): (Goal, impl Fn(&v1::Status) -> Standing),
    last: &mut Option<v1::Status>,
) -> Result<(), Lost> {
    let outcome = |status: &tonic::Status| {
        if is_lost(status) {
            Lost::Gateway
        } else {
            Lost::For(refused(status))
        }
    };
    let opened = client.watch(request(name)).await;
    let mut changes = opened.map_err(|status| outcome(&status))?.into_inner();
    while let Some(status) = changes.message().await.map_err(|status| outcome(&status))? {
        let judged = judge(&status);
        *last = Some(status);
        match judged {
            Standing::Reached => return Ok(()),
            Standing::Elsewhere => {}
            Standing::Never(why) => {
                let message = format!("wait for {name} to be {}: {why}", word(goal));
                return Err(Lost::For(Failure::new(Kind::NotReached, message)));
            }
        }
    }
    let message = format!("wait for {name} to be {}: it was deleted", word(goal));
    Err(Lost::For(Failure::new(Kind::NotReached, message)))
}

/// Where a sandbox stands on the way to a goal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// There.
    Reached,
    /// Not there, and on its way.
    Elsewhere,
    /// It ended somewhere else, and will not leave by itself.
    Never(String),
}

/// Judges a status by its phase.
pub(super) fn judge(status: &v1::Status, goal: Goal) -> Standing {
    let phase = status.phase();
    let goal_phase = match goal {
        Goal::Ready => Phase::Ready,
        Goal::Degraded => Phase::Degraded,
        Goal::Stopped => Phase::Stopped,
        Goal::Failed => Phase::Failed,
    };
    if phase == goal_phase {
        return Standing::Reached;
    }
    match phase {
        Phase::Failed | Phase::Stopped | Phase::Deleting => {
            let because = words::because(&status.reason, &status.message);
            Standing::Never(stands(phase, &because))
        }
        Phase::Unspecified | Phase::Pending | Phase::Ready | Phase::Degraded => Standing::Elsewhere,
    }
}

fn late(name: &str, goal: Goal, limit: Duration, last: Option<&v1::Status>) -> Failure {
    let stands = last.map_or_else(
        || "the gateway has not answered".to_owned(),
        |last| stands(last.phase(), &status::first_false(last)),
    );
    let message = format!(
        "wait for {name} to be {}: timed out after {limit:?}: {stands}",
        word(goal)
    );
    Failure::new(Kind::TimedOut, message)
}

/// Where it is, and why if there is a why.
fn stands(phase: Phase, because: &str) -> String {
    let phase = words::phase(phase);
    if because.is_empty() {
        format!("it is {phase}")
    } else {
        format!("it is {phase} ({because})")
    }
}

fn word(goal: Goal) -> &'static str {
    match goal {
        Goal::Ready => "ready",
        Goal::Degraded => "degraded",
        Goal::Stopped => "stopped",
        Goal::Failed => "failed",
    }
}

/// Between two attempts to find the gateway again.
const AGAIN: Duration = Duration::from_millis(200);

/// A gateway that a service manager starts again is back within so many of them.
const MOST_TRIES: u32 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(phase: Phase, goal: Goal) -> Standing {
        let status = v1::Status {
            phase: phase.into(),
            reason: "FenceUnproven".into(),
            ..v1::Status::default()
        };
        judge(&status, goal)
    }

    #[test]
    fn one_that_can_still_get_there_is_waited_for() {
        for phase in [Phase::Pending, Phase::Degraded, Phase::Unspecified] {
            assert_eq!(standing(phase, Goal::Ready), Standing::Elsewhere);
        }
        assert_eq!(standing(Phase::Ready, Goal::Ready), Standing::Reached);
        assert_eq!(standing(Phase::Failed, Goal::Failed), Standing::Reached);
    }

    #[test]
    fn one_that_did_not_get_there_in_time_is_told_with_where_it_is_and_why() {
        let condition = |truth: v1::Truth, reason: &str| v1::Condition {
            status: truth.into(),
            reason: reason.into(),
            r#type: v1::ConditionType::ProxyServing.into(),
            ..v1::Condition::default()
        };
        let told = |phase: Phase, reason: &str, conditions: Vec<v1::Condition>| {
            let status = v1::Status {
                phase: phase.into(),
                reason: reason.into(),
                conditions,
                ..v1::Status::default()
            };
            late("qa", Goal::Stopped, Duration::from_secs(1), Some(&status))
        };

        for (failure, stands) in [
            (
                told(Phase::Ready, "", vec![condition(v1::Truth::True, "")]),
                "it is Ready",
            ),
            (
                told(Phase::Degraded, "LinkLost", Vec::new()),
                "it is Degraded (LinkLost)",
            ),
            (
                told(
                    Phase::Pending,
                    "",
                    vec![condition(v1::Truth::Unknown, "CanaryStale")],
                ),
                "it is Pending (ProxyServing is Unknown: CanaryStale)",
            ),
            (
                told(Phase::Pending, "", Vec::new()),
                "it is Pending (nothing was reported yet)",
            ),
        ] {
            let whole = format!("wait for qa to be stopped: timed out after 1s: {stands}");
            assert_eq!(failure.message(), whole);
        }
    }

    #[test]
    fn one_that_ended_elsewhere_is_not_waited_for() {
        let never = standing(Phase::Failed, Goal::Ready);

        assert_eq!(
            never,
            Standing::Never("it is Failed (FenceUnproven)".into())
        );
        assert!(matches!(
            standing(Phase::Deleting, Goal::Stopped),
            Standing::Never(_)
        ));
    }
}
