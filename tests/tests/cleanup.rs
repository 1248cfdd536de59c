//! Nothing is left, however it ends: no process, mount, namespace or file. (Promise 7.)

use holdfast_tests::leaks::{self, Mark};
use holdfast_tests::servers::{FOUR, tcp};
use holdfast_tests::wait::{LONG, holds_within};
use holdfast_tests::{Area, Policy, Run, Running, everyone, probe, skip, stat};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// Starts everything that could outlive a session, says which namespaces it lives in, then waits.
const STUBBORN: &str = "\
    trap '' TERM INT HUP; \
    setsid sh -c 'trap \"\" TERM INT HUP; while :; do sleep 1; done' & \
    (setsid sleep 600 &) & \
    nohup sleep 600 >/dev/null 2>&1 & \
    mkdir -p /tmp/x /dev/shm/x; echo x >/tmp/x/y; echo x >/dev/shm/x/y; \
    for n in net mnt pid user ipc uts; do echo ns $(readlink /proc/self/ns/$n); done; ";

/// What there was of a run while it lived.
struct Witness {
    mark: Mark,
    processes: BTreeSet<i32>,
    namespaces: Vec<String>,
}

impl Witness {
    fn start(area: &Area, policy: &Policy, last: &str) -> (Self, Running) {
        let mark = Mark::new();
        let run = Run::new(area, policy)
            .marked(&mark)
            .shell(&format!("{STUBBORN}{last}"))
            .held_input()
            .start();
        let text = run.expect("ready\n");
        let namespaces = text
            .lines()
            .filter_map(|line| line.strip_prefix("ns ").map(str::to_owned))
            .collect();
        let processes = leaks::descendants(run.pid().as_raw());
        let witness = Self {
            mark,
            processes,
            namespaces,
        };
        assert_eq!(witness.namespaces.len(), 6, "{text}");
        assert!(witness.processes.len() >= 4, "{:?}", witness.processes);
        (witness, run)
    }

    fn nothing_is_left(&self, area: &Area) {
        leaks::all_gone(&self.processes);
        let unmarked = || self.mark.processes().is_empty();
        assert!(
            holds_within(LONG, unmarked),
            "marked: {:?}",
            self.mark.processes()
        );
        let names: Vec<&str> = self.namespaces.iter().map(String::as_str).collect();
        let own = own_namespaces();
        assert!(
            names.iter().all(|name| !own.contains(&(*name).to_owned())),
            "a fence has its own"
        );
        let empty = || leaks::inhabitants(&names).is_empty();
        assert!(
            holds_within(LONG, empty),
            "in its namespaces: {:?}",
            leaks::inhabitants(&names)
        );
        assert_eq!(leaks::mounts(area.root()), Vec::<String>::new());
        assert_eq!(
            leaks::files_below(&area.runtime()),
            Vec::<std::path::PathBuf>::new()
        );
        assert_eq!(
            leaks::files_below(&area.state()),
            Vec::<std::path::PathBuf>::new()
        );
    }
}

fn own_namespaces() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/ns").expect("our own namespaces");
    entries
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

#[test]
fn after_a_normal_end_nothing_is_left() {
    for area in everyone() {
        let (witness, mut run) =
            Witness::start(&area, &Policy::offline(), "echo ready; read x; exit 3");
        run.end_input();
        run.finish().exited(3);
        witness.nothing_is_left(&area);
    }
}

#[test]
fn after_a_signal_nothing_is_left() {
    for area in everyone() {
        for signal in [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGQUIT,
        ] {
            // The session's own process heeds signals again; what it started does not.
            let last = "trap - TERM INT HUP; echo ready; exec sleep 600";
            let (witness, run) = Witness::start(&area, &Policy::offline(), last);
            run.signal(signal);
            let done = run.finish();
            done.exited(128 + signal as i32);
            witness.nothing_is_left(&area);
        }
    }
}

