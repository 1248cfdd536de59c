//! The launcher: process 1 of the sandbox, which makes every other process there and hears of its end.
//!
//! ```text
//!  Building ── Built ──> Proving ── Proof ──> Serving ── the boundary is gone ──> end
//!      └── BuildFailed ──> end
//! ```
//!
//! It has one thread and no runtime, so that it can fork. It carries the filter and no capability; nobody inside may look
//! at it. It keeps nothing but the numbers of the sessions that run: whatever it learns, it tells the boundary first.

mod builtin;
mod canary;
mod child;
mod herd;
mod proof;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use holdfast_kernel::execute::close_all_but;
use holdfast_kernel::fork::{Ended, Forked, fork, reap};
use holdfast_kernel::handoff::{Received, Socket};
use holdfast_kernel::landlock::{Rules, restrict_scope};
use holdfast_kernel::privilege::{
    Capabilities, become_user, bound_to, keep_only, no_new_privileges, set_dumpable,
};
use holdfast_kernel::terminal::open_pair;
use holdfast_kernel::title::retitle;
use holdfast_kernel::{Called, Error};
use holdfast_wire::v1::from_launcher::Kind as Told;
use holdfast_wire::v1::to_launcher::Kind as Asked;
use holdfast_wire::v1::{self, FromLauncher, ToLauncher};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use prost::Message;

use crate::fence::{Broken, Fence, build, calls};
use crate::sessions::size;
use herd::{Herd, News};

pub(crate) use child::refusal;

/// Builds the inner half of the fence and serves until the boundary is gone. Runs in the launcher's own process.
pub(crate) fn run(fence: &Fence, clone3: bool, boundary: Socket) -> i32 {
    let steps = Steps::default();
    match prepare(fence, clone3, &boundary, steps) {
        Ok((rules, news)) => serve(&Launcher {
            fence,
            rules,
            boundary,
            news,
        }),
        Err(broken) => {
            let failed = v1::BuildFailed {
                step: broken.step(),
                message: broken.message(),
            };
            let _ = tell(&boundary, Told::BuildFailed(failed), &[]);
            125
        }
    }
}

/// What serving needs.
struct Launcher<'a> {
    fence: &'a Fence,
    /// None where the kernel has no Landlock.
    rules: Option<Rules>,
    boundary: Socket,
    /// What the shepherds tell.
    news: News,
}

/// How long each step of the building took.
#[derive(Default)]
pub(crate) struct Steps(Vec<v1::Step>, Option<Instant>);

impl Steps {
    /// Notes that the step `name` ends now; the first call only starts the count.
    #[expect(
        clippy::disallowed_methods,
        reason = "the fence is built before there is a clock to be passed"
    )]
    pub(crate) fn mark(&mut self, name: &str) {
        let now = Instant::now();
        if let Some(before) = self.1.replace(now) {
            let micros = u64::try_from((now - before).as_micros()).unwrap_or(u64::MAX);
            self.0.push(v1::Step {
                name: name.to_owned(),
                micros,
            });
        }
    }

    /// The steps in their order.
    pub(crate) fn into_list(self) -> Vec<v1::Step> {
        self.0
    }
}

/// View, rules, privileges, scopes, filter: in this order, because each takes away what the one before it needed.
fn prepare(
    fence: &Fence,
    clone3: bool,
    boundary: &Socket,
    mut steps: Steps,
) -> Result<(Option<Rules>, News), Broken> {
    let broken = |step| move |error| Broken::new(step, "", &error);
    steps.mark("");
    retitle("holdfast launcher").map_err(broken("hide its command line"))?;
    build::enter(&fence.view, fence.as_root)?;
    steps.mark("mount the view");
    let rules = build::rules(fence)?;
    steps.mark("build the Landlock rules");
    bound_to(Capabilities::NONE).map_err(broken("lay down capabilities"))?;
    if let Some((uid, gid)) = fence.user {
        become_user(uid, gid).map_err(broken("become process.run_as_user"))?;
    }
    keep_only(Capabilities::NONE).map_err(broken("lay down capabilities"))?;
    no_new_privileges().map_err(broken("set no_new_privs"))?;
    // Not before: the ids of a process that must not be looked at cannot be mapped.
    set_dumpable(false).map_err(broken("hide the launcher"))?;
    let scoped = restrict_scope().map_err(broken("set the Landlock scopes"))?;
    steps.mark("lay down privileges");
    let listener = calls::filter(clone3)
        .install()
        .map_err(broken("install the seccomp filter"))?;
    steps.mark("install the seccomp filter");
    let built = v1::Built {
        steps: steps.into_list(),
        scoped,
    };
    let news = News::new().map_err(broken("make a pipe"))?;
    tell(boundary, Told::Built(built), &[&listener]).map_err(broken("hand over the listener"))?;
    Ok((rules, news))
}

