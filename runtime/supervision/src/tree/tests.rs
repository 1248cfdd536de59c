//! What a tree orders, case by case.

mod bench;
mod dynamic;

use std::time::Duration;

use bench::{Bench, failure};
use holdfast_clock::Seed;

use crate::{
    Backoff, Child, Class, End, Fault, Generation, Reason, Strategy, Supervisor, Tree, What,
};

const SECOND: Duration = Duration::from_secs(1);

/// One delay, always the same.
fn steady(delay: Duration) -> Backoff {
    Backoff::between(delay, delay)
}

fn three(strategy: Strategy) -> Supervisor {
    ["a", "b", "c"]
        .into_iter()
        .fold(Supervisor::new("root", strategy), |tree, id| {
            tree.child(Child::permanent(id).backoff(steady(SECOND)))
        })
}

fn outside() -> Supervisor {
    Supervisor::new("root", Strategy::RestForOne)
        .child(Child::permanent("link"))
        .supervisor(
            Supervisor::new("outside", Strategy::OneForOne)
                .intensity(1, 60 * SECOND)
                .backoff(steady(SECOND))
                .child(Child::permanent("uplink").backoff(steady(SECOND)))
                .child(Child::permanent("canary").backoff(steady(SECOND))),
        )
}

#[test]
fn children_start_one_after_the_other() {
    for strategy in [
        Strategy::OneForOne,
        Strategy::OneForAll,
        Strategy::RestForOne,
    ] {
        let mut bench = Bench::new(&three(strategy));
        assert_eq!(bench.launch(), ["start root/a"]);
        assert_eq!(bench.started("root/a"), ["start root/b"]);
        assert_eq!(bench.started("root/b"), ["start root/c"]);
        assert!(bench.started("root/c").is_empty());
        assert!(bench.heard("root", &What::Up));
    }
}

#[test]
fn children_stop_in_reverse_each_when_the_one_after_it_is_down() {
    for strategy in [
        Strategy::OneForOne,
        Strategy::OneForAll,
        Strategy::RestForOne,
    ] {
        let mut bench = Bench::up(&three(strategy));
        assert_eq!(bench.shutdown(), ["stop root/c"]);
        assert_eq!(bench.stopped("root/c"), ["stop root/b"]);
        assert_eq!(bench.stopped("root/b"), ["stop root/a"]);
        assert!(bench.stopped("root/a").is_empty());
        assert_eq!(bench.end(), Some(End::ShutDown));
    }
}

#[test]
fn under_one_for_one_the_others_live_on() {
    let mut bench = Bench::up(&three(Strategy::OneForOne));
    assert!(bench.fell("root/b", failure()).is_empty());
    assert_eq!(bench.pass(SECOND), ["start root/b"]);
}

#[test]
fn under_rest_for_one_what_stands_later_falls_and_comes_back_in_order() {
    let mut bench = Bench::up(&three(Strategy::RestForOne));
    assert_eq!(bench.fell("root/b", failure()), ["stop root/c"]);
    assert!(bench.stopped("root/c").is_empty());
    assert_eq!(bench.pass(SECOND), ["start root/b"]);
    assert_eq!(bench.started("root/b"), ["start root/c"]);
    assert!(bench.started("root/c").is_empty());
}

#[test]
fn under_one_for_all_nobody_starts_before_all_are_down_and_the_wait_is_over() {
    let mut bench = Bench::up(&three(Strategy::OneForAll));
    assert_eq!(bench.fell("root/b", failure()), ["stop root/c"]);
    assert!(bench.pass(SECOND).is_empty(), "c is not down yet");
    assert_eq!(bench.stopped("root/c"), ["stop root/a"]);
    assert_eq!(bench.stopped("root/a"), ["start root/a"]);
    assert_eq!(bench.started("root/a"), ["start root/b"]);
    assert_eq!(bench.started("root/b"), ["start root/c"]);
}

#[test]
fn under_one_for_one_a_first_start_that_fails_holds_up_nobody() {
    let mut bench = Bench::new(&three(Strategy::OneForOne));
    bench.launch();
    assert_eq!(bench.start_failed("root/a", failure()), ["start root/b"]);
    assert_eq!(bench.started("root/b"), ["start root/c"]);
    bench.started("root/c");
    assert_eq!(bench.pass(SECOND), ["start root/a"]);
}

