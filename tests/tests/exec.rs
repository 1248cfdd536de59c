//! What `exec` is worth under load, at terminals and in faults, seen from the command line. (EX-04, EX-15, EX-16, EX-19, EX-22, EX-25, EX-26, EX-28, SV-09, BD-05.)

use holdfast_tests::run::MORE_OPEN;
use holdfast_tests::stat::{self, Stat};
use holdfast_tests::terminal::{Terminal, is_given_back};
use holdfast_tests::wait::{LONG, until};
use holdfast_tests::{Finished, Host, Policy, Run, Running, everyone, leaks, skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::Read as _;
use std::process::{Child, Stdio};
use std::time::Duration;

const QA: &str = "qa";

/// EX-04: a program that has ended before anybody looked loses no byte, one after the other and many at once.
#[test]
fn short_output_is_never_lost() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready(QA, "");
        let echo = |line: &str| host.exec(QA, &["echo", line]).start();
        let whole = |line: &str, done: Finished| {
            assert_eq!(
                (done.code(), done.text()),
                (Some(0), format!("{line}\n")),
                "{done}"
            );
        };

        for number in 0..30 {
            let line = format!("line {number}");
            whole(&line, echo(&line).finish());
        }
        let lines: Vec<String> = (0..32).map(|number| format!("at once {number}")).collect();
        let all: Vec<Running> = lines.iter().map(|line| echo(line)).collect();
        for (line, running) in lines.iter().zip(all) {
            whole(line, running.finish());
        }
    }
}

/// EX-15, OB-08: what is on the screen is what the program wrote, to the last byte, whether or not the keys are the program's
/// too.
#[test]
fn a_screen_shows_the_programs_own_bytes_to_the_last_one() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready(QA, "");
        let line = "head -c 60000 /dev/zero | tr '\\0' x; echo; echo END; exit 4";
        for options in ["-t qa", "-t -i qa"] {
            for _ in 0..5 {
                let run = host.exec(options, &["sh", "-c", line]);
                let (status, shown) = Terminal::start(run, 24, 80).finish();
                assert_eq!(status.code(), Some(4), "{options}: {} bytes", shown.len());
                let bare = shown.trim_start_matches('x');
                assert_eq!(shown.len() - bare.len(), 60_000, "{options}");
                assert_eq!(bare, "\r\nEND\r\n", "{options}");
            }
        }
        // The terminal is there although our input is not.
        let run = host.exec("-t qa", &["sh", "-c", "echo one; echo two"]);
        let redirected = ["sh", "-c", "exec \"$@\" </dev/null", "sh"];
        let (status, shown) = Terminal::start(run.under(redirected), 24, 80).finish();
        assert_eq!((status.code(), &*shown), (Some(0), "one\r\ntwo\r\n"));
    }
}

/// The terminal is afterwards as it was, also when only its screen was the program's.
#[test]
fn a_screen_that_was_lent_is_given_back() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready(QA, "");
        for (line, keys) in [("exit 0", ""), ("echo ready; exec sleep 300", "\x03")] {
            is_given_back(host.exec("-t qa", &["sh", "-c", line]), keys);
        }
    }
}

