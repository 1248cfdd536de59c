//! Whether Ready is true: what it takes to be shown, how soon it is gone, and what brings it back.

use holdfast_tests::keeping::{Client, Keeping, code, exec, run, shell, start};
use holdfast_tests::limit;
use holdfast_tests::servers::{FOUR, tcp};
use holdfast_tests::status::{Watch, condition};
use holdfast_tests::wait::{block_on, now};
use holdfast_tests::{Policy, everyone, leaks, stat};
use holdfast_wire::v1::{self, ConditionType, Phase};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;

fn offline() -> String {
    Policy::offline().text()
}

const SECOND: Duration = Duration::from_secs(1);

/// SV-01, SV-12: every condition is True, by a canary that went the whole way, under a policy without a network.
#[test]
fn ready_appears_after_a_canary_and_not_before() {
    for area in everyone() {
        block_on(async {
            let mut sandbox = Keeping::new(&area, &offline());
            let mut client = sandbox.serve().await;
            let mut watch = Watch::new(&mut client).await;

            let (status, _) = watch.ready(SECOND * 10).await;

            let canary = status.canary.expect("a canary");
            assert!(canary.last_ok_ms > 0 && canary.failures == 0, "{canary:?}");
            assert_eq!(status.conditions.len(), 8);
            for condition in &status.conditions {
                assert_eq!(condition.status(), v1::Truth::True, "{condition:?}");
                assert!(condition.since_ms > 0 && condition.observed_ms > 0);
            }
            let (_, ending) = run(&mut client, shell("exit 3")).await.expect("ran");
            assert_eq!(code(&ending), Some(3));
            sandbox.end(client).await;
        });
    }
}

/// SV-01, BD-04: a boundary that stands still costs Ready within two seconds; one that goes on is believed after a canary.
#[test]
fn a_boundary_that_stands_still_takes_ready_away_and_brings_it_back() {
    for area in everyone() {
        block_on(async {
            let mut sandbox = Keeping::new(&area, &offline());
            let mut client = sandbox.serve().await;
            let mut watch = Watch::new(&mut client).await;
            let (status, _) = watch.ready(SECOND * 10).await;
            let boundary = boundary(&status);

            stat::stop(boundary);
            let (lost, after) = watch
                .until(SECOND * 2, |status| status.phase() != Phase::Ready)
                .await;
            assert_eq!(
                (lost.phase(), lost.reason.as_str()),
                (Phase::Degraded, "LinkLost")
            );
            assert_ne!(
                condition(&lost, ConditionType::BoundaryLinked).status(),
                v1::Truth::True
            );
            let stopped = now_ms();
            tokio::time::sleep(SECOND).await;
            kill(boundary, Signal::SIGCONT).expect("goes on");
            let (back, _) = watch.ready(SECOND * 5).await;

            assert!(after < SECOND * 2, "{after:?}");
            assert!(back.canary.expect("a canary").last_ok_ms > stopped);
            assert_eq!(
                back.restarts.values().sum::<u64>(),
                0,
                "{:?}",
                back.restarts
            );
            sandbox.end(client).await;
        });
    }
}

/// SV-01, BD-04: nothing can be started while process 1 stands still: Ready is gone within two seconds, the link is not.
#[test]
fn a_launcher_that_stands_still_takes_ready_away_and_brings_it_back() {
    for area in everyone() {
        block_on(async {
            let mut sandbox = Keeping::new(&area, &offline());
            let mut client = sandbox.serve().await;
            let mut watch = Watch::new(&mut client).await;
            let (status, _) = watch.ready(SECOND * 10).await;
            let launcher = launcher(&status);

            stat::stop(launcher);
            let (lost, after) = watch
                .until(SECOND * 2, |status| status.phase() != Phase::Ready)
                .await;
            assert_eq!(
                (lost.phase(), lost.reason.as_str()),
                (Phase::Degraded, "LauncherSilent")
            );
            assert!(lost.message.contains("kill -CONT"), "{}", lost.message);
            let exec = condition(&lost, ConditionType::ExecAdmitting);
            assert_eq!(exec.status(), v1::Truth::False);
            tokio::time::sleep(SECOND * 2).await;
            let still = Watch::new(&mut client).await.next().await;
            assert_eq!(still.reason, "LauncherSilent");
            let link = condition(&still, ConditionType::BoundaryLinked);
            assert_eq!(link.status(), v1::Truth::True);
            let stopped = now_ms();
            kill(launcher, Signal::SIGCONT).expect("goes on");
            let (back, healed) = watch.ready(SECOND * 5).await;

            assert!(after < SECOND * 2, "{after:?}");
            assert!(healed < SECOND * 2, "{healed:?}");
            assert!(back.canary.expect("a canary").last_ok_ms >= stopped);
            assert_eq!(back.restarts.values().sum::<u64>(), 0);
            let (_, ending) = run(&mut client, shell("exit 3")).await.expect("ran");
            assert_eq!(code(&ending), Some(3));
            sandbox.end(client).await;
        });
    }
}

