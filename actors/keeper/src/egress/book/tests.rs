use super::*;
use crate::egress::attempt::{Caller, Unheard};
use crate::egress::court::Court;
use crate::egress::testing::{FOREIGN, GUARDED, OPEN, at, curl, policy, table, wget};
use holdfast_observability::Place;
use holdfast_policy::Policy;
use std::num::NonZeroU64;
use std::sync::Arc;

mod interleavings;

/// The tokens say what they were made for, so that a mix-up shows.
#[derive(Debug)]
struct Tokens;

impl Hands for Tokens {
    type Upstream = SocketAddr;
    type Waiter = SocketAddr;
    type Slot = Slot;

    fn place(_: &Slot) -> Place {
        Place::default()
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Slot;

const PORT: u16 = 443;
const REAL: [u8; 4] = [127, 0, 0, 1];

struct Desk {
    book: Book<Tokens>,
    court: Court,
    now: Moment,
}

impl Desk {
    fn new() -> Desk {
        let court = Court::new(policy(PORT), Arc::new(table()));
        Desk {
            book: Book::default(),
            court,
            now: Moment::ORIGIN,
        }
    }

    fn step(&mut self, event: Event<Tokens>) -> Vec<String> {
        let commands = self.book.step(event, self.now, &self.court);
        commands.iter().map(shown).collect()
    }

    fn attempt(&mut self, call: u64, to: [u8; 4], caller: Caller, blocking: bool) -> Vec<String> {
        self.step(Event::Attempted(attempted(call, to, caller, blocking)))
    }

    fn accept(&mut self, cookie: u64, to: [u8; 4]) -> Vec<String> {
        let destination = at(to, PORT);
        let cookie = NonZeroU64::new(cookie);
        self.step(Event::Accepted(Accepted {
            cookie,
            destination,
            waiter: destination,
            slot: Some(Slot),
        }))
    }

    fn dialled(&mut self, serial: u64, to: [u8; 4]) -> Vec<String> {
        let (upstream, address) = (at(to, PORT), at(REAL, PORT));
        self.step(Event::Dialled {
            serial: Serial(serial),
            upstream,
            address,
        })
    }

    fn failed(&mut self, serial: u64, errno: i32) -> Vec<String> {
        self.step(Event::DialFailed {
            serial: Serial(serial),
            failure: Failure::Errno(errno),
        })
    }
}

/// The call is the cookie of its socket.
fn attempted(call: u64, to: [u8; 4], caller: Caller, blocking: bool) -> Attempted<Tokens> {
    Attempted {
        call,
        cookie: NonZeroU64::new(call),
        hint: Some(at(to, PORT)),
        blocking,
        patience: None,
        caller,
        slot: Some(Slot),
    }
}

/// One word per command, so that a test reads as a story.
fn shown(command: &Command<Tokens>) -> String {
    match command {
        Command::Answer { call, errno, .. } => format!("answer {call} {errno}"),
        Command::Dial(dial) => format!("dial {} {}", dial.serial.0, dial.target),
        Command::Cancel(serial) => format!("cancel {}", serial.0),
        Command::Await(serial) => format!("await {}", serial.0),
        Command::Relay {
            serial,
            waiter,
            upstream,
        } => {
            assert_eq!(
                waiter, upstream,
                "an upstream serves the destination it was dialled for"
            );
            format!("relay {}", serial.0)
        }
        Command::Refuse(_) => "refuse".to_owned(),
        Command::Close(serial) => format!("close {}", serial.0),
        Command::Record { report, .. } => format!("record {}", fate(&report.fate)),
    }
}

fn fate(fate: &Fate) -> String {
    match fate {
        Fate::Denied(denied) => format!("denied {}", denied.reason),
        Fate::Own => "own".to_owned(),
        Fate::Connected(address) => format!("connected {}", address.ip()),
        Fate::Failed(errno) => format!("failed {errno}"),
        Fate::Abandoned => "abandoned".to_owned(),
        Fate::Unheard(why) => format!("unheard {}", why.errno),
        Fate::Unknown => "unknown".to_owned(),
        Fate::Crowded => "crowded".to_owned(),
        Fate::Unrecorded => "unrecorded".to_owned(),
        Fate::Withdrawn(denied) => format!("withdrawn {}", denied.reason),
    }
}

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
