//! What a program has sent when it ends: it is delivered, unless whoever waits for the run is told to wait no longer.

use holdfast_tests::servers::{FOUR, Server};
use holdfast_tests::terminal::Terminal;
use holdfast_tests::wait::{LONG, now, until};
use holdfast_tests::{Area, Policy, Run, everyone, leaks, skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::Duration;
use tokio::io::Interest;

#[test]
fn a_signal_ends_the_wait_for_a_server_that_does_not_read() {
    if skip::program("python3").is_none() {
        return;
    }
    for area in everyone() {
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            let (server, reset) = deaf();
            let mut run = sending(&area, &server).held_input().start();
            run.expect("sent\n");
            let inside = leaks::descendants(run.pid().as_raw());
            run.end_input();
            one_has_ended(run.pid(), &inside);

            let begun = now();
            pressed(run.pid(), || kill(run.pid(), signal).is_err());
            let done = run.finish();
            let took = begun.elapsed();

            done.exited(3);
            assert!(took < PROMPT, "{took:?}: {done}");
            let records = done.about("origin.test", server.port());
            assert_eq!(records.len(), 1, "{done}");
            assert_eq!(records[0].text("outcome"), "connected", "{done}");
            reset.recv_timeout(LONG).expect("the server hears of it");
        }
    }
}

#[test]
fn a_time_limit_ends_the_wait_for_a_server_that_does_not_read() {
    if skip::program("python3").is_none() {
        return;
    }
    for area in everyone() {
        let (server, _reset) = deaf();
        let done = sending(&area, &server)
            .option("--timeout")
            .option("4s")
            .finish();
        // It has ended by itself, and within its time.
        done.exited(3);
        let waited = Duration::from_secs(3)..Duration::from_secs(8);
        assert!(waited.contains(&done.took), "{done}");
    }
}

/// The terminal is no longer the program's: Ctrl-C is a signal again.
#[test]
fn control_c_ends_the_wait_for_a_server_that_does_not_read() {
    if skip::program("python3").is_none() {
        return;
    }
    for area in everyone() {
        let (server, _reset) = deaf();
        let terminal = Terminal::start(sending(&area, &server).option("-t"), 24, 80);
        terminal.expect("sent");
        let inside = leaks::descendants(terminal.pid().as_raw());
        terminal.send("\x04");
        one_has_ended(terminal.pid(), &inside);

        let begun = now();
        pressed(terminal.pid(), || {
            terminal.send("\x03");
            false
        });
        let took = begun.elapsed();
        let (status, shown) = terminal.finish();

        assert_eq!(status.code(), Some(3), "{shown}");
        assert!(took < PROMPT, "{took:?}: {shown}");
    }
}

/// A program that sends as much as is taken, says so, waits for the end of its input and ends with 3.
fn sending<'a>(area: &'a Area, server: &Server) -> Run<'a> {
    let line = "import socket, sys\n\
                to = socket.create_connection(('origin.test', int(sys.argv[1])))\n\
                to.settimeout(0.3)\n\
                try:\n\
                \x20   while True: to.send(bytes(1 << 16))\n\
                except TimeoutError: pass\n\
                print('sent', flush=True)\n\
                sys.stdin.read()\n\
                sys.exit(3)\n";
    let port = server.port();
    Run::new(area, &Policy::origin(port)).command(["python3", "-c", line, &port.to_string()])
}

/// A server that reads nothing, and tells of each connection that was reset.
fn deaf() -> (Server, mpsc::Receiver<()>) {
    let (tell, told) = mpsc::channel();
    let server = Server::start(FOUR, move |stream| {
        let tell = tell.clone();
        async move {
            drop(stream.ready(Interest::ERROR).await);
            let _nobody_asks = tell.send(());
        }
    });
    (server, told)
}

/// Waits until one of `inside` is gone: it is the program, as the others end with the run.
fn one_has_ended(run: Pid, inside: &BTreeSet<i32>) {
    until("the program has ended", LONG, || {
        !leaks::descendants(run.as_raw()).is_superset(inside)
    });
}

/// Presses as an operator does who sees nothing happen, until it says that it is over or the run is gone: what meets the end of the program
/// itself was for that.
fn pressed(run: Pid, mut press: impl FnMut() -> bool) {
    until("the run has ended", LONG, || {
        let over = press() || kill(run, None).is_err();
        std::thread::park_timeout(Duration::from_millis(200));
        over
    });
}

/// Half of what it would wait for at most.
const PROMPT: Duration = Duration::from_secs(5);