/// SV-01, PX-01: whoever is refused for want of descriptors finds that the status says so already.
#[test]
fn a_session_that_the_boundary_refuses_takes_ready_away_before_it_is_answered() {
    for area in everyone() {
        block_on(async {
            let mut sandbox = Keeping::new(&area, &offline());
            let mut client = sandbox.serve().await;
            let mut watch = Watch::new(&mut client).await;
            let (status, _) = watch.ready(SECOND * 10).await;
            let boundary = status.pids["boundary"].cast_signed();

            limit::descriptors(boundary, descriptors(boundary) + 5);
            let refused = run(&mut client, shell("exit 5")).await;
            let told = Watch::new(&mut client).await.next().await;

            let refused = refused.expect_err("5 are too few");
            let problem = holdfast_wire::problem::of(&refused).expect("a problem");
            assert_eq!(problem.reason, "DescriptorPressure");
            assert_eq!(
                (told.phase(), told.reason.as_str()),
                (Phase::Degraded, "DescriptorPressure")
            );
            let available = condition(&told, ConditionType::DescriptorsAvailable);
            assert_eq!(available.status(), v1::Truth::False);
            limit::descriptors(boundary, 4096);
            watch
                .until(SECOND, |status| status.phase() != Phase::Ready)
                .await;
            let (back, after) = watch.ready(SECOND * 3).await;
            assert!(after < SECOND * 2, "{after:?}");
            assert_eq!(back.restarts.values().sum::<u64>(), 0);
            sandbox.end(client).await;
        });
    }
}

/// EX-23: however many sessions run, eight free descriptors are enough for one more, in the boundary and in the keeper.
#[test]
fn eight_free_descriptors_are_enough_for_one_more_session_beside_many() {
    for area in everyone() {
        block_on(async {
            let mut sandbox = Keeping::new(&area, &offline());
            let mut client = sandbox.serve().await;
            let mut watch = Watch::new(&mut client).await;
            let (status, _) = watch.ready(SECOND * 10).await;
            let mut held = Vec::new();

            for process in ["boundary", "keeper"] {
                // No connection to the boundary is left over from earlier sessions.
                for _ in 0..4 {
                    let line = shell("echo held; exec sleep 60");
                    let mut seen = start(&mut client, line).await.expect("begun");
                    seen.expect("held").await;
                    held.push(seen);
                }
                let pid = status.pids[process].cast_signed();
                limit::descriptors(pid, descriptors(pid) + 8);
                let ran = run(&mut client, shell("exit 5")).await;
                limit::descriptors(pid, 4096);

                let (_, ending) = ran.unwrap_or_else(|refused| panic!("{process}: {refused}"));
                assert_eq!(code(&ending), Some(5), "{process}");
            }

            drop(held);
            sandbox.end(client).await;
        });
    }
}

