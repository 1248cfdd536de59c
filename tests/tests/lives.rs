//! Sandboxes that last: who dies, who goes on, and that there is always a way on.

use holdfast_tests::daemon::{Gateway, request, said};
use holdfast_tests::limit;
use holdfast_tests::wait::{LONG, now, until};
use holdfast_tests::{Area, everyone, leaks, stat};
use holdfast_wire::v1::gateway_client::GatewayClient;
use holdfast_wire::{problem, v1};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

/// Less than any deadline for a keeper that does not report, and more than a start takes on a busy machine.
const SOON: Duration = Duration::from_secs(8);

fn is(phase: v1::Phase) -> impl Fn(&v1::Status) -> bool {
    move |status| status.phase() == phase
}

fn ready(gateway: &Gateway, name: &str) -> v1::Status {
    gateway.until(name, "Ready", is(v1::Phase::Ready))
}

fn kill(pid: u32) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).expect("a pid"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("killed");
}

fn runs(pid: u32) -> bool {
    stat::runs(i32::try_from(pid).expect("a pid"))
}

fn stop(gateway: &Gateway, name: &str) -> Result<v1::Status, tonic::Status> {
    let request = v1::StopRequest {
        sandbox: name.to_owned(),
        grace_ms: 500,
    };
    gateway.ask(|mut client| async move { client.stop(request).await })
}

fn start(gateway: &Gateway, name: &str) -> Result<v1::Status, tonic::Status> {
    let request = v1::SandboxRequest {
        sandbox: name.to_owned(),
    };
    gateway.ask(|mut client| async move { client.start(request).await })
}

fn restart(gateway: &Gateway, name: &str) -> Result<v1::Status, tonic::Status> {
    let request = v1::StopRequest {
        sandbox: name.to_owned(),
        grace_ms: 500,
    };
    gateway.ask(|mut client| async move { client.restart(request).await })
}

/// A shell's work as the main process.
fn program(script: &str) -> Vec<Vec<u8>> {
    ["/bin/sh", "-c", script]
        .map(|word| word.as_bytes().to_vec())
        .into()
}

/// Nothing may be left: no file, no process of ours that names the area.
fn nothing_is_left(area: &Area) {
    for directory in [area.runtime(), area.state()] {
        let left: Vec<_> = fs::read_dir(directory.join("sandboxes"))
            .expect("there")
            .flatten()
            .map(|entry| entry.path())
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
    let named = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let text = String::from_utf8_lossy(&line).into_owned();
        text.contains("keeper") && text.contains(&*area.runtime().to_string_lossy())
    };
    until("no keeper is left", LONG, || {
        !leaks::processes().iter().any(named)
    });
}

/// The gateway may be killed at any time: the sandbox works on, and the next gateway adopts it.
#[test]
fn a_gateway_that_is_killed_costs_nobody_anything() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        let mut made = request(&area, "qa");
        made.arguments = program("while :; do date +%s%N > beat; sleep 0.05; done");
        gateway.create(made).expect("made");
        let before = ready(&gateway, "qa");

        gateway.kill();
        let beat = || fs::read(area.work().join("beat")).unwrap_or_default();
        let last = beat();
        until("the workload works on", LONG, || beat() != last);
        let gateway = Gateway::start(&area, &[]);
        let after = ready(&gateway, "qa");

        assert_eq!(after.pids, before.pids, "{}", said(&area));
        assert_eq!((after.generation, after.restarts.get("keeper")), (1, None));
        gateway.delete("qa", true).expect("deleted");
        nothing_is_left(&area);
        assert_eq!(gateway.stop(), Some(0));
    }
}

/// EX-01: the next keeper takes the boundary over, and the workload does not notice.
#[test]
fn a_keeper_that_is_killed_is_replaced_and_the_workload_lives_on() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        let mut made = request(&area, "qa");
        made.arguments = program("echo $$ > pid; exec sleep 1000");
        gateway.create(made).expect("made");
        let before = ready(&gateway, "qa");

        kill(before.pids["keeper"]);
        let after = gateway.until("qa", "with another keeper", |status| {
            status.phase() == v1::Phase::Ready
                && status.pids.get("keeper") != before.pids.get("keeper")
        });

        assert_eq!(after.pids["boundary"], before.pids["boundary"]);
        assert_eq!(after.link.expect("linked").epoch, 2);
        assert_eq!((after.generation, after.restarts["keeper"]), (1, 1));
        assert!(after.main.is_none(), "{:?}", after.main);
        let dead = i32::try_from(before.pids["keeper"]).expect("a pid");
        leaks::all_gone(&[dead].into());
        gateway.delete("qa", true).expect("deleted");
        nothing_is_left(&area);
        assert_eq!(gateway.stop(), Some(0));
    }
}

