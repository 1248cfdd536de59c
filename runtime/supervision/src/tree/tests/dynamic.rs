//! Children that come and go.

use super::bench::{Bench, failure};
use super::{SECOND, steady};
use crate::{Child, End, Fault, Refusal, Strategy, Supervisor};

fn sessions() -> Supervisor {
    Supervisor::new("root", Strategy::RestForOne)
        .child(Child::permanent("link").backoff(steady(SECOND)))
        .supervisor(Supervisor::dynamic("sessions", 2))
}

#[test]
fn a_wanted_child_is_started_at_once() {
    let mut bench = Bench::up(&sessions());
    assert_eq!(
        bench.want("root/sessions", Child::temporary("s1")),
        ["start root/sessions/s1"]
    );
}

#[test]
fn one_too_many_is_refused_and_room_is_found_again() {
    let mut bench = Bench::up(&sessions());
    for id in ["s1", "s2"] {
        bench.want("root/sessions", Child::temporary(id));
        bench.started(&format!("root/sessions/{id}"));
    }
    assert!(
        bench
            .want("root/sessions", Child::temporary("s3"))
            .is_empty()
    );
    assert_eq!(
        bench.refusal("root/sessions/s3"),
        Some(Refusal::Full { most: 2 })
    );
    bench.fell("root/sessions/s1", crate::Reason::Ended);
    assert!(bench.forgot("root/sessions/s1"));
    assert_eq!(
        bench.want("root/sessions", Child::temporary("s3")),
        ["start root/sessions/s3"]
    );
}

#[test]
fn a_name_is_given_once_at_a_time() {
    let mut bench = Bench::up(&sessions());
    bench.want("root/sessions", Child::temporary("s1"));
    assert!(
        bench
            .want("root/sessions", Child::temporary("s1"))
            .is_empty()
    );
    assert_eq!(bench.refusal("root/sessions/s1"), Some(Refusal::Duplicate));
}

#[test]
fn only_a_dynamic_supervisor_that_is_up_takes_children() {
    let mut bench = Bench::new(&sessions());
    bench.launch();
    bench.want("root/sessions", Child::temporary("early"));
    assert_eq!(bench.refusal("root/sessions/early"), Some(Refusal::Down));
    bench.started("root/link");
    for nowhere in ["root", "root/link", "root/other", "elsewhere"] {
        bench.want(nowhere, Child::temporary("s"));
        assert_eq!(
            bench.refusal(&format!("{nowhere}/s")),
            Some(Refusal::Unknown)
        );
    }
}

#[test]
fn a_first_start_that_fails_is_refused_and_not_tried_again() {
    let mut bench = Bench::up(&sessions());
    bench.want("root/sessions", Child::permanent("s1"));
    let want = Fault::exhausted("open: too many open files");
    bench.start_failed("root/sessions/s1", want.clone().into());
    assert_eq!(
        bench.refusal("root/sessions/s1"),
        Some(Refusal::StartFailed(want.into()))
    );
    assert!(bench.forgot("root/sessions/s1"));
    assert!(bench.pass(60 * SECOND).is_empty());
}

#[test]
fn a_child_that_was_up_is_restarted_like_any_other() {
    let mut bench = Bench::up(&sessions());
    bench.want(
        "root/sessions",
        Child::permanent("s1").backoff(steady(SECOND)),
    );
    bench.started("root/sessions/s1");
    bench.fell("root/sessions/s1", failure());
    assert_eq!(bench.pass(SECOND), ["start root/sessions/s1"]);
}

#[test]
fn one_that_is_not_wanted_any_more_is_stopped_and_forgotten() {
    let mut bench = Bench::up(&sessions());
    bench.want("root/sessions", Child::permanent("s1"));
    bench.started("root/sessions/s1");
    assert_eq!(bench.unwant("root/sessions/s1"), ["stop root/sessions/s1"]);
    bench.stopped("root/sessions/s1");
    assert!(bench.forgot("root/sessions/s1"));
    assert!(bench.unwant("root/sessions/s1").is_empty());
    assert!(
        bench.unwant("root/link").is_empty(),
        "a written child stays"
    );
}

#[test]
fn all_are_stopped_at_once_when_their_supervisor_falls_and_nobody_comes_back() {
    let mut bench = Bench::up(&sessions());
    for id in ["s1", "s2"] {
        bench.want("root/sessions", Child::permanent(id));
        bench.started(&format!("root/sessions/{id}"));
    }
    assert_eq!(
        bench.fell("root/link", failure()),
        ["stop root/sessions/s2", "stop root/sessions/s1"]
    );
    bench.stopped("root/sessions/s1");
    bench.stopped("root/sessions/s2");
    assert!(bench.forgot("root/sessions/s1") && bench.forgot("root/sessions/s2"));
    assert_eq!(bench.pass(SECOND), ["start root/link"]);
    assert!(bench.started("root/link").is_empty());
    // It is up again, and empty.
    assert_eq!(
        bench.want("root/sessions", Child::permanent("s1")),
        ["start root/sessions/s1"]
    );
}

#[test]
fn whoever_wants_something_of_a_tree_that_is_over_hears_so() {
    let mut bench = Bench::up(&sessions());
    bench.shutdown();
    bench.stopped("root/link");
    assert_eq!(bench.end(), Some(End::ShutDown));
    bench.want("root/sessions", Child::temporary("s1"));
    assert_eq!(bench.refusal("root/sessions/s1"), Some(Refusal::Down));
}
