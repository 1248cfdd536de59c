//! Every session has an exit status or a stated reason: "closed without a status" does not exist.

use super::{Finding, moment};
use crate::timeline::{Fact, Outcome, Session, Timeline};

pub(super) fn check(timeline: &Timeline) -> Finding {
    let (mut ended, mut unknown, mut refused) = (0u64, 0u64, 0u64);
    let mut violations = Vec::new();
    for entry in timeline.entries() {
        let Fact::Session(session) = &entry.fact else {
            continue;
        };
        match &session.outcome {
            Outcome::Exited(_) | Outcome::Signalled(_) => ended += 1,
            Outcome::Unknown(reason) | Outcome::Refused(reason) if reason.is_empty() => {
                violations.push(said(session, "has no status and no reason"));
            }
            Outcome::Unknown(_) => unknown += 1,
            Outcome::Refused(_) => refused += 1,
            Outcome::Closed => violations.push(said(session, "was closed without a status")),
            Outcome::Lost(why) => {
                violations.push(said(session, &format!("cannot be found again: {why}")));
            }
        }
    }
    let summary = format!(
        "{ended} ended, {refused} refused with a reason, {unknown} unknown with a reason, {} without a status",
        violations.len()
    );
    Finding::of("sessions have a status", summary, violations)
}

fn said(session: &Session, what: &str) -> String {
    format!(
        "the session of {} (request {}) {what}",
        moment(session.started),
        session.request
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing::{session, timeline};
    use super::*;

    #[test]
    fn a_status_or_a_reason_is_enough() {
        let timeline = timeline([
            (1, session(Outcome::Exited(1))),
            (2, session(Outcome::Signalled(9))),
            (3, session(Outcome::Unknown("BoundaryLost".into()))),
            (4, session(Outcome::Refused("DescriptorPressure".into()))),
        ]);
        let finding = check(&timeline);
        assert!(finding.passed);
        assert_eq!(
            finding.summary,
            "2 ended, 1 refused with a reason, 1 unknown with a reason, 0 without a status"
        );
    }

    #[test]
    fn neither_is_not() {
        for outcome in [
            Outcome::Closed,
            Outcome::Lost("nobody answers".into()),
            Outcome::Unknown(String::new()),
            Outcome::Refused(String::new()),
        ] {
            assert!(!check(&timeline([(1, session(outcome))])).passed);
        }
    }
}