/// A keeper that dies while no gateway is there is replaced by the next gateway.
#[test]
fn a_keeper_that_dies_without_a_gateway_is_replaced_by_the_next_one() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        gateway.create(request(&area, "qa")).expect("made");
        let before = ready(&gateway, "qa");

        gateway.kill();
        kill(before.pids["keeper"]);
        until("the keeper is dead", LONG, || !runs(before.pids["keeper"]));
        let gateway = Gateway::start(&area, &[]);
        let after = ready(&gateway, "qa");

        assert_eq!(after.pids["boundary"], before.pids["boundary"]);
        assert_eq!(after.generation, 1);
        gateway.delete("qa", true).expect("deleted");
        nothing_is_left(&area);
        assert_eq!(gateway.stop(), Some(0));
    }
}

/// A gateway that dies while it starts a keeper: one that did not come to anything is begun anew at once, and one that did is
/// not doubled.
#[test]
fn a_keeper_that_was_being_started_is_begun_anew_or_found() {
    for area in everyone() {
        for lives in [false, true] {
            let gateway = Gateway::start(&area, &[]);
            let made = gateway.create(request(&area, "qa")).expect("made");
            ready(&gateway, "qa");
            stop(&gateway, "qa").expect("stopped");
            // Whoever opens it to write waits for somebody who reads: the keeper stands still before it is executed.
            let log = area.state().join("sandboxes").join(&made.id);
            let log = log.join("keeper.log");
            fs::remove_file(&log).expect("removed");
            nix::unistd::mkfifo(&log, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
            area.give(&log);
            let mut client = GatewayClient::new(gateway.channel().expect("connected"));
            let asked = v1::SandboxRequest {
                sandbox: "qa".to_owned(),
            };
            let _cut_off = gateway.begin(async move { client.start(asked).await });
            let mut born = None;
            until("a keeper is being started", LONG, || {
                born = leaks::descendants(gateway.pid()).first().copied();
                born.is_some()
            });
            let keeper = u32::try_from(born.expect("it is there")).expect("a pid");

            gateway.kill();
            let reader = lives.then(|| {
                let mut pipe = fs::OpenOptions::new();
                pipe.read(true).custom_flags(libc::O_NONBLOCK);
                pipe.open(&log).expect("opened")
            });
            if !lives {
                kill(keeper);
            }
            fs::remove_file(&log).expect("removed");
            let gateway = Gateway::start(&area, &[]);
            let began = now();
            let after = ready(&gateway, "qa");

            assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
            assert_eq!(after.generation, 2);
            assert_eq!(after.pids["keeper"] == keeper, lives, "{}", said(&area));
            drop(reader);
            gateway.delete("qa", true).expect("deleted");
            nothing_is_left(&area);
            assert_eq!(gateway.stop(), Some(0));
        }
    }
}

/// SV-02: a dead boundary is Failed with its reason, and from there everything is possible.
#[test]
fn a_dead_boundary_is_told_and_every_way_leads_on() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        for (name, way) in [
            ("one", "start"),
            ("two", "stop"),
            ("three", "restart"),
            ("four", "delete"),
        ] {
            gateway.create(request(&area, name)).expect("made");
            let before = ready(&gateway, name);

            kill(before.pids["boundary"]);
            let failed = gateway.until(name, "BoundaryLost", |status| {
                status.phase() == v1::Phase::Failed && status.reason == "BoundaryLost"
            });

            assert!(!failed.message.is_empty());
            match way {
                "start" => drop(start(&gateway, name).expect("started")),
                "restart" => drop(restart(&gateway, name).expect("restarted")),
                "stop" => {
                    let stopped = stop(&gateway, name).expect("stopped");
                    assert_eq!(stopped.phase(), v1::Phase::Stopped);
                    start(&gateway, name).expect("started");
                }
                _ => {
                    gateway.delete(name, false).expect("nothing of it runs");
                    continue;
                }
            }
            let after = ready(&gateway, name);
            assert_eq!(after.generation, before.generation + 1);
            gateway.delete(name, true).expect("deleted");
        }
        nothing_is_left(&area);
        assert_eq!(gateway.stop(), Some(0));
    }
}