/// Serves requests and reaps children until the boundary is gone.
fn serve(launcher: &Launcher<'_>) -> i32 {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let Ok(signals) = mask
        .thread_block()
        .and_then(|()| SignalFd::with_flags(&mask, flags))
    else {
        return 125;
    };
    let mut kept = vec![0, 1, 2];
    let News { heard, told } = &launcher.news;
    let own = [
        launcher.boundary.as_fd(),
        signals.as_fd(),
        heard.as_fd(),
        told.as_fd(),
    ];
    kept.extend(own.map(|fd| fd.as_raw_fd()));
    kept.extend(launcher.rules.iter().map(|rules| rules.as_fd().as_raw_fd()));
    kept.sort_unstable();
    if close_all_but(&kept).is_err() || proof::run(launcher).is_err() {
        return 125;
    }
    let mut processes = Processes::default();
    loop {
        let mut wanted = vec![
            PollFd::new(launcher.boundary.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(launcher.news.as_fd(), PollFlags::POLLIN),
        ];
        let starting = processes.starting.values();
        wanted.extend(starting.map(|one| PollFd::new(one.report.as_fd(), PollFlags::POLLIN)));
        match poll(&mut wanted, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return 125,
        }
        let ready: Vec<bool> = wanted.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        let reported: Vec<Pid> = processes
            .starting
            .keys()
            .zip(&ready[3..])
            .filter(|(_, ready)| **ready)
            .map(|(pid, _)| *pid)
            .collect();
        for pid in reported {
            processes.settle(launcher, pid);
        }
        if ready[2] {
            processes.hear_shepherds(launcher);
        }
        if ready[1] {
            while matches!(signals.read_signal(), Ok(Some(_))) {}
            processes.reap(launcher);
        }
        if ready[0] && !processes.answer(launcher) {
            return 0;
        }
    }
}

/// The processes that the boundary hears of.
#[derive(Default)]
struct Processes {
    /// Not yet their own programs.
    starting: BTreeMap<Pid, Starting>,
    /// Running, by process, with their sessions.
    running: HashMap<Pid, u64>,
    /// Those with a shepherd, by its process, until that ends.
    herds: BTreeMap<Pid, Herd>,
}

/// A process between its fork and its `execve`.
struct Starting {
    session: u64,
    report: OwnedFd,
    master: Option<OwnedFd>,
}

impl Processes {
    /// The process `pid` has become its program or has said why not.
    fn settle(&mut self, launcher: &Launcher<'_>, pid: Pid) {
        let Some(starting) = self.starting.remove(&pid) else {
            return;
        };
        let session = starting.session;
        let told = match child::outcome(&starting.report) {
            None => {
                if !self.herds.contains_key(&pid) {
                    self.running.insert(pid, session);
                }
                let started = v1::Started {
                    session,
                    pid: pid.as_raw().unsigned_abs(),
                };
                let master: Vec<&OwnedFd> = starting.master.iter().collect();
                tell(&launcher.boundary, Told::Started(started), &master)
            }
            Some(refused) => {
                self.herds.remove(&pid);
                let refused = v1::NotStarted { session, ..refused };
                tell(&launcher.boundary, Told::NotStarted(refused), &[])
            }
        };
        // A boundary that is gone ends the loop at its next turn.
        drop(told);
        if let Some(herd) = self.herds.get_mut(&pid) {
            herd.started = true;
        }
        self.end(launcher, pid);
    }

    /// The program of this shepherd has ended, if that is known and can be told.
    fn end(&mut self, launcher: &Launcher<'_>, shepherd: Pid) {
        if let Some(herd) = self.herds.get_mut(&shepherd)
            && let Some(program) = herd.end()
        {
            ended(launcher, herd.session, how_of(program));
        }
    }

    /// Takes every child that has ended; the boundary hears of those that were sessions.
    fn reap(&mut self, launcher: &Launcher<'_>) {
        loop {
            let (pid, how) = match reap() {
                Ok(Some((pid, ended))) => (pid, how_of(ended)),
                Ok(None) | Err(_) => return,
            };
            // It may have become its program and ended within one turn of the loop.
            self.settle(launcher, pid);
            if let Some(session) = self.running.remove(&pid) {
                ended(launcher, session, how);
            }
            // What it said before it ended is there to be heard, and nobody else has its number yet.
            self.hear_shepherds(launcher);
            if let Some(herd) = self.herds.remove(&pid)
                && !herd.is_over()
            {
                let lost = "its shepherd was killed before it".to_owned();
                ended(launcher, herd.session, v1::exit::How::Unknown(lost));
            }
        }
    }

    /// Takes what the shepherds say of their programs.
    fn hear_shepherds(&mut self, launcher: &Launcher<'_>) {
        for (shepherd, word) in launcher.news.hear() {
            if let Some(herd) = self.herds.get_mut(&shepherd) {
                herd.hear(word);
            }
            self.end(launcher, shepherd);
        }
    }

    /// Sends a signal to a session: its process group, or everything below its shepherd.
    fn signal(&mut self, launcher: &Launcher<'_>, asked: v1::SignalSession) {
        let Ok(signal) = Signal::try_from(asked.signal) else {
            return;
        };
        // Which process the program is may just have been said.
        self.hear_shepherds(launcher);
        let herd = self
            .herds
            .iter()
            .find(|(_, herd)| herd.session == asked.session);
        let group = match herd {
            Some((shepherd, _)) if asked.tree => {
                herd::signal_all(*shepherd, signal);
                return;
            }
            Some((_, herd)) => herd.program,
            None => {
                let mut running = self.running.iter();
                running
                    .find(|(_, session)| **session == asked.session)
                    .map(|(pid, _)| *pid)
            }
        };
        if let Some(leader) = group {
            // A session's process leads a group of its own. One that has just ended is no error.
            let _ = kill(Pid::from_raw(-leader.as_raw()), signal);
        }
    }

    /// Answers one request; false when the boundary is gone.
    fn answer(&mut self, launcher: &Launcher<'_>) -> bool {
        let mut buffer = [0; MAX_REQUEST];
        let (request, descriptors) = match launcher.boundary.receive(&mut buffer) {
            Ok(Received::Packet {
                length,
                descriptors,
            }) => (ToLauncher::decode(&buffer[..length]), descriptors),
            Ok(Received::Exhausted { length }) => {
                (ToLauncher::decode(&buffer[..length]), Vec::new())
            }
            Ok(Received::Closed) | Err(_) => return false,
        };
        match request.map(|request| request.kind) {
            Ok(Some(Asked::Start(start))) => match begin(launcher, &start, descriptors) {
                Ok((pid, starting)) => {
                    if start.herded {
                        self.herds.insert(pid, Herd::new(start.session));
                    }
                    self.starting.insert(pid, starting);
                    true
                }
                Err(refused) => tell(&launcher.boundary, Told::NotStarted(refused), &[]).is_ok(),
            },
            Ok(Some(Asked::Signal(asked))) => {
                self.signal(launcher, asked);
                true
            }
            Ok(Some(Asked::Clear(_))) => {
                let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
                true
            }
            Ok(Some(Asked::Hold(hold))) => {
                let signal = if hold.stopped {
                    Signal::SIGSTOP
                } else {
                    Signal::SIGCONT
                };
                // Every process of this namespace but this one. None there is no error.
                let _ = kill(Pid::from_raw(-1), signal);
                true
            }
            // One at a time is asked for, so there is room for the answer.
            Ok(Some(Asked::Ping(_))) => {
                tell(&launcher.boundary, Told::Pong(v1::Pong {}), &[]).is_ok()
            }
            Ok(None) | Err(_) => true,
        }
    }
}

/// Makes a process that is about to become the session's program.
fn begin(
    launcher: &Launcher<'_>,
    start: &v1::Start,
    descriptors: Vec<OwnedFd>,
) -> Result<(Pid, Starting), v1::NotStarted> {
    let session = start.session;
    let refused = |step: &str, error: &Error| v1::NotStarted {
        session,
        ..refusal(step, error)
    };
    let lost = || {
        refused(
            "receive its descriptors",
            &Error::new("recvmsg", libc::EMFILE),
        )
    };
    let mut descriptors = descriptors.into_iter();
    let program = descriptors.next().ok_or_else(lost)?;
    let (standard, master) = match &start.terminal {
        Some(wanted) => {
            let (master, terminal) =
                open_pair(size(*wanted)).map_err(|error| refused("open a terminal", &error))?;
            (child::Standard::Terminal(terminal), Some(master))
        }
        None => match (descriptors.next(), descriptors.next(), descriptors.next()) {
            (Some(stdin), Some(stdout), Some(stderr)) => (
                child::Standard::Pipes {
                    stdin,
                    stdout,
                    stderr,
                },
                None,
            ),
            _ => return Err(lost()),
        },
    };
    let (report, ours) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)
        .called("pipe2")
        .map_err(|error| refused("make a pipe", &error))?;
    match fork(CloneFlags::empty()).map_err(|error| refused("fork", &error))? {
        Forked::Child => {
            let shepherd = start.herded.then_some(&launcher.news.told);
            child::become_session(launcher, &program, standard, ours, shepherd)
        }
        Forked::Parent(child) => Ok((
            child.pid,
            Starting {
                session,
                report,
                master,
            },
        )),
    }
}

/// The boundary hears first how a session's process has ended.
fn ended(launcher: &Launcher<'_>, session: u64, how: v1::exit::How) {
    let exit = Some(v1::Exit { how: Some(how) });
    // A boundary that is gone ends the loop at its next turn.
    let _ = tell(
        &launcher.boundary,
        Told::Ended(v1::Ended { session, exit }),
        &[],
    );
}

fn how_of(ended: Ended) -> v1::exit::How {
    match ended {
        Ended::Exited(code) => v1::exit::How::Code(code),
        Ended::Signalled(signal) => v1::exit::How::Signal(signal),
    }
}

/// Sends one message with its descriptors.
fn tell(boundary: &Socket, told: Told, descriptors: &[&OwnedFd]) -> holdfast_kernel::Result<()> {
    let descriptors: Vec<_> = descriptors.iter().map(|fd| fd.as_fd()).collect();
    boundary.send(
        &FromLauncher { kind: Some(told) }.encode_to_vec(),
        &descriptors,
    )
}

/// A request is small: what may be large comes in a file beside it.
const MAX_REQUEST: usize = 512;
