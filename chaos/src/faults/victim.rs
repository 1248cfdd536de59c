//! The process that a fault is for: named by the status, held as a pidfd, and named by the status once more.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::gate::Gate;
use crate::mark::Mark;
use crate::scenario::Process;

/// A process that is what it was said to be. A signal reaches it and nobody else, whoever gets its number after its death.
#[derive(Debug)]
pub(crate) struct Victim {
    pub(crate) process: Process,
    pub(crate) pid: u32,
    held: OwnedFd,
}

impl Victim {
    /// Finds it and makes sure of it.
    pub(crate) async fn find(gate: &Gate, mark: &Mark, process: Process) -> Result<Self, String> {
        let pid = named(gate, mark, process).await?;
        let held = hold(pid)?;
        if named(gate, mark, process).await? != pid {
            return Err(format!("the {process} was replaced while it was looked at"));
        }
        Ok(Self { process, pid, held })
    }

    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.process, self.pid)
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), String> {
        pidfd_send_signal(&self.held, signal).map_err(|error| {
            format!(
                "send {signal:?} to the {} {}: {error}",
                self.process, self.pid
            )
        })
    }
}

async fn named(gate: &Gate, mark: &Mark, process: Process) -> Result<u32, String> {
    if process == Process::Gateway {
        let version = gate.version().await;
        return version
            .map(|version| version.pid)
            .map_err(|why| format!("the gateway does not answer: {why}"));
    }
    let pids = mark.status().await?.pids;
    let word = match process {
        Process::Launcher => Process::Boundary.word(),
        Process::Gateway | Process::Keeper | Process::Boundary => process.word(),
    };
    let pid = pids.get(word).copied().filter(|pid| *pid != 0);
    let pid = pid.ok_or_else(|| format!("there is no {word} now"))?;
    match process {
        Process::Launcher => first_inside(pid),
        Process::Gateway | Process::Keeper | Process::Boundary => Ok(pid),
    }
}

fn hold(pid: u32) -> Result<OwnedFd, String> {
    let known = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let known = known.ok_or_else(|| format!("{pid} is no process id"))?;
    pidfd_open(known, PidfdFlags::empty()).map_err(|error| format!("open process {pid}: {error}"))
}

/// The child of the boundary that is process 1 of a namespace below the boundary's own.
fn first_inside(boundary: u32) -> Result<u32, String> {
    let own = namespaces(boundary).len();
    children(boundary)
        .into_iter()
        .find(|child| {
            let levels = namespaces(*child);
            levels.len() > own && levels.last() == Some(&1)
        })
        .ok_or_else(|| format!("no child of the boundary {boundary} is a launcher"))
}

/// The children of all threads of a process.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|line| {
            line.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect()
}

/// Its ids from our namespace down to its own.
fn namespaces(pid: u32) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.unwrap_or_default()
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_process_is_held_stopped_continued_and_known_to_be_dead() {
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .expect("sleep");
        let pid = child.id();
        let victim = Victim {
            process: Process::Keeper,
            pid,
            held: hold(pid).expect("held"),
        };
        let is_stopped = || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("read");
            let behind_name = stat.rsplit(") ").next();
            behind_name.is_some_and(|rest| rest.starts_with('T'))
        };
        let until = |stopped: bool| {
            let looks = (0..1_000).any(|_| {
                std::thread::park_timeout(Duration::from_millis(5));
                is_stopped() == stopped
            });
            assert!(looks, "stopped is never {stopped}");
        };

        assert!(children(std::process::id()).contains(&pid));
        victim.signal(Signal::STOP).expect("stopped");
        until(true);
        victim.signal(Signal::CONT).expect("continued");
        until(false);
        victim.signal(Signal::KILL).expect("killed");
        child.wait().expect("reaped");

        assert!(victim.signal(Signal::CONT).is_err());
    }
}
