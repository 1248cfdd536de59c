use holdfast_actor::{Fault, Next, Path, Reason, What};
use proptest::prelude::*;

use super::*;

mod ports;

fn at(millis: u64) -> Moment {
    Moment::after_origin(Duration::from_millis(millis))
}

fn change(path: &str, what: What, restarts: u32) -> Event {
    Event::Changed(Change {
        path: Path::new(path),
        what,
        restarts,
    })
}

fn fell(path: &str, now: Moment) -> Event {
    let what = What::Fell {
        reason: Reason::Fault(Fault::failed("bind: address in use")),
        next: Next::Restart {
            at: now + Duration::from_millis(40),
        },
    };
    change(path, what, 1)
}

fn walked(began: u64, ended: u64, fell: Option<(Kind, String)>) -> Event {
    Event::Walked(Walked {
        began: at(began),
        ended: at(ended),
        fell,
    })
}

/// After everything else.
fn counted(pressed: bool) -> Event {
    counted_at(Moment::NEVER, pressed)
}

fn counted_at(moment: Moment, pressed: bool) -> Event {
    let sample = Sample {
        limit: 64,
        used: if pressed { 60 } else { 30 },
        pressed,
        host_full: false,
    };
    Event::Descriptors(moment, sample)
}

fn beat() -> Event {
    Event::Beat(at(0), Box::default())
}

/// A beat that says how long the launcher has been silent.
fn silent(millis: u64) -> Event {
    let beat = v1::BeatReply {
        launcher_silent_ms: millis,
        ..v1::BeatReply::default()
    };
    Event::Beat(at(0), Box::new(beat))
}

/// A beat that was asked for at `asked`, with so many descriptors used of 112.
fn boundary_has(used: u64, asked: u64) -> Event {
    let beat = v1::BeatReply {
        descriptors: Some(v1::Descriptors {
            limit: 112,
            used,
            ..v1::Descriptors::default()
        }),
        ..v1::BeatReply::default()
    };
    Event::Beat(at(asked), Box::new(beat))
}

fn short_of_descriptors(process: Process) -> Event {
    let message = "reserve 7 descriptors: 5 of 112 are free".to_owned();
    Event::Refused(Want::Descriptors { process, message })
}

fn short_of(reason: &'static str) -> Event {
    let message = "fork: try again".to_owned();
    Event::Refused(Want::Other { reason, message })
}

/// A program inside has these ports, which rules name.
fn held(ports: &[u16]) -> Event {
    Event::Unheard(ports.iter().map(|port| (*port, libc::EADDRINUSE)).collect())
}

fn policy(error: &str) -> Event {
    Event::Policy {
        desired: 1 + u64::from(!error.is_empty()),
        enforced: 1,
        error: error.to_owned(),
    }
}

/// Everything but a canary, at 0 ms.
fn almost() -> Health {
    let mut health = Health::new(at(0), false);
    for event in [
        Event::Fence(Ok(())),
        Event::Linked,
        policy(""),
        counted(false),
    ] {
        health.step(event, at(0));
    }
    health
}

/// Ready at 2 ms.
fn ready() -> Health {
    let mut health = almost();
    health.step(walked(1, 2, None), at(2));
    assert_eq!(health.report().phase, Phase::Ready);
    health
}

fn stands(health: &Health) -> (Phase, &'static str) {
    (health.report().phase, health.report().reason)
}

fn condition(health: &Health, kind: Kind) -> &Condition {
    &health.report().conditions[kind as usize]
}

/// SV-01, SV-12: all the parts together are not enough.
#[test]
fn nothing_is_ready_before_a_canary_went_the_whole_way() {
    let mut health = Health::new(at(0), false);
    let events = [Event::Fence(Ok(())), Event::Linked, policy("")];
    for event in events {
        let turn = health.step(event, at(0));
        assert!(!turn.canary);
    }

    let last = health.step(counted(false), at(0));

    assert!(
        last.canary,
        "the last part was missing and is there: prove it"
    );
    assert_eq!(stands(&health), (Phase::Pending, "CanaryStale"));
    let turn = health.step(walked(1, 2, None), at(2));
    assert!(turn.changed);
    assert_eq!(stands(&health), (Phase::Ready, ""));
}

