//! `resolv.conf` is there also where the program may write, and nothing is left of its place. (Promises 2 and 7.)

use holdfast_tests::daemon::{Gateway, request};
use holdfast_tests::root::{Root, after};
use holdfast_tests::wait::{LONG, holds_within, until};
use holdfast_tests::{Area, Caller, Finished, Run, Running, callers, everyone, leaks, skip, stat};
use holdfast_wire::v1;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::time::Duration;

/// A directory that is listed to be written to.
const LISTED: &str = "read_only: [PROGRAMS], read_write: [/etc]";

const READ: &str = "cat /etc/resolv.conf; ";

const OURS: &str = "nameserver 198.18.0.1\n";

fn says(done: &Finished, told: &str) {
    assert_eq!(done.exited(0).text(), told, "{done}");
    assert!(!done.stderr.contains("WARN"), "{done}");
}

fn place(root: &Root<'_>) -> PathBuf {
    root.path.join("etc/resolv.conf")
}

/// Started, and with the file.
fn started(run: Run<'_>) -> Running {
    let running = run.held_input().start();
    running.expect("on\n");
    running
}

/// Reads the file, says so, reads it again when it is told to.
const READER: &str = "cat /etc/resolv.conf; echo on; read go; cat /etc/resolv.conf";

fn reader(root: &Root<'_>, files: &str) -> Running {
    started(root.run(files, READER))
}

fn go(mut running: Running) -> Finished {
    running.send(b"go\n");
    running.finish()
}

#[test]
fn the_file_is_there_and_what_the_program_writes_beside_it_reaches_the_directory() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        let line = "cat /etc/resolv.conf; getent ahostsv4 origin.test >/dev/null && echo resolved; \
                    (echo x >/etc/resolv.conf) || echo refused; rm -f /etc/resolv.conf || echo kept; \
                    mv /etc/resolv.conf /etc/other || echo kept; mv /etc/motd /etc/resolv.conf || echo kept; \
                    echo written >/etc/new; rm /etc/single; cat /etc/resolv.conf";
        let told = format!("{OURS}resolved\nrefused\nkept\nkept\nkept\n{OURS}");

        for run in [root.run(LISTED, line), root.run_freely("", line)] {
            root.file("etc/single", "");
            fs::remove_file(root.path.join("etc/new")).ok();

            says(&run.finish(), &told);

            assert_eq!(root.read("etc/new"), "written\n");
            assert_eq!(root.read("etc/motd"), "of the root\n");
            assert!(!root.path.join("etc/single").exists(), "removed");
            assert!(place(&root).symlink_metadata().is_err(), "it is left");
        }
    }
}

#[test]
fn a_program_that_runs_as_somebody_else_has_it_too() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        if !area.caller().is_root() {
            skip::skip("another user inside", "only root can have one");
            continue;
        }
        let other = "process: {run_as_user: \"4321\", run_as_group: \"4321\"}";

        let done = root.run_freely(other, READ).finish();

        says(&done, OURS);
        assert!(!place(&root).exists(), "it is left");
    }
}

#[test]
fn nothing_is_left_however_the_sandbox_ends() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        for (signal, code) in [
            (Signal::SIGINT, 130),
            (Signal::SIGTERM, 143),
            (Signal::SIGHUP, 129),
        ] {
            let running = reader(&root, LISTED);
            assert!(place(&root).exists());

            running.signal(signal);

            running.finish().exited(code);
            assert!(!place(&root).exists(), "after {signal}");
        }
        let late = root.run(LISTED, "read x").option("--timeout").option("1s");
        late.held_input().finish().exited(124);
        assert!(!place(&root).exists(), "after the time limit");
    }
}

#[test]
fn nothing_is_left_when_any_process_but_the_one_that_sweeps_is_killed() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        for victim in ["run", "boundary", "launcher", "group"] {
            let running = started(root.run(LISTED, READER).under(["setsid"]));
            let all = leaks::descendants(running.pid().as_raw());
            let sweeper = sweeper_among(&all);
            let mut rest = all.iter().copied().filter(|pid| *pid != sweeper);
            let boundary = rest.next().expect("a boundary");
            let launcher = rest.next().expect("a launcher");
            assert!(place(&root).exists());

            let run = running.pid().as_raw();
            let pid = match victim {
                "run" => run,
                "boundary" => boundary,
                "launcher" => launcher,
                // As a terminal or a shell does it.
                _ => -run,
            };
            kill(Pid::from_raw(pid), Signal::SIGKILL).expect("killed");

            until("it is swept", LONG, || !place(&root).exists());
            leaks::all_gone(&all);
        }
    }
}

fn sweeper_among(pids: &BTreeSet<i32>) -> i32 {
    let is_one = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"holdfast sweeper\0")
    };
    let found = pids.iter().copied().find(|pid| is_one(pid));
    found.expect("a sweeper")
}