/// EX-16: a shell whose terminal was hung up is gone, and one that does not care uses no time.
#[test]
fn a_hang_up_ends_the_shell_and_leaves_nothing_spinning() {
    let Some(bash) = skip::program("bash") else {
        return;
    };
    let bash = bash.to_str().expect("text");
    for area in everyone() {
        let host = Host::new(&area);
        host.ready(QA, "");
        let attended = ["-c", "echo there; exec \"$0\" --norc -i", bash];
        let alone = ["-c", "echo there; exec sleep 300"];
        for (options, words) in [("-t -i qa", &attended[..]), ("-t qa", &alone)] {
            let words: Vec<&str> = std::iter::once(bash).chain(words.iter().copied()).collect();
            let terminal = Terminal::start(host.exec(options, &words), 24, 80);
            terminal.expect("there");
            let end = terminal
                .hang_up()
                .recv_timeout(LONG)
                .expect("the client ends");
            assert_eq!(end.code(), Some(128 + libc::SIGHUP), "{options}");
            until("the shell is gone", LONG, || {
                inside(&host, "bash").is_empty() && inside(&host, "sleep").is_empty()
            });
        }

        // A signal that comes just before a shell reads is noticed after it has read.
        let line =
            "trap 'n=$((n + 1)); [ $n = 2 ] && exit' HUP; echo ready; while :; do sleep 0.1; done";
        let terminal = Terminal::start(host.exec("-t qa", &[bash, "-c", line]), 24, 80);
        terminal.expect("ready");
        terminal
            .hang_up()
            .recv_timeout(LONG)
            .expect("the client ends");
        until("it has heard twice", LONG, || {
            inside(&host, "bash").is_empty()
        });

        let line = "trap '' HUP; echo ready; while :; do read x || sleep 0.1; done";
        let terminal = Terminal::start(host.exec("-t -i qa", &[bash, "-c", line]), 24, 80);
        terminal.expect("ready");
        let end = terminal
            .hang_up()
            .recv_timeout(LONG)
            .expect("the client ends");
        assert_eq!(
            end.code(),
            Some(128 + libc::SIGHUP),
            "nobody attends it any more"
        );
        let [stubborn] = inside(&host, "bash")[..] else {
            panic!("it stays: {:?}", inside(&host, "bash"));
        };
        let used = || Stat::of(stubborn).map_or(0.0, |stat| stat.ticks());
        let before = used();
        std::thread::sleep(Duration::from_secs(1));
        assert!(
            used() - before < 30.0,
            "{} ticks in a second",
            used() - before
        );
    }
}

/// EX-19: a session has its three descriptors, however many are started at once, and whatever its caller had open.
#[test]
fn no_descriptor_is_inherited_by_a_session() {
    for area in everyone() {
        let host = Host::new(&area);
        // The gateway is started by this one.
        let created = host.say("create qa --wait").under(MORE_OPEN).finish();
        assert_eq!(created.code(), Some(0), "{created}");

        let list = |_| {
            host.exec(QA, &["ls", "/proc/self/fd"])
                .under(MORE_OPEN)
                .start()
        };
        let all: Vec<Running> = (0..32).map(list).collect();

        for done in all.into_iter().map(Running::finish) {
            assert_eq!(
                done.text(),
                "0\n1\n2\n3\n",
                "the last one is that of ls: {done}"
            );
        }
    }
}

/// EX-28: a program starts as after a login, whatever whoever started the gateway ignores, and whoever calls.
#[test]
fn signals_and_masks_of_the_runtime_do_not_reach_a_session() {
    for area in everyone() {
        let host = Host::new(&area);
        let odd = [
            "sh",
            "-c",
            "trap '' PIPE HUP INT QUIT TERM USR1 CHLD; umask 077; exec \"$@\"",
            "sh",
        ];
        let created = host.say("create qa --wait").under(odd).finish();
        assert_eq!(created.code(), Some(0), "{created}");

        let line = "grep -E '^Sig(Ign|Blk)' /proc/self/status | cut -f2; umask; yes | head -1; ls -R /usr 2>&1 | head -0";
        let done = host.exec(QA, &["sh", "-c", line]).under(odd).finish();

        let none = "0000000000000000";
        assert_eq!(done.text(), format!("{none}\n{none}\n0022\ny\n"), "{done}");
        assert_eq!(done.stderr, "", "{done}");
    }
}

/// EX-22, BD-05: a call whose keeper goes away ends at once and says how to get the rest; what is asked meanwhile is answered
/// by the next keeper.
#[test]
fn a_call_whose_keeper_goes_away_ends_and_the_next_one_is_served() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready(QA, "");
        let line = "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo ended; exit 5";
        let running = host.exec(QA, &["sh", "-c", line]).start();
        running.expect("begun");

        kill(keeper(&host), Signal::SIGKILL).expect("killed");
        let next = host.exec(QA, &["echo", "next"]).finish();
        let cut = running.finish();

        assert_eq!((next.code(), &*next.text()), (Some(0), "next\n"), "{next}");
        assert_eq!(cut.code(), Some(125), "never a success: {cut}");
        assert!(cut.took < Duration::from_secs(10), "{cut}");
        let (_, again) = cut
            .stderr
            .split_once("attach again with: holdfast ")
            .expect("how to");
        area.file(&area.work().join("go"), "");
        let fetched = host.said(again.trim());
        assert_eq!(
            (fetched.code(), &*fetched.text()),
            (Some(5), "ended\n"),
            "{fetched}"
        );
    }
}