/// SV-01: the part is named in the step that hears of it.
#[test]
fn a_part_that_falls_takes_ready_away_at_once() {
    let parts = [
        ("keeper/network/resolver", Kind::ResolverServing),
        ("keeper/network/lane", Kind::BrokerServing),
        ("keeper/network/egress/443", Kind::ProxyServing),
        ("keeper/network/capture", Kind::ProxyServing),
        ("keeper/link", Kind::BoundaryLinked),
        ("keeper/sessions", Kind::ExecAdmitting),
        ("keeper/rulebook", Kind::PolicyCurrent),
    ];
    for (path, kind) in parts {
        let mut health = ready();

        let turn = health.step(fell(path, at(10)), at(10));

        assert!(turn.changed);
        assert_eq!(stands(&health), (Phase::Degraded, "ActorRestarting"));
        assert_eq!(condition(&health, kind).status, Truth::False);
        assert!(health.report().message.contains(path), "{path}");
        assert!(health.report().message.contains("address in use"));
    }
}

#[test]
fn what_stands_outside_and_single_sessions_cost_nobody_ready() {
    let mut health = ready();

    for path in [
        "keeper/outside/uplink",
        "keeper/outside",
        "keeper/sessions/7",
    ] {
        health.step(fell(path, at(10)), at(10));
    }

    assert_eq!(stands(&health), (Phase::Ready, ""));
}

/// BD-04: recovered means proved again.
#[test]
fn a_part_that_is_back_is_believed_by_a_canary_that_began_after_it() {
    let mut health = ready();
    health.step(fell("keeper/network/resolver", at(10)), at(10));

    let turn = health.step(change("keeper/network/resolver", What::Up, 1), at(50));
    assert!(turn.canary);
    assert_eq!(stands(&health), (Phase::Degraded, "CanaryStale"));
    health.step(walked(45, 60, None), at(60));
    assert_eq!(stands(&health).0, Phase::Degraded, "it began too early");
    health.step(walked(61, 63, None), at(63));

    assert_eq!(stands(&health), (Phase::Ready, ""));
}

#[test]
fn a_canary_that_falls_blames_the_step_it_fell_at() {
    let mut health = ready();

    let why = "ask for a name: no answer within 1 s".to_owned();
    health.step(
        walked(10, 1010, Some((Kind::ResolverServing, why.clone()))),
        at(1010),
    );

    assert_eq!(stands(&health), (Phase::Degraded, "CanaryFailed"));
    assert_eq!(health.report().message, why);
    let statuses =
        [Kind::ExecAdmitting, Kind::ResolverServing].map(|kind| condition(&health, kind).status);
    assert_eq!(statuses, [Truth::True, Truth::False]);
}

#[test]
fn what_was_seen_too_long_ago_is_unknown() {
    let mut health = ready();
    let expiry = health.expires().expect("a beat ages");
    assert_eq!(expiry, at(0) + BEAT_AGE);

    health.step(Event::Passed, expiry + Duration::from_millis(1));
    assert_eq!(stands(&health), (Phase::Degraded, "LinkLost"));
    assert_eq!(
        condition(&health, Kind::BoundaryLinked).status,
        Truth::Unknown
    );
    let turn = health.step(beat(), at(2500));
    assert!(turn.canary, "it is back, and has to be proved");
    assert_eq!(stands(&health), (Phase::Degraded, "CanaryStale"));

    for second in 3..=16 {
        health.step(beat(), at(second * 1000));
        health.step(counted(false), at(second * 1000));
    }
    assert_eq!(stands(&health), (Phase::Degraded, "CanaryStale"));
    health.step(walked(16_000, 16_002, None), at(16_002));
    assert_eq!(stands(&health), (Phase::Ready, ""));
    health.step(beat(), at(19_100));
    assert_eq!(stands(&health), (Phase::Degraded, "SampleStale"));
}

/// PX-01: told while it lasts, gone with its cause, proved before Ready.
#[test]
fn pressure_is_named_and_passes() {
    let mut health = ready();

    health.step(counted(true), at(100));
    assert_eq!(stands(&health), (Phase::Degraded, "DescriptorPressure"));
    assert!(health.report().message.contains("4 of its 64"));
    let turn = health.step(counted(false), at(300));
    assert!(turn.canary);
    assert_eq!(stands(&health).0, Phase::Degraded);
    health.step(walked(301, 303, None), at(303));

    assert_eq!(stands(&health), (Phase::Ready, ""));
}

