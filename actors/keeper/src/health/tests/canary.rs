//! What a canary proves, and for how long.

use super::*;

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

/// BD-04: recovered means proved again.
#[test]
fn a_part_that_is_back_is_believed_by_a_canary_that_began_after_it() {
    let mut health = ready();
    health.step(fell("keeper/network/resolver", at(10)), at(10));

    let turn = health.step(change("keeper/network/resolver", What::Up, 1), at(50));
    assert!(turn.canary);
    health.step(walked(45, 60, None), at(60));
    assert_eq!(
        stands(&health),
        (Phase::Degraded, "ActorRestarting"),
        "it began too early"
    );
    let named = condition(&health, Kind::ResolverServing);
    assert_eq!(named.status, Truth::False);
    assert!(named.message.contains("address in use; it is back"));
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