/// A terminal's Ctrl-C reaches all of its foreground, and the place is needed until the end.
#[test]
fn a_signal_to_all_of_a_job_does_not_end_the_one_that_sweeps() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        let line = format!("trap '' INT; {READER}");
        let running = started(root.run(LISTED, &line).under(["setsid"]));
        let all = leaks::descendants(running.pid().as_raw());
        let sweeper = sweeper_among(&all);

        killpg(running.pid(), Signal::SIGINT).expect("sent");
        kill(Pid::from_raw(sweeper), Signal::SIGTERM).expect("sent");

        says(&go(running), &format!("{OURS}on\n{OURS}"));
        assert!(!place(&root).exists(), "it is left");
    }
}

#[test]
fn it_costs_the_boundary_no_descriptor_and_its_keeper_one() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        let open = |running: &Running| {
            let run = running.pid().as_raw();
            let all = leaks::descendants(run);
            let is_boundary = |pid: &i32| leaks::descendants(*pid).len() > 1;
            let boundary = all.into_iter().find(is_boundary).expect("a boundary");
            let open = |pid| leaks::descriptors(pid).expect("it is there");
            (open(run), open(boundary))
        };
        let lent = reader(&root, LISTED);
        let before = open(&lent);
        says(&go(lent), &format!("{OURS}on\n{OURS}"));
        root.file("etc/resolv.conf", "");
        let usual = reader(&root, LISTED);

        until("as many, and one", LONG, || {
            let (run, boundary) = open(&usual);
            (run + 1, boundary) == before
        });

        says(&go(usual), &format!("{OURS}on\n{OURS}"));
    }
}

#[test]
fn killed_at_any_moment_of_its_start_it_leaves_nothing() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        for moment in 0..40 {
            let run = root.run(LISTED, "read x").held_input().start();
            // The moment is the parameter of this test.
            std::thread::park_timeout(Duration::from_micros(moment * 500));
            let all = leaks::descendants(run.pid().as_raw());

            run.signal(Signal::SIGKILL);

            // Who takes the dead away may take its time.
            let over = || !all.iter().any(|pid| stat::runs(*pid)) && !place(&root).exists();
            assert!(
                holds_within(LONG, over),
                "killed after {moment} half milliseconds"
            );
        }
        says(&root.run(LISTED, READ).finish(), OURS);
        assert!(!place(&root).exists(), "it is left");
    }
}

/// A place that is removed takes the mounts of all with it.
#[test]
fn the_last_of_several_sandboxes_removes_it() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        for second in [LISTED, "read_only: [PROGRAMS, /etc]"] {
            let first = reader(&root, LISTED);
            let second = reader(&root, second);
            let told = format!("{OURS}on\n{OURS}");

            says(&go(first), &told);
            assert!(place(&root).exists(), "the second one has it");
            let third = reader(&root, LISTED);
            says(&go(second), &told);
            assert!(place(&root).exists(), "the third one has it");
            says(&go(third), &told);

            assert!(!place(&root).exists(), "it is left");
        }
    }
}

#[test]
fn sandboxes_that_come_and_go_at_a_time_all_have_it() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        for _ in 0..4 {
            let all: Vec<Running> = (0..5).map(|_| root.run(LISTED, READ).start()).collect();
            for running in all {
                says(&running.finish(), OURS);
            }
            assert!(!place(&root).exists(), "it is left");
        }
    }
}

#[test]
fn an_empty_file_of_somebodys_own_is_covered_and_stays() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        root.file("etc/resolv.conf", "");
        fs::set_permissions(place(&root), fs::Permissions::from_mode(0o640)).expect("chmod");

        let (first, second) = (reader(&root, LISTED), reader(&root, LISTED));
        for running in [first, second] {
            says(&go(running), &format!("{OURS}on\n{OURS}"));
        }

        let found = fs::metadata(place(&root)).expect("kept");
        assert_eq!(
            (found.len(), found.permissions().mode() & 0o7777),
            (0, 0o640)
        );
    }
}

/// What nobody could sweep is no sandbox's own either.
#[test]
fn what_a_killed_sweeper_leaves_is_swept_by_the_next_sandbox() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        let running = reader(&root, LISTED);
        let all = leaks::descendants(running.pid().as_raw());
        let sweeper = Pid::from_raw(sweeper_among(&all));
        kill(sweeper, Signal::SIGKILL).expect("killed");

        says(&go(running), &format!("{OURS}on\n{OURS}"));
        assert_eq!(root.read("etc/resolv.conf"), "");
        says(&root.run(LISTED, READ).finish(), OURS);

        assert!(!place(&root).exists(), "it is left");
    }
}

#[test]
fn what_is_written_to_it_outside_stays() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        let running = reader(&root, LISTED);

        root.file("etc/resolv.conf", "nameserver 192.0.2.53\n");

        says(&go(running), &format!("{OURS}on\n{OURS}"));
        assert_eq!(root.read("etc/resolv.conf"), "nameserver 192.0.2.53\n");
    }
}

