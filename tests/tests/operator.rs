//! The commands about sandboxes that last, as people and scripts meet them: results, failures, streams, exit codes. (CL-01 to CL-10, EX-10, EX-11, EX-12, EX-24.)

use holdfast_tests::host::document;
use holdfast_tests::terminal::Terminal;
use holdfast_tests::wait::{LONG, until};
use holdfast_tests::{Finished, Host, Run, everyone, stat};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{MsgFlags, send, setsockopt, sockopt};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::process::Stdio;
use std::time::Duration;

fn code(finished: &Finished, expected: i32) {
    assert_eq!(finished.code(), Some(expected), "{finished}");
}

/// One line, and nothing of a backtrace, a transport's dump or a colour.
fn is_plain(finished: &Finished) {
    for word in ["panicked", "tonic", "Status {", "\x1b"] {
        assert!(!finished.stderr.contains(word), "{finished}");
    }
}

#[test]
fn a_sandbox_lives_from_create_to_delete_and_each_command_says_how_it_stands() {
    for area in everyone() {
        let host = Host::new(&area);

        let created = host.done("create qa --wait --label team=a");
        assert_eq!(created.text(), "qa\n");
        assert_eq!(created.stderr, "", "progress is for terminals");
        host.done("create idle --label team=b");

        let list = host.done("list").text();
        assert!(list.starts_with("NAME"), "{list}");
        assert!(
            list.lines()
                .any(|line| line.starts_with("qa ") && line.contains("Ready")),
            "{list}"
        );
        let (_, rows) = host.document("list -o json --label team=a");
        assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows}");
        for field in [
            "name", "phase", "reason", "age", "sessions", "policy", "restarts",
        ] {
            assert!(rows[0].get(field).is_some(), "{rows} lacks {field}");
        }
        assert!(host.done("status qa").text().starts_with("qa "), "status");
        host.done("wait qa --for ready --timeout 30s");
        assert!(host.done("tree qa").text().contains("keeper"), "tree");

        host.done("stop qa --timeout 1s");
        host.done("wait qa --for stopped --timeout 30s");
        code(&host.said("exec qa -- true"), 125);
        host.done("start qa");
        host.done("wait qa --for ready --timeout 30s");
        host.done("restart qa --timeout 1s");
        host.done("wait qa --for ready --timeout 30s");
        let (_, status) = host.document("status qa -o json");
        assert_eq!(status["generation"], 3, "{status}");

        let runs = host.said("delete qa");
        code(&runs, 125);
        host.done("delete qa --force");
        code(&host.said("status qa"), 125);
    }
}

/// Literally the fields that scripts rely on.
#[test]
fn the_status_document_has_every_field_and_the_truth() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");

        let (code, status) = host.document("status qa -o json");

        assert_eq!(code, Some(0));
        assert_eq!(status["phase"], "Ready", "{status}");
        assert_eq!(
            status["conditions"].as_array().map(Vec::len),
            Some(8),
            "{status}"
        );
        assert_eq!(status["confinement"]["uid"], area.caller().uid());
        assert_eq!(status["policy"]["enforced"], 1);
        let pid = status["pids"]["keeper"].as_i64().expect("a pid");
        assert!(
            fs::exists(format!("/proc/{pid}")).expect("looks"),
            "{status}"
        );
        for moment in ["since", "leaseExpires", "created"] {
            let text = status[moment].as_str().expect("is a moment");
            assert!(
                text.len() == 24 && text.ends_with('Z') && text.contains('.'),
                "{text}"
            );
        }
    }
}

/// EX-10, CL-07, SV-16: what is missing, what cannot run, what the program said and what is ours are four different answers.
#[test]
fn a_missing_program_one_that_cannot_run_a_status_and_our_own_failure_differ() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");

        for (words, expected) in [
            (["nosuchcmd"].as_slice(), 127),
            (&["/etc"], 126),
            (&["sh", "-c", "exit 255"], 255),
            (&["sh", "-c", "exit 2"], 2),
            (&["false"], 1),
        ] {
            let finished = host.exec("qa", words).finish();
            code(&finished, expected);
            let ours = finished.stderr.starts_with("holdfast: ");
            assert_eq!(ours, expected == 126 || expected == 127, "{finished}");
        }
        let missing = host.exec("nosuch", &["false"]).finish();
        code(&missing, 125);
        assert!(missing.stderr.starts_with("holdfast: "), "{missing}");
        code(&host.exec("qa --nosuch", &["false"]).finish(), 2);
        let (_, document) = document(&host.exec("nosuch -o json", &["false"]).finish());
        assert_eq!(document["error"]["reason"], "NoSuchSandbox");
        assert_eq!(document["error"]["code"], "NOT_FOUND");
    }
}

/// EX-11: a death by signal is 128 and the signal, and a status that looks like one is told apart.
#[test]
fn a_death_by_signal_is_told_as_one() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");

        for (line, expected, signal) in [
            ("kill -9 $$", 137, Some(9)),
            ("kill -ABRT $$", 134, Some(6)),
            ("kill -TERM $$; sleep 5", 143, Some(15)),
            ("exit 137", 137, None),
            ("exit 255", 255, None),
        ] {
            let (code, document) = document(&host.exec("qa -o json", &["sh", "-c", line]).finish());
            assert_eq!(code, Some(expected), "{line}");
            assert_eq!(document["exitCode"], expected, "{line}: {document}");
            assert_eq!(document["signal"].as_i64(), signal, "{line}: {document}");
        }
    }
}

