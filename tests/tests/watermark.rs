//! The most descriptors that a process says it ever had, beside what every one of its system calls answered.
//!
//! `strace` stands beside keeper and boundary and sees each descriptor that they get. Numbers are given from the lowest
//! free one, so the highest that was seen, and one, is the most that were open.

use holdfast_tests::daemon::{Gateway, request};
use holdfast_tests::servers::{FOUR, tcp};
use holdfast_tests::victim::{Part, parts};
use holdfast_tests::visit::{self, Client};
use holdfast_tests::wait::{LONG, until};
use holdfast_tests::{Policy, everyone, keeping, leaks, skip};
use holdfast_wire::v1;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tokio::task::JoinSet;

const QA: &str = "qa";
/// Programs run at the same time, each with connections of its own.
const AT_ONCE: usize = 8;

/// Looks at each call of a process that gives a descriptor.
struct Witness {
    strace: Child,
    told: PathBuf,
}

impl Witness {
    /// Begins to look; `None`, and a counted line, where it may not.
    fn of(strace: &Path, pid: i32, told: PathBuf) -> Option<Self> {
        let errors = told.with_extension("err");
        let mut strace = Command::new(strace)
            .args([
                "-f",
                "-qq",
                "-e",
                "trace=%desc,%network,%process,prctl,memfd_create",
            ])
            .arg("-o")
            .arg(&told)
            .args(["-p", &pid.to_string()])
            .stderr(fs::File::create(&errors).expect("made"))
            .stdin(Stdio::null())
            .spawn()
            .expect("strace starts");
        let traced = || {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            !status.contains("TracerPid:\t0\n")
        };
        let mut ended = false;
        until("strace looks, or has given up", LONG, || {
            ended = strace.try_wait().expect("asked").is_some();
            ended || traced()
        });
        if ended {
            let why = fs::read_to_string(&errors).unwrap_or_default();
            skip::skip("descriptors under strace", why.trim());
            return None;
        }
        Some(Self { strace, told })
    }

    /// The highest number that a call answered meanwhile, and one.
    fn most(mut self) -> u64 {
        let pid = Pid::from_raw(self.strace.id().cast_signed());
        kill(pid, Signal::SIGINT).expect("it runs");
        self.strace.wait().expect("it ends");
        let told = fs::read_to_string(&self.told).expect("told");
        let numbers = told.lines().flat_map(fresh);
        numbers.max().map_or(0, |highest| highest + 1)
    }
}

/// The descriptors that a line of strace says were given.
fn fresh(line: &str) -> Vec<u64> {
    let call = |name: &str| {
        line.contains(&format!(" {name}(")) || line.contains(&format!("<... {name} resumed>"))
    };
    let any = |names: &[&str]| names.iter().copied().any(call);
    let bracketed = |text: &str| -> Vec<u64> {
        let inside = text
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'));
        let numbers =
            inside.map(|(numbers, _)| numbers.split(", ").filter_map(|it| it.parse().ok()));
        numbers.into_iter().flatten().collect()
    };
    if any(&["pipe2", "pipe", "socketpair"]) {
        let pair = line.rsplit_once('[').map(|(_, pair)| format!("[{pair}"));
        return pair.map_or_else(Vec::new, |pair| bracketed(&pair));
    }
    if call("recvmsg") {
        let rights = line.split("SCM_RIGHTS, cmsg_data=").skip(1);
        return rights.flat_map(bracketed).collect();
    }
    let gives = [
        "open",
        "openat",
        "socket",
        "accept",
        "accept4",
        "dup",
        "eventfd2",
        "epoll_create1",
        "memfd_create",
        "pidfd_open",
        "pidfd_getfd",
        "timerfd_create",
        "signalfd4",
    ];
    let duplicates = call("fcntl") && line.contains("F_DUPFD");
    if any(&gives) || duplicates {
        let answer = line.rsplit_once(" = ").map(|(_, answer)| answer);
        let number = answer.and_then(|answer| answer.split(' ').next()?.parse().ok());
        return number.into_iter().collect();
    }
    Vec::new()
}

