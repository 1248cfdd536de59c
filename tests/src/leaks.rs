//! What a run may not leave behind.

use crate::stat::Stat;
use crate::wait::{LONG, holds_within};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A word in the environment of every process of one run: it survives re-parenting, sessions and process groups.
#[derive(Clone, Debug)]
pub struct Mark(String);

impl Mark {
    /// Its name in the environment.
    pub const NAME: &str = "HOLDFAST_TEST_MARK";

    /// A mark that no other run has.
    pub fn new() -> Self {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(format!("{}-{number}", std::process::id()))
    }

    /// Its value.
    pub fn value(&self) -> &str {
        &self.0
    }

    /// Processes with this mark.
    pub fn processes(&self) -> Vec<i32> {
        let word = format!("{}={}", Self::NAME, self.0);
        let has = |pid: &i32| {
            fs::read(format!("/proc/{pid}/environ")).is_ok_and(|all| {
                all.split(|byte| *byte == 0)
                    .any(|entry| entry == word.as_bytes())
            })
        };
        processes().into_iter().filter(has).collect()
    }
}

impl Default for Mark {
    fn default() -> Self {
        Self::new()
    }
}

/// Every process that can be seen.
pub fn processes() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Everything below a process, by parents. Readable whoever the process belongs to.
pub fn descendants(of: i32) -> BTreeSet<i32> {
    let parents: Vec<(i32, i32)> = processes()
        .into_iter()
        .filter_map(|pid| Some((pid, Stat::of(pid)?.parent()?)))
        .collect();
    let mut found = BTreeSet::from([of]);
    loop {
        let before = found.len();
        found.extend(
            parents
                .iter()
                .filter(|(_, up)| found.contains(up))
                .map(|(pid, _)| *pid)
                .collect::<Vec<_>>(),
        );
        if found.len() == before {
            break;
        }
    }
    found.remove(&of);
    found
}

/// Processes that still live in one of these namespaces, named as `/proc/PID/ns` does: `net:[4026531840]`.
pub fn inhabitants(namespaces: &[&str]) -> Vec<i32> {
    let lives = |pid: &i32| {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/ns")) else {
            return false;
        };
        entries
            .flatten()
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .any(|name| namespaces.iter().any(|wanted| name.as_os_str() == *wanted))
    };
    processes().into_iter().filter(lives).collect()
}

/// Waits until none of these processes is left, zombies included.
pub fn all_gone(pids: &BTreeSet<i32>) {
    let alive = || {
        pids.iter()
            .filter(|pid| Path::new(&format!("/proc/{pid}")).exists())
    };
    let gone = holds_within(LONG, || alive().next().is_none());
    assert!(
        gone,
        "still there: {:?}",
        alive().map(|pid| describe(*pid)).collect::<Vec<_>>()
    );
}

/// How many descriptors a process has open, unless it is gone. Whom it belongs to does not matter: the size of the directory is
/// everybody's to ask (`proc_pid_fd(5)`). Before Linux 6.2 it has none, and they are counted.
pub fn descriptors(pid: i32) -> Option<u64> {
    let directory = format!("/proc/{pid}/fd");
    let told = fs::metadata(&directory).ok()?.len();
    let open = match told {
        0 => fs::read_dir(&directory).ok()?.count() as u64,
        told => told,
    };
    // A process of ours without any is one that has ended, or that nobody may look at.
    (open > 0).then_some(open)
}

/// Mounts that name Holdfast or the area.
pub fn mounts(area: &Path) -> Vec<String> {
    let all = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let area = area.to_string_lossy();
    all.lines()
        .filter(|line| line.contains("holdfast") || line.contains(&*area))
        .map(str::to_owned)
        .collect()
}

/// Files, sockets and links below a directory; empty directories do not count.
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(files_below(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

fn describe(pid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{pid} {}", name.trim())
}
