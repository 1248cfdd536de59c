//! Ports that a policy allows and that nobody can listen on.

use super::*;

/// A beat that was asked for at `asked` and tells of these.
fn beat_telling(asked: u64, unheard: &[(u16, i32)]) -> Event {
    let unheard = unheard.iter().map(|(port, errno)| v1::Unheard {
        port: u32::from(*port),
        errno: *errno,
    });
    let beat = v1::BeatReply {
        unheard: unheard.collect(),
        ..v1::BeatReply::default()
    };
    Event::Beat(at(asked), Box::new(beat))
}

/// SV-01: named with what helps, until a beat says that it is let go and a canary has passed.
#[test]
fn a_port_that_a_program_holds_takes_ready_away_until_it_is_let_go() {
    let mut health = ready();
    assert_eq!(health.unheard(), "");

    let turn = health.step(held(&[8443]), at(100));
    assert!(turn.changed && !turn.canary);
    assert_eq!(stands(&health), (Phase::Degraded, "PortHeld"));
    assert_eq!(condition(&health, Kind::ProxyServing).status, Truth::False);
    assert!(health.unheard().starts_with("port 8443 is held by"));
    // It was asked for before the port was found out.
    health.step(beat_telling(99, &[]), at(101));
    assert_eq!(stands(&health).1, "PortHeld");
    health.step(beat_telling(800, &[(8443, libc::EADDRINUSE)]), at(801));
    assert_eq!(stands(&health).1, "PortHeld");
    health.step(walked(802, 804, None), at(804));
    assert_eq!(stands(&health).1, "PortHeld");

    let turn = health.step(beat_telling(1500, &[]), at(1501));
    assert!(turn.canary);
    assert_eq!(stands(&health), (Phase::Degraded, "CanaryStale"));
    health.step(walked(1502, 1504, None), at(1504));
    assert_eq!(stands(&health), (Phase::Ready, ""));
}

#[test]
fn what_is_asked_for_adds_to_what_rules_name_and_another_revision_replaces_both() {
    let mut health = ready();
    health.step(held(&[8443]), at(100));

    let asked = [(9000, libc::EADDRINUSE)];
    health.step(Event::Asked(asked.into()), at(200));
    assert!(health.unheard().starts_with("ports 8443, 9000 are held by"));
    let turn = health.step(held(&[]), at(300));

    assert!(turn.canary);
    assert_eq!(health.unheard(), "");
}

#[test]
fn a_shortage_is_not_called_a_program_and_many_ports_are_counted() {
    let mut health = ready();
    let short = (1..=3).map(|port| (port, libc::EMFILE)).collect();
    health.step(Event::Unheard(short), at(100));
    assert_eq!(stands(&health), (Phase::Degraded, "AcceptBackoff"));
    assert!(health.unheard().contains("ports 1, 2, 3: Too many open"));

    let many: Vec<u16> = (1..=20).collect();
    health.step(held(&many), at(200));

    assert!(health.unheard().contains("7, 8 and 12 more are held"));
}