/// EX-24, CL-04: bytes are what the program wrote, each stream its own, and there is no terminal unless it is asked for.
#[test]
fn output_is_what_the_program_wrote_and_nothing_else() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");

        let both = host.shell(
            "qa",
            r#"printf "a\nb\n"; echo err >&2; test -t 1 && echo terminal"#,
        );
        assert_eq!(both.stdout, b"a\nb\n", "{both}");
        assert_eq!(both.stderr, "err\n", "{both}");
        let empty = host.exec("qa", &["printf", ""]).finish();
        assert_eq!((empty.stdout.len(), empty.stderr.len()), (0, 0), "{empty}");
        let binary = host.shell("qa", r"printf '\000\377\r\n'");
        assert_eq!(binary.stdout, b"\0\xff\r\n", "{binary}");
    }
}

/// EX-05, EX-06: megabytes pass both ways unchanged, and the input's end is the program's.
#[test]
fn input_passes_with_i_and_is_empty_without() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let sent: Vec<u8> = (0..4_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();

        let echoed = host.exec("qa -i", &["cat"]).input(sent.clone()).finish();
        let unasked = host.exec("qa", &["cat"]).input(&b"unheard"[..]).finish();
        let ignored = host.exec("qa -i", &["true"]).held_input().finish();

        assert!(
            echoed.stdout == sent,
            "{} bytes came back",
            echoed.stdout.len()
        );
        assert_eq!(
            (unasked.code(), unasked.stdout.len()),
            (Some(0), 0),
            "{unasked}"
        );
        code(&ignored, 0);
    }
}

/// EX-12: a client that is told to end passes it on, and never reports success.
#[test]
fn a_signal_reaches_the_program_and_the_client_ends_with_it() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let trap = "trap 'echo T; exit 0' TERM; echo ready; sleep 300 & wait";

        for (line, signal, expected) in [
            (trap, Signal::SIGTERM, 143),
            (
                "trap 'exit 7' TERM; echo ready; sleep 300 & wait",
                Signal::SIGTERM,
                7,
            ),
            ("echo ready; exec sleep 300", Signal::SIGINT, 130),
            ("echo ready; exec sleep 300", Signal::SIGHUP, 129),
        ] {
            let running = host.exec("qa", &["sh", "-c", line]).start();
            running.expect("ready");
            running.signal(signal);
            let finished = running.finish();
            code(&finished, expected);
            assert_eq!(finished.text().contains('T'), line == trap, "{finished}");
        }
    }
}

#[test]
fn the_time_limit_is_124_and_its_document_says_so() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");

        let waited = host.said("wait qa --for stopped --timeout 300ms");
        code(&waited, 124);
        assert!(
            waited.stderr.trim_end().ends_with(": it is Ready"),
            "{waited}"
        );
        let late = host.exec("qa --timeout 300ms", &["sleep", "300"]).finish();
        code(&late, 124);
        assert!(late.stderr.contains("timed out after 300ms"), "{late}");
        let (code, told) = document(
            &host
                .exec("qa --timeout 300ms -o json", &["sleep", "300"])
                .finish(),
        );
        assert_eq!(
            (code, &told["reason"]),
            (Some(124), &"Timeout".into()),
            "{told}"
        );
    }
}

#[test]
fn a_captured_exec_is_one_document_with_its_bytes() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let captured =
            |line: &str| document(&host.exec("qa -o json", &["sh", "-c", line]).finish()).1;

        let text = captured("printf 'é'; echo err >&2; exit 3");
        let bytes = captured(r"printf '\377'");
        let much = captured("head -c 3000000 /dev/zero | tr '\\0' a");

        assert_eq!(
            (&text["stdout"], &text["stderr"]),
            (&"é".into(), &"err\n".into()),
            "{text}"
        );
        assert_eq!(
            (&text["exitCode"], &text["encoding"]),
            (&3.into(), &"utf-8".into()),
            "{text}"
        );
        assert_eq!(
            (&bytes["stdout"], &bytes["encoding"]),
            (&"/w==".into(), &"base64".into()),
            "{bytes}"
        );
        assert_eq!(
            (&much["stdoutBytes"], &much["truncated"]),
            (&3_000_000.into(), &true.into())
        );
        assert_eq!(much["stdout"].as_str().map(str::len), Some(1 << 20));
    }
}

/// EX-14: the terminal has the caller's size, and hears of a new one.
#[test]
fn a_terminal_is_given_with_its_size_and_afterwards_the_persons_own_is_as_it_was() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");

        let run = host.exec(
            "qa -it",
            &[
                "sh",
                "-c",
                "stty size; trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done",
            ],
        );
        let terminal = Terminal::start(run, 50, 132);
        let shown = terminal.expect("ready");
        assert!(shown.contains("50 132"), "{shown}");
        terminal.resize(40, 100);
        terminal.expect("40 100");
        terminal.send("\x03");
        let (status, shown) = terminal.finish();
        assert_eq!(status.code(), Some(130), "{shown}");

        let piped = host.exec("qa -t", &["stty", "size"]).finish();
        assert_eq!(piped.text().trim(), "24 80", "{piped}");
    }
}

#[test]
fn a_session_that_was_left_is_attached_to_again_and_can_be_killed() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");

        let left = host
            .exec("qa --detach", &["sh", "-c", "echo one; echo two; exit 5"])
            .finish();
        let session = left.text().trim().to_owned();
        let attached = host.said(&format!("attach qa {session}"));
        assert_eq!(
            (attached.code(), attached.text().as_str()),
            (Some(5), "one\ntwo\n"),
            "{attached}"
        );
        let rest = host.said(&format!("attach qa {session} --from 4"));
        assert_eq!(rest.text(), "two\n", "{rest}");

        let sleeps = host.exec("qa --detach", &["sleep", "300"]).finish();
        let sleeper = sleeps.text().trim().to_owned();
        assert!(
            host.done("sessions qa").text().contains("sleep 300"),
            "sessions"
        );
        host.done(&format!("kill qa {sleeper} --signal INT"));
        code(&host.said(&format!("attach qa {sleeper}")), 130);
        let (_, rows) = host.document("sessions qa -o json");
        let rows = rows.as_array().expect("an array");
        let row = rows
            .iter()
            .find(|row| row["session"].as_u64() == sleeper.parse().ok())
            .expect("is listed");
        assert_eq!(
            (&row["running"], &row["ending"]["signal"]),
            (&false.into(), &2.into()),
            "{row}"
        );
        code(&host.said("kill qa 99999"), 125);
        code(&host.said("attach qa 99999"), 125);
    }
}

