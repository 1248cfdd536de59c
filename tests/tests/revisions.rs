//! Revisions of a policy, put in force while a sandbox runs: what is shown, and what becomes of what is open. (PO-05, PO-06, PO-08.)

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use holdfast_tests::servers::{FOUR, tcp};
use holdfast_tests::wait::{LONG, until};
use holdfast_tests::{Area, Host, Policy, everyone, skip, stat};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const QA: &str = "qa";

/// Talks without end over one connection, and says when it was cut.
const TALK: &str = "
import socket, sys, time
s = socket.create_connection(('origin.test', int(sys.argv[1])))
print('open', flush=True)
try:
    while True:
        s.send(b'x')
        if not s.recv(1): break
        print('.', end='', flush=True)
        time.sleep(0.02)
except OSError: pass
print('cut', flush=True)
";

/// PO-06: what the new revision denies is closed when it is in force; what it allows is not touched.
#[test]
fn open_connections_follow_the_revision() {
    let Some(python) = skip::program("python3") else {
        return;
    };
    let python = python.to_str().expect("text");
    for area in everyone() {
        let host = Host::new(&area);
        let (stays, goes) = (tcp::echo(FOUR), tcp::echo(FOUR));
        let narrow = Policy::origin(stays.port());
        let wide = Policy::origin(stays.port()).rule("more", "origin.test", goes.port());
        let [narrow, wide] =
            [narrow, wide].map(|policy| area.file(&area.fresh("policy"), policy.text()));
        host.ready(QA, &format!("--policy {}", wide.display()));
        let talk = |port: u16| {
            let running = host
                .exec(QA, &[python, "-c", TALK, &port.to_string()])
                .start();
            running.expect("open");
            running
        };
        let (kept, closed) = (talk(stays.port()), talk(goes.port()));

        host.done(&format!("policy set qa {} --wait", narrow.display()));

        let closed = closed.finish();
        assert!(closed.exited(0).text().ends_with("cut\n"), "{closed}");
        let refused = host
            .exec(QA, &[python, "-c", TALK, &goes.port().to_string()])
            .finish();
        assert_ne!(refused.code(), Some(0), "{refused}");
        let so_far = kept.output().len();
        until("what was not denied goes on", LONG, || {
            kept.output().len() > so_far
        });
        assert!(!kept.output().contains("cut"), "{}", kept.output());
        kept.signal(Signal::SIGTERM);
        kept.finish();
    }
}

/// PO-08: a policy that is not enforced yet is not shown as if it were, and who waits for it waits.
#[test]
fn a_policy_is_shown_as_enforced_when_it_is() {
    for area in everyone() {
        let host = Host::new(&area);
        let policies = [Policy::origin(80), Policy::origin(81)];
        let [first, second] =
            policies.map(|policy| area.file(&area.fresh("policy"), policy.text()));
        host.ready(QA, &format!("--policy {}", first.display()));

        let keeper = keeper(&host);
        stat::stop(keeper);
        let set = host
            .say(&format!("policy set qa {} --wait", second.display()))
            .start();
        until("it is wanted", LONG, || revisions(&host).0 == Some(2));
        let meanwhile = revisions(&host);
        kill(keeper, Signal::SIGCONT).expect("goes on");

        assert_eq!(meanwhile, (Some(2), Some(1)));
        set.finish().exited(0);
        until("it is told", LONG, || {
            revisions(&host) == (Some(2), Some(2))
        });
    }
}

/// PO-08: a revision that is kept is taken by the next keeper, and who has set it is told so, whatever becomes of the keeper
/// that was asked; one that only a restart could put in force is not kept.
#[test]
fn a_revision_outlives_the_keeper_that_was_asked() {
    for area in everyone() {
        let host = Host::new(&area);
        let policies = [80, 81, 82].map(Policy::origin);
        let [first, second, third] =
            policies.map(|policy| area.file(&area.fresh("policy"), policy.text()));
        let fence = of_another_fence(&area);
        host.ready(QA, &format!("--policy {}", first.display()));
        // Asks a keeper that is stopped, and that is killed once `asked` holds.
        let set = |line: String, asked: &dyn Fn() -> bool| {
            let keeper = keeper(&host);
            stat::stop(keeper);
            let set = host.say(&line).start();
            until("it was asked", LONG, asked);
            kill(keeper, Signal::SIGKILL).expect("killed");
            set.finish()
        };
        let ready = || host.done("wait qa --for ready --timeout 30s");

        let line = format!("policy set qa {} --wait", second.display());
        let finished = set(line, &|| revisions(&host).0 == Some(2));
        finished.exited(0);
        assert_eq!(finished.text(), "revision 2\n", "{finished}");
        ready();
        assert_eq!(revisions(&host), (Some(2), Some(2)));

        let line = format!("policy set qa {}", third.display());
        let finished = set(line, &|| revisions(&host).0 == Some(3));
        finished.exited(0);
        assert_eq!(finished.text(), "revision 3\n", "{finished}");
        assert!(finished.stderr.contains("when it is back"), "{finished}");
        ready();
        until("the next keeper has it", LONG, || {
            revisions(&host) == (Some(3), Some(3))
        });

        let line = format!("policy set qa {} --wait", fence.display());
        let finished = set(line, &|| true);
        assert_eq!(finished.code(), Some(125), "{finished}");
        ready();
        assert_eq!(revisions(&host), (Some(3), Some(3)), "{finished}");
    }
}