/// EX-23: what the launcher has too little of is told as what keeper and boundary have: class, needed, free and limit.
#[test]
fn a_session_that_the_launcher_cannot_start_says_what_is_needed_and_what_is_free() {
    for area in everyone() {
        block_on(async {
            let mut sandbox = Keeping::new(&area, &offline());
            let mut client = sandbox.serve().await;
            let mut watch = Watch::new(&mut client).await;
            let (status, _) = watch.ready(SECOND * 10).await;
            let launcher = launcher(&status).as_raw();

            limit::descriptors(launcher, 4);
            let refused = run(&mut client, shell("exit 5")).await;
            limit::descriptors(launcher, 1024);

            let refused = refused.expect_err("4 are too few");
            let message = refused.message();
            assert!(message.contains("0 free under a limit of 4"), "{message}");
            let problem = holdfast_wire::problem::of(&refused).expect("a problem");
            assert_eq!(problem.reason, "DescriptorPressure");
            assert!(problem.retry_after_ms > 0);
            let told = ["process", "class", "needed", "free", "limit"];
            let told = told.map(|key| problem.details[key].as_str());
            assert_eq!(told, ["launcher", "session", "7", "0", "4"]);
            sandbox.end(client).await;
        });
    }
}

/// PX-01, SV-03: a limit lowered from outside is named while it lasts, costs no restart, and is over with its cause.
#[test]
fn descriptors_that_are_taken_away_are_named_and_nothing_is_restarted() {
    for area in everyone() {
        let server = tcp::silent(FOUR);
        block_on(async {
            let policy = Policy::origin(server.port()).text();
            let mut sandbox = Keeping::new(&area, &policy);
            let mut client = sandbox.serve().await;
            let mut watch = Watch::new(&mut client).await;
            watch.ready(SECOND * 10).await;
            let program = format!(
                "import socket, time\n\
                 held = [socket.create_connection(('origin.test', {})) for _ in range(64)]\n\
                 print('held', flush=True)\n\
                 time.sleep(60)",
                server.port()
            );
            let mut holder = start(&mut client, exec(&["python3", "-c", &program]))
                .await
                .expect("started");
            holder.expect("held").await;
            let (open, _) = watch
                .until(SECOND * 5, |status| {
                    status.egress.is_some_and(|egress| egress.open == 64)
                })
                .await;
            assert_eq!(open.phase(), Phase::Ready);

            let keeper = sandbox.pid();
            limit::descriptors(keeper, descriptors(keeper) + 4);
            let (pressed, after) = watch
                .until(SECOND, |status| status.phase() != Phase::Ready)
                .await;
            assert_eq!(pressed.reason, "DescriptorPressure", "{pressed:#?}");
            assert!(after < SECOND / 2, "{after:?}");
            match run(&mut client, shell("exit 5")).await {
                Ok((_, ending)) => assert_eq!(code(&ending), Some(5)),
                Err(refused) => {
                    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
                    let problem = holdfast_wire::problem::of(&refused).expect("a problem");
                    assert_eq!(problem.reason, "DescriptorPressure");
                    assert!(problem.retry_after_ms > 0 && problem.details.contains_key("free"));
                }
            }
            limit::descriptors(keeper, 4096);
            let (back, after) = watch.ready(SECOND * 2).await;

            assert!(after < SECOND, "{after:?}");
            assert_eq!(
                back.restarts.values().sum::<u64>(),
                0,
                "{:?}",
                back.restarts
            );
            assert_eq!(
                back.egress.expect("counts").open,
                64,
                "what was open stays open"
            );
            drop(holder);
            sandbox.end(client).await;
        });
    }
}