#[test]
fn what_died_without_a_gateway_is_told_by_the_next_one() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        gateway.create(request(&area, "qa")).expect("made");
        let before = ready(&gateway, "qa");

        gateway.kill();
        for process in ["keeper", "boundary"] {
            kill(before.pids[process]);
        }
        until("both are dead", LONG, || {
            before.pids.values().all(|pid| !runs(*pid))
        });
        let gateway = Gateway::start(&area, &[]);
        let failed = gateway.until("qa", "Failed", is(v1::Phase::Failed));

        assert_eq!(failed.reason, "BoundaryLost");
        gateway.delete("qa", false).expect("deleted");
        nothing_is_left(&area);
        assert_eq!(gateway.stop(), Some(0));
    }
}

#[test]
fn one_that_runs_is_stopped_started_and_not_deleted_by_mistake() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        gateway.create(request(&area, "qa")).expect("made");
        ready(&gateway, "qa");

        let error = gateway.delete("qa", false).expect_err("it runs");
        assert_eq!(
            problem::of(&error).expect("a problem").reason,
            "StillRunning"
        );
        assert!(error.message().contains("--force"), "{error}");
        for _ in 0..2 {
            let stopped = stop(&gateway, "qa").expect("stopped, or stopped already");
            assert_eq!(
                (stopped.phase(), &*stopped.reason),
                (v1::Phase::Stopped, "Stopped")
            );
            assert!(stopped.pids.is_empty(), "{:?}", stopped.pids);
        }
        let error = gateway.ask(|mut client| async move {
            let request = v1::SandboxRequest {
                sandbox: "qa".to_owned(),
            };
            client.sessions(request).await
        });
        let error = error.expect_err("it does not run");
        assert_eq!(problem::of(&error).expect("a problem").reason, "NotRunning");
        start(&gateway, "qa").expect("started");
        assert_eq!(ready(&gateway, "qa").generation, 2);
        restart(&gateway, "qa").expect("restarted");
        let third = gateway.until("qa", "the third", |status| {
            status.generation == 3 && status.phase() == v1::Phase::Ready
        });
        assert_eq!(third.restarts.get("sandbox"), None);
        stop(&gateway, "qa").expect("stopped");
        gateway.kill();
        let gateway = Gateway::start(&area, &[]);
        assert_eq!(
            gateway.get("qa").expect("there").phase(),
            v1::Phase::Stopped
        );
        gateway.delete("qa", false).expect("deleted");
        nothing_is_left(&area);
        assert_eq!(gateway.stop(), Some(0));
    }
}

#[test]
fn the_end_of_the_main_process_is_told_with_its_status() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        let mut made = request(&area, "qa");
        made.arguments = program("exit 3");
        gateway.create(made).expect("made");

        let over = gateway.until("qa", "over", is(v1::Phase::Stopped));

        assert_eq!(over.reason, "MainExited");
        assert!(
            over.message.contains("exited with status 3"),
            "{}",
            over.message
        );
        let exit = over.main.expect("known").exit.expect("known").how;
        assert_eq!(exit, Some(v1::exit::How::Code(3)));
        gateway.delete("qa", false).expect("deleted");
        nothing_is_left(&area);
        assert_eq!(gateway.stop(), Some(0));
    }
}

/// SV-05: what exits at once is not started in a tight loop.
#[test]
fn a_failing_main_process_is_restarted_as_a_new_generation_with_a_delay() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        let mut made = request(&area, "qa");
        made.restart = v1::RestartPolicy::OnFailure.into();
        made.arguments = program("date +%s%N >> starts; exit 1");
        gateway.create(made).expect("made");

        let again = gateway.until("qa", "restarted", |status| status.generation >= 3);

        assert!(again.restarts["sandbox"] >= 2);
        let starts = fs::read_to_string(area.work().join("starts")).expect("written");
        let times: Vec<u64> = starts
            .lines()
            .map(|line| line.parse().expect("a time"))
            .collect();
        assert!(
            times.windows(2).all(|two| two[1] - two[0] >= 1_000_000_000),
            "{times:?}"
        );
        stop(&gateway, "qa").expect("stopped");
        gateway.delete("qa", false).expect("deleted");
        nothing_is_left(&area);
        assert_eq!(gateway.stop(), Some(0));
    }
}

