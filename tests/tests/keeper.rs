//! One lasting sandbox and its keeper: sessions that outlive their clients, a workload that outlives its keeper.

use holdfast_tests::keeping::{
    Client, Keeping, Seen, attach, code, exec, run, shell, signal, start,
};
use holdfast_tests::wait::{LONG, now, until};
use holdfast_tests::{Policy, everyone, stat};
use holdfast_wire::v1::session_input::Kind as In;
use holdfast_wire::{problem, v1};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;
use tonic::{Code, Status};

/// One test for everyone who runs Holdfast: a sandbox that idles, is tried and ended, with nothing left.
#[expect(
    clippy::needless_pass_by_value,
    reason = "each test hands over a closure written in place"
)]
fn idle(test: impl for<'a> AsyncFn(&'a mut Keeping<'_>, Client) -> Client) {
    for area in everyone() {
        runtime().block_on(async {
            let mut sandbox = Keeping::new(&area, &Policy::offline().text());
            let client = sandbox.serve().await;
            let client = test(&mut sandbox, client).await;
            sandbox.end(client).await;
        });
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
}

fn reason(status: &Status) -> String {
    problem::of(status)
        .map(|problem| problem.reason)
        .unwrap_or_default()
}

/// EX-01, EX-11: a status is the program's own, a signal is one.
#[test]
fn a_session_ends_with_its_programs_own_status() {
    idle(async |_, mut client| {
        let (seen, ending) = run(&mut client, shell("echo out; echo err >&2; exit 7"))
            .await
            .expect("ran");
        assert_eq!(code(&ending), Some(7));
        assert_eq!(
            (seen.text().as_str(), &seen.stderr[..]),
            ("out\n", &b"err\n"[..])
        );
        assert_eq!((ending.stdout_bytes, ending.stderr_bytes), (4, 4));
        let (_, ending) = run(&mut client, shell("kill -SEGV $$")).await.expect("ran");
        assert_eq!(
            (signal(&ending), ending.reason.as_str()),
            (Some(libc::SIGSEGV), "")
        );
        client
    });
}

/// EX-10: not there, not executable, no such directory: each says so by name.
#[test]
fn what_cannot_be_started_says_why() {
    idle(async |_, mut client| {
        let mut nowhere = shell("true");
        nowhere.directory = b"/nosuch".to_vec();
        for (program, expected) in [
            (exec(&["nosuch"]), "ProgramNotFound"),
            (exec(&["/etc/passwd"]), "ProgramNotExecutable"),
            (nowhere, "DirectoryNotFound"),
            (exec(&[]), "Usage"),
        ] {
            let refused = start(&mut client, program).await.expect_err(expected);
            assert_eq!(reason(&refused), expected, "{refused}");
        }
        let missing = attach(&mut client, 4711, 0).await.expect_err("none");
        assert_eq!(reason(&missing), "NoSuchSession");
        client
    });
}

/// EX-06: the end of the input reaches the program, its output goes on.
#[test]
fn an_input_ends_when_the_client_says_so() {
    idle(async |_, mut client| {
        let mut cat = shell("cat; echo over");
        cat.stdin = true;
        let mut seen = start(&mut client, cat).await.expect("started");

        seen.send("first\n").await;
        seen.expect("first\n").await;
        seen.send("second\n").await;
        seen.end_input().await;

        let ending = seen.end().await.expect("ended");
        assert_eq!(seen.text(), "first\nsecond\nover\n");
        assert_eq!(code(&ending), Some(0));
        client
    });
}

/// EX-07: without input the input is empty and ended, whatever the client does.
#[test]
fn without_input_there_is_none() {
    idle(async |_, mut client| {
        let (seen, ending) = run(&mut client, shell("cat | wc -c")).await.expect("ran");
        assert_eq!((seen.text().trim(), code(&ending)), ("0", Some(0)));
        client
    });
}

/// EX-08: 64 MiB in, none missing.
#[test]
fn a_large_input_arrives_whole() {
    idle(async |_, mut client| {
        let mut sum = shell("wc -c");
        sum.stdin = true;
        let mut seen = start(&mut client, sum).await.expect("started");

        let piece = bytes::Bytes::from(vec![b'x'; 256 << 10]);
        for _ in 0..256 {
            seen.send(piece.clone()).await;
        }
        seen.end_input().await;

        seen.end().await.expect("ended");
        assert_eq!(seen.text().trim(), (64_u32 << 20).to_string());
        client
    });
}

/// EX-09: a program that reads nothing ends by itself.
#[test]
fn a_program_that_reads_no_input_still_ends() {
    idle(async |_, mut client| {
        let mut deaf = shell("exit 3");
        deaf.stdin = true;
        let mut seen = start(&mut client, deaf).await.expect("started");
        for _ in 0..8 {
            let data = In::Data(vec![b'x'; 256 << 10].into());
            let _it_has_ended = seen.input.try_send(v1::SessionInput { kind: Some(data) });
        }
        assert_eq!(code(&seen.end().await.expect("ended")), Some(3));
        client
    });
}

/// EX-02: a child that keeps the pipe keeps nobody waiting.
#[test]
fn a_child_in_the_background_does_not_hold_the_session() {
    idle(async |_, mut client| {
        let began = now();
        let (seen, ending) = run(&mut client, shell("sleep 100 & echo done"))
            .await
            .expect("ran");
        assert_eq!((seen.text().as_str(), code(&ending)), ("done\n", Some(0)));
        assert!(began.elapsed() < Duration::from_secs(20));
        client
    });
}

/// EX-05: a reader that is slow gets every byte.
#[test]
fn a_slow_reader_gets_every_byte() {
    idle(async |_, mut client| {
        let line = "head -c 8000000 /dev/zero | tr '\\0' x; echo end >&2";
        let mut seen = start(&mut client, shell(line)).await.expect("started");
        let mut steps = 0;
        let ending = loop {
            if steps % 20 == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            steps += 1;
            if let Some(ending) = seen.step().await.expect("no failure") {
                break ending;
            }
        };
        assert_eq!((seen.stdout.len(), seen.lost), (8_000_000, 0));
        assert!(seen.stdout.iter().all(|byte| *byte == b'x'));
        assert_eq!(
            (&seen.stderr[..], ending.stdout_bytes),
            (&b"end\n"[..], 8_000_000)
        );
        client
    });
}

/// EX-12: a client that goes away leaves its session running, and nothing of its output is lost or told twice.
#[test]
fn a_client_that_is_cut_off_can_attach_where_it_was() {
    idle(async |_, mut client| {
        let line = "i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); sleep 0.005; done";
        let mut seen = start(&mut client, shell(line)).await.expect("started");
        seen.expect("line 20\n").await;
        let (session, offset, before) = (seen.session, seen.offset, seen.text());
        drop(seen);

        let mut again = attach(&mut client, session, offset)
            .await
            .expect("attached");
        let ending = again.end().await.expect("ended");

        let whole = before + &again.text();
        let expected = lines(200);
        assert_eq!(whole, expected);
        assert_eq!(code(&ending), Some(0));
        let mut past = attach(&mut client, session, 0).await.expect("kept");
        assert_eq!(past.end().await.expect("ended"), ending);
        assert_eq!(past.text(), expected);
        client
    });
}

/// EX-12: what a cut-off client had said is done, and its session still takes input.
#[test]
fn an_input_stays_open_when_its_client_is_cut_off() {
    idle(async |_, mut client| {
        let mut cat = exec(&["cat"]);
        cat.stdin = true;
        let mut seen = start(&mut client, cat).await.expect("started");
        seen.send("one\n").await;
        seen.expect("one\n").await;
        let (session, offset) = (seen.session, seen.offset);
        drop(seen);

        let mut again = attach(&mut client, session, offset)
            .await
            .expect("attached");
        again.send("two\n").await;
        again.expect("two\n").await;
        again.end_input().await;

        assert_eq!(code(&again.end().await.expect("ended")), Some(0));
        client
    });
}

/// Output that nobody reads is overwritten, and how much is said.
#[test]
fn what_nobody_read_is_counted() {
    idle(async |_, mut client| {
        let mut flood = shell("head -c 5000000 /dev/zero");
        flood.detach = true;
        let seen = start(&mut client, flood).await.expect("started");
        let ended = async |client: &mut Client| {
            let list = client
                .sessions(v1::Nothing {})
                .await
                .expect("listed")
                .into_inner();
            let row = list
                .sessions
                .into_iter()
                .find(|row| row.session == seen.session);
            row.expect("known").ending
        };
        let mut ending = None;
        let end = now() + LONG;
        while ending.is_none() {
            assert!(now() < end, "the flood does not end");
            ending = ended(&mut client).await;
        }

        let mut late = attach(&mut client, seen.session, 0)
            .await
            .expect("attached");
        late.end().await.expect("ended");

        assert_eq!(late.lost + late.stdout.len() as u64, 5_000_000);
        assert!(late.lost > 0 && !late.stdout.is_empty());
        assert_eq!(ending.map(|ending| ending.stdout_bytes), Some(5_000_000));
        client
    });
}

/// A time limit ends the whole tree, also what has left the session.
#[test]
fn a_timeout_kills_what_has_left_the_session_too() {
    idle(async |sandbox, mut client| {
        let mut long = shell("setsid sleep 1000 & sleep 1000");
        long.timeout_ms = 300;
        let (_, ending) = run(&mut client, long).await.expect("ran");

        assert_eq!(
            (signal(&ending), ending.reason.as_str()),
            (Some(libc::SIGKILL), "Timeout")
        );
        until("the setsid'ed child is gone", LONG, || {
            sleeping(sandbox) == 0
        });
        client
    });
}

/// How many processes of the sandbox sleep.
fn sleeping(sandbox: &Keeping<'_>) -> usize {
    let sleeps = |pid: &i32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
    };
    sandbox
        .mark
        .processes()
        .iter()
        .filter(|pid| sleeps(pid))
        .count()
}

