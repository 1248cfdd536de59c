//! Descriptors and whatever else a session may be refused for.

use super::*;

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