/// SV-13: every surface tells the same.
#[test]
fn http_agrees_with_the_api_about_who_is_ready() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &["--http", "127.0.0.1:0"]);
        let log = said(&area);
        let (_, address) = log.rsplit_once("serving HTTP on ").expect("said so");
        let address = address.lines().next().expect("an address").to_owned();
        gateway.create(request(&area, "qa")).expect("made");
        ready(&gateway, "qa");

        let (code, body) = fetch(&address, "/sandboxes/qa/readyz");
        assert_eq!((code, body.contains("\"Ready\"")), (200, true), "{body}");
        for unknown in ["/sandboxes/nobody/readyz", "/nowhere"] {
            let (code, body) = fetch(&address, unknown);
            assert_eq!((code, body.contains("find ")), (404, true), "{body}");
        }
        let (code, body) = answer(&address, "POST", "/readyz");
        assert_eq!((code, body.contains("use GET")), (405, true), "{body}");
        assert_eq!(fetch(&address, "/healthz"), (200, "ok\n".to_owned()));
        assert!(
            fetch(&address, "/metrics")
                .1
                .contains("holdfast_sandbox_ready{sandbox=\"qa\"} 1")
        );
        stop(&gateway, "qa").expect("stopped");
        let (code, body) = fetch(&address, "/sandboxes/qa/readyz");
        assert_eq!(code, 503);
        assert!(
            body.contains("\"Stopped\"") && body.contains("on request"),
            "{body}"
        );
        assert!(
            fetch(&address, "/metrics")
                .1
                .contains("holdfast_sandbox_ready{sandbox=\"qa\"} 0")
        );
        assert!(fetch(&address, "/").1.contains("<td>qa<td>Stopped"));
        gateway.delete("qa", false).expect("deleted");
        assert_eq!(gateway.stop(), Some(0));
    }
}

/// What falls inside the gateway is restarted, finds everything again, and costs no sandbox anything.
#[test]
fn an_actor_of_the_gateway_that_falls_costs_nobody_anything() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &["--chaos"]);
        let made = gateway.create(request(&area, "qa")).expect("made");
        let before = ready(&gateway, "qa");
        let own = format!("gateway/sandboxes/{}", made.id);

        for path in [&*own, "gateway/http", "gateway/roster", "gateway/registry"] {
            let strike = v1::StrikeRequest {
                process: "gateway".to_owned(),
                path: path.to_owned(),
                blow: v1::Blow::Panic.into(),
                ..v1::StrikeRequest::default()
            };
            gateway
                .ask(|mut client| async move { client.strike(strike).await })
                .unwrap_or_else(|error| panic!("strike {path}: {error}"));
            let name = format!(
                "after-{}",
                path.rsplit('/').next().expect("a part").to_lowercase()
            );
            until("the gateway makes sandboxes again", LONG, || {
                gateway.create(request(&area, &name)).is_ok()
            });
            let after = gateway.until("qa", "Ready as before", |status| {
                status.phase() == v1::Phase::Ready && status.pids == before.pids
            });
            assert_eq!((after.generation, &after.id), (1, &made.id));
            gateway.delete(&name, true).expect("deleted");
        }
        gateway.delete("qa", true).expect("deleted");
        nothing_is_left(&area);
        assert_eq!(gateway.stop(), Some(0));
    }
}