#[test]
fn a_program_that_ignores_sigterm_is_ended_by_the_second_one() {
    for area in everyone() {
        let (witness, run) = Witness::start(
            &area,
            &Policy::offline(),
            "echo ready; while :; do sleep 1; done",
        );
        run.signal(Signal::SIGTERM);
        let pid = run.pid();
        let impatient = std::thread::spawn(move || {
            // Until it has ended: an operator who presses again.
            holds_within(LONG, || {
                std::thread::park_timeout(Duration::from_millis(200));
                kill(pid, Signal::SIGTERM).is_err()
            })
        });
        let done = run.finish();
        assert_ne!(done.code(), Some(0), "{done}");
        drop(impatient);
        witness.nothing_is_left(&area);
    }
}

/// EX-18: who stands still on the way to the program keeps nobody who means it.
#[test]
fn whoever_is_stopped_keeps_no_interrupt_no_termination_and_no_limit() {
    let endings: [(&[Signal], &str, i32); 5] = [
        (&[Signal::SIGINT; 3], "60s", 137),
        (&[Signal::SIGINT; 4], "60s", 130),
        (&[Signal::SIGTERM; 2], "60s", 137),
        (&[Signal::SIGTERM; 3], "60s", 143),
        (&[], "2s", 124),
    ];
    for area in everyone() {
        for (signals, time, code) in endings {
            for depth in [1, 2] {
                let run = Run::new(&area, &Policy::offline())
                    .option("--timeout")
                    .option(time)
                    .shell("trap '' INT TERM; echo on; while :; do sleep 1; done")
                    .start();
                run.expect("on\n");
                let inside = leaks::descendants(run.pid().as_raw());
                // The boundary, then the launcher.
                let stopped =
                    (0..depth).fold(run.pid(), |pid, _| stat::child_of(pid).expect("a child"));
                stat::stop(stopped);
                let clock = std::time::SystemTime::now();
                for &signal in signals {
                    run.signal(signal);
                    std::thread::park_timeout(Duration::from_millis(100));
                }
                let done = run.finish();
                let took = clock.elapsed().expect("time goes on");
                done.exited(code);
                assert!(took < Duration::from_secs(4), "{took:?}: {done}");
                assert!(
                    !done.stderr.contains("fell"),
                    "our own deed is no news: {done}"
                );
                leaks::all_gone(&inside);
            }
        }
    }
}

#[test]
fn after_the_death_of_holdfast_nothing_is_left() {
    for area in everyone() {
        let (witness, run) = Witness::start(&area, &Policy::offline(), "echo ready; sleep 600");
        run.signal(Signal::SIGKILL);
        witness.nothing_is_left(&area);
    }
}

/// SV-06, SB-16: a run that has lost a part says so, and leaves nobody without it.
#[test]
fn after_the_death_of_any_of_our_processes_nothing_is_left() {
    for area in everyone() {
        // Boundary and launcher: the first two below holdfast. The boundary of a launcher that dies ends by itself, in an order
        // of its own, so that is tried more often.
        for victim in [0, 1, 1, 1, 1] {
            let (witness, run) = Witness::start(&area, &Policy::offline(), "echo ready; sleep 600");
            let pids: Vec<i32> = witness.processes.iter().copied().collect();
            kill(Pid::from_raw(pids[victim]), Signal::SIGKILL).expect("kill it");
            let done = run.finish();
            done.exited(125);
            let why = "the boundary died, and everything inside with it";
            assert!(done.stderr.contains(why), "it says why: {done}");
            assert!(!done.stderr.contains("h2"), "and in words: {done}");
            witness.nothing_is_left(&area);
        }
    }
}

#[test]
fn after_a_timeout_nothing_is_left() {
    for area in everyone() {
        let mark = Mark::new();
        let done = Run::new(&area, &Policy::offline())
            .marked(&mark)
            .option("--timeout")
            .option("1s")
            .shell(&format!("{STUBBORN}sleep 600"))
            .finish();
        done.exited(124);
        assert!(
            holds_within(LONG, || mark.processes().is_empty()),
            "{:?}",
            mark.processes()
        );
        assert_eq!(leaks::mounts(area.root()), Vec::<String>::new());
    }
}

