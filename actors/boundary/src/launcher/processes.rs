//! The processes of the sandbox that the boundary asks for and hears of.
//!
//! ```text
//!  begin ──> Starting ── its report ends ──> running, or herded ── its end is known ──> told
//!               └── its report says why ──> NotStarted    └── its time is up ──> killed until it is gone
//! ```

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::time::Duration;

use holdfast_kernel::fork::{Ended, Forked, fork, reap};
use holdfast_kernel::handoff::Received;
use holdfast_kernel::terminal::open_pair;
use holdfast_kernel::uptime::uptime;
use holdfast_kernel::{Called, Error};
use holdfast_wire::v1::from_launcher::Kind as Told;
use holdfast_wire::v1::to_launcher::Kind as Asked;
use holdfast_wire::v1::{self, ToLauncher};
use nix::poll::PollTimeout;
use nix::sched::CloneFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prost::Message;

use super::herd::{self, Herd};
use super::limits::Limits;
use super::outbox::Outbox;
use super::{Launcher, child, refusal, shortage};
use crate::sessions::size;

/// The processes that the boundary hears of.
#[derive(Default)]
pub(super) struct Processes {
    /// Not yet their own programs.
    pub(super) starting: BTreeMap<Pid, Starting>,
    /// Running, by process, with their sessions.
    running: HashMap<Pid, u64>,
    /// Those with a shepherd, by its process, until that ends.
    herds: BTreeMap<Pid, Herd>,
    /// When each of them that has a limit is to be killed.
    pub(super) limits: Limits,
    pub(super) outbox: Outbox,
}

/// A process between its fork and its `execve`.
pub(super) struct Starting {
    session: u64,
    pub(super) report: OwnedFd,
    master: Option<OwnedFd>,
}

impl Processes {
    /// The process `pid` has become its program or has said why not.
    pub(super) fn settle(&mut self, launcher: &Launcher<'_>, pid: Pid) {
        let Some(starting) = self.starting.remove(&pid) else {
            return;
        };
        let session = starting.session;
        match child::outcome(&starting.report) {
            None => {
                if !self.herds.contains_key(&pid) {
                    self.running.insert(pid, session);
                }
                let started = v1::Started {
                    session,
                    pid: pid.as_raw().unsigned_abs(),
                };
                self.tell(launcher, Told::Started(started), starting.master);
            }
            Some(refused) => {
                self.forget(pid);
                drop(starting);
                self.refuse(launcher, v1::NotStarted { session, ..refused });
            }
        }
        if let Some(herd) = self.herds.get_mut(&pid) {
            herd.started = true;
        }
        self.end(launcher, pid);
    }

    /// The program of this shepherd has ended, if that is known and can be told.
    fn end(&mut self, launcher: &Launcher<'_>, shepherd: Pid) {
        if let Some(herd) = self.herds.get_mut(&shepherd)
            && let Some(end) = herd.end()
        {
            let (session, how) = (herd.session, how_of(end.program));
            self.ended(launcher, session, how, end.timed_out);
        }
    }

    /// The shepherd `pid` is no more.
    fn forget(&mut self, pid: Pid) -> Option<Herd> {
        self.limits.lift(pid);
        self.herds.remove(&pid)
    }

    /// How long nothing is due.
    pub(super) fn wait(&self) -> PollTimeout {
        [self.limits.wait(uptime), self.outbox.wait()]
            .into_iter()
            .filter(PollTimeout::is_some)
            .min()
            .unwrap_or(PollTimeout::NONE)
    }

    /// Kills every process of those whose time is up.
    pub(super) fn keep_limits(&mut self, launcher: &Launcher<'_>) {
        if !self.limits.are_due(uptime) {
            return;
        }
        // Who has ended by itself is not killed for its limit.
        self.hear_shepherds(launcher);
        let up = self.limits.pass(uptime());
        for shepherd in &up {
            if let Some(herd) = self.herds.get_mut(shepherd) {
                herd.overdue = true;
            }
        }
        herd::signal_all(&up, Signal::SIGKILL);
    }

