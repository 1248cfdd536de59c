//! What ends: attempts that are given up, expire or are revised away, and the book itself. Each leaves one record.

use super::*;

#[test]
fn a_call_that_nobody_can_listen_for_leaves_one_record_and_lets_go_of_its_dial() {
    let mut desk = Desk::new();
    let unheard = |call| Event::Unheard {
        call,
        why: Unheard {
            errno: libc::EADDRNOTAVAIL,
            detail: "listen: in use".to_owned(),
        },
    };

    // Its dial was done, or is under way.
    desk.attempt(1, OPEN, curl(), true);
    desk.dialled(1, OPEN);
    assert_eq!(desk.step(unheard(1)), ["record unheard 99"]);
    desk.attempt(2, OPEN, curl(), false);
    desk.step(Event::Released { serial: Serial(2) });
    assert_eq!(desk.step(unheard(2)), ["record unheard 99", "cancel 2"]);

    assert_eq!(desk.book.pending(), 0);
    assert!(desk.step(Event::Gone { call: 1 }).is_empty());
    assert!(desk.step(unheard(2)).is_empty());
}

#[test]
fn a_caller_that_leaves_is_recorded_and_its_dial_cancelled() {
    let mut desk = Desk::new();

    desk.attempt(1, OPEN, curl(), true);
    assert_eq!(
        desk.step(Event::Gone { call: 1 }),
        ["record abandoned", "cancel 1"]
    );
    assert!(desk.dialled(1, OPEN).is_empty());

    // The verdict was on its way when the caller was killed.
    desk.attempt(2, OPEN, curl(), true);
    desk.dialled(2, OPEN);
    assert_eq!(desk.step(Event::Gone { call: 2 }), ["record abandoned"]);

    // Its connection came: the news is late.
    desk.attempt(3, OPEN, curl(), true);
    desk.dialled(3, OPEN);
    desk.accept(3, OPEN);
    assert!(desk.step(Event::Gone { call: 3 }).is_empty());
}

#[test]
fn what_no_connection_comes_for_expires() {
    let mut desk = Desk::new();
    desk.attempt(1, OPEN, curl(), true);
    desk.dialled(1, OPEN);

    desk.now = Moment::ORIGIN + LIFETIME - Duration::from_millis(1);
    assert!(desk.step(Event::Passed).is_empty());
    desk.now = Moment::ORIGIN + LIFETIME;
    assert_eq!(desk.step(Event::Passed), ["record abandoned"]);
    assert_eq!(desk.book.counts().expired, 1);
}

#[test]
fn what_waits_in_the_backlog_keeps_its_caller_and_gives_back_its_upstream() {
    let mut desk = Desk::new();
    desk.attempt(1, GUARDED, curl(), true);
    desk.dialled(1, GUARDED);

    for _ in 0..3 {
        desk.now += LIFETIME;
        assert!(desk.step(Event::Held).is_empty());
    }

    assert_eq!(desk.accept(1, GUARDED), ["dial 2 curl.test"]);
}

#[test]
fn what_was_prepared_for_a_connection_that_was_reset_does_not_wait_for_it_long() {
    let mut desk = Desk::new();
    let reset = |desk: &mut Desk| {
        let destination = at(OPEN, PORT);
        desk.step(Event::Reset { destination })
    };
    for call in [1, 2] {
        desk.attempt(call, OPEN, curl(), true);
        desk.dialled(call, OPEN);
    }
    desk.attempt(3, OPEN, curl(), false);
    desk.step(Event::Released { serial: Serial(3) });
    desk.attempt(4, GUARDED, curl(), true);
    desk.dialled(4, GUARDED);

    assert!(reset(&mut desk).is_empty());
    assert!(desk.step(Event::Passed).is_empty());
    desk.now += Duration::from_millis(1);
    assert_eq!(
        desk.accept(1, OPEN),
        ["record connected 127.0.0.1", "relay 1"],
        "the other one was reset"
    );
    desk.dialled(3, OPEN);

    desk.now = Moment::ORIGIN + TARDY;
    let ended = desk.step(Event::Passed);
    assert_eq!(ended, ["record abandoned", "record abandoned"]);
    assert_eq!(desk.book.pending(), 1, "elsewhere nothing was reset");
}