/// EX-22: what a keeper had heard when it fell is done once, and told: the next one is asked again.
#[test]
fn a_call_that_its_keeper_may_have_heard_is_carried_out_once_and_told() {
    const TIMES: usize = 2;
    for area in everyone() {
        let host = Host::new(&area);
        host.ready(QA, "");
        area.file(&area.work().join("count"), "");
        for number in 0..TIMES {
            let keeper = keeper(&host);
            let line = format!("echo {number} >> count; exec sleep 0.5");
            let running = host.exec("qa --detach", &["sh", "-c", &line]).start();
            kill(keeper, Signal::SIGKILL).expect("killed");
            let done = running.finish();
            assert_eq!(done.code(), Some(0), "{done}");
            host.done("wait qa --for ready --timeout 30s");
        }
        let once = || fs::read_to_string(area.work().join("count")).unwrap_or_default();
        until("each was begun", LONG, || once().lines().count() >= TIMES);
        let numbers: Vec<String> = (0..TIMES).map(|number| number.to_string()).collect();
        assert!(once().lines().eq(&numbers), "{}", once());
    }
}

/// EX-22: a keeper that stands still for a while costs a call nothing but time.
#[test]
fn a_call_outlives_a_keeper_that_stands_still() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready(QA, "");
        let running = host
            .exec(QA, &["sh", "-c", "echo begun; sleep 1; exit 5"])
            .start();
        running.expect("begun");

        let keeper = keeper(&host);
        stat::stop(keeper);
        until("the status says so", LONG, || {
            host.document("status qa -o json").1["phase"] != "Ready"
        });
        kill(keeper, Signal::SIGCONT).expect("goes on");

        let done = running.finish();
        assert_eq!(done.exited(5).text(), "begun\n", "{done}");
    }
}

/// EX-25: a job in the background is neither stopped nor in anybody's way.
#[test]
fn a_call_in_the_background_is_not_stopped() {
    let Some(bash) = skip::program("bash") else {
        return;
    };
    for area in everyone() {
        let host = Host::new(&area);
        host.ready(QA, "");
        for (options, command) in [
            ("qa", "true"),
            ("-t qa", "true"),
            ("-t -i qa", "true"),
            ("-i qa", "true"),
        ] {
            let line = "\"$@\" & wait $!; echo rc=$?";
            let wrapper = [bash.to_str().expect("text"), "--norc", "-ic", line, "bash"];
            let run = host.exec(options, &[command]).under(wrapper);
            let (_, shown) = Terminal::start(run, 24, 80).finish();
            assert!(shown.contains("rc=0"), "{options}: {shown}");
        }
    }
}

/// EX-25: what whoever started us ignores, we ignore as well: `nohup` keeps a call, and a script's Ctrl-C spares its jobs.
#[test]
fn a_signal_that_was_ignored_at_the_start_ends_no_call() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready(QA, "");
        let line = "echo begun; while [ ! -e go ]; do sleep 0.05; done; exit 5";
        let deaf = ["sh", "-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh"];
        let exec = host.exec(QA, &["sh", "-c", line]).under(deaf);
        let run = Run::new(&area, &Policy::offline()).shell(line).under(deaf);

        let all = [exec.start(), run.start()];
        for running in &all {
            running.expect("begun");
            for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
                running.signal(signal);
            }
        }
        area.file(&area.work().join("go"), "");

        for running in all {
            running.finish().exited(5);
        }
    }
}

