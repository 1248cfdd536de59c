//! A child that tries things and says how each went.

use std::io::{PipeReader, PipeWriter, Read, Write as _};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::CloneFlags;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};

use super::{Feature, Outcome};

/// What a child said, in the order in which it said it.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<(Feature, Outcome)>);

impl Report {
    pub(super) fn iter(&self) -> impl Iterator<Item = (Feature, Outcome)> + '_ {
        self.0.iter().copied()
    }

    pub(super) fn add(&mut self, feature: Feature, result: nix::Result<()>) {
        self.0.push((feature, outcome(result)));
    }

    /// Two bytes each: which feature, which errno (0: none).
    fn read(said: &[u8]) -> Self {
        let pairs = said.chunks_exact(2).filter_map(|pair| {
            let feature = *Feature::ALL.get(usize::from(pair[0]))?;
            let result = match pair[1] {
                0 => Ok(()),
                errno => Err(Errno::from_raw(errno.into())),
            };
            Some((feature, outcome(result)))
        });
        Self(pairs.collect())
    }
}

/// The child's mouth.
pub(super) struct Say(PipeWriter);

impl Say {
    /// Says how `feature` went. True when it works.
    pub(super) fn tell(&mut self, feature: Feature, result: nix::Result<()>) -> bool {
        let errno = result.err().map_or(0, |errno| errno as i32);
        let errno = u8::try_from(errno).unwrap_or(u8::MAX);
        // Nobody is left to hear of a pipe that broke.
        let _heard = self.0.write_all(&[feature as u8, errno]);
        result.is_ok()
    }
}

/// Lets a child do `work`, and hears it out for at most `limit`.
pub(super) fn run(work: impl FnOnce(&mut Say), limit: Duration) -> Report {
    let Ok((mut reader, writer)) = std::io::pipe() else {
        return Report::default();
    };
    let Ok(child) = forked(move || work(&mut Say(writer))) else {
        return Report::default();
    };
    let said = hear(&mut reader, limit);
    // Whether it has ended or hangs: nothing that it could still do is wanted.
    let _gone = kill(child, Signal::SIGKILL);
    let _reaped = waitpid(child, None);
    Report::read(&said)
}

/// Forks a child that does `work` and ends.
pub(super) fn forked(work: impl FnOnce()) -> nix::Result<Pid> {
    // SAFETY: the child runs `work` only, which by the rule in the head of this module's parent takes no memory and no
    // lock, and leaves through `_exit`.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            work();
            leave()
        }
    }
}

/// Lets a child in new `namespaces` do `work`, and waits for its end.
///
/// It is made as a fence makes its own, by `clone`.
pub(super) fn within(namespaces: CloneFlags, work: impl FnOnce()) -> nix::Result<()> {
    let flags = namespaces.bits() | libc::SIGCHLD;
    // SAFETY: without CLONE_VM the child runs on a copy of this stack, and the call gets no address. The child runs `work`
    // only, which by the rule in the head of this module's parent takes no memory and no lock, and leaves through `_exit`.
    let answer = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match Errno::result(answer)? {
        0 => {
            work();
            leave()
        }
        pid => {
            let pid = i32::try_from(pid).map_err(|_no_pid| Errno::EOVERFLOW)?;
            waitpid(Pid::from_raw(pid), None).map(drop)
        }
    }
}

/// Ends this process without running anything that the parent has registered.
pub(super) fn leave() -> ! {
    // SAFETY: `_exit` takes a number, touches no memory of ours and does not come back.
    unsafe { libc::_exit(0) }
}

/// Everything up to the end of the pipe or the end of patience.
fn hear(reader: &mut PipeReader, limit: Duration) -> Vec<u8> {
    let mut said = Vec::new();
    let mut buffer = [0; 64];
    let patience = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    loop {
        let ready = poll(
            &mut [PollFd::new(reader.as_fd(), PollFlags::POLLIN)],
            patience,
        );
        match ready {
            Ok(0) => return said,
            Err(Errno::EINTR) => continue,
            Ok(_) | Err(_) => {}
        }
        match reader.read(&mut buffer) {
            Ok(0) | Err(_) => return said,
            Ok(count) => said.extend_from_slice(&buffer[..count]),
        }
    }
}

fn outcome(result: nix::Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome::Works,
        Err(errno) => Outcome::Fails(errno),
    }
}