/// EX-01, EX-22: when the gateway dies, the outcome is unknown, and it is said how to get it.
#[test]
fn an_end_that_nobody_tells_is_unknown_and_can_be_fetched() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let go = area.work().join("go");
        let line = format!(
            "echo ready; until test -e {}; do sleep 0.02; done; echo over; exit 4",
            go.display()
        );
        let running = host.exec("qa", &["sh", "-c", &line]).start();
        running.expect("ready");

        host.end_gateway(Signal::SIGKILL);
        let finished = running.finish();
        area.file(&go, "");

        code(&finished, 125);
        let (_, way) = finished
            .stderr
            .split_once("attach again with: holdfast ")
            .expect("says how");
        assert!(
            finished.stderr.contains("the outcome is unknown: "),
            "{finished}"
        );
        until("the sandbox is found again", LONG, || {
            host.said("exec qa -- true").code() == Some(0)
        });
        let again = host.said(way.trim());
        assert_eq!(
            (again.code(), again.text().as_str()),
            (Some(4), "over\n"),
            "{again}"
        );
    }
}

/// Its own time is up, whatever keeps it from an answer.
#[test]
fn a_wait_whose_time_is_up_is_124_also_when_the_gateway_is_stopped() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let gateway = host.gateway().expect("serves");

        stat::stop(gateway);
        let waiting = host.say("wait qa --for ready --timeout 60s").start();
        let limits = [Duration::from_millis(300), Duration::from_secs(3)];
        let waited = limits.map(|limit| {
            let line = format!("wait qa --for stopped --timeout {}ms", limit.as_millis());
            (limit, host.said(&line))
        });
        kill(gateway, Signal::SIGCONT).expect("goes on");

        for (limit, waited) in waited {
            code(&waited, 124);
            assert!(waited.took >= limit, "{waited}");
            assert!(
                waited.stderr.contains("the gateway has not answered"),
                "{waited}"
            );
        }
        // One that goes on in time is heard.
        code(&waiting.finish(), 0);
    }
}

/// A session that nobody attends yet has its terminal, and an input that waits for whoever attaches to it.
#[test]
fn a_detached_session_has_its_terminal_and_its_input() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let detached = |options: &str, command: &[&str]| {
            let begun = host.exec(&format!("qa --detach {options}"), command);
            begun.finish().exited(0).text().trim().to_owned()
        };

        let reads = detached("-i", &["cat"]);
        let watched = detached("-t", &["stty", "size"]);
        let both = detached(
            "-it",
            &["sh", "-c", "stty -echo; read line; echo got $line"],
        );

        let said = host.say(&format!("attach qa {reads} -i")).input("hello\n");
        assert_eq!(said.finish().exited(0).text(), "hello\n");
        let said = host.said(&format!("attach qa {watched}"));
        assert_eq!(said.exited(0).text(), "24 80\r\n");
        let said = host.say(&format!("attach qa {both} -i")).input("line\n");
        let said = said.finish();
        assert!(said.exited(0).text().ends_with("got line\r\n"), "{said}");
    }
}

/// SV-02: with its boundary everything inside has died, and nobody is told to attach to it.
#[test]
fn an_exec_whose_boundary_dies_says_so_and_advises_nothing_that_leads_nowhere() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let running = host
            .exec("qa", &["sh", "-c", "echo ready; sleep 60"])
            .start();
        running.expect("ready");
        let (_, status) = host.document("status qa -o json");
        let boundary = status["pids"]["boundary"].as_i64().expect("a pid");
        let boundary = Pid::from_raw(i32::try_from(boundary).expect("a pid"));

        kill(boundary, Signal::SIGKILL).expect("killed");
        let finished = running.finish();

        code(&finished, 125);
        let died = "the boundary died, and everything inside with it";
        assert!(finished.stderr.contains(died), "{finished}");
        assert!(!finished.stderr.contains("attach again"), "{finished}");
    }
}

/// EX-01: what a gateway that is killed was told to do may have been done, and it is said where that is seen.
#[test]
fn a_change_that_a_killed_gateway_was_told_of_is_of_unknown_outcome() {
    for area in everyone() {
        let host = Host::new(&area);
        let deaf = "trap '' TERM; while :; do sleep 1; done";
        host.say("create qa --wait")
            .command(["sh", "-c", deaf])
            .finish()
            .exited(0);

        let stop = host.say("stop qa --timeout 1m").start();
        until("it is being stopped", LONG, || {
            host.document("status qa -o json").1["reason"] == "Stopping"
        });
        host.end_gateway(Signal::SIGKILL);
        let stop = stop.finish();

        code(&stop, 125);
        for said in [
            "the outcome is unknown: the gateway went away",
            "`holdfast status qa`",
        ] {
            assert!(stop.stderr.contains(said), "{stop}");
        }
    }
}