/// EX-26, BD-06: output that nobody reads is held back at its program, costs no memory and holds up nobody; when its reader
/// goes, the program does.
#[test]
fn a_flood_that_nobody_reads_is_held_back() {
    const READERS: usize = 8;
    const GROWTH_KIB: u64 = 32 * 1024;
    for area in everyone() {
        let host = Host::new(&area);
        host.ready(QA, "");
        let before = resident(&host);

        let floods: Vec<Child> = (0..READERS)
            .map(|_| unread(&host.exec(QA, &["yes"])))
            .collect();
        until("all have begun", LONG, || {
            inside(&host, "yes").len() == READERS
        });
        let idle = |pids: &[i32]| {
            pids.iter()
                .map(|pid| Stat::of(*pid).map_or(0.0, |it| it.ticks()))
                .sum::<f64>()
        };
        let pids = inside(&host, "yes");
        let mut last = idle(&pids);
        until("they wait for their readers", LONG, || {
            std::thread::sleep(Duration::from_millis(200));
            let now = idle(&pids);
            now.to_bits() == std::mem::replace(&mut last, now).to_bits()
        });
        for _ in 0..5 {
            let done = host.exec(QA, &["echo", "ok"]).finish();
            assert_eq!(done.text(), "ok\n", "{done}");
            assert!(done.took < Duration::from_secs(2), "{done}");
        }
        for ((name, before), (_, after)) in before.iter().zip(resident(&host)) {
            assert!(
                after < before + GROWTH_KIB,
                "{name}: {before} KiB became {after}"
            );
        }

        for mut flood in floods {
            drop(flood.stdout.take());
            let ended = flood.wait().expect("it ends");
            assert_eq!(ended.code(), Some(128 + libc::SIGPIPE));
        }
        until("no program writes for nobody", LONG, || {
            inside(&host, "yes").is_empty()
        });
    }
}

/// CL-03: whoever stops reading is missed at once, and not only when the program writes again.
#[test]
fn a_reader_that_goes_away_is_missed_though_nothing_more_is_written() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready(QA, "");
        let words = ["sh", "-c", "head -c 300000 /dev/zero; exec sleep 300"];
        let detached = format!("{QA} --detach");
        let session = host.exec(&detached, &words).finish().text();
        let attach = format!("attach {QA} {}", session.trim());

        for mut run in [unread(&host.exec(QA, &words)), unread(&host.say(&attach))] {
            drop(run.stdout.take());

            until("nobody stays for nobody", LONG, || {
                run.try_wait().expect("asked").is_some()
            });
            let ended = run.wait().expect("it ends");
            assert_eq!(ended.code(), Some(128 + libc::SIGPIPE));
        }
        let listed = host.done(&format!("sessions {QA}")).text();
        assert_eq!(listed.matches("running").count(), 1, "{listed}");
    }
}

/// SV-09: what a program has left behind and what it leaves by ending is reaped.
#[test]
fn no_zombie_stays() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready(QA, "");
        let all: Vec<Running> = (0..20)
            .map(|_| {
                host.exec(QA, &["sh", "-c", "(sleep 0.1 & sleep 0.1 &); exit 0"])
                    .start()
            })
            .collect();
        for running in all {
            running.finish().exited(0);
        }
        let gateway = host.gateway().expect("it runs").as_raw();
        until("nothing is left, and no zombie", LONG, || {
            let all = leaks::descendants(gateway);
            inside(&host, "sleep").is_empty()
                && all.iter().all(|pid| {
                    stat::runs(*pid) || !fs::exists(format!("/proc/{pid}")).expect("looks")
                })
        });
    }
}

fn status(host: &Host<'_>) -> Value {
    host.document("status qa -o json").1
}

fn keeper(host: &Host<'_>) -> Pid {
    let pid = status(host)["pids"]["keeper"].as_i64().expect("a pid");
    Pid::from_raw(i32::try_from(pid).expect("a pid"))
}

/// The programs of this name below the gateway.
fn inside(host: &Host<'_>, name: &str) -> Vec<i32> {
    let gateway = host.gateway().expect("it runs").as_raw();
    let is = |pid: &i32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        comm.trim_end() == name && stat::runs(*pid)
    };
    leaks::descendants(gateway).into_iter().filter(is).collect()
}

/// What gateway, keeper and boundary hold, in KiB.
fn resident(host: &Host<'_>) -> Vec<(&'static str, u64)> {
    let status = status(host);
    let of = |name| status["pids"][name].as_i64().expect("a pid");
    let gateway = host.gateway().expect("it runs").as_raw().into();
    let all = [
        ("gateway", gateway),
        ("keeper", of("keeper")),
        ("boundary", of("boundary")),
    ];
    let held = |pid: i64| {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        number.expect("its memory")
    };
    all.map(|(name, pid)| (name, held(pid))).into()
}

/// A run whose output has a reader that reads one byte and no more.
fn unread(run: &Run<'_>) -> Child {
    let mut command = run.describe();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().expect("start holdfast");
    let output = child.stdout.as_mut().expect("a pipe");
    output.read_exact(&mut [0]).expect("it writes");
    child
}
