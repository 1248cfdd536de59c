use super::*;

fn note(request: &str) -> v1::SessionNote {
    v1::SessionNote {
        kind: "exec".to_owned(),
        request: request.to_owned(),
        started_ms: 5,
        ..v1::SessionNote::default()
    }
}

fn code(code: i32) -> v1::Exit {
    v1::Exit {
        how: Some(How::Code(code)),
    }
}

fn signal(signal: i32) -> v1::Exit {
    v1::Exit {
        how: Some(How::Signal(signal)),
    }
}

fn ended(blames: &[Blame], exit: v1::Exit) -> String {
    let mut book = Book::default();
    book.enter(1, note(""));
    for blame in blames {
        book.blame(1, *blame);
    }
    book.end(1, exit, None, 9).expect("entered").reason
}

#[test]
fn an_end_is_entered_once_and_told_again() {
    let mut book = Book::default();
    book.enter(1, note(""));

    let first = book.end(1, code(3), None, 9).expect("entered");
    let second = book.end(1, code(4), None, 10).expect("known");

    assert_eq!(first, second);
    assert_eq!(first.exit, Some(code(3)));
    assert_eq!((first.started_ms, first.ended_ms), (5, 9));
    assert_eq!(book.end(2, code(0), None, 9), None);
}

#[test]
fn the_reason_is_who_ended_it_and_not_who_tried() {
    assert_eq!(ended(&[], signal(9)), "");
    assert_eq!(ended(&[Blame::Client(9)], signal(9)), "Killed");
    assert_eq!(ended(&[Blame::Client(15)], signal(11)), "");
    assert_eq!(
        ended(&[Blame::Halt, Blame::Client(9)], signal(9)),
        "Stopped"
    );
    assert_eq!(ended(&[Blame::Halt], signal(15)), "Stopped");
}

/// That a limit ended it is the launcher's word, whatever a keeper knows of it.
#[test]
fn a_limit_is_the_reason_when_the_launcher_says_so() {
    let ended = |blame: Option<Blame>| {
        let mut book = Book::default();
        book.enter(1, note(""));
        if let Some(blame) = blame {
            book.blame(1, blame);
        }
        let state = v1::SessionState {
            timed_out: true,
            ..v1::SessionState::default()
        };
        let ending = book.end(1, signal(9), Some(&state), 9);
        ending.expect("entered").reason
    };

    assert_eq!(ended(None), "Timeout");
    assert_eq!(ended(Some(Blame::Client(9))), "Timeout");
    assert_eq!(ended(Some(Blame::Halt)), "Timeout");
}

/// EX-18: what is kept of sessions is bounded, however many there were.
#[test]
fn the_history_is_bounded_and_its_requests_are_forgotten_with_it() {
    let mut book = Book::default();
    for session in 1..=3000 {
        book.enter(session, note(&format!("request {session}")));
        book.end(session, code(0), None, 9);
    }

    assert_eq!(book.past.len(), HISTORY);
    assert_eq!(book.requests.len(), HISTORY);
    assert_eq!(book.of_request("request 1"), None);
    assert_eq!(book.of_request("request 3000"), Some(3000));
    assert_eq!(book.find(1), None);
    assert_eq!(book.counts().total, 3000);
}

#[test]
fn a_session_is_entered_once() {
    let mut book = Book::default();

    assert!(book.enter(1, note("a")));
    assert!(!book.enter(1, note("a")));
    assert_eq!(book.of_request("a"), Some(1));
    assert_eq!(book.counts().total, 1);
}

#[test]
fn a_new_keeper_knows_what_the_old_one_knew() {
    let state = |session, exit: Option<v1::Exit>, note: &[u8]| v1::SessionState {
        session,
        note: note.to_vec(),
        ended_ms: if exit.is_some() { 8 } else { 0 },
        exit,
        stdout_bytes: 7,
        ..v1::SessionState::default()
    };
    let attached = v1::AttachReply {
        sessions: vec![
            state(1, Some(code(2)), b"one"),
            state(2, None, b"two"),
            state(3, None, b""),
            v1::SessionState {
                timed_out: true,
                ..state(4, Some(signal(9)), b"four")
            },
        ],
        total: 40,
        ..v1::AttachReply::default()
    };
    let read = |bytes: &[u8]| (!bytes.is_empty()).then(|| note(&String::from_utf8_lossy(bytes)));

    let book = Book::adopt(&attached, read);

    let rows = book.rows(&attached.sessions);
    assert_eq!(
        rows.iter().map(|row| row.session).collect::<Vec<_>>(),
        [1, 4, 2]
    );
    let ending = rows[0].ending.as_ref().expect("over");
    assert_eq!((ending.ended_ms, ending.stdout_bytes), (8, 7));
    let late = rows[1].ending.as_ref().expect("over");
    assert_eq!(late.reason, "Timeout");
    assert_eq!(
        book.counts(),
        v1::SessionCounts {
            running: 1,
            total: 40,
            failed: 0
        }
    );
    assert_eq!(book.of_request("two"), Some(2));
}

/// EX-01: nobody is told a status that nobody knows.
#[test]
fn what_ran_when_the_boundary_was_lost_ended_unknown() {
    let mut book = Book::default();
    book.enter(1, note(""));
    book.enter(2, note(""));
    book.end(1, code(0), None, 9);

    let lost = book.lose("the boundary is gone", 10);

    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].1.reason, BOUNDARY_LOST);
    assert_eq!(book.find(2), Some(Known::Past(lost[0].1.clone())));
    assert_eq!(book.counts().failed, 1);
}

#[test]
fn a_row_says_whether_somebody_reads() {
    let mut book = Book::default();
    book.enter(1, note(""));

    book.attend(1);
    book.attend(1);
    book.leave(1);
    assert!(book.rows(&[])[0].attended);
    book.leave(1);
    book.leave(1);
    assert!(!book.rows(&[])[0].attended);
}