/// PX-01: a listener that was opened on demand while the keeper could take no descriptor is handed over when it can: the connection
/// that waits for it is served.
#[test]
fn a_listener_that_came_while_descriptors_were_short_is_handed_over_again() {
    for area in everyone() {
        let (one, other) = (tcp::echo(FOUR), tcp::echo(FOUR));
        block_on(async {
            let policy = Policy::any_port();
            let mut sandbox = Keeping::new(&area, &policy.text());
            let mut client = sandbox.serve().await;
            let program = format!(
                "import socket, sys\n\
                 place = socket.gethostbyname('origin.test')\n\
                 for port, word in [({}, b'first'), ({}, b'second')]:\n\
                 \x20   one = socket.create_connection((place, port), timeout=60)\n\
                 \x20   one.sendall(word)\n\
                 \x20   print(one.recv(6).decode(), flush=True)\n\
                 \x20   sys.stdin.readline()",
                one.port(),
                other.port()
            );
            let mut program = exec(&["python3", "-c", &program]);
            program.stdin = true;
            let mut caller = start(&mut client, program).await.expect("started");
            caller.expect("first").await;

            // Not one more can be opened, whichever are closed meanwhile.
            limit::descriptors(sandbox.pid(), 3);
            caller.send("go\n").await;
            let missed = async {
                while !sandbox.state("keeper.log").contains("take a listener") {
                    tokio::time::sleep(SECOND / 50).await;
                }
            };
            let missed = tokio::time::timeout(SECOND * 20, missed).await;
            missed.expect("it came without its socket");
            limit::descriptors(sandbox.pid(), 4096);

            caller.expect("second").await;
            caller.send("go\n").await;
            let ending = caller.end().await.expect("ended");
            assert_eq!(code(&ending), Some(0));
            sandbox.end(client).await;
        });
    }
}

/// SV-01: the part that does not work is the one that is named, and Ready comes back by itself.
#[test]
fn a_part_that_hangs_or_falls_is_named_until_a_canary_has_passed_it() {
    for area in everyone() {
        block_on(async {
            let mut sandbox = Keeping::new(&area, &offline());
            sandbox.spec.chaos = true;
            let mut client = sandbox.serve().await;
            let mut watch = Watch::new(&mut client).await;
            watch.ready(SECOND * 10).await;

            for (path, kind) in [
                ("keeper/network/resolver", ConditionType::ResolverServing),
                ("keeper/network/lane", ConditionType::BrokerServing),
                ("keeper/network/capture", ConditionType::ProxyServing),
            ] {
                let struck = now_ms();
                strike(&mut client, "keeper", path).await;
                // What stands behind a part falls with it, the service too: whoever watches comes again.
                let back = proved_since(&sandbox, struck, kind).await;
                assert!(back.canary.expect("a canary").last_ok_ms >= struck);
                let actor = path.trim_start_matches("keeper/");
                assert!(back.restarts[actor] >= 1, "{:?}", back.restarts);
                client = sandbox.client().await;
            }
            sandbox.end(client).await;
        });
    }
}

/// SV-01, BD-04: a part of the boundary that falls, or one that stands outside, costs Ready at once, is named, counted, and comes back by
/// itself.
#[test]
fn a_part_that_serves_no_call_just_now_is_missed_at_once_and_named() {
    for area in everyone() {
        block_on(async {
            let mut sandbox = Keeping::new(&area, &offline());
            sandbox.spec.chaos = true;
            let mut client = sandbox.serve().await;
            let mut watch = Watch::new(&mut client).await;
            watch.ready(SECOND * 10).await;

            for (process, path, counted, kind) in [
                (
                    "boundary",
                    "boundary/broker",
                    "boundary/broker",
                    ConditionType::BrokerServing,
                ),
                (
                    "boundary",
                    "boundary/launcher",
                    "boundary/launcher",
                    ConditionType::ExecAdmitting,
                ),
                (
                    "boundary",
                    "boundary/service",
                    "boundary/service",
                    ConditionType::BoundaryLinked,
                ),
                (
                    "keeper",
                    "keeper/outside/canary",
                    "outside/canary",
                    ConditionType::ExecAdmitting,
                ),
                (
                    "keeper",
                    "keeper/outside/uplink",
                    "outside/uplink",
                    ConditionType::ExecAdmitting,
                ),
            ] {
                strike(&mut client, process, path).await;
                let fallen = |status: &v1::Status| status.phase() != Phase::Ready;
                let (told, after) = watch.until(SECOND, fallen).await;
                let (back, _) = watch.ready(SECOND * 5).await;

                assert!(after < SECOND / 2, "{path}: {after:?}");
                assert_eq!(told.reason, "ActorRestarting", "{told:#?}");
                assert!(told.message.contains(path), "{}", told.message);
                assert_eq!(condition(&told, kind).status(), v1::Truth::False);
                assert!(back.restarts[counted] >= 1, "{:?}", back.restarts);
            }
            sandbox.end(client).await;
        });
    }
}