#[test]
fn a_caller_is_answered_even_if_its_dial_is_never_heard_of_again() {
    let mut desk = Desk::new();
    desk.attempt(1, OPEN, curl(), true);

    desk.now = Moment::ORIGIN + DIALLING;

    assert_eq!(
        desk.step(Event::Passed),
        ["answer 1 110", "record abandoned", "cancel 1"]
    );
}

#[test]
fn a_revised_policy_closes_what_it_denies_and_judges_what_is_pending() {
    let mut desk = Desk::new();
    for call in [1, 2] {
        desk.attempt(call, OPEN, curl(), true);
        desk.dialled(call, OPEN);
    }
    desk.accept(1, OPEN);

    desk.court = desk.court.under(Arc::new(Policy::standard()));

    assert_eq!(
        desk.step(Event::Revised),
        ["record withdrawn host_not_allowed", "close 1"]
    );
    assert_eq!(
        desk.accept(2, OPEN),
        ["record denied host_not_allowed", "refuse"]
    );
    assert!(
        desk.step(Event::Revised).is_empty(),
        "one verdict, one record"
    );
}

#[test]
fn a_policy_revised_during_the_dial_counts() {
    let mut desk = Desk::new();
    assert_eq!(desk.accept(1, OPEN), ["dial 1 open.test"]);

    desk.court = desk.court.under(Arc::new(Policy::standard()));
    desk.step(Event::Revised);

    assert_eq!(
        desk.dialled(1, OPEN),
        ["record denied host_not_allowed", "refuse"]
    );
}

#[test]
fn a_revised_policy_closes_what_leads_to_an_address_it_no_longer_admits() {
    let mut desk = Desk::new();
    desk.attempt(1, OPEN, curl(), true);
    desk.dialled(1, OPEN);
    desk.accept(1, OPEN);
    desk.attempt(2, OPEN, curl(), true);
    desk.dialled(2, OPEN);

    let text = format!(
        "version: 1\nnetwork_policies: {{open: {{endpoints: [{{host: open.test, port: {PORT}}}]}}}}\n"
    );
    let revised = Arc::new(Policy::parse("test", &text).expect("a policy"));
    desk.court = desk.court.under(revised);

    assert_eq!(
        desk.step(Event::Revised),
        ["record withdrawn address_refused", "close 1"]
    );
    assert_eq!(
        desk.accept(2, OPEN),
        ["record denied address_refused", "refuse"]
    );
}

#[test]
fn at_the_end_each_pending_attempt_leaves_one_record() {
    let mut desk = Desk::new();
    desk.attempt(1, OPEN, curl(), true);
    assert_eq!(
        desk.step(Event::Over),
        ["answer 1 100", "record abandoned", "cancel 1"]
    );
    desk.attempt(2, OPEN, curl(), true);
    desk.dialled(2, OPEN);
    assert_eq!(desk.step(Event::Over), ["record abandoned"]);
    desk.accept(3, OPEN);
    assert_eq!(
        desk.step(Event::Over),
        ["record abandoned", "cancel 3", "refuse"]
    );

    assert!(desk.step(Event::Over).is_empty());
    assert!(desk.dialled(1, OPEN).is_empty(), "late news");
}

#[test]
fn a_connection_that_is_dropped_while_it_waits_is_recorded() {
    let mut desk = Desk::new();
    desk.accept(1, OPEN);

    let told = desk.step(Event::Closed { serial: Serial(1) });

    assert_eq!(told, ["record abandoned", "cancel 1", "refuse"]);
}
