//! A boundary that says nothing: whoever asks it hears so in bounded time, and what was told as failed does not run later.

use holdfast_tests::host::document;
use holdfast_tests::leaks::descendants;
use holdfast_tests::stat::{self, Stat};
use holdfast_tests::wait::{LONG, now, until};
use holdfast_tests::{Host, everyone};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::time::Duration;

/// A process that goes on whatever becomes of the test.
struct Stopped(Pid);

impl Stopped {
    fn new(pid: Pid) -> Self {
        stat::stop(pid);
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _gone = kill(self.0, Signal::SIGCONT);
    }
}

fn boundary(host: &Host) -> Pid {
    let (_, status) = host.document("status qa -o json");
    let pid = status["pids"]["boundary"].as_i64().expect("a boundary");
    Pid::from_raw(i32::try_from(pid).expect("a pid"))
}

/// BD-04: nobody waits for ever for a boundary that is stopped, and nothing of what failed happens when it goes on.
#[test]
fn whoever_asks_a_boundary_that_is_stopped_is_told_and_nothing_runs_later() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let session = host.exec("qa --detach", &["sleep", "300"]).finish().text();
        let session = session.trim();
        let mark = area.work().join("mark");
        let file = area.work().join("file");
        area.file(&file, "text");

        let stopped = Stopped::new(boundary(&host));
        let asked = now();
        let json = host.exec("qa -o json", &["sh", "-c", "echo ran >> mark"]);
        let copy = format!("cp {} qa:mark", file.display());
        let all = [
            json.start(),
            host.exec("qa", &["sh", "-c", "echo ran >> mark"]).start(),
            host.exec("qa --detach", &["sh", "-c", "echo ran >> mark"])
                .start(),
            host.say(&copy).start(),
            host.say(&format!("kill qa {session}")).start(),
        ];
        let listed = host.done("sessions qa");
        assert!(listed.text().contains("sleep 300"), "{listed}");
        let [json, others @ ..] = all.map(holdfast_tests::Running::finish);
        let took = now() - asked;
        drop(stopped);

        assert!(took > SECOND * 8 && took < SECOND * 30, "{took:?}");
        let (code, told) = document(&json);
        let error = &told["error"];
        assert_eq!(
            (code, &error["code"]),
            (Some(125), &"UNAVAILABLE".into()),
            "{told}"
        );
        assert_eq!(error["reason"], "LinkLost", "{told}");
        assert!(error["retryAfterMs"].as_u64() > Some(0), "{told}");
        let message = error["message"].as_str().expect("a message");
        assert!(
            message.contains("the boundary has not answered for 10 s"),
            "{told}"
        );
        assert!(message.contains("withdrawn"), "{told}");
        for other in &others {
            assert_eq!(other.code(), Some(125), "{other}");
            assert!(
                other.stderr.contains("has not answered for 10 s"),
                "{other}"
            );
        }
        host.done("wait qa --for ready --timeout 30s");
        host.shell("qa", "true").code().expect("a status");
        assert!(!mark.exists(), "it ran all the same");
        let ended = || !host.done("sessions qa").text().contains("running");
        until("the signal arrives", LONG, ended);
    }
}

/// What could not begin within its own time limit does not begin after it.
#[test]
fn a_session_whose_time_is_up_before_it_begins_does_not_run() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let mark = area.work().join("mark");
        let stopped = Stopped::new(boundary(&host));

        let line = "qa --timeout 500ms";
        let plain = host.exec(line, &["touch", "mark"]).finish();
        let (code, told) = document(
            &host
                .exec(&format!("{line} -o json"), &["touch", "mark"])
                .finish(),
        );
        drop(stopped);

        assert_eq!(plain.code(), Some(124), "{plain}");
        assert!(plain.stderr.contains("timed out after 500ms"), "{plain}");
        assert_eq!(code, Some(124), "{told}");
        let message = told["error"]["message"].as_str().expect("a message");
        assert!(message.contains("500ms"), "{told}");
        host.done("wait qa --for ready --timeout 30s");
        host.shell("qa", "true").code().expect("a status");
        assert!(!mark.exists(), "it ran all the same");
    }
}