/// EX-11: killed by a client, and told so.
#[test]
fn a_client_kills_a_session() {
    idle(async |_, mut client| {
        let mut seen = start(&mut client, shell("echo up; sleep 1000"))
            .await
            .expect("started");
        seen.expect("up\n").await;
        let kill = |session, signal| v1::KillRequest {
            session,
            signal,
            ..v1::KillRequest::default()
        };

        client
            .kill(kill(seen.session, libc::SIGKILL))
            .await
            .expect("killed");

        let ending = seen.end().await.expect("ended");
        assert_eq!(
            (signal(&ending), ending.reason.as_str()),
            (Some(libc::SIGKILL), "Killed")
        );
        let over = client
            .kill(kill(seen.session, libc::SIGKILL))
            .await
            .expect_err("over");
        assert_eq!(reason(&over), "NotRunning");
        let none = client
            .kill(kill(4711, libc::SIGKILL))
            .await
            .expect_err("none");
        assert_eq!(reason(&none), "NoSuchSession");
        client
    });
}

/// A signal over the stream reaches the process group; one that is handled is no end.
#[test]
fn a_signal_reaches_the_program() {
    idle(async |_, mut client| {
        let line = "trap 'echo caught; exit 5' INT; echo up; while :; do sleep 0.01; done";
        let mut seen = start(&mut client, shell(line)).await.expect("started");
        seen.expect("up\n").await;
        seen.tell(In::Signal(libc::SIGINT)).await;
        seen.expect("caught\n").await;
        let ending = seen.end().await.expect("ended");
        assert_eq!((code(&ending), ending.reason.as_str()), (Some(5), ""));
        client
    });
}

