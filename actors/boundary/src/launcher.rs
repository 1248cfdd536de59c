//! The launcher: process 1 of the sandbox, which makes every other process there and hears of its end.
//!
//! ```text
//!  Building ── Built ──> Proving ── Proof ──> Serving ── the boundary is gone ──> end
//!      └── BuildFailed ──> end
//! ```
//!
//! It has one thread and no runtime, so that it can fork. It carries the filter and no capability; nobody inside may look
//! at it. It keeps nothing but the numbers of the sessions that run, and when their time is up: whatever else it learns, it
//! tells the boundary first.

mod builtin;
mod canary;
mod child;
mod herd;
mod limits;
mod outbox;
mod processes;
mod proof;
pub(crate) mod shortage;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use holdfast_kernel::execute::close_all_but;
use holdfast_kernel::handoff::Socket;
use holdfast_kernel::landlock::{Rules, restrict_scope};
use holdfast_kernel::privilege::{
    Capabilities, become_user, bound_to, keep_only, no_new_privileges, set_dumpable,
};
use holdfast_kernel::title::retitle;
use holdfast_wire::v1::from_launcher::Kind as Told;
use holdfast_wire::v1::{self, FromLauncher};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use prost::Message;

use crate::fence::{Broken, Fence, build, calls};
use herd::News;
use processes::Processes;

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
    let lacking = build::enter(&fence.view, fence.as_root)?;
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
        lacking: lacking.into_iter().collect(),
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
    if close_all_but(&kept).is_err() {
        return 125;
    }
    if let Err(error) = proof::run(launcher) {
        let proof = v1::Proof {
            gaps: vec![format!("it cannot be tried: {}", error.told())],
        };
        let _ = tell(&launcher.boundary, Told::Proof(proof), &[]);
        return 125;
    }
    let mut processes = Processes::default();
    loop {
        let mut wanted = vec![
            PollFd::new(launcher.boundary.as_fd(), processes.outbox.wanted()),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(launcher.news.as_fd(), PollFlags::POLLIN),
        ];
        let starting = processes.starting.values();
        wanted.extend(starting.map(|one| PollFd::new(one.report.as_fd(), PollFlags::POLLIN)));
        match poll(&mut wanted, processes.wait()) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return 125,
        }
        let ready: Vec<bool> = wanted.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        // Room for an answer is no request, and waiting for one would be waiting for good.
        let asked = wanted[0].revents().unwrap_or(PollFlags::empty()) - PollFlags::POLLOUT;
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
        processes.keep_limits(launcher);
        processes.outbox.flush(&launcher.boundary);
        if !asked.is_empty() && !processes.answer(launcher) {
            return 0;
        }
    }
}

/// Sends one message with its descriptors, before there are sessions.
fn tell(boundary: &Socket, told: Told, descriptors: &[&OwnedFd]) -> holdfast_kernel::Result<()> {
    let descriptors: Vec<_> = descriptors.iter().map(|fd| fd.as_fd()).collect();
    boundary.send(
        &FromLauncher { kind: Some(told) }.encode_to_vec(),
        &descriptors,
    )
}
