//! Readers that go away, and what becomes of the program that writes to them. (EX-26, EX-28.)

use holdfast_tests::wait::{LONG, until};
use holdfast_tests::{Area, Host, Policy, Run, everyone};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

/// EX-26, EX-28: one that ignores SIGPIPE, as Python, Go and Node do, gets EPIPE as outside, and has its other stream still.
#[test]
fn a_writer_that_ignores_sigpipe_is_told_that_its_reader_has_gone() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready(QA, "");
        let line =
            "trap '' PIPE; while echo y; do :; done 2>/dev/null; echo heard >&2; : >over; exit 7";
        for run in [
            host.exec(QA, &["sh", "-c", line]),
            Run::new(&area, &Policy::offline()).shell(line),
        ] {
            let mut child = begun(&run);
            drop(child.stdout.take());

            until("it has heard", LONG, || over(&area));
            let mut told = String::new();
            let mut errors = child.stderr.take().expect("a pipe");
            errors.read_to_string(&mut told).expect("text");
            let code = child.wait().expect("it ends").code();
            assert_eq!(told, "heard\n");
            // A busy machine may take longer for it than `exec` waits.
            assert!([Some(7), Some(BY_SIGPIPE)].contains(&code), "{code:?}");
        }
    }
}

/// EX-28: errors are a stream of their own: who reads the output goes on with it.
#[test]
fn a_reader_of_errors_that_goes_away_ends_that_stream_alone() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready(QA, "");
        let line = "trap '' PIPE; echo y; while echo y >&2; do :; done; echo out; exit 7";
        let deaf = host.exec(QA, &["sh", "-c", line]);
        let plain = host.exec(QA, &["sh", "-c", "echo y; exec yes >&2"]);
        for (run, code, rest) in [(deaf, 7, "out\n"), (plain, BY_SIGPIPE, "")] {
            let mut child = begun(&run);
            drop(child.stderr.take());

            until("it has ended", LONG, || {
                child.try_wait().expect("asked").is_some()
            });
            let done = child.wait_with_output().expect("it ended");
            assert_eq!(String::from_utf8_lossy(&done.stdout), format!("\n{rest}"));
            assert_eq!(done.status.code(), Some(code));
        }
    }
}

/// EX-19: a reader who has stopped holds up nobody who was told to end.
#[test]
fn a_reader_who_reads_nothing_keeps_no_killed_program() {
    for area in everyone() {
        let line = "trap '' TERM; exec yes";
        let timed = Run::new(&area, &Policy::offline())
            .option("--timeout")
            .option("1s")
            .shell(line);
        let mut child = begun(&timed);
        assert_eq!(code_of(&mut child), Some(124));

        let mut child = begun(&Run::new(&area, &Policy::offline()).shell(line));
        let pid = Pid::from_raw(child.id().try_into().expect("a pid"));
        for _ in 0..2 {
            kill(pid, Signal::SIGTERM).expect("it is there");
            // The same signal twice in a moment is one.
            std::thread::sleep(Duration::from_millis(300));
        }
        assert_eq!(code_of(&mut child), Some(128 + libc::SIGKILL));
    }
}

/// Nor does he outlast the time that the whole was given. Its own status would say that all of its output is there.
#[test]
fn a_reader_who_reads_nothing_keeps_a_program_that_has_ended_until_its_time_is_up() {
    for area in everyone() {
        // More than our pipe holds, and no more than that and the program's own.
        let line = "head -c 100000 /dev/zero; : >over; exit 3";
        let timed = Run::new(&area, &Policy::offline())
            .option("--timeout")
            .option("3s")
            .shell(line);

        let mut child = begun(&timed);
        let code = code_of(&mut child);

        let mut told = String::new();
        let mut errors = child.stderr.take().expect("a pipe");
        errors.read_to_string(&mut told).expect("text");
        assert_eq!(code, Some(124), "{told}");
        assert!(told.contains("ended with status 3"), "{told}");
        assert!(over(&area), "it had ended by itself");
    }
}

/// EX-26: a terminal of one's own is hung up when nobody reads what it shows, be that no terminal.
#[test]
fn a_terminal_of_ones_own_is_hung_up_when_its_reader_has_gone() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready(QA, "");
        let mut child = begun(&host.exec(&format!("{QA} -t"), &["sh", "-c", "yes"]));
        drop(child.stdout.take());

        let code = child.wait().expect("it ends").code();
        assert!(
            [Some(128 + libc::SIGHUP), Some(BY_SIGPIPE)].contains(&code),
            "{code:?}"
        );
        until("it has ended", LONG, || {
            let listed = host.done(&format!("sessions {QA}")).text();
            !listed
                .lines()
                .any(|row| row.contains("yes") && row.contains("running"))
        });
    }
}

/// EX-26: a client that is cut off has not said that nobody will read again, and one that came later is not the only one.
#[test]
fn a_client_that_is_cut_off_or_came_later_closes_nothing() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready(QA, "");
        let line = "trap '' PIPE; while echo y; do echo >>ticks; sleep 0.02; done; : >over";
        let mut cut_off = begun(&host.exec(QA, &["sh", "-c", line]));
        cut_off.kill().expect("killed");
        cut_off.wait().expect("it ends");
        let goes_on = || {
            let ticks = || fs::read(area.work().join("ticks")).map_or(0, |ticks| ticks.len());
            let before = ticks();
            until("it goes on", LONG, || ticks() > before + 10);
            assert!(!over(&area));
        };
        goes_on();

        let listed = host.done(&format!("sessions {QA}")).text();
        let running = listed.lines().find(|row| row.contains("running"));
        let session = running.and_then(|row| row.split_whitespace().next());
        let attach = format!("attach {QA} {}", session.expect("it runs"));
        let mut guest = begun(&host.say(&attach));
        drop(guest.stdout.take());
        let code = guest.wait().expect("it ends").code();

        assert_eq!(code, Some(BY_SIGPIPE));
        goes_on();
        assert_eq!(begun(&host.say(&attach)).kill().ok(), Some(()));
    }
}

/// Whether the program has come to its end; said once.
fn over(area: &Area) -> bool {
    let over: &Path = &area.work().join("over");
    over.exists() && fs::remove_file(over).is_ok()
}

/// How it ends, while nobody reads what it says.
fn code_of(child: &mut Child) -> Option<i32> {
    until("it has ended", LONG, || {
        child.try_wait().expect("asked").is_some()
    });
    child.wait().expect("it ended").code()
}

/// One that has written its first byte.
fn begun(run: &Run<'_>) -> Child {
    let mut command = run.describe();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("start holdfast");
    let output = child.stdout.as_mut().expect("a pipe");
    output.read_exact(&mut [0]).expect("it writes");
    child
}

const QA: &str = "qa";

const BY_SIGPIPE: i32 = 128 + libc::SIGPIPE;
