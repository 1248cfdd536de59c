//! How processes stand, by `/proc/PID/stat` read in one place (`proc_pid_stat(5)`), whose child is whose, and how one is stopped.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait::{LONG, until};

/// One look at a process.
#[derive(Clone, Debug)]
pub struct Stat(Vec<String>);

impl Stat {
    /// The process that has this number now; a zombie is one, too.
    pub fn of(pid: i32) -> Option<Self> {
        Self::read(Path::new(&format!("/proc/{pid}")))
    }

    fn read(directory: &Path) -> Option<Self> {
        let text = fs::read_to_string(directory.join("stat")).ok()?;
        // The name stands in brackets and may contain anything.
        let (_, fields) = text.rsplit_once(')')?;
        Some(Self(fields.split_whitespace().map(str::to_owned).collect()))
    }

    /// Its state as a letter: `T` for one that is stopped, `Z` for a zombie.
    pub fn state(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// Its parent.
    pub fn parent(&self) -> Option<i32> {
        self.0.get(1)?.parse().ok()
    }

    /// When it was started, in ticks since the boot.
    pub fn started(&self) -> Option<u64> {
        self.0.get(19)?.parse().ok()
    }

    /// Its processor time so far, in ticks.
    pub fn ticks(&self) -> f64 {
        let number = |at: usize| self.0.get(at).and_then(|it| it.parse::<f64>().ok());
        number(11).unwrap_or(0.0) + number(12).unwrap_or(0.0)
    }
}

/// Whether it is there and no zombie.
pub fn runs(pid: i32) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.state() != "Z")
}

/// The child that carries on the work of one of our processes, if it is there yet; the sweeper that a `run` may have beside it
/// does not.
pub fn child_of(pid: Pid) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let at_work = |child: &&str| {
        let line = fs::read_to_string(format!("/proc/{child}/cmdline"));
        line.is_ok_and(|line| !line.contains("sweeper"))
    };
    let child = children.split_whitespace().find(at_work)?;
    child.parse().ok().map(Pid::from_raw)
}

/// Stops a process and waits until each of its threads stands: `kill(2)` only sends the signal, and all of them go on until one
/// of them has taken it.
pub fn stop(pid: Pid) {
    kill(pid, Signal::SIGSTOP).expect("it can be stopped");
    until("each of its threads stands", LONG, || stands(pid));
}

fn stands(pid: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it is there");
    threads.flatten().all(|thread| {
        // One that has ended meanwhile does nothing more either.
        Stat::read(&thread.path()).is_none_or(|stat| matches!(stat.state(), "T" | "t" | "Z"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_has_a_parent() {
        let own = i32::try_from(std::process::id()).expect("a pid");

        let stat = Stat::of(own).expect("it is there");

        assert!(runs(own) && !runs(i32::MAX));
        assert_eq!(stat.parent(), Some(nix::unistd::getppid().as_raw()));
        assert!(stat.started().is_some_and(|started| started > 0));
    }
}