#[test]
fn killed_at_any_moment_of_its_start_it_leaves_nothing() {
    for area in everyone() {
        for moment in 0..30 {
            let mark = Mark::new();
            let run = Run::new(&area, &Policy::offline())
                .marked(&mark)
                .shell("sleep 600")
                .start();
            // The moment is the parameter of this test: from before the first fork to after the program's start.
            std::thread::park_timeout(Duration::from_millis(moment));
            run.signal(Signal::SIGKILL);
            let clean = || mark.processes().is_empty();
            assert!(
                holds_within(LONG, clean),
                "after {moment} ms: {:?}",
                mark.processes()
            );
        }
        assert_eq!(leaks::mounts(area.root()), Vec::<String>::new());
        assert_eq!(
            leaks::files_below(&area.runtime()),
            Vec::<std::path::PathBuf>::new()
        );
    }
}

#[test]
fn open_connections_end_with_the_sandbox() {
    let Some(probe) = probe::probe() else { return };
    for area in everyone() {
        let server = tcp::silent(FOUR);
        let policy = Policy::origin(server.port());
        let line = format!(
            "{} talk origin.test {} x & sleep 600",
            probe.display(),
            server.port()
        );
        let run = Run::new(&area, &policy).shell(&line).start();
        assert!(
            holds_within(LONG, || server.accepted() == 1),
            "the connection is there"
        );
        run.signal(Signal::SIGKILL);
        let port = format!(":{:04X} ", server.port());
        let open = || {
            let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
            // State 01 is ESTABLISHED; the server keeps its end open until the client's is gone.
            table
                .lines()
                .filter(|line| line.contains(&port) && line.contains(" 01 "))
                .count()
        };
        assert!(
            holds_within(LONG, || open() == 0),
            "{} still established",
            open()
        );
    }
}

#[test]
fn the_usual_directories_are_left_as_they_were() {
    for area in everyone() {
        let home = area.directory(&area.root().join("plain-home"));
        let run = Run::new(&area, &Policy::offline())
            .environment("HOME", &home)
            .environment("HOLDFAST_RUNTIME_DIR", "")
            .environment("HOLDFAST_STATE_DIR", "")
            .environment("XDG_RUNTIME_DIR", area.directory(&home.join("xdg")));
        run.shell("exit 0").finish().exited(0);
        assert_eq!(leaks::files_below(&home), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn failed_starts_leave_nothing() {
    for area in everyone() {
        let mark = Mark::new();
        for program in ["/no/such/program", "/etc/passwd"] {
            let done = Run::new(&area, &Policy::offline())
                .marked(&mark)
                .command([program])
                .finish();
            assert!([Some(126), Some(127)].contains(&done.code()), "{done}");
        }
        assert!(
            holds_within(LONG, || mark.processes().is_empty()),
            "{:?}",
            mark.processes()
        );
        assert_eq!(
            leaks::files_below(&area.runtime()),
            Vec::<std::path::PathBuf>::new()
        );
    }
}

#[test]
fn no_control_group_is_left() {
    if !Path::new("/sys/fs/cgroup").exists() {
        skip::skip("control groups", "none are mounted");
        return;
    }
    for area in everyone() {
        let before = control_groups();
        Run::new(&area, &Policy::offline())
            .shell("exit 0")
            .finish()
            .exited(0);
        let new = || {
            control_groups()
                .difference(&before)
                .cloned()
                .collect::<Vec<_>>()
        };
        assert!(holds_within(LONG, || new().is_empty()), "{:?}", new());
    }
}

fn control_groups() -> BTreeSet<String> {
    fn walk(directory: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.path().to_string_lossy().into_owned();
                if name.contains("holdfast") {
                    found.insert(name);
                }
                walk(&entry.path(), found);
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(Path::new("/sys/fs/cgroup"), &mut found);
    found
}
