//! Lowers the soft limit of descriptors of a process, as an operator's `prlimit` would.

use std::fs;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::repair::Repair;
use super::victim::Victim;

/// The soft limit becomes what is in use and `spare` more. The hard limit stays: without privilege nobody could raise it again.
pub(super) fn lower(victim: &Victim, spare: i64, told: Option<u64>) -> Result<Repair, String> {
    let used = used(victim.pid)
        .or(told)
        .ok_or_else(|| format!("nobody says how many descriptors the {} has", victim.name()))?;
    let pid = known(victim.pid)?;
    let called = |error| format!("prlimit of the {}: {error}", victim.name());
    let wanted = used.saturating_add_signed(spare).max(1);
    let start = start_of(victim.pid);
    let now = read(pid).map_err(called)?;
    let lowered = Rlimit {
        current: Some(now.current.map_or(wanted, |current| current.min(wanted))),
        maximum: now.maximum,
    };
    let current = lowered.current;
    let before = prlimit(Some(pid), Resource::Nofile, lowered).map_err(called)?;
    Ok(Repair::Limit {
        pid: victim.pid,
        start,
        lowered: current,
        before,
    })
}

/// Gives a process its limit back, if it still is the one it was. Who has set its own limit meanwhile is not overruled.
pub(super) fn restore(pid: u32, start: Option<u64>, lowered: Option<u64>, before: Rlimit) {
    if start_of(pid) == start
        && let Ok(pid) = known(pid)
        && read(pid).is_ok_and(|now| now.current == lowered)
    {
        let _gone_meanwhile = prlimit(Some(pid), Resource::Nofile, before);
    }
}

/// Sets soft and hard limit, for a process of our own.
pub(crate) fn set(pid: u32, limit: u64) -> Result<(), String> {
    let both = Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    prlimit(Some(known(pid)?), Resource::Nofile, both)
        .map(drop)
        .map_err(|error| format!("prlimit of {pid}: {error}"))
}

fn read(pid: Pid) -> rustix::io::Result<Rlimit> {
    // There is no call that only reads another's: the limits in /proc are told by name.
    let text = fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_nonzero()))
        .map_err(|_| rustix::io::Errno::SRCH)?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let mut numbers = line
        .unwrap_or_default()
        .split_whitespace()
        .map(|word| word.parse().ok());
    Ok(Rlimit {
        current: numbers.next().flatten(),
        maximum: numbers.next().flatten(),
    })
}

fn known(pid: u32) -> Result<Pid, String> {
    let known = i32::try_from(pid).ok().and_then(Pid::from_raw);
    known.ok_or_else(|| format!("{pid} is no process id"))
}

/// Open descriptors, where we may look.
fn used(pid: u32) -> Option<u64> {
    Some(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64)
}

/// When a process was started: field 22 of `proc_pid_stat(5)`.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_limit_is_lowered_to_the_use_and_given_back() {
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .expect("sleep");
        let pid = known(child.id()).expect("a pid");
        let before = read(pid).expect("read");
        let start = start_of(child.id());
        assert!(start.is_some());

        let lowered = Rlimit {
            current: Some(11),
            maximum: before.maximum,
        };
        prlimit(Some(pid), Resource::Nofile, lowered).expect("lowered");
        assert_eq!(read(pid).expect("read").current, Some(11));
        restore(child.id(), Some(1), Some(11), before);
        assert_eq!(
            read(pid).expect("read").current,
            Some(11),
            "another process"
        );
        restore(child.id(), start, Some(12), before);
        assert_eq!(
            read(pid).expect("read").current,
            Some(11),
            "somebody else's limit"
        );
        restore(child.id(), start, Some(11), before);

        assert_eq!(read(pid).expect("read").current, before.current);
        child.kill().expect("killed");
        child.wait().expect("reaped");
    }
}
