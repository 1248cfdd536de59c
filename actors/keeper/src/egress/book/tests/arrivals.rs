//! What arrives: calls, dials that end, connections, each judged by whose it is and where it leads.

use super::*;

#[test]
fn a_denied_attempt_fails_at_once_and_nothing_is_dialled() {
    let mut desk = Desk::new();

    assert_eq!(
        desk.attempt(1, FOREIGN, curl(), true),
        ["answer 1 13", "record denied host_not_allowed"]
    );
    assert_eq!(
        desk.attempt(2, GUARDED, wget(), false),
        ["answer 2 13", "record denied binary_not_allowed"]
    );
    assert_eq!(desk.book.pending(), 0);
}

#[test]
fn a_blocking_caller_learns_the_errno_of_the_upstream() {
    let mut desk = Desk::new();

    assert_eq!(desk.attempt(1, OPEN, wget(), true), ["dial 1 open.test"]);
    assert_eq!(
        desk.failed(1, libc::ECONNREFUSED),
        ["answer 1 111", "record failed 111"]
    );
    assert_eq!(desk.book.pending(), 0);
}

#[test]
fn a_blocking_caller_continues_to_the_upstream_that_was_dialled_for_it() {
    let mut desk = Desk::new();

    assert_eq!(desk.attempt(1, GUARDED, curl(), true), ["dial 1 curl.test"]);
    assert_eq!(desk.dialled(1, GUARDED), ["answer 1 0"]);
    assert_eq!(
        desk.accept(1, GUARDED),
        ["record connected 127.0.0.1", "relay 1"]
    );
    assert_eq!((desk.book.pending(), desk.book.open()), (0, 1));
    assert!(desk.step(Event::Closed { serial: Serial(1) }).is_empty());
    assert_eq!(desk.book.open(), 0);
}

#[test]
fn a_non_blocking_caller_is_let_go_while_the_dial_goes_on() {
    // SB-19: the connection may come before the dial is done, or after.
    let mut desk = Desk::new();

    assert_eq!(desk.attempt(1, OPEN, curl(), false), ["dial 1 open.test"]);
    assert_eq!(
        desk.step(Event::Released { serial: Serial(1) }),
        ["answer 1 0"]
    );
    assert_eq!(desk.accept(1, OPEN), ["await 1"]);
    assert_eq!(
        desk.dialled(1, OPEN),
        ["record connected 127.0.0.1", "relay 1"]
    );

    desk.attempt(2, OPEN, curl(), false);
    desk.step(Event::Released { serial: Serial(2) });
    assert!(desk.failed(2, libc::ETIMEDOUT).is_empty());
    assert_eq!(desk.accept(2, OPEN), ["record failed 110", "refuse"]);
}

#[test]
fn an_address_that_was_swapped_after_the_judgement_gains_nothing() {
    // SB-02: announced one destination, arrived at another.
    let mut desk = Desk::new();

    desk.attempt(1, OPEN, wget(), true);
    desk.dialled(1, OPEN);
    assert_eq!(
        desk.accept(1, FOREIGN),
        ["record denied host_not_allowed", "refuse"]
    );

    desk.attempt(2, OPEN, wget(), true);
    desk.dialled(2, OPEN);
    assert_eq!(
        desk.accept(2, GUARDED),
        ["record denied identity_unobservable", "refuse"]
    );

    // Allowed there to nobody in particular: but over a connection of its own.
    desk.attempt(3, GUARDED, curl(), true);
    desk.dialled(3, GUARDED);
    assert_eq!(desk.accept(3, OPEN), ["dial 4 open.test"]);
    assert!(
        desk.dialled(3, GUARDED).is_empty(),
        "the old dial is late news"
    );
    assert_eq!(
        desk.dialled(4, OPEN),
        ["record connected 127.0.0.1", "relay 4"]
    );
    assert_eq!(desk.book.counts().races, 3);
}

#[test]
fn a_dial_under_way_to_the_wrong_place_is_cancelled() {
    let mut desk = Desk::new();
    desk.attempt(1, OPEN, curl(), false);
    desk.step(Event::Released { serial: Serial(1) });

    assert_eq!(
        desk.accept(1, FOREIGN),
        ["cancel 1", "record denied host_not_allowed", "refuse"]
    );
}

#[test]
fn a_caller_that_cannot_be_observed_is_served_by_rules_that_name_no_program() {
    let mut desk = Desk::new();

    // Its arrival was announced by nobody.
    assert_eq!(desk.accept(1, OPEN), ["dial 1 open.test"]);
    assert_eq!(
        desk.dialled(1, OPEN),
        ["record connected 127.0.0.1", "relay 1"]
    );
    assert_eq!(
        desk.accept(2, GUARDED),
        ["record denied identity_unobservable", "refuse"]
    );

    // Its socket could be seen, its program not.
    assert_eq!(
        desk.attempt(3, GUARDED, Caller::UNKNOWN, true),
        ["answer 3 13", "record denied identity_unobservable"]
    );
    assert_eq!(desk.book.counts().unannounced, 2);
}

