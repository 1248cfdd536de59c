//! Where is measured: outside, behind a bare relay, inside.

use holdfast_tests::probe::{answers, probe};
use holdfast_tests::servers::{FOUR, Server};
use holdfast_tests::stat::{self, Stat};
use holdfast_tests::{Area, Policy, Run, Running, leaks};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use tokio::net::TcpStream;

/// What an attempt answered, as numbers.
pub(crate) type Figures = BTreeMap<String, f64>;

/// What was answered, without what is no number.
pub(crate) fn figures(answers: BTreeMap<String, String>) -> Figures {
    answers
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect()
}

/// Without any of us.
pub(crate) fn outside(words: &str) -> Figures {
    let probe = probe().expect("main asked for it");
    let done = Command::new(probe)
        .args(words.split(' '))
        .output()
        .expect("run the probe");
    assert!(
        done.status.success(),
        "{words}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    figures(answers(&done.stdout))
}

/// In a sandbox.
pub(crate) fn inside(area: &Area, policy: &Policy, words: &str) -> Figures {
    let done = Run::new(area, policy).attempt(words).finish();
    assert_eq!(done.code(), Some(0), "{done}");
    figures(answers(&done.stdout))
}

/// A server in a process of its own, which says its port before it serves, and ends with this.
pub(crate) struct Aside {
    process: Child,
    port: u16,
}

impl Aside {
    /// The least that any proxy must do, to a port of loopback: accept, dial, copy. Buffers of the size that is best here.
    pub(crate) fn bare_relay(to: u16) -> Self {
        let program = std::env::current_exe().expect("know our own path");
        Self::start(Command::new(program).args([BARE_RELAY, &to.to_string()]))
    }

    /// The least that any server must do: accept, read to the end, close. What it takes of the processor is missing to nobody.
    pub(crate) fn least_server() -> Self {
        let program = probe().expect("main asked for it");
        Self::start(Command::new(program).args(["bench-accept", FOUR]))
    }

    fn start(command: &mut Command) -> Self {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start a server");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("its output"))
            .read_line(&mut line)
            .expect("hear its port");
        let port = line.trim().parse().expect("a port");
        Self { process, port }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.process.kill().expect("end the server");
        drop(self.process.wait());
    }
}

/// The process of a bare relay: serves until it is killed.
pub(crate) fn bare_relay(to: u16) -> ! {
    let server = Server::start(FOUR, move |mut near| async move {
        if let Ok(mut far) = TcpStream::connect((FOUR, to)).await {
            drop(far.set_nodelay(true));
            let size = 1 << 18;
            drop(tokio::io::copy_bidirectional_with_sizes(&mut near, &mut far, size, size).await);
        }
    });
    writeln!(std::io::stdout(), "{}", server.port()).expect("say the port");
    loop {
        std::thread::park();
    }
}

/// The word that makes this program a bare relay.
pub(crate) const BARE_RELAY: &str = "--bare-relay";

/// Our own processes of a run: those that execute the binary, without the workload.
pub(crate) fn ours(run: &Running) -> Vec<i32> {
    let top = run.pid().as_raw();
    let all: BTreeSet<i32> = leaks::descendants(top).into_iter().chain([top]).collect();
    let is_ours = |pid: &i32| {
        std::fs::read_link(format!("/proc/{pid}/exe"))
            .is_ok_and(|exe| exe.file_name().is_some_and(|name| name == "holdfast"))
    };
    all.into_iter().filter(is_ours).collect()
}

/// Keeper, boundary and launcher as far as they are there yet: each is the child of the one before.
pub(crate) fn chain(run: &Running) -> Vec<i32> {
    let chain = std::iter::successors(Some(run.pid()), |pid| stat::child_of(*pid));
    chain.take(3).map(Pid::as_raw).collect()
}

/// Processor time of some processes so far, in seconds.
pub(crate) fn processor(pids: &[i32]) -> f64 {
    let ticks = |pid: &i32| Stat::of(*pid).map_or(0.0, |stat| stat.ticks());
    // USER_HZ is 100 on every architecture that Linux tells it to.
    pids.iter().map(ticks).sum::<f64>() / 100.0
}

/// The proportional memory of a process, in MiB.
pub(crate) fn proportional(pid: i32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kilobytes = line.and_then(|it| it.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) / 1024.0
}
