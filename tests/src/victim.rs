//! Our own processes by their part in a sandbox, and their end without a word.
//!
//! ```text
//! gateway ─▶ keeper RUNTIME/sandboxes/ID ─▶ boundary, by the same title ─▶ launcher ─▶ the workload
//! ```
//!
//! A boundary whose keeper is dead is the gateway's or init's child. It is told from a keeper by its child, the launcher.

use crate::area::Area;
use crate::leaks::processes;
use crate::stat::{self, Stat};
use crate::wait::{LONG, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs;

/// One of our processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The daemon.
    Gateway,
    /// Outside of the fence.
    Keeper,
    /// Behind the fence.
    Boundary,
    /// The first process of the workload's process ids.
    Launcher,
}

/// All of them.
pub const PARTS: [Part; 4] = [Part::Gateway, Part::Keeper, Part::Boundary, Part::Launcher];

/// A process that cannot be mistaken for a later one with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    started: u64,
}

impl Process {
    /// The process that has this number now.
    pub fn of(pid: i32) -> Option<Self> {
        let started = Stat::of(pid)?.started()?;
        Some(Self { pid, started })
    }

    /// Whether it is there and no zombie.
    pub fn runs(self) -> bool {
        Self::of(self.pid) == Some(self) && stat::runs(self.pid)
    }

    /// Ends it without a word, and waits until it is dead: a signal takes its time.
    pub fn kill(self) {
        if Self::of(self.pid) == Some(self) {
            // It may have ended between the two.
            let _gone = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
            until("a killed process is dead", LONG, || !self.runs());
        }
    }
}

/// The processes of the area's sandboxes, by part, without those of `spared`. The gateway is not among them.
pub fn parts(area: &Area, spared: &str) -> BTreeMap<Part, Vec<Process>> {
    let home = area.runtime().join("sandboxes");
    let home = home.to_string_lossy();
    let mut titled = Vec::new();
    let mut launchers = Vec::new();
    for pid in processes() {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        if line.contains("keeper") && line.contains(&*home) {
            titled.push((pid, spared.is_empty() || !line.contains(spared)));
        } else if line.contains("holdfast launcher") || line.contains("holdfast\0launcher") {
            launchers.push(pid);
        }
    }
    let is_titled = |pid: i32| titled.iter().any(|(it, _)| *it == pid);
    let first_born = |pid: &i32| parent(*pid).is_some_and(is_titled);
    launchers.retain(first_born);
    let mut found: BTreeMap<Part, Vec<Process>> = BTreeMap::new();
    for (pid, _) in titled.iter().filter(|(_, wanted)| *wanted) {
        let below = launchers.iter().filter(|it| parent(**it) == Some(*pid));
        let below: Vec<Process> = below.filter_map(|it| Process::of(*it)).collect();
        let is_boundary = !below.is_empty() || parent(*pid).is_some_and(is_titled);
        let part = if is_boundary {
            Part::Boundary
        } else {
            Part::Keeper
        };
        found.entry(part).or_default().extend(Process::of(*pid));
        found.entry(Part::Launcher).or_default().extend(below);
    }
    found
}

fn parent(pid: i32) -> Option<i32> {
    Stat::of(pid)?.parent()
}