#[test]
fn a_restart_comes_by_its_timer_and_not_before() {
    let mut bench = Bench::up(&three(Strategy::OneForOne));
    bench.fell("root/a", failure());
    assert!(bench.pass(SECOND / 2).is_empty());
    assert_eq!(bench.pass(SECOND / 2), ["start root/a"]);
}

#[test]
fn a_failed_start_counts_as_a_failure() {
    let mut bench = Bench::new(&three(Strategy::OneForOne).intensity(2, 60 * SECOND));
    bench.launch();
    bench.start_failed("root/a", failure());
    bench.started("root/b");
    bench.started("root/c");
    assert_eq!(bench.pass(SECOND), ["start root/a"]);
    assert!(bench.start_failed("root/a", failure()).is_empty());
    assert_eq!(bench.pass(SECOND), ["start root/a"]);
    assert_eq!(bench.start_failed("root/a", failure()), ["stop root/c"]);
    bench.stopped("root/c");
    bench.stopped("root/b");
    assert!(matches!(bench.end(), Some(End::GaveUp(_))));
}

/// A child that comes up and dies again, over and over, is given up all the same: what counts are restarts in a
/// window, not whether they succeed.
#[test]
fn a_crash_loop_ends_although_each_restart_succeeds() {
    let spec = Supervisor::new("root", Strategy::OneForOne).child(Child::permanent("a"));
    let mut bench = Bench::up(&spec);
    let mut starts = 1;
    for _ in 0..100 {
        bench.pass(SECOND / 10);
        bench.fell("root/a", failure());
        if bench.end().is_some() {
            break;
        }
        assert_eq!(bench.pass(2 * SECOND), ["start root/a"]);
        bench.started("root/a");
        starts += 1;
    }
    assert_eq!(starts, 4, "3 restarts in 60s");
    let Some(End::GaveUp(reason)) = bench.end() else {
        panic!("it should have given up");
    };
    assert_eq!(reason.to_string(), "gave up over root/a: reset by peer");
}

#[test]
fn what_no_restart_can_cure_is_not_tried_again() {
    let mut bench = Bench::new(&outside());
    bench.launch();
    bench.started("root/link");
    let missing = Fault::last("start helper: /usr/bin/helper: no such file");
    assert!(bench.start_failed("root/outside/uplink", missing.into()) == ["stop root/link"]);
    bench.stopped("root/link");
    let Some(End::GaveUp(reason)) = bench.end() else {
        panic!("it should have given up");
    };
    let (child, cause) = reason.root_cause();
    assert_eq!(
        child.map(ToString::to_string).as_deref(),
        Some("root/outside/uplink")
    );
    assert_eq!(
        cause.to_string(),
        "start helper: /usr/bin/helper: no such file"
    );
}

#[test]
fn want_of_a_resource_is_waited_out_for_as_long_as_it_takes() {
    let mut bench = Bench::up(&outside());
    let want = || Reason::from(Fault::exhausted("accept: too many open files"));
    bench.fell("root/outside/uplink", want());
    for _ in 0..1000 {
        assert_eq!(bench.pass(SECOND), ["start root/outside/uplink"]);
        assert!(bench.start_failed("root/outside/uplink", want()).is_empty());
    }
    assert_eq!(bench.end(), None);
    // And it has used up nothing: one failure of another kind is still admitted.
    assert_eq!(bench.pass(SECOND), ["start root/outside/uplink"]);
    bench.started("root/outside/uplink");
    assert!(bench.fell("root/outside/uplink", failure()).is_empty());
    assert_eq!(bench.pass(SECOND), ["start root/outside/uplink"]);
}

#[test]
fn a_supervisor_that_gives_up_is_a_failed_child_of_its_parent() {
    let mut bench = Bench::up(&outside());
    bench.fell("root/outside/uplink", failure());
    bench.pass(SECOND);
    bench.started("root/outside/uplink");
    // One restart is all it may make.
    assert_eq!(
        bench.fell("root/outside/uplink", failure()),
        ["stop root/outside/canary"]
    );
    assert!(bench.stopped("root/outside/canary").is_empty());
    // Its parent starts it again after the delay of its own, with a clean slate, and nobody else was touched.
    assert_eq!(bench.pass(SECOND), ["start root/outside/uplink"]);
    assert_eq!(
        bench.started("root/outside/uplink"),
        ["start root/outside/canary"]
    );
    bench.started("root/outside/canary");
    assert!(bench.fell("root/outside/canary", failure()).is_empty());
    assert_eq!(bench.end(), None);
}

