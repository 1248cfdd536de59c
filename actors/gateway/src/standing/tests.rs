use holdfast_actor::Seed;

use super::*;
use crate::life::{Alive, Event, Found, Restart};
use crate::registry::row::Process;

/// What a sandbox is judged by, but for what a test is about.
struct Case {
    row: Row,
    life: Life,
    last: Option<v1::Status>,
    before: v1::Status,
}

impl Case {
    fn of(life: Life, last: Option<v1::Status>) -> Self {
        Self {
            row: Row::default(),
            life,
            last,
            before: v1::Status::default(),
        }
    }

    fn known(&self) -> Known<'_> {
        Known {
            row: &self.row,
            life: &self.life,
            last: self.last.as_ref(),
            removed: None,
            short: None,
            before: &self.before,
            now: Moment::ORIGIN,
            wall_ms: 1_000,
        }
    }
}

fn fresh() -> Life {
    Life::new(Restart::Never, Seed::new(1), Moment::ORIGIN)
}

/// The life of one whose keeper reports.
fn up() -> Life {
    let mut life = fresh();
    life.step(Event::Woke, Moment::ORIGIN);
    life.step(Event::Reported, Moment::ORIGIN);
    life
}

fn ready() -> v1::Status {
    v1::Status {
        phase: v1::Phase::Ready.into(),
        since_ms: 500,
        conditions: CONDITIONS
            .map(|kind| v1::Condition {
                r#type: kind.into(),
                status: v1::Truth::True.into(),
                ..v1::Condition::default()
            })
            .into(),
        ..v1::Status::default()
    }
}

/// SV-01: a dead publisher leaves no Ready behind.
#[test]
fn a_lapsed_lease_is_degraded_whatever_the_keeper_said_last() {
    let mut case = Case::of(up(), Some(ready()));
    let told = case.known().status();
    assert_eq!((told.phase(), told.since_ms), (v1::Phase::Ready, 500));

    case.life
        .step(Event::Woke, Moment::ORIGIN + holdfast_wire::LEASE);

    let told = case.known().status();
    assert_eq!(
        (told.phase(), &*told.reason),
        (v1::Phase::Degraded, "KeeperSilent")
    );
    assert!(!told.message.is_empty());
    assert!(
        told.conditions
            .iter()
            .all(|known| known.status() == v1::Truth::Unknown)
    );
}

#[test]
fn nothing_runs_in_a_sandbox_whose_boundary_died() {
    let mut life = fresh();
    life.stage = Stage::Failed {
        why: Why::new("BoundaryLost", "the boundary died"),
    };
    let last = v1::Status {
        sessions: Some(v1::SessionCounts {
            running: 3,
            total: 9,
            failed: 1,
        }),
        ..ready()
    };

    let told = Case::of(life, Some(last)).known().status();

    let sessions = told.sessions.expect("counted");
    assert_eq!((sessions.running, sessions.total), (0, 9));
}