/// A limit is kept by process 1, and so whatever the boundary does: the whole tree is gone at its time, and the boundary
/// hears afterwards whose limit it was and who had ended before.
#[test]
fn a_time_limit_holds_though_the_boundary_is_stopped() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let boundary = boundary(&host);
        let sleeping = || {
            let sleeps = |pid: &i32| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                line == b"sleep\x00271\x00"
            };
            descendants(boundary.as_raw())
                .iter()
                .filter(|pid| sleeps(pid))
                .count()
        };
        let line = "setsid sleep 271 & trap '' TERM; sleep 271";
        let asked = now();
        let start = |options: &str, line| {
            let session = host.exec(options, &["sh", "-c", line]).finish().text();
            session.trim().to_owned()
        };
        let late = start("qa --detach --timeout 6s", line);
        let quick = start(
            "qa --detach --timeout 6s",
            "until [ -e go ]; do sleep 0.05; done; exit 3",
        );
        let free = start("qa --detach", "sleep 300");
        let attended = host.exec("qa --timeout 6s", &["sh", "-c", line]).start();
        until("all run", LONG, || sleeping() == 4);

        let stopped = Stopped::new(boundary);
        area.file(&area.work().join("go"), "");
        until("their time is up", LONG, || sleeping() == 0);
        let took = now() - asked;
        assert!(took >= SECOND * 6 && took < SECOND * 12, "{took:?}");
        assert_eq!(attended.finish().code(), Some(124));
        let held = Stat::of(boundary.as_raw()).is_some_and(|it| it.state() == "T");
        assert!(held, "it goes on");
        drop(stopped);

        host.done("wait qa --for ready --timeout 30s");
        let ending = |session: &str| {
            let (_, sessions) = host.document("sessions qa -o json");
            let mut rows = sessions.as_array().expect("rows").iter();
            let row = rows.find(|row| row["session"].to_string().trim_matches('"') == session);
            row.expect("a row")["ending"].clone()
        };
        until("the ends are heard", LONG, || {
            !ending(&late).is_null() && !ending(&quick).is_null()
        });
        let (late, quick) = (ending(&late), ending(&quick));
        assert_eq!(late["reason"], "Timeout", "{late}");
        assert_eq!(
            (&quick["reason"], &quick["exitCode"]),
            (&"".into(), &3.into()),
            "{quick}"
        );
        assert!(ending(&free).is_null(), "it had no limit");
    }
}

/// What process 1 starts when it goes on has been told as failed, and is killed.
#[test]
fn a_session_that_is_started_too_late_is_killed() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let stopped = Stopped::new(stat::child_of(boundary(&host)).expect("a launcher"));

        let finished = host.exec("qa", &["sleep", "987"]).finish();
        assert_eq!(finished.code(), Some(125), "{finished}");
        assert!(finished.stderr.contains("withdrawn"), "{finished}");
        drop(stopped);

        host.done("wait qa --for ready --timeout 30s");
        until("it is killed", LONG, || {
            let (_, sessions) = host.document("sessions qa -o json");
            let late = sessions[0]["ending"]["reason"] == "Killed";
            late && !host.done("sessions qa").text().contains("running")
        });
    }
}

/// A boundary that is stopped is killed by a stop, and does not hold it up.
#[test]
fn a_stop_reaches_its_end_though_the_boundary_is_stopped() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let boundary = boundary(&host);
        let _stopped = Stopped::new(boundary);

        let stopped = host.done("stop qa --timeout 1s");

        assert!(stopped.took < SECOND * 40, "{stopped}");
        let gone = || !stat::runs(boundary.as_raw());
        until("the boundary is gone", LONG, gone);
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// EX-01: Ctrl-C while a session is being started leaves nothing running that nobody knows of.
#[test]
fn an_exec_that_is_interrupted_while_it_starts_leaves_no_session() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        for options in ["qa", "-t qa"] {
            let stopped = Stopped::new(boundary(&host));
            let starting = host.exec(options, &["sleep", "300"]).start();
            until("it listens to signals", LONG, || {
                catches(starting.pid(), Signal::SIGINT)
            });

            starting.signal(Signal::SIGINT);
            drop(stopped);

            assert_eq!(starting.finish().code(), Some(130), "{options}");
            let listed = host.done("sessions qa").text();
            let mut rows = listed.lines().filter(|row| row.contains("sleep 300"));
            assert!(rows.all(|row| row.contains("signal 2")), "{listed}");
        }
    }
}

/// Whether a handler of the process waits for the signal.
fn catches(pid: Pid, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (signal as i32 - 1)) != 0)
}
