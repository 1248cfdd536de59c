//! What the conditions come to.

use super::*;

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

/// SV-01: between its known end and its last word it is not shown Ready, whatever a canary on its way says.
#[test]
fn what_will_end_is_not_ready_any_more() {
    for (mut health, phase) in [(almost(), Phase::Pending), (ready(), Phase::Degraded)] {
        let (reason, message) = ("MainExited", "no such program".to_owned());
        health.step(Event::Ending { reason, message }, at(10));

        let turn = health.step(walked(9, 11, None), at(11));

        assert!(!turn.canary && !health.admits_canary());
        assert_eq!(stands(&health), (phase, "MainExited"));
        assert_eq!(health.report().message, "no such program");
    }
}

/// Nothing is wrong with a fence of which nothing has been heard yet.
#[test]
fn a_keeper_that_begins_says_so_until_it_has_heard_the_proof() {
    for (takes_over, told) in [
        (true, (Phase::Degraded, "KeeperRestarting")),
        (false, (Phase::Pending, "Starting")),
    ] {
        let mut health = Health::new(at(0), takes_over);
        health.step(change("keeper/link", What::Starting, 0), at(1));
        assert_eq!(stands(&health), told);

        health.step(Event::Linked, at(2));
        assert_eq!(stands(&health), told);
        health.step(Event::Fence(Err("a gap".to_owned())), at(3));

        assert_eq!(stands(&health), (Phase::Failed, "FenceUnproven"));
    }
}