/// EX-13, EX-14: a terminal has its size from the start and hears of each change.
#[test]
fn a_terminal_has_the_clients_size() {
    idle(async |_, mut client| {
        let line = "stty size; trap 'stty size' WINCH; echo ready; while :; do sleep 0.01; done";
        let mut terminal = shell(line);
        terminal.stdin = true;
        terminal.terminal = Some(v1::TerminalSize {
            rows: 33,
            columns: 111,
        });
        let mut seen = start(&mut client, terminal).await.expect("started");
        seen.expect("33 111").await;
        seen.expect("ready").await;

        seen.tell(In::Resize(v1::TerminalSize {
            rows: 44,
            columns: 55,
        }))
        .await;
        seen.expect("44 55").await;
        seen.send(&b"\x03"[..]).await;

        let ending = seen.end().await.expect("ended");
        assert_eq!(signal(&ending), Some(libc::SIGINT));
        client
    });
}

/// The environment is the sandbox's with the client's over it; the directory is the client's wish.
#[test]
fn a_session_has_its_own_environment_and_directory() {
    idle(async |_, mut client| {
        let mut own = shell("echo $LANG $EXTRA $PWD");
        own.environment = vec![b"EXTRA=a b".to_vec(), b"LANG=C".to_vec()];
        own.directory = b"/usr".to_vec();
        let (seen, _) = run(&mut client, own).await.expect("ran");
        assert_eq!(seen.text(), "C a b /usr\n");
        client
    });
}