/// SV-01: what nobody can reach is not Ready, whatever its keeper says.
#[test]
fn a_sandbox_whose_directory_was_removed_is_degraded_and_names_it() {
    let case = Case::of(up(), Some(ready()));
    let told = |before: &v1::Status, removed: bool, wall_ms| {
        Known {
            removed: removed.then_some(Path::new("/run/it")),
            before,
            wall_ms,
            ..case.known()
        }
        .status()
    };
    let before = told(&v1::Status::default(), false, 1_000);
    assert_eq!(before.phase(), v1::Phase::Ready);

    let gone = told(&before, true, 2_000);
    let still = told(&gone, true, 3_000);
    let back = told(&still, false, 4_000);

    assert_eq!(
        (gone.phase(), &*gone.reason, gone.since_ms),
        (v1::Phase::Degraded, DIRECTORY_REMOVED, 2_000)
    );
    assert!(gone.message.contains("/run/it") && gone.message.contains("holdfast restart"));
    let mut cut = gone.conditions.iter();
    let cut = cut.find(|known| known.status() != v1::Truth::True);
    let cut = cut.expect("one does not hold");
    assert_eq!(cut.r#type(), v1::ConditionType::ExecAdmitting);
    assert_eq!(
        (still.since_ms, &still.conditions),
        (2_000, &gone.conditions)
    );
    assert_eq!((back.phase(), back.since_ms), (v1::Phase::Ready, 4_000));
}

/// PX-01: a gateway without descriptors serves nobody, and says so of every sandbox.
#[test]
fn a_gateway_without_descriptors_degrades_what_it_cannot_reach() {
    let mut case = Case::of(up(), Some(ready()));
    let short = Some(Short {
        needed: 2,
        free: 0,
        limit: 16,
    });

    let starved = Known {
        short,
        ..case.known()
    };
    let starved = starved.status();

    assert_eq!(
        (starved.phase(), &*starved.reason),
        (v1::Phase::Degraded, "DescriptorPressure")
    );
    assert!(starved.message.contains("0 of 16"), "{}", starved.message);
    assert_eq!(case.known().status().phase(), v1::Phase::Ready);

    let mut unlinked = ready();
    unlinked.phase = v1::Phase::Degraded.into();
    unlinked.conditions[1].status = v1::Truth::False.into();
    "LinkLost".clone_into(&mut unlinked.conditions[1].reason);
    case.last = Some(unlinked);
    let told = Known {
        short,
        ..case.known()
    };
    assert_eq!(told.status().reason, "LinkLost", "the first that fails");
}

/// SV-01: a gateway that cannot look does not go on saying Ready.
#[test]
fn what_cannot_be_looked_at_is_not_ready() {
    let told = unobserved(&ready(), "too many open files", 1_000).expect("it may be otherwise");

    assert_eq!(
        (told.phase(), &*told.reason, told.since_ms),
        (v1::Phase::Degraded, "Unobserved", 1_000)
    );
    assert!(told.message.contains("too many open files"));
    let mut conditions = told.conditions.iter();
    assert!(conditions.all(|known| known.status() == v1::Truth::Unknown));
    let again = unobserved(&told, "the same", 2_000).expect("it may be otherwise");
    assert_eq!(again.since_ms, 1_000);
    let stopped = v1::Status {
        phase: v1::Phase::Stopped.into(),
        ..v1::Status::default()
    };
    assert_eq!(unobserved(&stopped, "x", 1_000), None);
}

#[test]
fn until_an_adopted_keeper_reports_the_registry_is_what_is_known() {
    let now = Moment::ORIGIN;
    let alive = Alive {
        keeper: true,
        boundary: true,
    };
    let found = Found::Running {
        gone: Why::default(),
    };
    let (life, _) = fresh().adopted(alive, found, now);
    let process = |pid| Some(Process { pid, start: 1 });
    let mut case = Case::of(life, None);
    case.row = Row {
        keeper: process(7),
        boundary: process(8),
        policy: 3,
        ..Row::default()
    };

    let status = case.known().status();

    assert_eq!(
        (status.phase(), &*status.reason),
        (v1::Phase::Degraded, "Adopting")
    );
    assert_eq!((status.pids["keeper"], status.pids["boundary"]), (7, 8));
    assert_eq!(status.policy.map(|policy| policy.desired), Some(3));
}

#[test]
fn every_phase_but_ready_has_a_sentence() {
    let now = Moment::ORIGIN;
    let why = || Why::new("X", "because");
    for stage in [
        Stage::Pending {
            at: now,
            why: why(),
        },
        Stage::Starting { until: now },
        Stage::Adopting { until: now },
        Stage::Silent { until: now },
        Stage::KeeperDown {
            at: now,
            why: why(),
        },
        Stage::Ending {
            until: now,
            after: After::Delete,
        },
        Stage::Stopped { why: why() },
        Stage::Failed { why: why() },
        Stage::Deleting { at: now },
    ] {
        let mut case = Case::of(fresh(), None);
        case.life.stage = stage;

        let told = case.known().status();

        assert!(
            !told.reason.is_empty() && !told.message.is_empty(),
            "{told:?}"
        );
        assert_eq!(told.conditions.len(), 8);
    }
}

#[test]
fn what_changes_all_the_time_wakes_nobody() {
    let one = ready();
    let mut other = v1::Status {
        lease_expires_ms: 77,
        ..ready()
    };
    assert!(!differs(&one, &other));

    other.reason = "CanaryFailed".to_owned();
    assert!(differs(&one, &other));
}