/// CL-01: no failure is 0, and each has a line.
#[test]
fn every_failure_has_a_code_and_a_line() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let bad = area.file(
            &area.work().join("bad.yaml"),
            "version: 1\nnetwork_polices: {}\n",
        );
        let bad = bad.display();

        for (line, expected) in [
            ("status nosuch".to_owned(), 125),
            ("wait nosuch --for ready".to_owned(), 125),
            ("wait qa --for failed --timeout 200ms".to_owned(), 124),
            ("attach nosuch 1".to_owned(), 125),
            ("sessions nosuch".to_owned(), 125),
            ("kill nosuch 1".to_owned(), 125),
            ("stop nosuch".to_owned(), 125),
            ("start nosuch".to_owned(), 125),
            ("restart nosuch".to_owned(), 125),
            ("delete nosuch".to_owned(), 125),
            ("logs nosuch".to_owned(), 125),
            ("tree nosuch".to_owned(), 125),
            ("policy get nosuch".to_owned(), 125),
            ("policy get qa --revision 99".to_owned(), 125),
            (format!("policy set qa {bad}"), 2),
            (format!("policy diff qa {bad}"), 2),
            ("policy set qa /nosuch.yaml".to_owned(), 125),
            ("policy explain nosuch --host h --port 1".to_owned(), 125),
            ("why 01J9ZQ3V5W8X7Y6T4S2R1P0N9M".to_owned(), 125),
            ("cp /nosuch qa:/tmp".to_owned(), 125),
            ("cp nosuch:/x .".to_owned(), 125),
            ("cp a b".to_owned(), 2),
            ("forward nosuch 0:80".to_owned(), 125),
            ("create qa".to_owned(), 125),
            (format!("create other --policy {bad}"), 2),
            ("create other --rootfs /nosuch".to_owned(), 125),
        ] {
            let finished = host.said(&line);
            code(&finished, expected);
            assert!(finished.stderr.contains("holdfast: "), "{finished}");
            assert_eq!(finished.stdout.len(), 0, "{finished}");
            is_plain(&finished);
        }
        code(&host.said("status other"), 125);
    }
}

/// CL-02: one document, whatever happens.
#[test]
fn every_failure_with_a_document_is_one() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");

        for line in [
            "status nosuch -o json",
            "sessions nosuch -o json",
            "tree nosuch -o json",
            "policy get nosuch -o json",
            "why nosuch -o json",
            "exec nosuch -o json -- true",
            "list -o json --nosuch",
        ] {
            let (code, document) = host.document(line);
            assert_ne!(code, Some(0), "{line}");
            for field in ["code", "message", "reason", "details", "retryAfterMs"] {
                assert!(document["error"].get(field).is_some(), "{line}: {document}");
            }
        }
        let running = host.exec("qa -o json", &["sleep", "300"]).start();
        until("it runs", LONG, || {
            host.done("sessions qa").text().contains("sleep 300")
        });
        running.signal(Signal::SIGINT);
        let (code, told) = document(&running.finish());
        assert_eq!((code, &told["signal"]), (Some(130), &2.into()), "{told}");
    }
}

/// CL-03: whoever stops reading ends us silently, and a full disk is a failure with its reason.
#[test]
fn a_reader_that_leaves_ends_us_silently_and_a_full_disk_does_not() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");

        for line in [
            "list",
            "status qa -o json",
            "logs qa",
            "tree qa",
            "exec qa -- yes",
        ] {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            let output = host
                .say(line)
                .describe()
                .stdin(Stdio::null())
                .stdout(writer)
                .stderr(Stdio::piped())
                .output();
            let output = output.expect("runs");
            assert_eq!(output.status.code(), Some(141), "{line}");
            assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line}");

            let full = fs::File::options()
                .write(true)
                .open("/dev/full")
                .expect("opens");
            let output = host
                .say(line)
                .describe()
                .stdin(Stdio::null())
                .stdout(full)
                .stderr(Stdio::piped())
                .output();
            let output = output.expect("runs");
            assert_eq!(output.status.code(), Some(125), "{line}");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains("No space left on device"), "{line}: {said}");
        }
    }
}

/// CL-06, SV-16: a gateway that is not there is told in one line, at once, and is started where nobody named another.
#[test]
fn a_gateway_that_is_not_there_is_told_at_once_or_started() {
    for area in everyone() {
        let host = Host::new(&area);
        let named = |path: &str| {
            let run = Run::plain(&area, ["list", "-o", "json"]);
            run.environment("HOLDFAST_GATEWAY", path).finish()
        };
        let stale = area.work().join("stale.sock");
        drop(std::os::unix::net::UnixListener::bind(&stale).expect("binds"));
        area.give(&stale);

        for (address, why) in [
            (format!("unix:{}", stale.display()), "connection refused"),
            (
                "unix:/nosuch/g.sock".to_owned(),
                "no such file or directory",
            ),
        ] {
            let finished = named(&address);
            let (code, told) = document(&finished);
            assert_eq!(
                (code, &told["error"]["reason"]),
                (Some(125), &"GatewayUnreachable".into())
            );
            assert_eq!(finished.stderr.lines().count(), 1, "{finished}");
            assert!(
                finished.stderr.contains(&format!(
                    "cannot reach gateway at {address}: {why}; start it with"
                )),
                "{finished}"
            );
            assert!(finished.took < Duration::from_secs(3), "{finished}");
        }
        let uncertified = named("tcp:127.0.0.1:1");
        assert_eq!(uncertified.code(), Some(2), "{uncertified}");
        assert!(
            uncertified.stderr.contains("HOLDFAST_TLS_CA"),
            "{uncertified}"
        );

        assert_eq!(host.gateway(), None);
        let many: Vec<_> = (0..8).map(|_| host.say("list").start()).collect();
        for finished in many.into_iter().map(holdfast_tests::Running::finish) {
            code(&finished, 0);
        }
        assert!(host.gateway().is_some(), "one was started");
        host.end_gateway(Signal::SIGKILL);
        host.done("list");
    }
}