#[test]
fn delays_grow_with_failures_in_a_row_and_shrink_after_a_stable_time() {
    let backoff = Backoff {
        reset_after: 30 * SECOND,
        ..Backoff::between(SECOND, 64 * SECOND)
    };
    let spec = Supervisor::new("root", Strategy::OneForOne)
        .unlimited()
        .child(Child::permanent("a").backoff(backoff));
    let mut bench = Bench::up(&spec);
    let mut longest = Duration::ZERO;
    for _ in 0..40 {
        bench.fell("root/a", failure());
        longest = longest.max(bench.wait("root/a"));
        bench.pass(64 * SECOND);
        bench.started("root/a");
    }
    assert!(longest > 32 * SECOND, "{longest:?}");
    bench.pass(30 * SECOND);
    bench.fell("root/a", failure());
    assert!(bench.wait("root/a") <= 2 * SECOND);
}

#[test]
fn a_start_that_takes_too_long_is_killed_and_has_failed() {
    let mut bench = Bench::new(&three(Strategy::RestForOne));
    bench.launch();
    assert_eq!(bench.pass(10 * SECOND), ["kill root/a"]);
    assert!(bench.heard("root/a", &What::StartTooLong));
    bench.fell("root/a", Reason::Killed);
    assert_eq!(bench.last("root/a"), Some(Reason::StartTooLong));
    assert_eq!(bench.pass(SECOND), ["start root/a"]);
}

#[test]
fn one_that_is_stuck_is_killed_and_replaced() {
    let mut bench = Bench::up(&three(Strategy::OneForOne));
    assert_eq!(bench.stuck("root/b"), ["kill root/b"]);
    assert!(
        bench.pass(5 * SECOND).is_empty(),
        "the old one may still run"
    );
    bench.fell("root/b", Reason::Killed);
    assert_eq!(bench.last("root/b"), Some(Reason::Stuck));
    assert_eq!(bench.pass(SECOND), ["start root/b"]);
}

#[test]
fn one_that_does_not_hear_is_killed_at_its_deadline_and_the_shutdown_goes_on() {
    let mut bench = Bench::up(&three(Strategy::RestForOne));
    assert_eq!(bench.shutdown(), ["stop root/c"]);
    assert!(bench.pass(4 * SECOND).is_empty());
    assert_eq!(bench.pass(SECOND), ["kill root/c"]);
    assert_eq!(bench.fell("root/c", Reason::Killed), ["stop root/b"]);
}

#[test]
fn one_that_outlives_its_kill_ends_the_tree_and_is_never_doubled() {
    let mut bench = Bench::up(&three(Strategy::OneForOne));
    bench.stuck("root/b");
    assert_eq!(bench.pass(10 * SECOND), ["stop root/c"]);
    assert!(bench.heard("root/b", &What::Wedged));
    assert_eq!(bench.stopped("root/c"), ["stop root/a"]);
    bench.stopped("root/a");
    let Some(End::GaveUp(reason)) = bench.end() else {
        panic!("the tree should be over");
    };
    assert_eq!(reason.root_cause().1, &Reason::Wedged);
    assert_eq!(reason.class(), Class::Final);
}

#[test]
fn one_that_left_something_behind_is_waited_for() {
    let mut bench = Bench::up(&three(Strategy::OneForOne));
    assert_eq!(bench.dying("root/b", failure()), ["kill root/b"]);
    assert!(bench.pass(5 * SECOND).is_empty());
    bench.fell("root/b", Reason::Killed);
    assert_eq!(
        bench.last("root/b"),
        Some(failure()),
        "the first reason counts"
    );
    assert_eq!(bench.pass(SECOND), ["start root/b"]);
}

#[test]
fn late_news_change_nothing() {
    let mut bench = Bench::up(&three(Strategy::RestForOne));
    let old = bench.generation("root/b");
    bench.fell("root/b", failure());
    bench.stopped("root/c");
    bench.pass(SECOND);
    bench.started("root/b");
    bench.started("root/c");
    assert_ne!(bench.generation("root/b"), old);
    assert!(bench.late_fall("root/b", old).is_empty());
    assert!(bench.late_fall("root/nobody", Generation(99)).is_empty());
    assert_eq!(bench.state("root/b"), "up");
}