/// SV-01, PX-01: who was refused knows it, and the status does in the same step; only a later count takes it back.
#[test]
fn a_session_that_is_refused_for_want_of_descriptors_takes_ready_away_until_a_later_count() {
    let mut health = ready();
    health.step(boundary_has(20, 100), at(101));
    assert_eq!(stands(&health).0, Phase::Ready);

    let turn = health.step(short_of_descriptors(Process::Boundary), at(150));
    assert!(turn.changed && !turn.canary);
    assert_eq!(stands(&health), (Phase::Degraded, "DescriptorPressure"));
    assert!(health.report().message.contains("5 of 112"));
    assert!(!health.admits_canary());
    health.step(walked(149, 151, None), at(151));
    // It was asked for before.
    health.step(boundary_has(20, 140), at(152));
    // Another process.
    health.step(counted(false), at(160));
    assert_eq!(stands(&health), (Phase::Degraded, "DescriptorPressure"));

    let turn = health.step(boundary_has(20, 800), at(801));
    assert!(turn.canary);
    assert_eq!(stands(&health).0, Phase::Degraded);
    health.step(walked(802, 804, None), at(804));
    assert_eq!(stands(&health), (Phase::Ready, ""));
    health.step(short_of_descriptors(Process::Keeper), at(900));
    assert_eq!(stands(&health).1, "DescriptorPressure");
    health.step(counted_at(at(899), false), at(901));
    assert_eq!(stands(&health).1, "DescriptorPressure");
    health.step(counted_at(at(999), false), at(1000));
    health.step(walked(1001, 1002, None), at(1002));
    assert_eq!(stands(&health), (Phase::Ready, ""));
}

/// A session and a canary have room at the same time, or it is called short.
#[test]
fn the_boundary_is_short_before_a_session_and_a_canary_have_no_room() {
    let mut health = ready();
    let mut pressed = Vec::new();
    for free in [17, 16, 15, 16, 19, 20, 16] {
        health.step(boundary_has(112 - free, 100), at(100));
        pressed.push(condition(&health, Kind::DescriptorsAvailable).status == Truth::False);
    }

    assert_eq!(pressed, [false, false, true, true, true, false, false]);
}

#[test]
fn a_session_that_is_refused_for_want_of_something_else_is_proved_by_the_next_canary() {
    let mut health = ready();

    let turn = health.step(short_of("ProcessPressure"), at(100));
    assert!(turn.changed && turn.canary);
    assert_eq!(stands(&health), (Phase::Degraded, "ProcessPressure"));
    health.step(walked(90, 101, None), at(101));
    assert_eq!(stands(&health).0, Phase::Degraded, "it began too early");
    health.step(walked(102, 104, None), at(104));

    assert_eq!(stands(&health), (Phase::Ready, ""));
}

/// SV-01: nothing starts while process 1 of the sandbox stands still.
#[test]
fn a_launcher_that_is_silent_takes_ready_away_until_it_answers_and_a_canary_has_passed() {
    let mut health = ready();
    health.step(silent(700), at(600));
    assert_eq!(stands(&health).0, Phase::Ready);

    let turn = health.step(silent(1250), at(1200));
    assert!(turn.changed && !turn.canary);
    assert_eq!(stands(&health), (Phase::Degraded, "LauncherSilent"));
    assert_eq!(condition(&health, Kind::ExecAdmitting).status, Truth::False);
    assert_eq!(condition(&health, Kind::BoundaryLinked).status, Truth::True);
    assert!(health.report().message.contains("1.2 s"));
    assert!(!health.admits_canary(), "it would wait like all others");
    health.step(walked(1100, 1300, None), at(1300));
    assert_eq!(stands(&health).0, Phase::Degraded);

    let turn = health.step(silent(20), at(1400));
    assert!(turn.canary && health.admits_canary());
    assert_eq!(stands(&health), (Phase::Degraded, "CanaryStale"));
    health.step(counted(false), at(1400));
    health.step(walked(1401, 1403, None), at(1403));
    assert_eq!(stands(&health), (Phase::Ready, ""));
}

#[test]
fn listeners_that_hold_connections_back_say_so() {
    let mut health = ready();

    health.step(
        Event::Listening(Listening {
            full: 1,
            starved: 0,
        }),
        at(100),
    );

    assert_eq!(stands(&health), (Phase::Degraded, "AcceptBackoff"));
    assert_eq!(condition(&health, Kind::ProxyServing).status, Truth::False);
}