/// The sentinel is nobody's business: what asks for its port is judged like anything else, and gets no word.
#[test]
fn a_workload_finds_nothing_at_the_canarys_port() {
    for area in everyone() {
        block_on(async {
            let mut sandbox = Keeping::new(&area, &offline());
            let mut client = sandbox.serve().await;
            let mut watch = Watch::new(&mut client).await;
            watch.ready(SECOND * 10).await;

            let program = "import socket\n\
                try:\n    \
                    print('got', socket.create_connection(('198.18.0.9', 1), 5).recv(64))\n\
                except OSError as error:\n    \
                    print('refused', error.errno)\n\
                try:\n    \
                    print(socket.gethostbyname('canary.holdfast.internal'))\n\
                except OSError as error:\n    \
                    print('unknown')";
            let (seen, _) = run(&mut client, exec(&["python3", "-c", program]))
                .await
                .expect("ran");
            assert_eq!(seen.text(), format!("refused {}\nunknown\n", libc::EACCES));

            // Neither canaries nor what they ask for stand in the audit or among the sessions.
            let audit = sandbox.state("audit.jsonl");
            assert!(!audit.contains("/memfd:"), "{audit}");
            let sessions = client
                .sessions(v1::Nothing {})
                .await
                .expect("told")
                .into_inner();
            assert!(
                sessions.sessions.iter().all(|row| row.kind == "exec"),
                "{sessions:?}"
            );
            sandbox.end(client).await;
        });
    }
}

/// Waits for a sandbox that is Ready and whose condition has been another one since.
async fn proved_since(sandbox: &Keeping<'_>, since: i64, kind: ConditionType) -> v1::Status {
    let end = now() + SECOND * 10;
    loop {
        let mut client = sandbox.client().await;
        if let Ok(watch) = client.watch(v1::Nothing {}).await
            && let Ok(Some(status)) = watch.into_inner().message().await
            && condition(&status, kind).since_ms >= since
            && status.phase() == Phase::Ready
        {
            return status;
        }
        assert!(
            now() < end,
            "not proved again: {}",
            sandbox.state("keeper.log")
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn boundary(status: &v1::Status) -> Pid {
    Pid::from_raw(status.pids["boundary"].cast_signed())
}

fn launcher(status: &v1::Status) -> Pid {
    stat::child_of(boundary(status)).expect("a launcher")
}

/// How many descriptors a process has open.
fn descriptors(pid: i32) -> u64 {
    leaks::descriptors(pid).expect("the process is there")
}

async fn strike(client: &mut Client, process: &str, path: &str) {
    let request = v1::StrikeRequest {
        path: path.to_owned(),
        process: process.to_owned(),
        blow: v1::Blow::Panic.into(),
        ..v1::StrikeRequest::default()
    };
    client.strike(request).await.expect("struck");
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.expect("after 1970").as_millis()).expect("before the year 292278994")
}

/// A canary costs little and leaves nothing: its sessions are nobody's, and descriptors and memory do not grow with them.
#[test]
fn canaries_leave_nothing_behind() {
    for area in everyone() {
        block_on(async {
            let mut sandbox = Keeping::new(&area, &offline());
            let mut client = sandbox.serve().await;
            let mut watch = Watch::new(&mut client).await;
            let (first, _) = watch.ready(SECOND * 10).await;
            let canary = |status: &v1::Status| status.canary.unwrap_or_default();
            let used = |status: &v1::Status| {
                let of = |process: &str| status.descriptors[process].used;
                (of("keeper"), of("boundary"))
            };
            let warm = used(&first);

            let last = canary(&first).last_ms;
            let (later, _) = watch
                .until(SECOND * 15, |status| canary(status).last_ms > last + 6000)
                .await;

            let (keeper, boundary) = used(&later);
            assert!(
                keeper <= warm.0 + 2 && boundary <= warm.1 + 2,
                "{warm:?} {later:#?}"
            );
            assert_eq!(later.sessions.expect("counts").total, 0);
            assert_eq!(canary(&later).failures, 0);
            sandbox.end(client).await;
        });
    }
}