/// Want of descriptors is no death: nobody is replaced because nobody can look.
#[test]
fn a_gateway_that_cannot_look_takes_nobody_for_dead() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &["--chaos"]);
        let made = gateway.create(request(&area, "qa")).expect("made");
        let before = ready(&gateway, "qa");
        let own = format!("gateway/sandboxes/{}", made.id);
        // Opened before there is nothing to open any more.
        let client = GatewayClient::new(gateway.channel().expect("connected"));
        let restarts = || {
            let mut client = client.clone();
            let trees = gateway.wait(async move {
                let trees = client.trees(v1::SandboxRequest::default()).await;
                trees.expect("told").into_inner().trees
            });
            let row = trees[0].rows.iter().find(|row| row.path == own).cloned();
            row.expect("it has a place").restarts
        };

        limit::descriptors(gateway.pid(), 3);
        let strike = v1::StrikeRequest {
            process: "gateway".to_owned(),
            path: own.clone(),
            blow: v1::Blow::Panic.into(),
            ..v1::StrikeRequest::default()
        };
        let mut striking = client.clone();
        gateway
            .wait(async move { striking.strike(strike).await })
            .expect("struck");
        until("it has tried again and again", LONG, || restarts() >= 3);
        for pid in before.pids.values() {
            assert!(runs(*pid), "{}", said(&area));
        }
        let mut asking = client.clone();
        let qa = v1::SandboxRequest {
            sandbox: "qa".to_owned(),
        };
        let told = gateway.wait(async move { asking.get(qa).await });
        let told = told.expect("told").into_inner();
        assert_eq!(
            (told.phase(), &*told.reason),
            (v1::Phase::Degraded, "Unobserved"),
            "{told:#?}"
        );
        limit::descriptors(gateway.pid(), 1024);

        let after = gateway.until("qa", "Ready again", |status| {
            status.phase() == v1::Phase::Ready
        });
        assert_eq!(after.pids, before.pids, "{}", said(&area));
        assert_eq!((after.generation, after.restarts.get("keeper")), (1, None));
        gateway.delete("qa", true).expect("deleted");
        nothing_is_left(&area);
        assert_eq!(gateway.stop(), Some(0));
    }
}

/// PO-05: no half of a wrong one is in force.
#[test]
fn a_wrong_policy_leaves_the_one_before_in_force() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        let mut made = request(&area, "qa");
        made.policy = "version: 1\n".to_owned();
        gateway.create(made).expect("made");
        ready(&gateway, "qa");
        let set = |yaml: &str| {
            let request = v1::SetPolicyRequest {
                sandbox: "qa".to_owned(),
                yaml: yaml.to_owned(),
                policy_name: "new.yaml".to_owned(),
                wait: true,
            };
            gateway.ask(|mut client| async move { client.set_policy(request).await })
        };
        let policy = |status: &v1::Status| status.policy.clone().unwrap_or_default();

        let error = set("version: 1\nnonsense: {}\n").expect_err("wrong");
        assert_eq!(
            problem::of(&error).expect("a problem").reason,
            "PolicyInvalid"
        );
        assert!(error.message().contains("new.yaml:2:"), "{error}");
        assert_eq!(policy(&gateway.get("qa").expect("there")).desired, 1);

        // What the fence is made of cannot change: the one before is in force and wanted, and it is said why.
        let error = set("version: 1\non_link_loss: freeze\n").expect_err("needs a restart");
        assert!(error.message().contains("holdfast stop qa"), "{error}");
        let status = gateway.until("qa", "told of the refusal", |status| {
            !policy(status).error.is_empty()
        });
        assert_eq!((policy(&status).desired, policy(&status).enforced), (1, 1));
        ready(&gateway, "qa");
        let request = v1::GetPolicyRequest {
            sandbox: "qa".to_owned(),
            revision: 2,
        };
        let error = gateway
            .ask(|mut client| async move { client.get_policy(request).await })
            .expect_err("not kept");
        assert_eq!(error.code(), tonic::Code::NotFound, "{error}");

        // What a refused one gives way to is what was wanted before it, however little of that has been reported.
        for number in 2..2 + REVISIONS {
            set(&format!(
                "version: 1\nresolver: {{hosts: {{a{number}.test: [127.0.0.1]}}}}\n"
            ))
            .expect("put in force");
            set("version: 1\non_link_loss: freeze\n").expect_err("needs a restart");
            assert_eq!(policy(&gateway.get("qa").expect("there")).desired, number);
        }

        stop(&gateway, "qa").expect("stopped");
        set("version: 1\nresolver: {hosts: {a.test: [127.0.0.1]}}\n")
            .expect("kept for the next start");
        start(&gateway, "qa").expect("started");
        let status = ready(&gateway, "qa");
        assert_eq!(
            (policy(&status).desired, policy(&status).enforced),
            (2 + REVISIONS, 2 + REVISIONS),
            "{status:#?}"
        );
        gateway.delete("qa", true).expect("deleted");
        assert_eq!(gateway.stop(), Some(0));
    }
}

