//! Parts of keeper and boundary that fall and come back, and whatever else has to serve.

use super::*;

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
        ("keeper/outside/uplink", Kind::ExecAdmitting),
        ("keeper/outside/canary", Kind::ExecAdmitting),
        ("keeper/outside/pressure", Kind::DescriptorsAvailable),
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
fn single_sessions_cost_nobody_ready() {
    let mut health = ready();

    health.step(fell("keeper/sessions/7", at(10)), at(10));

    assert_eq!(stands(&health), (Phase::Ready, ""));
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
    assert_eq!(stands(&health), (Phase::Degraded, "ActorRestarting"));
}

/// BD-04: the one that fell is named, and not what was stopped with it, until a canary that began later has passed.
#[test]
fn a_part_of_the_boundary_that_falls_is_named_at_once_and_until_it_is_proved() {
    let mut health = ready();

    let turn = health.step(fell_in_boundary("broker", "panicked: struck"), at(10));
    assert!(turn.changed);
    for (now, event) in [
        (11, fell_in_boundary("service", "")),
        (12, rose_in_boundary("broker")),
        (13, rose_in_boundary("service")),
        (14, walked(5, 14, None)),
    ] {
        assert_eq!(stands(&health), (Phase::Degraded, "ActorRestarting"));
        let broker = condition(&health, Kind::BrokerServing);
        assert_eq!(broker.status, Truth::False);
        let message = &health.report().message;
        assert!(message.contains("boundary/broker fell: panicked: struck"));
        health.step(event, at(now));
    }
    let broker = condition(&health, Kind::BrokerServing);
    assert_eq!(broker.status, Truth::False, "the canary began too early");

    health.step(walked(15, 16, None), at(16));
    assert_eq!(stands(&health), (Phase::Ready, ""));
}

/// What was told apart from the beat is not taken back by a beat that was asked for earlier.
#[test]
fn a_beat_that_was_asked_for_before_a_fall_mends_nothing() {
    let mut health = ready();
    health.step(fell_in_boundary("broker", "panicked"), at(10));
    let beat = |asked| {
        let row = v1::TreeRow {
            path: "boundary/broker".to_owned(),
            state: "Running".to_owned(),
            ..v1::TreeRow::default()
        };
        let tree = v1::Tree {
            process: "boundary".to_owned(),
            rows: vec![row],
        };
        let beat = v1::BeatReply {
            tree: Some(tree),
            ..v1::BeatReply::default()
        };
        Event::Beat(at(asked), Box::new(beat))
    };

    assert!(!health.step(beat(9), at(12)).canary);
    assert!(health.report().message.contains("is being restarted"));
    assert!(health.step(beat(20), at(21)).canary);

    assert!(health.report().message.contains("it is back"));
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
