//! A signal that meets a connect ends the call at most, as outside: the connect stays under way and has one outcome. (Promise 1.)

use holdfast_tests::probe::{outside, probe};
use holdfast_tests::servers::refusing::Blackhole;
use holdfast_tests::servers::{FOUR, SIX, tcp};
use holdfast_tests::wait::{LONG, until};
use holdfast_tests::{Policy, Record, Run, everyone, stat};
use nix::sys::signal::Signal;
use std::fs;

/// A program that waits for the socket then, as Python does, must not take one that is not under way for connected.
#[test]
fn a_connect_whose_call_a_signal_ends_stays_under_way() {
    if probe().is_none() {
        return;
    }
    let hole = Blackhole::at(FOUR);
    let native = std::thread::spawn({
        let words = format!("alarmed {FOUR} {} 0 0", hole.port());
        move || outside(&words)
    });
    for area in everyone() {
        for (ip, name) in [(FOUR, "origin.test"), (SIX, "origin.test/6")] {
            let hole = Blackhole::at(ip);
            let port = hole.port();
            let policy = Policy::offline().host("origin.test", &[ip]);
            let run = Run::new(&area, &policy.rule("origin", "origin.test", port))
                .attempt(&format!("alarmed {name} {port} 0 0"))
                .start();
            run.expect("peer=");

            let answers = hole.open();
            let done = run.finish();

            assert_eq!(done.answer("connect"), "EINTR", "{done}");
            assert_eq!(done.answer("writable"), "0", "{done}");
            assert_eq!(done.answer("peer"), "ENOTCONN", "{done}");
            assert_eq!(done.answer("outcome"), "ok", "{done}");
            assert_eq!(done.answer("answer"), "hello", "{done}");
            answers.join().expect("one was answered");
            let records = done.about("origin.test", port);
            assert_eq!(records.len(), 1, "{done}");
            assert_eq!(records[0].text("outcome"), "connected", "{done}");
        }
    }
    let answers = hole.open();
    let native = native.join().expect("it ends");
    answers.join().expect("answered");
    for (question, answer) in [
        ("connect", "EINTR"),
        ("peer", "ENOTCONN"),
        ("answer", "hello"),
    ] {
        assert_eq!(native[question], answer, "outside: {native:?}");
    }
}

/// Each signal makes the call anew, and the connect goes on where it was.
#[test]
fn a_connect_whose_call_is_made_again_after_each_signal_ends() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let hole = Blackhole::at(FOUR);
        let port = hole.port();
        let run = Run::new(&area, &Policy::origin(port))
            .attempt(&format!("alarmed origin.test {port} 1 0"))
            .start();
        run.expect("handled");

        let answers = hole.open();
        let done = run.finish();

        assert_eq!(done.answer("connect"), "ok", "{done}");
        assert_eq!(done.answer("answer"), "hello", "{done}");
        answers.join().expect("one was answered");
        assert_eq!(done.about("origin.test", port).len(), 1, "{done}");
    }
}

/// Its packets are its own affair: the call ends and may be made again.
#[test]
fn a_socket_that_says_itself_which_packets_it_takes_is_left_alone() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let hole = Blackhole::at(FOUR);
        let port = hole.port();
        let done = Run::new(&area, &Policy::origin(port))
            .attempt(&format!("alarmed origin.test {port} 0 1"))
            .finish();

        assert_eq!(done.answer("connect"), "EINTR", "{done}");
        let records = done.about("origin.test", port);
        assert_eq!(records.len(), 1, "{done}");
        assert_eq!(records[0].text("outcome"), "abandoned", "{done}");
    }
}

/// A verdict that comes when the call has ended is obeyed all the same.
#[test]
fn a_connect_that_is_refused_after_its_call_has_ended_fails() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let (allowed, other) = (tcp::echo(FOUR), tcp::echo(FOUR));
        let (it, port) = (probe.display(), other.port());
        // It asks for the address while there is somebody to ask.
        let run = Run::new(&area, &Policy::origin(allowed.port()))
            .shell(&format!(
                "address=$(getent ahostsv4 origin.test | sed 's/ .*//;q'); echo begun; \
                 while ! test -e go; do sleep 0.02; done; {it} alarmed $address {port} 0 0 > said; cat said"
            ))
            .start();
        run.expect("begun");
        stat::stop(run.pid());
        fs::write(area.work().join("go"), "").expect("let it go on");
        let said = area.work().join("said");
        until("the call has ended", LONG, || {
            fs::read_to_string(&said).is_ok_and(|text| text.contains("peer=ENOTCONN"))
        });

        run.signal(Signal::SIGCONT);
        let done = run.finish();

        assert_eq!(done.answer("connect"), "EINTR", "{done}");
        assert_eq!(done.answer("outcome"), "ECONNRESET", "{done}");
        assert_eq!(other.accepted(), 0, "{done}");
        let records = done.about("origin.test", port);
        assert_eq!(records.len(), 1, "{done}");
        assert!(!records[0].allowed(), "{done}");
    }
}

/// SB-12: an interrupted connect is the only thing a signal may cause.
#[test]
fn signals_during_connect_are_the_programs_own_affair() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let done = Run::new(&area, &Policy::origin(server.port()))
            .attempt(&format!(
                "interrupted origin.test {} 1000 10 0",
                server.port()
            ))
            .finish();
        let number = |name| done.answer(name).parse::<u32>().expect("a number");
        // A signal that comes while the verdict is awaited interrupts the call, as it may outside; nothing else may happen.
        assert_eq!(
            number("good") + number("interrupted"),
            1000,
            "{}",
            done.text()
        );
        assert!(number("good") > 100, "{}", done.text());
    }
}

/// SB-12: it leaves no second connection behind.
#[test]
fn a_connect_that_a_signal_restarts_succeeds() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let done = Run::new(&area, &Policy::origin(server.port()))
            .attempt(&format!(
                "interrupted origin.test {} 1000 1 1",
                server.port()
            ))
            .finish();
        assert_eq!(done.answer("good"), "1000", "{}", done.text());
        // A call that the signal took back is an attempt of its own: recorded, and never a second connection that stays.
        let came_of_it = |outcome| {
            let of = |record: &&Record| record.allowed() && record.text("outcome") == outcome;
            done.records.iter().filter(of).count()
        };
        assert_eq!(came_of_it("connected"), 1000, "{}", done.text());
        let recorded = came_of_it("connected") + came_of_it("abandoned");
        assert_eq!(recorded, done.records.len(), "{}", done.text());
        assert!(
            server.accepted() <= recorded,
            "{} arrived",
            server.accepted()
        );
    }
}