#[test]
fn a_shutdown_gets_in_while_everything_is_being_restarted() {
    let mut bench = Bench::up(&three(Strategy::RestForOne));
    bench.fell("root/a", failure());
    assert_eq!(
        bench.shutdown(),
        Vec::<String>::new(),
        "c is being stopped already"
    );
    assert_eq!(bench.stopped("root/c"), ["stop root/b"]);
    bench.stopped("root/b");
    assert_eq!(bench.end(), Some(End::ShutDown));
    assert!(
        bench.pass(60 * SECOND).is_empty(),
        "no restart comes after the end"
    );
}

#[test]
fn a_tree_that_is_going_down_starts_nothing_any_more() {
    let spec = Supervisor::new("root", Strategy::RestForOne)
        .supervisor(
            Supervisor::new("early", Strategy::OneForOne)
                .child(Child::permanent("a").backoff(steady(SECOND))),
        )
        .child(Child::permanent("late"));
    let mut bench = Bench::up(&spec);
    assert_eq!(bench.shutdown(), ["stop root/late"]);
    assert!(bench.fell("root/early/a", failure()).is_empty());
    assert!(bench.pass(2 * SECOND).is_empty(), "it would have been due");
    bench.stopped("root/late");
    assert_eq!(bench.end(), Some(End::ShutDown));
}

#[test]
fn a_start_under_way_is_killed_at_a_shutdown() {
    let mut bench = Bench::new(&three(Strategy::OneForAll));
    bench.launch();
    bench.started("root/a");
    assert_eq!(bench.shutdown(), ["kill root/b"]);
    assert_eq!(
        bench.start_failed("root/b", Reason::Killed),
        ["stop root/a"]
    );
    bench.stopped("root/a");
    assert_eq!(bench.end(), Some(End::ShutDown));
}

#[test]
fn a_transient_child_comes_back_after_a_failure_only_and_a_temporary_one_never() {
    let spec = Supervisor::new("root", Strategy::RestForOne)
        .child(Child::transient("a").backoff(steady(SECOND)))
        .child(Child::temporary("b"))
        .child(Child::permanent("c").backoff(steady(SECOND)));
    let mut bench = Bench::up(&spec);
    assert!(
        bench.fell("root/b", failure()).is_empty(),
        "c does not mind"
    );
    assert_eq!(bench.fell("root/a", failure()), ["stop root/c"]);
    bench.stopped("root/c");
    assert_eq!(bench.pass(SECOND), ["start root/a"]);
    assert_eq!(bench.started("root/a"), ["start root/c"], "b stays away");
    bench.started("root/c");
    assert!(bench.fell("root/a", Reason::Ended).is_empty());
    assert!(bench.pass(60 * SECOND).is_empty());
    assert_eq!(bench.fell("root/c", Reason::Ended), Vec::<String>::new());
    assert_eq!(
        bench.pass(SECOND),
        ["start root/c"],
        "a permanent one always does"
    );
}

#[test]
fn those_who_watch_hear_of_a_change_before_anything_follows_from_it() {
    let mut bench = Bench::up(&three(Strategy::RestForOne));
    let commands = bench.raw_fall("root/b", failure());
    assert!(
        matches!(&commands[0], crate::Command::Tell(change)
            if change.path.as_str() == "root/b" && matches!(change.what, What::Fell { .. })),
        "{commands:?}"
    );
}

#[test]
fn a_view_says_of_each_supervisor_who_falls_with_whom_below_it() {
    let spec = Supervisor::new("root", Strategy::RestForOne)
        .child(Child::permanent("first"))
        .supervisor(Supervisor::dynamic("many", 7))
        .supervisor(Supervisor::new("own", Strategy::OneForOne).child(Child::permanent("one")));

    let views = Tree::new(&spec, Seed::new(1)).view();

    let told: Vec<_> = views
        .iter()
        .map(|view| (view.path.as_str(), view.strategy.map(Strategy::as_str)))
        .collect();
    let expected = [
        ("root", Some("RestForOne")),
        ("root/first", None),
        ("root/many", Some("Dynamic")),
        ("root/own", Some("OneForOne")),
        ("root/own/one", None),
    ];
    assert_eq!(told, expected);
}