/// CL-06, BD-08: somebody else who listens there is no gateway, and is found out in time.
#[test]
fn a_stranger_that_listens_is_no_gateway() {
    for area in everyone() {
        let socket = area.work().join("stranger.sock");
        let listener = std::os::unix::net::UnixListener::bind(&socket).expect("binds");
        fs::set_permissions(&socket, std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .expect("opens it");
        let address = format!("unix:{}", socket.display());
        let silent = Run::plain(&area, ["list"])
            .environment("HOLDFAST_GATEWAY", &*address)
            .finish();
        code(&silent, 125);
        assert!(silent.took < Duration::from_secs(3), "{silent}");
        is_plain(&silent);

        let speaker = std::thread::spawn(move || {
            // The silent one's connection still waits in line.
            for stream in listener.incoming().take(3).flatten() {
                let mut stream = stream;
                let _gone = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            }
        });
        let http = Run::plain(&area, ["list"])
            .environment("HOLDFAST_GATEWAY", &*address)
            .finish();
        code(&http, 125);
        assert!(http.took < Duration::from_secs(3), "{http}");
        assert_eq!(http.stderr.lines().count(), 1, "{http}");
        drop(fs::remove_file(&socket));
        drop(speaker);
    }
}

#[test]
fn whoever_interrupts_a_creation_leaves_nothing() {
    for area in everyone() {
        let host = Host::new(&area);
        host.done("list");
        for _ in 0..3 {
            let running = host.say("create qa --wait").start();
            until("it was asked for", LONG, || {
                host.document("list -o json")
                    .1
                    .as_array()
                    .is_some_and(|rows| !rows.is_empty())
            });
            // It may have ended by itself.
            let _gone = kill(running.pid(), Signal::SIGINT);
            let finished = running.finish();
            match finished.code() {
                Some(130) => code(&host.said("status qa"), 125),
                // It was ready before we were heard.
                Some(0) => drop(host.done("delete qa --force")),
                _ => panic!("{finished}"),
            }
        }
    }
}

/// CONTRACT: a closed pipe ends the program silently, also while there is nothing to write.
#[test]
fn whoever_watches_for_nobody_ends() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        for line in ["status qa --watch -o json", "logs qa -f"] {
            let mut command = host.say(line).describe();
            let running = command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let mut running = running.spawn().expect("starts");
            let mut reader = BufReader::new(running.stdout.take().expect("piped"));
            reader.read_line(&mut String::new()).expect("a first line");
            drop(reader);
            let mut ended = None;
            until("it ends", LONG, || {
                ended = running.try_wait().expect("asked");
                ended.is_some()
            });
            let mut said = String::new();
            let mut errors = running.stderr.take().expect("piped");
            errors.read_to_string(&mut said).expect("read");
            assert_eq!(said, "", "{line}: {ended:?}");
        }
    }
}

/// Whoever waits for a sandbox has a gateway started when the one that told it dies.
#[test]
fn one_who_waits_outlives_the_gateway() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let waiting = host.say("wait qa --for stopped --timeout 60s").start();
        let first = host.gateway().expect("it runs");
        host.end_gateway(Signal::SIGKILL);
        until("another gateway serves", LONG, || {
            host.gateway().is_some_and(|pid| pid != first)
        });
        host.done("stop qa");
        assert_eq!(waiting.finish().code(), Some(0));
    }
}

#[test]
fn watching_tells_each_change_as_a_line() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let watching = host.say("status qa --watch -o json").start();
        watching.expect("\"Ready\"");

        host.done("stop qa --timeout 1s");
        watching.expect("\"Stopped\"");
        host.done("delete qa");
        let finished = watching.finish();

        code(&finished, 0);
        for line in finished.text().lines() {
            let status: Value = serde_json::from_str(line).expect("is a document");
            assert_eq!(status["name"], "qa");
        }
    }
}

/// SV-03: whoever waits for an end hears of none where the restart policy begins again, and where there is one nothing holds any
/// more.
#[test]
fn an_end_is_told_as_what_follows_it() {
    for area in everyone() {
        let host = Host::new(&area);
        let watched = |name: &str, options: &str, holds: &dyn Fn(&Value) -> bool| {
            let create = host.say(&format!("create {name} {options}"));
            let create = create.command(["sh", "-c", "sleep 0.3; exit 2"]);
            code(&create.finish(), 0);
            let watching = host.say(&format!("status {name} --watch -o json")).start();
            until("it has ended", LONG, || {
                holds(&host.document(&format!("status {name} -o json")).1)
            });
            host.done(&format!("delete {name} --force"));
            let finished = watching.finish();
            let lines = finished.text();
            let lines = lines.lines().map(serde_json::from_str);
            lines.collect::<Result<Vec<Value>, _>>().expect("documents")
        };

        let again = watched("again", "--restart always", &|status| {
            status["restarts"]["total"].as_u64() >= Some(2)
        });
        let phases: Vec<_> = again.iter().map(|status| &status["phase"]).collect();
        assert!(
            phases.iter().any(|phase| **phase == "Pending"),
            "{phases:?}"
        );
        for ended in ["Stopped", "Failed"] {
            assert!(phases.iter().all(|phase| **phase != ended), "{phases:?}");
        }

        let once = watched("once", "", &|status| status["phase"] == "Stopped");
        for status in once.iter().filter(|status| status["phase"] != "Ready") {
            let conditions = status["conditions"].as_array().expect("conditions");
            let holds = |condition: &Value| condition["status"] == "True";
            assert!(!conditions.iter().all(holds), "{status}");
        }
    }
}