#[test]
fn a_caller_whose_memory_is_unreadable_is_judged_when_it_arrives() {
    let mut desk = Desk::new();
    let blind = |call| Attempted {
        hint: None,
        ..attempted(call, OPEN, curl(), true)
    };

    assert_eq!(desk.step(Event::Attempted(blind(1))), ["answer 1 0"]);
    assert_eq!(
        desk.accept(1, GUARDED),
        ["dial 1 curl.test".replace('1', "2")]
    );
    assert_eq!(desk.step(Event::Attempted(blind(2))), ["answer 2 0"]);
    assert_eq!(
        desk.accept(2, FOREIGN),
        ["record denied host_not_allowed", "refuse"]
    );
}

#[test]
fn a_second_connect_on_one_socket_ends_the_first() {
    // Interrupted by a signal and begun again: same socket, another call.
    let mut desk = Desk::new();
    desk.attempt(1, OPEN, curl(), true);

    let again = Attempted {
        call: 9,
        ..attempted(1, OPEN, curl(), true)
    };
    let told = desk.step(Event::Attempted(again));

    assert_eq!(
        told,
        [
            "answer 1 0",
            "record abandoned",
            "cancel 1",
            "dial 2 open.test"
        ]
    );
    assert_eq!(desk.book.pending(), 1);
}

/// A socket that was disconnected and passed on: the keeper may not have seen the end of its connection yet.
#[test]
fn a_socket_that_connects_again_is_judged_by_who_has_it_now() {
    let again = |to, caller| Attempted {
        call: 9,
        ..attempted(1, to, caller, true)
    };
    let mut relayed = Desk::new();
    relayed.attempt(1, GUARDED, curl(), true);
    relayed.dialled(1, GUARDED);
    relayed.accept(1, GUARDED);
    let mut awaited = Desk::new();
    awaited.attempt(1, GUARDED, curl(), false);
    awaited.step(Event::Released { serial: Serial(1) });
    awaited.accept(1, GUARDED);

    assert_eq!(
        relayed.step(Event::Attempted(again(GUARDED, wget()))),
        ["answer 9 13", "record denied binary_not_allowed"]
    );
    assert_eq!(
        awaited.step(Event::Attempted(again(GUARDED, wget()))),
        [
            "record abandoned",
            "cancel 1",
            "refuse",
            "answer 9 13",
            "record denied binary_not_allowed"
        ]
    );
    for desk in [&mut relayed, &mut awaited] {
        assert_eq!(
            desk.accept(1, GUARDED),
            ["record denied identity_unobservable", "refuse"],
            "nobody announced it"
        );
        assert_eq!(
            desk.step(Event::Attempted(again(OPEN, wget())))[0],
            "dial 2 open.test"
        );
    }
}

#[test]
fn a_denied_connect_ends_what_its_socket_was_announced_for_before() {
    let mut desk = Desk::new();
    desk.attempt(1, GUARDED, curl(), true);
    desk.dialled(1, GUARDED);

    let again = Attempted {
        call: 9,
        ..attempted(1, GUARDED, wget(), true)
    };

    assert_eq!(
        desk.step(Event::Attempted(again)),
        [
            "record abandoned",
            "answer 9 13",
            "record denied binary_not_allowed"
        ]
    );
    assert_eq!(
        desk.accept(1, GUARDED),
        ["record denied identity_unobservable", "refuse"]
    );
}

#[test]
fn without_room_to_dial_ahead_the_connection_waits_in_the_backlog() {
    let mut desk = Desk::new();
    desk.attempt(1, OPEN, curl(), true);

    assert_eq!(
        desk.step(Event::Deferred { serial: Serial(1) }),
        ["answer 1 0"]
    );
    assert_eq!(desk.accept(1, OPEN), ["dial 2 open.test"]);
}

#[test]
fn without_room_for_its_record_nothing_is_allowed() {
    let mut desk = Desk::new();

    let attempt = Attempted {
        slot: None,
        ..attempted(1, OPEN, curl(), true)
    };
    assert_eq!(
        desk.step(Event::Attempted(attempt)),
        ["answer 1 105", "record unrecorded"]
    );

    let destination = at(OPEN, PORT);
    let arrival = Accepted {
        cookie: None,
        destination,
        waiter: destination,
        slot: None,
    };
    assert_eq!(
        desk.step(Event::Accepted(arrival)),
        ["record unrecorded", "refuse"]
    );
}

#[test]
fn the_book_is_bounded_and_says_when_it_is_full() {
    let mut desk = Desk::new();
    for call in 1..=PENDING as u64 {
        desk.attempt(call, OPEN, curl(), true);
    }

    assert_eq!(
        desk.attempt(99_999, OPEN, curl(), true),
        ["answer 99999 105", "record crowded"]
    );
    assert_eq!(
        (desk.book.pending(), desk.book.counts().crowded),
        (PENDING, 1)
    );
    // A denial needs no room.
    assert_eq!(
        desk.attempt(99_998, FOREIGN, curl(), true)[0],
        "answer 99998 13"
    );
}