    /// Takes every child that has ended; the boundary hears of those that were sessions.
    pub(super) fn reap(&mut self, launcher: &Launcher<'_>) {
        loop {
            let (pid, how) = match reap() {
                Ok(Some((pid, ended))) => (pid, how_of(ended)),
                Ok(None) | Err(_) => return,
            };
            // It may have become its program and ended within one turn of the loop.
            self.settle(launcher, pid);
            if let Some(session) = self.running.remove(&pid) {
                self.ended(launcher, session, how, false);
            }
            // What it said before it ended is there to be heard, and nobody else has its number yet.
            self.hear_shepherds(launcher);
            if let Some(herd) = self.forget(pid)
                && !herd.is_over()
            {
                let lost = "its shepherd was killed before it".to_owned();
                self.ended(launcher, herd.session, v1::exit::How::Unknown(lost), false);
            }
        }
    }

    /// Takes what the shepherds say of their programs.
    pub(super) fn hear_shepherds(&mut self, launcher: &Launcher<'_>) {
        for (shepherd, word) in launcher.news.hear() {
            if let Some(herd) = self.herds.get_mut(&shepherd) {
                herd.hear(word);
                if herd.has_ended() && !herd.overdue {
                    // What it leaves behind is as free as that of a session without a limit.
                    self.limits.lift(shepherd);
                }
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
                herd::signal_all(&[*shepherd], signal);
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
    pub(super) fn answer(&mut self, launcher: &Launcher<'_>) -> bool {
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
                        if let Some(due) = due(&start) {
                            self.limits.set(pid, due);
                        }
                    }
                    self.starting.insert(pid, starting);
                }
                Err(refused) => self.refuse(launcher, refused),
            },
            Ok(Some(Asked::Signal(asked))) => self.signal(launcher, asked),
            Ok(Some(Asked::Clear(_))) => {
                let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
            }
            Ok(Some(Asked::Hold(hold))) => {
                let signal = if hold.stopped {
                    Signal::SIGSTOP
                } else {
                    Signal::SIGCONT
                };
                // Every process of this namespace but this one. None there is no error.
                let _ = kill(Pid::from_raw(-1), signal);
            }
            Ok(Some(Asked::Ping(_))) => self.tell(launcher, Told::Pong(v1::Pong {}), None),
            Ok(None) | Err(_) => {}
        }
        true
    }

    /// The boundary hears first how a session's process has ended.
    fn ended(
        &mut self,
        launcher: &Launcher<'_>,
        session: u64,
        how: v1::exit::How,
        timed_out: bool,
    ) {
        let ended = v1::Ended {
            session,
            exit: Some(v1::Exit { how: Some(how) }),
            timed_out,
        };
        self.tell(launcher, Told::Ended(ended), None);
    }

    /// The boundary hears why there is no session.
    fn refuse(&mut self, launcher: &Launcher<'_>, refused: v1::NotStarted) {
        let refused = shortage::explained(refused, &launcher.fence.limits);
        self.tell(launcher, Told::NotStarted(refused), None);
    }

    fn tell(&mut self, launcher: &Launcher<'_>, told: Told, descriptor: Option<OwnedFd>) {
        self.outbox.tell(&launcher.boundary, told, descriptor);
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
    if due(start).is_some_and(|due| due <= uptime()) {
        return Err(refused(IN_TIME, &Error::new("wait", libc::ETIMEDOUT)));
    }
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

/// When the time of a session is up, if it has a limit.
fn due(start: &v1::Start) -> Option<Duration> {
    (start.deadline_ms != 0).then(|| Duration::from_millis(start.deadline_ms))
}

fn how_of(ended: Ended) -> v1::exit::How {
    match ended {
        Ended::Exited(code) => v1::exit::How::Code(code),
        Ended::Signalled(signal) => v1::exit::How::Signal(signal),
    }
}

/// The step that fails when a session's time is up before it begins.
const IN_TIME: &str = "begin in time";

/// A request is small: what may be large comes in a file beside it.
const MAX_REQUEST: usize = 512;