/// Nothing is allowed that cannot be recorded, and a canary is not recorded.
#[test]
fn an_audit_that_cannot_be_written_takes_ready_away_until_it_can_and_a_canary_has_passed() {
    let mut health = ready();
    assert!(!health.step(Event::Recording(true), at(90)).changed);

    let turn = health.step(Event::Recording(false), at(100));
    assert!(turn.changed && !turn.canary);
    assert_eq!(stands(&health), (Phase::Degraded, "AuditUnwritable"));
    assert_eq!(condition(&health, Kind::ProxyServing).status, Truth::False);
    health.step(walked(110, 120, None), at(120));
    assert_eq!(stands(&health), (Phase::Degraded, "AuditUnwritable"));

    let turn = health.step(Event::Recording(true), at(200));
    assert!(turn.canary);
    health.step(walked(201, 210, None), at(210));
    assert_eq!(stands(&health), (Phase::Ready, ""));
}

/// ENFILE: the process has room below its own limit, and the host has none.
#[test]
fn a_full_table_of_the_host_is_named() {
    let mut health = ready();
    let full = Sample {
        limit: 64,
        used: 30,
        pressed: true,
        host_full: true,
    };

    health.step(Event::Descriptors(Moment::NEVER, full), at(100));

    assert_eq!(stands(&health), (Phase::Degraded, "DescriptorPressure"));
    assert!(health.report().message.contains("fs.file-max"));
}

#[test]
fn the_first_condition_that_fails_gives_the_reason() {
    let mut health = ready();

    health.step(counted(true), at(100));
    health.step(policy("policy.yaml:3: unknown key"), at(100));
    assert_eq!(stands(&health).1, "DescriptorPressure");
    health.step(
        Event::Unlinked(Unlinked::Gone, "the boundary is gone".to_owned()),
        at(100),
    );

    assert_eq!(stands(&health), (Phase::Degraded, "BoundaryLost"));
    let reasons: Vec<_> = health
        .report()
        .conditions
        .iter()
        .map(|one| one.reason)
        .collect();
    assert!(reasons.contains(&"PolicyInvalid"));
}

#[test]
fn what_no_restart_can_cure_is_failed() {
    let mut unproven = Health::new(at(0), false);
    unproven.step(
        Event::Fence(Err("a file system can be mounted".to_owned())),
        at(1),
    );
    let mut skewed = almost();
    skewed.step(
        Event::Unlinked(Unlinked::Version, "1.0 and 2.0".to_owned()),
        at(1),
    );
    let mut given_up = ready();
    let reason = Reason::Stuck;
    given_up.step(change("keeper", What::GaveUp { reason }, 0), at(3));

    assert_eq!(stands(&unproven), (Phase::Failed, "FenceUnproven"));
    assert_eq!(stands(&skewed), (Phase::Failed, "VersionUnsupported"));
    // It lives, and its gateway replaces the keeper: only that may say Failed.
    assert_eq!(stands(&given_up), (Phase::Degraded, "ActorGivenUp"));
    assert!(given_up.report().message.contains("being replaced"));
}

#[test]
fn the_boundarys_own_parts_count() {
    let mut health = ready();
    let row = |state: &str, restarts| v1::TreeRow {
        path: "boundary/broker".to_owned(),
        state: state.to_owned(),
        restarts,
        ..v1::TreeRow::default()
    };
    let told = |row: v1::TreeRow| {
        let beat = v1::BeatReply {
            tree: Some(v1::Tree {
                process: "boundary".to_owned(),
                rows: vec![row],
            }),
            ..v1::BeatReply::default()
        };
        Event::Beat(at(0), Box::new(beat))
    };
    health.step(told(row("Running", 0)), at(100));
    assert_eq!(stands(&health).0, Phase::Ready);

    health.step(told(row("Waiting", 0)), at(200));
    assert_eq!(
        condition(&health, Kind::BrokerServing).reason,
        "ActorRestarting"
    );
    let back = health.step(told(row("Running", 1)), at(300));

    assert!(back.canary);
    assert_eq!(stands(&health), (Phase::Degraded, "CanaryStale"));
}

#[test]
fn a_listener_that_was_taken_down_is_missed_by_nobody() {
    let mut health = ready();

    health.step(
        change("keeper/network/egress/8080", What::Stopping, 0),
        at(10),
    );
    health.step(
        change("keeper/network/egress/8080", What::Stopped, 0),
        at(11),
    );
    health.step(walked(12, 13, None), at(13));

    assert_eq!(stands(&health), (Phase::Ready, ""));
}