/// A request that is sent twice starts one program.
#[test]
fn a_request_is_carried_out_once() {
    idle(async |_, mut client| {
        let mut once = shell("echo $$ $(date +%s%N)");
        once.request = "the same".to_owned();
        let (first, ending) = run(&mut client, once.clone()).await.expect("ran");
        let (second, again) = run(&mut client, once).await.expect("answered");
        assert_eq!(
            (first.session, first.text()),
            (second.session, second.text())
        );
        assert_eq!(ending, again);
        client
    });
}

/// EX-20: 32 at once, none mixed up with another.
#[test]
fn many_sessions_at_once_do_not_mix() {
    idle(async |_, client| {
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..32 {
            let mut client = client.clone();
            tasks.spawn(async move {
                let line =
                    format!("for i in 1 2 3 4 5 6 7 8; do echo {number}; done; exit {number}");
                let (seen, ending) = run(&mut client, shell(&line)).await.expect("ran");
                assert_eq!(seen.text(), format!("{number}\n").repeat(8));
                assert_eq!(code(&ending), Some(number));
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("no mix");
        }
        client
    });
}

/// EX-17, EX-18: a hundred sessions leave no descriptor behind.
#[test]
fn sessions_leave_no_descriptors() {
    idle(async |sandbox, mut client| {
        let pid = sandbox.pid();
        let open = || holdfast_tests::leaks::descriptors(pid).expect("it runs");
        for _ in 0..5 {
            run(&mut client, exec(&["true"])).await.expect("ran");
        }
        let before = open();
        for _ in 0..100 {
            run(&mut client, exec(&["true"])).await.expect("ran");
            start(&mut client, exec(&["nosuch"]))
                .await
                .expect_err("none");
        }
        until(
            "descriptors are given back",
            Duration::from_secs(20),
            || open() <= before + 2,
        );
        client
    });
}

/// SV-10: the keeper is killed; the sessions go on, and not a byte is lost. Their statuses, past and future, are known to the next.
#[test]
fn sessions_go_on_when_their_keeper_is_killed() {
    idle(async |sandbox, mut client| {
        let (over, ended) = run(&mut client, shell("echo before; exit 9"))
            .await
            .expect("ran");
        let line =
            "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); sleep 0.01; done; exit 4";
        let mut seen = start(&mut client, shell(line)).await.expect("started");
        seen.expect("line 10\n").await;

        sandbox.kill();
        read_on(&mut seen).await;
        let mut client = sandbox.serve().await;
        let mut again = attach(&mut client, seen.session, seen.offset)
            .await
            .expect("attached");
        let ending = again.end().await.expect("ended");

        let expected = lines(300);
        assert_eq!(seen.text() + &again.text(), expected);
        assert_eq!((code(&ending), again.lost), (Some(4), 0));
        let list = client
            .sessions(v1::Nothing {})
            .await
            .expect("listed")
            .into_inner()
            .sessions;
        let row = list
            .iter()
            .find(|row| row.session == over.session)
            .expect("known");
        assert_eq!(row.kind, "exec");
        assert_eq!(row.arguments, shell("echo before; exit 9").arguments);
        assert_eq!(row.ending.as_ref().and_then(code), code(&ended));
        client
    });
}

/// BD-03: the boundary lives when another keeper takes it over. Who attends a session at the one before hears that, and finds it at the next.
#[test]
fn a_session_of_a_keeper_that_is_fenced_goes_on_at_the_next() {
    idle(async |sandbox, mut client| {
        let line = "echo up; while ! test -e go; do sleep 0.02; done; echo on; exit 4";
        let mut seen = start(&mut client, shell(line)).await.expect("started");
        seen.expect("up\n").await;

        let fenced = sandbox.overtake();
        let told = read_on(&mut seen).await;
        let left = fenced.finish();
        let mut client = sandbox.client().await;

        assert_eq!(
            (told.code(), &*reason(&told)),
            (Code::Unavailable, "KeeperLost"),
            "{told:?}"
        );
        assert!(told.message().contains("another keeper"), "{told:?}");
        assert_eq!(left.status.code(), Some(5));
        let mut again = attach(&mut client, seen.session, seen.offset)
            .await
            .expect("attached");
        run(&mut client, shell("touch go")).await.expect("ran");
        let ending = again.end().await.expect("ended");
        assert_eq!((code(&ending), &*again.text()), (Some(4), "on\n"));
        client
    });
}

/// What a program that counts writes.
fn lines(count: u32) -> String {
    (0..count).fold(String::new(), |all, i| all + &format!("line {i}\n"))
}

/// What still comes, up to the failure.
async fn read_on(seen: &mut Seen) -> Status {
    loop {
        match seen.step().await {
            Ok(None) => {}
            Ok(Some(ending)) => panic!("{ending:?} of a session that goes on"),
            Err(status) => return status,
        }
    }
}

/// A time limit is the sandbox's: it holds while there is no keeper, and the next one knows that it did.
#[test]
fn a_timeout_outlives_the_keeper() {
    idle(async |sandbox, mut client| {
        let mut long = shell("setsid sleep 1000 & sleep 1000");
        long.timeout_ms = 1500;
        let seen = start(&mut client, long).await.expect("started");

        sandbox.kill();
        until("all of it is gone", LONG, || sleeping(sandbox) == 0);
        let mut client = sandbox.serve().await;
        let mut again = attach(&mut client, seen.session, 0)
            .await
            .expect("attached");

        let ending = again.end().await.expect("ended");
        assert_eq!(
            (signal(&ending), ending.reason.as_str()),
            (Some(libc::SIGKILL), "Timeout")
        );
        client
    });
}

/// The main process's output is written down, across keepers; its end is the sandbox's, with its status.
#[test]
fn the_main_process_is_written_down_and_its_end_ends_the_sandbox() {
    for area in everyone() {
        runtime().block_on(async {
            let line =
                "i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); sleep 0.01; done; exit 3";
            let mut sandbox =
                Keeping::new(&area, &Policy::offline().text()).program(&["/bin/sh", "-c", line]);
            sandbox.serve().await;
            until("it is written down", Duration::from_secs(20), || {
                sandbox.state("workload.log").contains("line 10\"")
            });

            sandbox.kill();
            let mut client = sandbox.serve().await;
            let trees = client.trees(v1::Nothing {}).await.expect("told");
            for row in trees
                .into_inner()
                .trees
                .into_iter()
                .flat_map(|tree| tree.rows)
            {
                assert_eq!(row.restarts, 0, "a takeover is no fault: {row:?}");
            }

            assert_eq!(sandbox.exit(), Some(0), "{}", sandbox.state("keeper.log"));
            sandbox.gone();
            let last = sandbox.last().expect("a last word");
            assert_eq!(last.phase(), v1::Phase::Stopped);
            assert_eq!(last.reason, "MainExited");
            assert_eq!(last.message, "the main process exited with status 3");
            nothing_holds(&last);
            assert_eq!(last.main.as_ref().and_then(code), Some(3));
            let lines: Vec<String> = sandbox
                .state("workload.log")
                .lines()
                .filter_map(|line| {
                    serde_json::from_str::<serde_json::Value>(line).ok()?["text"]
                        .as_str()
                        .map(str::to_owned)
                })
                .collect();
            let expected: Vec<String> = (0..200).map(|i| format!("line {i}")).collect();
            assert_eq!(lines, expected);
        });
    }
}

/// A main process that cannot be started is no silent end.
#[test]
fn a_main_process_that_is_not_there_is_named() {
    for area in everyone() {
        let mut sandbox = Keeping::new(&area, &Policy::offline().text()).program(&["nosuch"]);
        sandbox.start();
        assert_eq!(sandbox.exit(), Some(0));
        let log = sandbox.state("keeper.log");
        assert!(!log.contains("every condition holds"), "{log}");
        let last = sandbox.last().expect("a last word");
        assert_eq!(last.reason, "MainExited");
        assert!(
            last.message.contains("could not be started"),
            "{}",
            last.message
        );
        assert_eq!(
            last.main.map(|main| main.reason),
            Some("ProgramNotFound".to_owned())
        );
        sandbox.gone();
    }
}

/// SV-15: everybody is asked first; who does not go is killed, and nothing is left.
#[test]
fn a_halt_asks_first_and_leaves_nothing() {
    for area in everyone() {
        runtime().block_on(async {
            let line = "trap 'echo bye; exit 6' TERM; echo up; while :; do sleep 0.01; done";
            let mut sandbox =
                Keeping::new(&area, &Policy::offline().text()).program(&["/bin/sh", "-c", line]);
            let mut client = sandbox.serve().await;
            let mut stubborn = shell("trap '' TERM; echo up; while :; do sleep 0.01; done");
            stubborn.detach = true;
            start(&mut client, stubborn).await.expect("started");
            until("it is up", Duration::from_secs(20), || {
                sandbox.state("workload.log").contains("\"up\"")
            });

            let reply = client
                .halt(v1::HaltRequest { grace_ms: 500 })
                .await
                .expect("halted");

            assert_eq!(reply.into_inner().main.as_ref().and_then(code), Some(6));
            drop(client);
            assert_eq!(sandbox.exit(), Some(0));
            sandbox.gone();
            assert_eq!(
                sandbox.last().map(|last| last.reason),
                Some("Halted".to_owned())
            );
            assert!(sandbox.state("workload.log").contains("\"bye\""));
        });
    }
}

/// A boundary that stands still keeps nobody who ends the sandbox waiting for longer than the grace and what follows take.
#[test]
fn a_halt_ends_though_the_boundary_stands_still() {
    for area in everyone() {
        runtime().block_on(async {
            let mut sandbox = Keeping::new(&area, &Policy::offline().text());
            let mut client = sandbox.serve().await;
            let started = start(&mut client, shell("sleep 1000")).await;
            let _running = started.expect("started");
            let boundary = boundary(&mut client).await;
            stat::stop(boundary);

            let asked = client.halt(v1::HaltRequest { grace_ms: 500 });
            let halted = tokio::time::timeout(Duration::from_secs(40), asked).await;

            halted.expect("in time").expect("halted");
            drop(client);
            assert_eq!(sandbox.exit(), Some(0), "{}", sandbox.state("keeper.log"));
            kill(boundary, Signal::SIGKILL).expect("as its owner does");
            sandbox.gone();
        });
    }
}

/// A fence that cannot be built is refused with the reason, and nothing is started.
#[test]
fn a_refused_fence_leaves_its_reason() {
    for area in everyone() {
        for (policy, reason, word) in [
            ("version: 1\nnosuch: 1\n", "PolicyInvalid", "nosuch"),
            (
                "version: 1\nfilesystem_policy: {include_workdir: true, read_only: [/usr, /nosuch]}\nlandlock: {compatibility: hard_requirement}\n",
                "Unreadable",
                "/nosuch",
            ),
        ] {
            let mut sandbox = Keeping::new(&area, policy);
            sandbox.start();
            assert_eq!(sandbox.exit(), Some(4));
            let failed = sandbox.failed().expect("a reason");
            assert_eq!(failed.reason, reason);
            assert!(failed.details["message"].contains(word), "{failed:?}");
            sandbox.gone();
        }
    }
}

/// SV-17: with the boundary everything inside is dead, and the keeper says so.
#[test]
fn a_lost_boundary_is_told_at_once() {
    for area in everyone() {
        runtime().block_on(async {
            let mut sandbox = Keeping::new(&area, &Policy::offline().text());
            let mut client = sandbox.serve().await;
            let mut seen = start(&mut client, shell("echo up; sleep 1000"))
                .await
                .expect("started");
            seen.expect("up\n").await;

            kill_boundary(&mut client).await;

            let ending = seen.end().await.expect("an end");
            assert_eq!(ending.reason, "BoundaryLost");
            assert_eq!((code(&ending), signal(&ending)), (None, None));
            drop(client);
            assert_eq!(sandbox.exit(), Some(3));
            let last = sandbox.last().expect("a last word");
            assert_eq!(
                (last.phase(), last.reason.as_str()),
                (v1::Phase::Failed, "BoundaryLost")
            );
            nothing_holds(&last);
            sandbox.gone();
        });
    }
}

/// Of what is over nothing is said to hold, and every condition says why.
fn nothing_holds(last: &v1::Status) {
    assert_eq!(last.conditions.len(), 8);
    for condition in &last.conditions {
        assert_eq!(condition.status(), v1::Truth::Unknown, "{condition:?}");
        assert_eq!(condition.reason, last.reason, "{condition:?}");
    }
}

async fn kill_boundary(client: &mut Client) {
    kill(boundary(client).await, Signal::SIGKILL).expect("killed");
}

async fn boundary(client: &mut Client) -> Pid {
    let mut watch = client
        .watch(v1::Nothing {})
        .await
        .expect("watched")
        .into_inner();
    let status = watch.message().await.expect("told").expect("a status");
    Pid::from_raw(i32::try_from(status.pids["boundary"]).expect("a pid"))
}

/// A policy is put in force wholly or not at all.
#[test]
fn a_policy_is_applied_or_refused_by_name() {
    idle(async |_, mut client| {
        let old = Policy::offline().text();
        let revision = |revision, yaml: &str| v1::PolicyRevision {
            revision,
            yaml: yaml.to_owned(),
        };
        let network =
            format!("{old}network_policies: {{a: {{endpoints: [{{host: a.test, port: 443}}]}}}}\n");

        let state = client
            .apply(revision(2, &network))
            .await
            .expect("applied")
            .into_inner();
        assert_eq!((state.desired, state.enforced), (2, 2));
        assert!(state.hash.starts_with("sha256:"));
        let wrong = client
            .apply(revision(3, "version: 7\n"))
            .await
            .expect_err("wrong");
        assert_eq!(reason(&wrong), "PolicyInvalid");
        let fence = format!("{network}on_link_loss: freeze\n");
        let fence = client
            .apply(revision(4, &fence))
            .await
            .expect_err("needs a restart");
        assert_eq!(reason(&fence), "NeedsRestart");
        assert!(fence.message().contains("on_link_loss"), "{fence}");
        let older = client.apply(revision(1, &old)).await.expect_err("outdated");
        assert_eq!(reason(&older), "PolicyOutdated");
        client
    });
}

/// Only who may do everything here anyway may come in.
#[test]
fn the_socket_is_its_owners() {
    use std::os::unix::fs::PermissionsExt as _;
    idle(async |sandbox, client| {
        let socket = std::fs::metadata(sandbox.place().join("keeper.sock")).expect("there");
        assert_eq!(socket.permissions().mode() & 0o777, 0o600);
        client
    });
}

/// The keeper's tree and the boundary's can be seen.
#[test]
fn trees_are_shown() {
    idle(async |_, mut client| {
        let trees = client
            .trees(v1::Nothing {})
            .await
            .expect("told")
            .into_inner()
            .trees;
        let keeper = trees
            .iter()
            .find(|tree| tree.process == "keeper")
            .expect("its own");
        let uplink = keeper
            .rows
            .iter()
            .find(|row| row.path == "keeper/outside/uplink")
            .expect("a row");
        assert_eq!(uplink.state, "Running");
        let outside = keeper
            .rows
            .iter()
            .find(|row| row.path == "keeper/outside")
            .expect("a row");
        assert_eq!(outside.strategy, "OneForOne");
        client
    });
}

/// Each session has a shepherd of ours above it, and is known by its program all the same.
#[test]
fn a_rule_that_names_a_binary_admits_it_in_a_session() {
    let Some(probe) = holdfast_tests::probe::probe() else {
        return;
    };
    let server = holdfast_tests::servers::tcp::echo(holdfast_tests::servers::FOUR);
    for area in everyone() {
        let policy = Policy::offline()
            .host("origin.test", &["127.0.0.1"])
            .rule_for("o", ("origin.test", server.port()), &[probe]);
        runtime().block_on(async {
            let mut sandbox = Keeping::new(&area, &policy.text());
            let mut client = sandbox.serve().await;
            let probe = probe.display().to_string();
            let port = server.port().to_string();
            let words = [probe.as_str(), "bench-connect", "origin.test", &port, "3"];

            let (seen, ending) = run(&mut client, exec(&words)).await.expect("ran");

            assert_eq!(
                code(&ending),
                Some(0),
                "{}",
                String::from_utf8_lossy(&seen.stderr)
            );
            sandbox.end(client).await;
        });
    }
}