#[test]
fn policies_are_read_compared_and_put_in_force_and_verdicts_explained() {
    for area in everyone() {
        let host = Host::new(&area);
        let allowed = "network_policies: {a: {endpoints: [{host: example.test, port: 80}]}}\n";
        let view = "version: 1\nfilesystem_policy: {include_workdir: true, read_only: [/usr, /lib, /lib64, /bin, /etc]}\n";
        let before = area.file(&area.work().join("before.yaml"), view);
        let after = area.file(&area.work().join("after.yaml"), format!("{view}{allowed}"));
        let (before, after) = (before.display(), after.display());
        host.ready("qa", &format!("--policy {before}"));

        assert_eq!(host.done("policy get qa").text(), view);
        code(&host.said(&format!("policy diff qa {before}")), 0);
        let differs = host.said(&format!("policy diff qa {after}"));
        assert!(
            differs.code() == Some(1) && differs.text().contains("+++"),
            "{differs}"
        );
        let question = "policy explain qa --host example.test --port 80";
        assert!(host.done(question).text().contains("denied"), "before");

        host.done(&format!("policy set qa {after} --wait"));
        assert!(host.done(question).text().contains("allowed"), "after");
        let (_, status) = host.document("status qa -o json");
        assert_eq!(
            (&status["policy"]["desired"], &status["policy"]["enforced"]),
            (&2.into(), &2.into())
        );
        assert_eq!(host.done("policy get qa --revision 1").text(), view);

        host.shell("qa", "exec 3<>/dev/tcp/1.2.3.4/9 || true");
        host.exec("qa", &["bash", "-c", "exec 3<>/dev/tcp/1.2.3.4/9"])
            .finish();
        let mut decision = String::new();
        until("the verdict is logged", LONG, || {
            let lines = host.done("logs qa --source audit -o json").text();
            let record = lines
                .lines()
                .last()
                .map(|line| serde_json::from_str::<Value>(line).expect("is a document"));
            decision = record
                .and_then(|record| record["decision"].as_str().map(str::to_owned))
                .unwrap_or_default();
            !decision.is_empty()
        });
        assert!(
            host.done(&format!("why {decision}"))
                .text()
                .contains("1.2.3.4"),
            "why"
        );
    }
}

#[test]
fn logs_are_lines_and_a_workloads_bytes_are_its_own() {
    for area in everyone() {
        let host = Host::new(&area);
        let create = host.say("create qa --wait").command([
            "sh",
            "-c",
            "echo from the workload; exec sleep 300",
        ]);
        code(&create.finish(), 0);

        until("the workload was logged", LONG, || {
            host.done("logs qa --source workload").text() == "from the workload\n"
        });
        let all = host.done("logs qa -o json").text();
        for line in all.lines() {
            let line: Value = serde_json::from_str(line).expect("is a document");
            assert!(line["source"].is_string(), "{line}");
        }
        let following = host.say("logs qa -f --source keeper").start();
        following.expect("serving");
        following.signal(Signal::SIGINT);
        code(&following.finish(), 130);
        let recent = host.done("logs qa --since 1ms --source keeper --level error");
        assert_eq!(recent.text(), "", "{recent}");
    }
}

#[test]
fn a_forwarded_port_leads_to_the_sandboxs_own_loopback() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let server = "import socket\n\
            s = socket.create_server(('127.0.0.1', 8080))\n\
            print('listens', flush=True)\n\
            while True:\n    c, _ = s.accept()\n    all = b''\n    while (d := c.recv(65536)): all += d\n    c.sendall(all.upper()); c.close()\n";
        let serving = host.exec("qa", &["python3", "-c", server]).start();
        serving.expect("listens");
        let forwarding = host.say("forward qa 0:8080").start();
        let address = forwarding.expect("\n").trim().to_owned();

        for _ in 0..3 {
            let mut stream = TcpStream::connect(&*address).expect("connects");
            stream.write_all(b"hello").expect("writes");
            stream
                .shutdown(std::net::Shutdown::Write)
                .expect("half-closes");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("reads");
            assert_eq!(answer, "HELLO");
        }
        forwarding.signal(Signal::SIGINT);
        code(&forwarding.finish(), 130);
        serving.signal(Signal::SIGTERM);
        drop(serving.finish());
    }
}

#[test]
fn an_urgent_byte_passes_a_forwarded_port_in_its_place() {
    if holdfast_tests::skip::program("python3").is_none() {
        return;
    }
    let line = "import socket\n\
                serves = socket.create_server(('127.0.0.1', 8080))\n\
                print('listens', flush=True)\n\
                one = serves.accept()[0]\n\
                one.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)\n\
                heard = b''\n\
                while len(heard) < 7: heard += one.recv(7)\n\
                for bytes, flags in [(heard, 0), (b'?', socket.MSG_OOB), (b'ghi', 0)]: one.send(bytes, flags)\n\
                one.recv(1)\n";
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let serving = host.exec("qa", &["python3", "-c", line]).start();
        serving.expect("listens");
        let forwarding = host.say("forward qa 0:8080").start();
        let address = forwarding.expect("\n").trim().to_owned();

        let mut client = TcpStream::connect(&*address).expect("it listens");
        setsockopt(&client, sockopt::OobInline, &true).expect("set");
        for (bytes, flags) in [
            (&b"abc"[..], MsgFlags::empty()),
            (b"!", MsgFlags::MSG_OOB),
            (b"def", MsgFlags::empty()),
        ] {
            send(client.as_raw_fd(), bytes, flags).expect("taken");
        }
        let mut heard = [0; 11];
        client.set_read_timeout(Some(LONG)).expect("set");
        client.read_exact(&mut heard).expect("all of it comes");

        assert_eq!(&heard, b"abc!def?ghi");
        drop(client);
        forwarding.signal(Signal::SIGINT);
        code(&forwarding.finish(), 130);
        code(&serving.finish(), 0);
    }
}

