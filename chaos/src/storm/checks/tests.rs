//! Each check notices what it is there for.

use std::time::Duration;

use holdfast_clock::Moment;
use holdfast_supervision::{
    Backoff, Change, Child, End, Fault, Generation, Next, Path, Reason, Strategy, Supervisor, What,
};

use super::all;
use crate::storm::{Fact, History};

fn pair(strategy: Strategy) -> Supervisor {
    let child = |id| {
        let (min, max) = (Duration::from_millis(100), Duration::from_millis(200));
        Child::permanent(id).backoff(Backoff::between(min, max))
    };
    Supervisor::new("root", strategy)
        .child(child("a"))
        .child(child("b"))
}

fn start(id: &str, life: u64) -> [Fact; 2] {
    let path = Path::new("root").join(id);
    let generation = Generation(life);
    [told(id, What::Starting), Fact::Start { path, generation }]
}

fn up(id: &str, life: u64) -> [Fact; 2] {
    let path = Path::new("root").join(id);
    let generation = Generation(life);
    [Fact::Up { path, generation }, told(id, What::Up)]
}

fn ended(id: &str, life: u64) -> Fact {
    Fact::Ended {
        path: Path::new("root").join(id),
        generation: Generation(life),
        reason: Reason::Ended,
    }
}

fn told(id: &str, what: What) -> Fact {
    Fact::Told(Change {
        path: Path::new("root").join(id),
        what,
        restarts: 0,
    })
}

fn fell(id: &str, reason: Fault, next: Next) -> Fact {
    let reason = reason.into();
    told(id, What::Fell { reason, next })
}

fn restart(millis: u64) -> Next {
    let at = Moment::ORIGIN + Duration::from_millis(millis);
    Next::Restart { at }
}

/// What the checks find in these facts, a millisecond apart.
fn found(strategy: Strategy, facts: impl IntoIterator<Item = Fact>) -> Vec<&'static str> {
    let history = History::of((0..).zip(facts));
    let violations = all(&pair(strategy), &history);
    violations.iter().map(|violation| violation.check).collect()
}

#[test]
fn a_sound_history_passes() {
    let facts = [start("a", 1), up("a", 1), start("b", 2), up("b", 2)].concat();
    assert_eq!(found(Strategy::RestForOne, facts), Vec::<&str>::new());
}

#[test]
fn a_start_before_the_one_before_it_is_up_is_noticed() {
    let facts = [start("a", 1), start("b", 2)].concat();
    let order = "children start in order and stop in reverse";
    assert_eq!(found(Strategy::RestForOne, facts), [order]);
}

#[test]
fn a_stop_while_the_one_after_it_lives_is_noticed() {
    let mut facts = [start("a", 1), up("a", 1), start("b", 2), up("b", 2)].concat();
    facts.push(Fact::Stop {
        path: Path::new("root/a"),
        generation: Generation(1),
    });
    let order = "children start in order and stop in reverse";
    assert_eq!(found(Strategy::OneForOne, facts), [order]);
}

#[test]
fn a_delay_outside_its_bounds_and_an_early_start_are_noticed() {
    let failure = || Fault::failed("reset by peer");
    let delay = "a delay is between the least and the most";
    for next in [restart(50), restart(500)] {
        assert_eq!(
            found(Strategy::OneForOne, [fell("a", failure(), next)]),
            [delay]
        );
    }
    let mut early = vec![fell("a", failure(), restart(150))];
    early.extend(start("a", 2));
    assert_eq!(found(Strategy::OneForOne, early), [delay]);
}

#[test]
fn one_that_did_not_fall_with_the_others_is_noticed() {
    let mut facts = [start("a", 1), up("a", 1), start("b", 2), up("b", 2)].concat();
    facts.push(ended("a", 1));
    facts.push(fell("a", Fault::exhausted("no memory"), restart(150)));
    let history = (0..).zip(facts).chain((200..).zip(start("a", 3)));
    let violations = all(&pair(Strategy::RestForOne), &History::of(history));
    let checks: Vec<_> = violations.iter().map(|found| found.check).collect();
    assert_eq!(checks, ["who falls together comes back together"]);
}

#[test]
fn want_that_climbs_is_noticed() {
    let want = fell("a", Fault::exhausted("no memory"), Next::Escalation);
    assert_eq!(
        found(Strategy::OneForOne, [want]),
        ["want of a resource never climbs"]
    );
}

#[test]
fn an_end_that_leaves_somebody_behind_or_never_comes_is_noticed() {
    let shutdown = "a shutdown ends in time with nobody left";
    let mut facts = [start("a", 1), up("a", 1)].concat();
    facts.push(Fact::Finished(End::ShutDown));
    assert_eq!(found(Strategy::OneForOne, facts), [shutdown]);
    assert_eq!(found(Strategy::OneForOne, [Fact::TimeIsUp]), [shutdown]);
}

#[test]
fn one_that_is_forgotten_after_the_storm_is_noticed() {
    let calm = Fact::Calm {
        rest: Duration::ZERO,
    };
    assert_eq!(
        found(Strategy::OneForOne, [calm, Fact::ShutdownRequested]),
        ["what may live lives when the storm is over"]
    );
}