#[test]
fn given_descriptors_are_read_from_a_line() {
    for (line, expected) in [
        ("12 accept4(5, NULL, NULL, SOCK_CLOEXEC) = 33", vec![33]),
        (
            "12 <... accept4 resumed>NULL, NULL, SOCK_CLOEXEC) = 7",
            vec![7],
        ),
        (
            "12 openat(AT_FDCWD, \"/x\", O_RDONLY) = -1 ENOENT (No such file)",
            vec![],
        ),
        ("12 pipe2([8, 9], O_CLOEXEC) = 0", vec![8, 9]),
        (
            "12 socketpair(AF_UNIX, SOCK_STREAM, 0, [10, 11]) = 0",
            vec![10, 11],
        ),
        ("12 fcntl(3, F_DUPFD_CLOEXEC, 3) = 12", vec![12]),
        ("12 fcntl(3, F_GETFL) = 0x2", vec![]),
        (
            "12 recvmsg(4, {msg_name=NULL, msg_control=[{cmsg_len=20, cmsg_type=SCM_RIGHTS, cmsg_data=[13, 14]}]}, 0) = 2",
            vec![13, 14],
        ),
        ("12 close(33) = 0", vec![]),
    ] {
        assert_eq!(fresh(line), expected, "{line}");
    }
}

/// SV-01: the high-water mark is exact, although nobody looks all the time.
#[test]
fn the_high_water_mark_is_the_most_that_any_call_answered() {
    let Some(strace) = skip::program("strace") else {
        return;
    };
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let gateway = Gateway::start(&area, &[]);
        let mut made = request(&area, QA);
        made.policy = Policy::origin(server.port()).text();
        gateway.create(made).expect("made");
        gateway.until(QA, "Ready", |status| status.phase() == v1::Phase::Ready);
        let pid = |part: Part| parts(&area, "")[&part].first().expect("one").pid;
        let (keeper, boundary) = (pid(Part::Keeper), pid(Part::Boundary));
        let told = |name: &str| area.root().join(format!("log/strace.{name}"));
        let Some(at_keeper) = Witness::of(&strace, keeper, told("keeper")) else {
            continue;
        };
        let at_boundary = Witness::of(&strace, boundary, told("boundary"));
        let before = gateway.get(QA).expect("there");

        let line = format!(
            "for n in 1 2 3 4; do exec 3<>/dev/tcp/origin.test/{}; echo word >&3; read x <&3; done; echo $x",
            server.port()
        );
        let client = Client::new(gateway.channel().expect("a channel"));
        gateway.wait(async {
            let mut runs = JoinSet::new();
            for _ in 0..AT_ONCE {
                let mut client = client.clone();
                let start = v1::ExecStart {
                    sandbox: QA.to_owned(),
                    ..keeping::exec(&["/bin/bash", "-c", &line])
                };
                runs.spawn(async move { visit::exec(&mut client, start).await });
            }
            for told in runs.join_all().await {
                assert_eq!(
                    (told.code(), &*told.text()),
                    (Some(0), "word\n"),
                    "{told:?}"
                );
            }
        });
        drop(client);

        let after = gateway.until(QA, "a later look", |status| {
            let used = |name: &str| status.descriptors[name].used;
            let open = |pid| leaks::descriptors(pid).unwrap_or_default();
            used("keeper") == open(keeper) && used("boundary") == open(boundary)
        });
        let seen = [("keeper", Some(at_keeper)), ("boundary", at_boundary)];
        for (name, witness) in seen {
            let Some(witness) = witness else { continue };
            let (before, most) = (before.descriptors[name].high_water, witness.most());
            let exact = before.max(most);
            assert!(
                most > before,
                "{name} had more than before: {most}, {before}"
            );
            assert_eq!(after.descriptors[name].high_water, exact, "{name}");
        }
        gateway.delete(QA, true).expect("deleted");
        assert_eq!(gateway.stop(), Some(0));
    }
}