/// It belongs to one sandbox: refused where that does not run, closed while it is stopped, over when it is deleted, and never
/// a way into another of its name.
#[test]
fn a_forward_is_bound_to_its_sandbox() {
    let answer = |address: &str| {
        let mut stream = TcpStream::connect(address).ok()?;
        let mut answer = String::new();
        // One that is closed at once may be reset.
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    };
    for area in everyone() {
        let host = Host::new(&area);
        let serving = |word: &str| {
            let server = format!(
                "import socket\n\
                 s = socket.create_server(('127.0.0.1', 8080))\n\
                 while True:\n    c, _ = s.accept()\n    c.sendall(b'{word}'); c.close()\n"
            );
            area.file(&area.work().join(word), &server);
            host.done(&format!(
                "exec qa --detach -- python3 {}",
                area.work().join(word).display()
            ));
            // Until it listens.
            let knock = "import socket, sys, time\n\
                for _ in range(500):\n    try: socket.create_connection(('127.0.0.1', 8080)); sys.exit(0)\n    except OSError: time.sleep(0.02)\nsys.exit(1)\n";
            code(&host.exec("qa", &["python3", "-c", knock]).finish(), 0);
        };
        host.ready("qa", "");
        serving("old");
        let forwarding = host.say("forward qa 0:8080").start();
        let address = forwarding.expect("\n").trim().to_owned();
        assert_eq!(answer(&address).as_deref(), Some("old"));

        host.done("stop qa --timeout 1s");
        assert_eq!(answer(&address).unwrap_or_default(), "", "it is stopped");
        let refused = host.said("forward qa 0:8080");
        code(&refused, 125);
        assert!(
            refused.stderr.contains("it does not run (Stopped"),
            "{refused}"
        );
        assert_eq!(refused.text(), "", "{refused}");
        host.done("start qa");
        host.done("wait qa --for ready --timeout 30s");
        serving("again");
        assert_eq!(answer(&address).as_deref(), Some("again"));

        // Nobody may find the next one by the address of the last.
        stat::stop(forwarding.pid());
        host.done("delete qa --force");
        host.ready("qa", "");
        serving("new");
        let early = TcpStream::connect(&*address).expect("the kernel still listens");
        forwarding.signal(Signal::SIGCONT);
        let mut heard = String::new();
        let _reset = (&early).read_to_string(&mut heard);
        assert_eq!(heard, "");
        let finished = forwarding.finish();
        code(&finished, 125);
        assert!(
            finished.stderr.contains("forward to qa: it was deleted"),
            "{finished}"
        );
    }
}

/// A working directory that somebody has removed is told as that, and not as a matter of the policy.
#[test]
fn a_working_directory_that_is_gone_is_told_as_gone() {
    for area in everyone() {
        let host = Host::new(&area);
        let gone = area.directory(&area.work().join("gone"));
        area.give(&gone);
        let create = host.say("create qa --wait").directory(&gone).finish();
        code(&create, 0);
        fs::remove_dir(&gone).expect("removed");

        host.said("restart qa --timeout 1s");

        host.said("wait qa --for failed --timeout 30s");
        let told = format!("the working directory {} does not exist", gone.display());
        for line in ["status qa -o json", "exec qa -- true"] {
            let finished = host.said(line);
            let said = format!("{}{}", finished.text(), finished.stderr);
            assert!(
                said.contains(&told) && said.contains("make it again"),
                "{finished}"
            );
            assert!(!said.contains("include_workdir"), "{finished}");
        }
        area.directory(&gone);
        area.give(&gone);
        host.done("start qa");
        host.done("wait qa --for ready --timeout 30s");
        // One that is there and is not shown.
        let hidden = host.said("create other --wait --cwd /srv");
        code(&hidden, 125);
        assert!(
            hidden.stderr.contains("/srv is not in the sandbox's view"),
            "{hidden}"
        );
        assert!(!hidden.stderr.contains("include_workdir"), "{hidden}");
    }
}

/// What is written nowhere is there all the same, and is named.
#[test]
fn a_result_that_cannot_be_written_names_what_is_there() {
    for area in everyone() {
        let host = Host::new(&area);
        for (line, told) in [
            ("create qa --wait", ["; sandbox qa exists", ""]),
            (
                "exec qa --detach -- sleep 100",
                ["; session ", " of qa runs"],
            ),
        ] {
            let full = fs::File::options().write(true).open("/dev/full");
            let output = host
                .say(line)
                .describe()
                .stdin(Stdio::null())
                .stdout(full.expect("opens"))
                .stderr(Stdio::piped())
                .output()
                .expect("runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(125), "{said}");
            assert!(
                told.iter().all(|told| said.contains(told)),
                "{line}: {said}"
            );
        }
    }
}

/// CL-01: a malformed session or decision is wrong in itself, and it is said how they are written.
#[test]
fn a_malformed_session_or_decision_is_a_usage_error() {
    for area in everyone() {
        let host = Host::new(&area);
        for (line, told) in [
            ("attach qa abc", "`holdfast sessions NAME`"),
            ("kill qa abc", "`holdfast sessions NAME`"),
            ("why nosuch", "26 characters"),
        ] {
            let finished = host.said(line);
            code(&finished, 2);
            assert!(finished.stderr.contains(told), "{finished}");
        }
    }
}

#[test]
fn files_go_in_and_come_out_as_they_were() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let tree = area.directory(&area.work().join("tree/deep"));
        area.give(&area.work().join("tree"));
        area.file(&tree.join("f"), "content");
        std::os::unix::fs::symlink("/etc/passwd", tree.join("link")).expect("links");

        host.done("cp tree qa:/tmp");
        host.done("cp tree qa:/tmp/renamed");
        host.done("cp tree/deep/f qa:/tmp/g");
        assert_eq!(
            host.shell("qa", "cat /tmp/tree/deep/f /tmp/renamed/deep/f /tmp/g")
                .text(),
            "contentcontentcontent"
        );
        host.done("cp qa:/tmp/tree back");
        host.done("cp qa:/tmp/g .");
        let work = area.work();
        assert_eq!(
            fs::read_to_string(work.join("back/deep/f")).expect("came"),
            "content"
        );
        assert_eq!(fs::read_to_string(work.join("g")).expect("came"), "content");
        assert!(
            fs::read_link(work.join("back/deep/link")).is_ok(),
            "a link stays one"
        );

        let tar = host.done("cp qa:/tmp/tree -").stdout;
        code(&host.say("cp - qa:/tmp/renamed").input(tar).finish(), 0);
        assert_eq!(
            host.shell("qa", "cat /tmp/renamed/tree/deep/f").text(),
            "content"
        );
    }
}