/// A main process that ends has not lost its boundary, whichever end is seen first.
#[test]
fn the_normal_end_of_the_main_process_is_no_loss_however_often_it_is_seen() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        for turn in 0..ENDS {
            let name = format!("qa{turn}");
            let mut made = request(&area, &name);
            made.restart = v1::RestartPolicy::OnFailure.into();
            made.arguments = program("exit 0");
            gateway.create(made).expect("made");

            let status = gateway.until(&name, "Stopped", is(v1::Phase::Stopped));

            assert_eq!(
                (status.reason.as_str(), status.generation),
                ("MainExited", 1),
                "{status:#?}"
            );
            gateway.delete(&name, true).expect("deleted");
        }
        assert_eq!(gateway.stop(), Some(0));
    }
}

/// A main process that has to be killed at a stop is told with the signal.
#[test]
fn a_main_process_that_does_not_listen_is_told_as_killed() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        let mut made = request(&area, "qa");
        made.arguments = program("trap '' TERM; while :; do sleep 0.1; done");
        gateway.create(made).expect("made");
        ready(&gateway, "qa");
        stop(&gateway, "qa").expect("stopped");

        let status = gateway.until("qa", "Stopped", is(v1::Phase::Stopped));

        let exit = status.main.and_then(|main| main.exit);
        assert_eq!(
            exit.and_then(|exit| exit.how),
            Some(v1::exit::How::Signal(9))
        );
        gateway.delete("qa", true).expect("deleted");
        assert_eq!(gateway.stop(), Some(0));
    }
}

/// Whoever removes the gateway's socket does not shut anybody out for long.
#[test]
fn a_gateways_socket_that_is_removed_comes_back() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        gateway.create(request(&area, "qa")).expect("made");
        ready(&gateway, "qa");

        let socket = area.runtime().join("gateway.sock");
        fs::remove_file(&socket).expect("removed");
        until("the socket is back", LONG, || socket.exists());

        ready(&gateway, "qa");
        gateway.delete("qa", true).expect("deleted");
        assert_eq!(gateway.stop(), Some(0));
    }
}

/// SV-01: a sandbox that nobody can reach is not shown as Ready.
#[test]
fn a_directory_that_is_removed_is_told_within_two_seconds_and_a_restart_heals_it() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        let mut made = request(&area, "qa");
        made.arguments = program("while :; do date +%s%N > beat; sleep 0.05; done");
        let made = gateway.create(made).expect("made");
        ready(&gateway, "qa");
        let directory = area.runtime().join("sandboxes").join(&made.id);

        fs::remove_dir_all(&directory).expect("removed");
        let removed = now();
        let told = gateway.until("qa", "not Ready", |status| {
            status.phase() != v1::Phase::Ready
        });
        let after = now() - removed;

        assert!(after < Duration::from_secs(2), "{after:?}");
        assert_eq!(
            (told.phase(), &*told.reason),
            (v1::Phase::Degraded, "DirectoryRemoved")
        );
        let path = directory.to_string_lossy();
        assert!(told.message.contains(&*path), "{}", told.message);
        assert!(
            told.message.contains("holdfast restart qa"),
            "{}",
            told.message
        );
        let beat = || fs::read(area.work().join("beat")).unwrap_or_default();
        let last = beat();
        until("the workload works on", LONG, || beat() != last);

        restart(&gateway, "qa").expect("restarted");
        let status = gateway.until("qa", "Ready anew", |status| {
            status.phase() == v1::Phase::Ready && status.generation == 2
        });
        assert!(directory.exists(), "{status:?}");
        gateway.delete("qa", true).expect("deleted");
        nothing_is_left(&area);
        assert_eq!(gateway.stop(), Some(0));
    }
}

/// So many policies are set one after the other: a race would show in one of them.
const REVISIONS: u64 = 5;

/// So many ends are looked at: a race would show in most of them.
const ENDS: usize = 5;

/// One request, the answer's status and body.
fn fetch(address: &str, path: &str) -> (u16, String) {
    answer(address, "GET", path)
}

fn answer(address: &str, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("connected");
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let code = answer
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .expect("a status");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    (code, body.to_owned())
}