/// PO-08: what could not be brought to the keeper is put in force once it can be reached.
#[test]
fn a_revision_that_did_not_reach_the_keeper_is_brought_to_it_again() {
    for area in everyone() {
        let host = Host::new(&area);
        let policies = [80, 81].map(Policy::origin);
        let [first, second] =
            policies.map(|policy| area.file(&area.fresh("policy"), policy.text()));
        host.ready(QA, &format!("--policy {}", first.display()));
        let keeper = keeper(&host);
        stat::stop(keeper);
        let id = status(&host)["id"].as_str().expect("an id").to_owned();
        let socket = area
            .runtime()
            .join("sandboxes")
            .join(id)
            .join("keeper.sock");
        fs::remove_file(socket).expect("removed");
        // The next one has no connection to it yet.
        host.end_gateway(Signal::SIGKILL);

        let finished = host
            .say(&format!("policy set qa {}", second.display()))
            .finish();
        let meanwhile = revisions(&host);
        kill(keeper, Signal::SIGCONT).expect("goes on");

        finished.exited(0);
        assert!(finished.stderr.contains("when it is back"), "{finished}");
        assert_eq!(meanwhile.0, Some(2));
        assert_ne!(meanwhile.1, Some(2));
        until("it is in force", LONG, || {
            revisions(&host) == (Some(2), Some(2))
        });
    }
}

/// PO-08: a policy that comes while a keeper begins with another one waits until that one serves: then it is put in force, or
/// refused where only a restart could do that, and is never taken for what stands.
#[test]
fn a_revision_waits_for_the_keeper_that_begins() {
    for area in everyone() {
        let host = Host::new(&area);
        let first = area.file(&area.fresh("policy"), Policy::origin(80).text());
        let second = area.file(&area.fresh("policy"), Policy::origin(81).text());
        let fence = of_another_fence(&area);
        host.ready(QA, &format!("--policy {}", first.display()));
        // Asked while the keeper of a new generation is stopped before its first report.
        let set = |path: &Path| {
            let keeper = beginning(&host);
            let before = connections(&area);
            let set = host.say(&format!("policy set qa {}", path.display()));
            let set = set.start();
            until("it is asked", LONG, || {
                !connections(&area).is_subset(&before)
            });
            kill(keeper, Signal::SIGCONT).expect("goes on");
            set.finish()
        };

        let finished = set(&fence);
        assert_eq!(finished.code(), Some(125), "{finished}");
        assert!(finished.stderr.contains("on_link_loss"), "{finished}");
        assert_eq!(revisions(&host), (Some(1), Some(1)), "{finished}");

        let finished = set(&second);
        finished.exited(0);
        assert_eq!(finished.text(), "revision 2\n", "{finished}");
        assert_eq!(revisions(&host), (Some(2), Some(2)), "{finished}");
    }
}

/// A policy that differs from `Policy::origin(80)` in what the fence is made of.
fn of_another_fence(area: &Area) -> PathBuf {
    let text = format!("{}on_link_loss: freeze\n", Policy::origin(80).text());
    area.file(&area.fresh("policy"), text)
}

/// Starts the sandbox anew, until its keeper could be stopped before it reported.
fn beginning(host: &Host<'_>) -> Pid {
    let mut caught = None;
    until("a keeper that begins", LONG, || {
        host.done("stop qa");
        host.done("start qa");
        let begins = || {
            let status = status(host);
            let pid = status["pids"]["keeper"].as_i64()?;
            Some((status["phase"] == "Pending", pid))
        };
        until("a keeper", LONG, || begins().is_some());
        let (_, pid) = begins().expect("a keeper");
        let keeper = Pid::from_raw(i32::try_from(pid).expect("a pid"));
        stat::stop(keeper);
        let pending = begins().is_some_and(|(pending, _)| pending);
        if pending {
            caught = Some(keeper);
        } else {
            kill(keeper, Signal::SIGCONT).expect("goes on");
        }
        pending
    });
    caught.expect("a keeper")
}

/// The gateway's ends of its connections, by inode. The kernel knows them by the name that it gave its socket first.
fn connections(area: &Area) -> BTreeSet<String> {
    let socket = area.runtime().join("gateway.");
    let socket = socket.to_str().expect("text");
    let table = fs::read_to_string("/proc/net/unix").expect("a table");
    let own = table.lines().filter(|line| line.contains(socket));
    own.filter_map(|line| line.split_whitespace().nth(6).map(str::to_owned))
        .collect()
}

/// The revision that is wanted, and the one that is in force.
fn revisions(host: &Host<'_>) -> (Option<u64>, Option<u64>) {
    let policy = &status(host)["policy"];
    (policy["desired"].as_u64(), policy["enforced"].as_u64())
}

fn status(host: &Host<'_>) -> Value {
    host.document("status qa -o json").1
}

fn keeper(host: &Host<'_>) -> Pid {
    let pid = status(host)["pids"]["keeper"].as_i64().expect("a pid");
    Pid::from_raw(i32::try_from(pid).expect("a pid"))
}