/// CL-01: nothing is written at the destination when a copy fails.
#[test]
fn a_copy_that_fails_leaves_nothing() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        area.file(&area.work().join("f"), "content");
        let names = || {
            let mut names: Vec<_> = fs::read_dir(area.work())
                .expect("reads")
                .flatten()
                .map(|entry| entry.file_name())
                .collect();
            names.sort();
            names
        };
        let before = names();

        for line in [
            "cp qa:/nosuch got",
            "cp f qa:/usr/f",
            "cp f qa:/no/such/place",
            "cp qa:/proj/../nosuch got",
        ] {
            let finished = host.said(line);
            code(&finished, 125);
            is_plain(&finished);
        }
        assert_eq!(names(), before);
    }
}

#[test]
fn tables_fit_and_manual_pages_are_written() {
    for area in everyone() {
        let host = Host::new(&area);
        let long = "a".repeat(60);
        host.done(&format!("create {long} --wait"));
        for line in [
            "list".to_owned(),
            format!("status {long}"),
            format!("tree {long}"),
        ] {
            let shown = host.say(&line).environment("COLUMNS", "40").finish().text();
            for row in shown.lines() {
                assert!(row.chars().count() <= 40, "{row:?}");
            }
        }
        host.done("man pages");
        assert!(area.work().join("pages/holdfast-exec.1").is_file());
    }
}

/// EX-10: a main program that could not be started is no success, and its failure is told apart.
#[test]
fn a_creation_that_is_waited_for_succeeds_only_when_it_does() {
    for area in everyone() {
        let host = Host::new(&area);

        for (name, program, expected) in [("gone", "/nope/prog", 127), ("etc", "/etc", 126)] {
            let create = host.say(&format!("create {name} --wait"));
            let finished = create.command([program]).finish();
            code(&finished, expected);
            assert_eq!(finished.text(), "", "{finished}");
            assert!(finished.stderr.contains(program), "{finished}");
            is_plain(&finished);
        }
        code(
            &host.say("create well --wait").command(["true"]).finish(),
            0,
        );
    }
}

/// However early somebody interrupts a creation: what is named is there, and nothing else.
#[test]
fn what_a_creation_named_stays_and_nothing_else() {
    for area in everyone() {
        let host = Host::new(&area);
        host.done("list");
        for wait in ["", "--wait"] {
            for delay in [1, 5, 10, 20, 30, 50] {
                let running = host.say(&format!("create qa {wait}")).start();
                std::thread::sleep(Duration::from_millis(delay));
                // It may have ended by itself.
                let _gone = kill(running.pid(), Signal::SIGINT);
                let finished = running.finish();
                let named = finished.text() == "qa\n";
                assert_eq!(named, finished.code() == Some(0), "{finished}");
                let there = host.said("status qa").code() == Some(0);
                assert_eq!(there, named, "after {delay} ms {wait}: {finished}");
                if there {
                    host.done("delete qa --force");
                }
            }
        }
    }
}

/// A device, a pipe or a socket is not what a copy may replace.
#[test]
fn a_copy_replaces_no_pipe_and_follows_a_link() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        code(&host.shell("qa", "echo new > /tmp/x"), 0);
        let work = area.work();
        let pipe = work.join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        area.give(&pipe);
        area.file(&work.join("target"), "old");
        std::os::unix::fs::symlink("target", work.join("link")).expect("links");

        let refused = host.said("cp qa:/tmp/x pipe");
        host.done("cp qa:/tmp/x link");

        code(&refused, 125);
        assert!(refused.stderr.contains("pipe: it is a pipe"), "{refused}");
        let kind = fs::symlink_metadata(&pipe).expect("is there").file_type();
        assert!(std::os::unix::fs::FileTypeExt::is_fifo(&kind));
        assert_eq!(
            fs::read_to_string(work.join("target")).expect("came"),
            "new\n"
        );
        assert!(fs::read_link(work.join("link")).is_ok());
    }
}

/// Whoever attends as a guest leaves alone; only Ctrl-C is meant for the program.
#[test]
fn a_guest_that_is_told_to_end_leaves_the_session_running() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let line = "echo ready; exec sleep 300";
        let left = host.exec("qa --detach", &["sh", "-c", line]).finish();
        let session = left.text().trim().to_owned();
        let attach = || {
            let running = host.say(&format!("attach qa {session}")).start();
            running.expect("ready");
            running
        };

        for (signal, expected) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
            let guest = attach();
            guest.signal(signal);
            let finished = guest.finish();
            code(&finished, expected);
            assert!(finished.stderr.contains("goes on"), "{finished}");
        }
        let (_, rows) = host.document("sessions qa -o json");
        assert!(rows.to_string().contains("\"running\":true"), "{rows}");
        let guest = attach();
        guest.signal(Signal::SIGINT);
        code(&guest.finish(), 130);
        let (_, rows) = host.document("sessions qa -o json");
        assert!(!rows.to_string().contains("\"running\":true"), "{rows}");
    }
}