fn path() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "keeper/link",
        "keeper/network/resolver",
        "keeper/network/egress",
        "keeper/network/egress/443",
        "keeper/network/lane",
        "keeper/sessions",
        "keeper/outside/uplink",
    ])
}

fn any_event() -> impl Strategy<Value = Event> {
    let kind = prop::sample::select(Kind::WAY.to_vec());
    prop_oneof![
        path().prop_map(|path| fell(path, at(0))),
        path().prop_map(|path| change(path, What::Up, 1)),
        Just(Event::Fence(Ok(()))),
        Just(Event::Linked),
        Just(beat()),
        Just(Event::Unlinked(Unlinked::Lost, "lost".to_owned())),
        // The moments are put in by the run.
        prop::option::of(kind).prop_map(|at| walked(0, 0, at.map(|at| (at, String::new())))),
        any::<bool>().prop_map(counted),
        Just(Event::Listening(Listening::default())),
        Just(Event::Listening(Listening {
            full: 1,
            starved: 0
        })),
        Just(held(&[8443])),
        Just(held(&[])),
        any::<bool>().prop_map(Event::Recording),
        Just(policy("")),
        Just(policy("wrong")),
        Just(Event::Refused(Want::Nothing)),
        Just(short_of_descriptors(Process::Keeper)),
        Just(short_of("ProcessPressure")),
        prop::sample::select(vec![0, 500, 1201, 60_000]).prop_map(silent),
        Just(Event::Passed),
    ]
}

/// Whether this event by itself says that something does not serve.
fn is_failure(event: &Event) -> bool {
    match event {
        Event::Changed(change) => {
            change.what != What::Up && !change.path.as_str().contains("outside")
        }
        Event::Fence(proved) => proved.is_err(),
        Event::Unlinked(..) | Event::Over { .. } => true,
        Event::Walked(walked) => walked.fell.is_some(),
        Event::Descriptors(_, sample) => sample.pressed,
        Event::Listening(listening) => *listening != Listening::default(),
        Event::Unheard(ports) | Event::Asked(ports) => !ports.is_empty(),
        Event::Recording(writes) => !writes,
        Event::Policy { error, .. } => !error.is_empty(),
        Event::Beat(_, beat) => beat.launcher_silent_ms > 1200,
        Event::Refused(want) => *want != Want::Nothing,
        Event::Linked | Event::Passed => false,
    }
}

proptest! {
    /// SV-01, SV-12, SV-13.
    #[test]
    fn ready_is_true_in_any_weather(
        events in prop::collection::vec((any_event(), 0_u64..2000, 0_u64..400), 1..200),
    ) {
        let mut health = almost();
        let mut now = 0;
        // The end of the last step that was not whole, and when the last canary that came home began.
        let (mut broken, mut proved) = (Some(0), None);
        for (event, wait, walk) in events {
            now += wait;
            let event = if let Event::Walked(Walked { fell, .. }) = event {
                walked(now.saturating_sub(walk), now, fell)
            } else {
                event
            };
            let before = health.report().clone();
            let failure = is_failure(&event);
            if let Event::Walked(Walked { began, fell: None, .. }) = &event {
                proved = proved.max(Some(*began));
            }
            health.step(event, at(now));
            let report = health.report();

            let all_true = report.conditions.iter().all(|one| one.status == Truth::True);
            prop_assert_eq!(report.phase == Phase::Ready, all_true);
            if failure {
                prop_assert_ne!(report.phase, Phase::Ready);
                broken = Some(now);
            }
            if report.phase == Phase::Ready {
                if let Some(broken) = broken.take() {
                    prop_assert!(proved.is_some_and(|began| began >= at(broken)));
                }
                for one in &report.conditions {
                    prop_assert!(at(now).since(one.observed) <= CANARY_AGE);
                }
                let beat = report.conditions[Kind::BoundaryLinked as usize].observed;
                prop_assert!(at(now).since(beat) <= BEAT_AGE);
            } else {
                prop_assert!(!report.reason.is_empty() && !report.message.is_empty() || report.reason == "CanaryFailed");
                let first = report.conditions.iter().find(|one| one.status != Truth::True);
                prop_assert_eq!(first.map(|one| one.reason), Some(report.reason));
            }
            for (one, was) in report.conditions.iter().zip(&before.conditions) {
                prop_assert_eq!(one.since == was.since || wait == 0, one.status == was.status || wait == 0);
            }
        }
    }
}