#[test]
fn it_is_swept_where_the_program_has_moved_its_directory() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        root.directory("data/stub");
        symlink("../data/stub/resolv.conf", place(&root)).expect("link");
        let line = "cat /etc/resolv.conf; mv /data/stub /data/moved; cat /data/moved/resolv.conf";
        let files = "read_only: [PROGRAMS, /etc], read_write: [/data]";

        let done = root.run(files, line).finish();

        says(&done, &format!("{OURS}{OURS}"));
        let left = fs::read_dir(root.path.join("data/moved")).expect("moved");
        assert_eq!(left.count(), 0);
    }
}

/// Directories are not made: nobody could say when they may go.
#[test]
fn nothing_is_made_where_its_directory_is_missing() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        symlink("../data/stub/resolv.conf", place(&root)).expect("link");
        let line = "cat /etc/resolv.conf || echo none; getent ahostsv4 origin.test >/dev/null && echo resolved";
        let files = "read_only: [PROGRAMS, /etc], read_write: [/data]";

        let done = root.run(files, line).finish();

        says(&done, "none\nresolved\n");
        assert!(!root.path.join("data/stub").exists());
    }
}

#[test]
fn where_no_place_can_be_made_the_start_goes_on_and_says_so() {
    if !Caller::Myself.is_root() {
        skip::skip("mounts in a root", "the tests run as an ordinary user");
        return;
    }
    for area in callers().into_iter().map(Area::new) {
        let Some(root) = Root::of(&area) else { return };
        let etc = root.path.join("etc");
        let etc = etc.display();
        let line = "cat /etc/resolv.conf || echo none; (echo x >/etc/new) || echo refused; \
                    getent ahostsv4 origin.test >/dev/null && echo resolved";

        // The one inode is the directory's.
        let mounts = format!("mount -t tmpfs -o nr_inodes=1,mode=777 none {etc}");
        let full = after(&area, &mounts, root.run(LISTED, line)).finish();
        let mounts = format!("mount --bind {etc} {etc}; mount -o remount,bind,ro {etc}");
        let fixed = after(&area, &mounts, root.run(LISTED, line)).finish();

        assert_eq!(full.exited(0).text(), "none\nrefused\nresolved\n", "{full}");
        for word in [
            "the sandbox has no /etc/resolv.conf",
            "none can be made for it in /etc",
            "No space left on device",
        ] {
            assert!(full.stderr.contains(word), "{word}: {full}");
        }
        // To be written in name only: it is added as to one that is listed to be read.
        says(&fixed, &format!("{OURS}refused\nresolved\n"));
    }
}

fn is(phase: v1::Phase) -> impl Fn(&v1::Status) -> bool {
    move |status| status.phase() == phase
}

#[test]
fn a_sandbox_that_lasts_has_it_from_its_start_to_its_end() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        let gateway = Gateway::start(&area, &[]);
        let mut made = request(&area, "qa");
        made.rootfs = root.path.clone().into_os_string().into_vec();
        made.directory = b"/".to_vec();
        made.policy = "version: 1\n".to_owned();
        gateway.create(made).expect("made");
        let ready = |what: &str| gateway.until("qa", what, is(v1::Phase::Ready));
        let by_name = || v1::StopRequest {
            sandbox: "qa".to_owned(),
            grace_ms: 500,
        };
        let before = ready("Ready");
        assert!(place(&root).exists());

        // A keeper that is replaced is the sweeper's parent, and no more.
        let keeper = before.pids["keeper"];
        kill(process(keeper), Signal::SIGKILL).expect("killed");
        let taken = |status: &v1::Status| {
            status.phase() == v1::Phase::Ready && status.pids.get("keeper") != Some(&keeper)
        };
        let after = gateway.until("qa", "with another keeper", taken);
        assert!(place(&root).exists(), "it goes on");
        assert!(before.pids["boundary"] == after.pids["boundary"]);

        let request = by_name();
        let stopped = gateway.ask(|mut client| async move { client.stop(request).await });
        stopped.expect("stopped");
        until("it is swept after a stop", LONG, || !place(&root).exists());

        let request = v1::SandboxRequest {
            sandbox: "qa".to_owned(),
        };
        let started = gateway.ask(|mut client| async move { client.start(request).await });
        started.expect("started");
        let again = ready("Ready again");
        assert!(place(&root).exists());
        kill(process(again.pids["boundary"]), Signal::SIGKILL).expect("killed");
        until("it is swept after a loss", LONG, || !place(&root).exists());

        gateway.delete("qa", true).expect("deleted");
        assert!(!place(&root).exists(), "it is left");
        assert_eq!(gateway.stop(), Some(0));
    }
}

fn process(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).expect("a pid"))
}
