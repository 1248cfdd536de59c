//! The shepherd of a herded session: a process between launcher and program to which everything falls that the session
//! leaves behind.
//!
//! ```text
//!  launcher ── shepherd ──┬── the program, in a session of its own
//!              (subreaper) └── whatever its descendants have left: double forks, sessions of their own
//! ```
//!
//! So the whole tree of a session can be found, and ended, by its shepherd's number. It does nothing but wait: it says which
//! process the program is and how that has ended, and ends when it has no child any more. It holds none of the session's
//! descriptors. What it costs, a process of a few pages, only herded sessions pay.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use holdfast_kernel::execute::close_all_but;
use holdfast_kernel::fork::{Ended, Forked, fork, leave, wait_any};
use holdfast_kernel::look::parent;
use holdfast_kernel::{Called, Error};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sched::CloneFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A herd, as the launcher knows it.
#[derive(Debug)]
pub(super) struct Herd {
    pub(super) session: u64,
    /// The program, as soon as its shepherd has said which one it is.
    pub(super) program: Option<Pid>,
    /// Whether the program's end has been told.
    pub(super) over: bool,
    pub(super) news: File,
    heard: Vec<u8>,
}

impl Herd {
    /// A herd whose shepherd tells over `news`.
    pub(super) fn new(session: u64, news: OwnedFd) -> Result<Self, Error> {
        fcntl(&news, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).called("fcntl O_NONBLOCK")?;
        Ok(Self {
            session,
            program: None,
            over: false,
            news: news.into(),
            heard: Vec::new(),
        })
    }

    /// Takes what the shepherd has said; answers how the program has ended, once.
    pub(super) fn hear(&mut self) -> Option<Ended> {
        let ended = self.look()?;
        (!std::mem::replace(&mut self.over, true)).then_some(ended)
    }

    /// Takes what the shepherd has said.
    pub(super) fn look(&mut self) -> Option<Ended> {
        // There is little, and it is read without waiting: an end that would have to be waited for is none.
        let _ = self.news.read_to_end(&mut self.heard);
        let words: Vec<i32> = self
            .heard
            .as_chunks::<4>()
            .0
            .iter()
            .map(|word| i32::from_ne_bytes(*word))
            .collect();
        self.program = words.first().map(|pid| Pid::from_raw(*pid));
        match words.get(1..3) {
            Some([CODE, value]) => Some(Ended::Exited(*value)),
            Some([_, value]) => Some(Ended::Signalled(*value)),
            Some(_) | None => None,
        }
    }
}

/// Becomes the shepherd of a process that goes on with `become_program`, which is the only one to return. What it learns
/// goes to `news`.
pub(super) fn shepherd(news: &OwnedFd) -> Result<(), Error> {
    nix::sys::prctl::set_child_subreaper(true).called("prctl PR_SET_CHILD_SUBREAPER")?;
    match fork(CloneFlags::empty())? {
        Forked::Child => Ok(()),
        Forked::Parent(program) => {
            let pid = program.pid.as_raw();
            drop(program);
            let kept = news.as_raw_fd();
            let done = close_all_but(&[0, 1, 2, kept]).and_then(|()| tend(pid, news));
            leave(i32::from(done.is_err()))
        }
    }
}

/// Waits for everything that falls to this process.
fn tend(program: i32, news: &OwnedFd) -> Result<(), Error> {
    let mut news = File::from(news.try_clone().called("dup")?);
    let mut say = |words: &[i32]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        news.write_all(&bytes).called("write")
    };
    say(&[program])?;
    while let Some((pid, ended)) = wait_any()? {
        if pid.as_raw() == program {
            match ended {
                Ended::Exited(code) => say(&[CODE, code])?,
                Ended::Signalled(signal) => say(&[SIGNAL, signal])?,
            }
        }
    }
    Ok(())
}

/// Sends `signal` to every process below the shepherd. A process with a deadly signal makes no child any more, so looking
/// again until nobody new is there finds all.
pub(super) fn signal_all(shepherd: Pid, signal: Signal) {
    let mut reached = HashSet::new();
    for _ in 0..ROUNDS {
        let mut fresh = below(shepherd.as_raw(), &processes());
        fresh.retain(|pid| reached.insert(*pid));
        if fresh.is_empty() {
            return;
        }
        for pid in fresh {
            // One that has just ended is no error.
            let _ = kill(Pid::from_raw(pid), signal);
        }
        if signal != Signal::SIGKILL {
            return;
        }
    }
}

/// Every process that runs below `root`, given each one with its parent.
fn below(root: i32, processes: &[(i32, i32)]) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, parent) in processes {
        children.entry(*parent).or_default().push(*pid);
    }
    let mut found = children.remove(&root).unwrap_or_default();
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    found
}

/// Every process of this namespace with its parent.
fn processes() -> Vec<(i32, i32)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, parent(pid.unsigned_abs()).ok()?.cast_signed()))
        })
        .collect()
}

const CODE: i32 = 0;
const SIGNAL: i32 = 1;

/// How often new processes are looked for.
const ROUNDS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_below_is_found_and_nothing_beside() {
        let processes = [(1, 0), (5, 1), (6, 5), (9, 6), (7, 1), (8, 7), (4, 9)];

        let mut found = below(5, &processes);

        found.sort_unstable();
        assert_eq!(found, [4, 6, 9]);
        assert!(below(8, &processes).is_empty());
    }
}
