//! What this process could not have: which limit it is up against, and what helps.

use std::error::Error;
use std::fs;
use std::io;
use std::iter;
use std::thread;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::Uid;

/// What helps against a failure of this process's own whose causes hold an errno; `None`: it speaks of no shortage.
///
/// `EAGAIN` has many meanings and is no shortage here: whoever starts a thread or a process asks [`Shortage::of_threads`].
pub(crate) fn remedy(cause: &(dyn Error + 'static)) -> Option<String> {
    let mut causes = iter::successors(Some(cause), |&error| error.source());
    let errno = causes.find_map(|error| error.downcast_ref::<io::Error>()?.raw_os_error())?;
    of_files(errno)
}

/// What helps where no more files can be opened or passed on; `None`: `errno` speaks of no such want.
pub(crate) fn of_files(errno: i32) -> Option<String> {
    match errno {
        // What is on its way between processes counts against the limit as well.
        libc::EMFILE | libc::ETOOMANYREFS => Some(files()),
        libc::ENFILE => Some(TABLE.to_owned()),
        _ => None,
    }
}

/// The same for a step of a sandbox's start, whose cause has come through another process or an actor and is a text by now.
pub(crate) fn told(why: &str) -> Option<String> {
    let said = |errno: i32| {
        let text = io::Error::from_raw_os_error(errno).to_string();
        let text = text.split(" (os error").next().unwrap_or(&text);
        why.to_lowercase().contains(&text.to_lowercase())
    };
    let of_files = [libc::EMFILE, libc::ETOOMANYREFS, libc::ENFILE]
        .into_iter()
        .find(|errno| said(*errno))
        .and_then(of_files);
    if of_files.is_some() {
        of_files
    } else if said(libc::EAGAIN) {
        Some(Shortage::Processes.remedy())
    } else if said(libc::ENOMEM) {
        Some(Shortage::Memory.remedy())
    } else {
        None
    }
}

/// What a thread or a process was refused for want of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The kernel counts threads among processes.
    Processes,
    Memory,
    /// What the first thread may have of it.
    Stack,
}

impl Shortage {
    /// What a thread was refused for want of just now: the kernel calls both the same, but where only memory is short
    /// there is room for the smallest of stacks. There may be room for a thread again, too, since another one has ended.
    pub(crate) fn of_threads() -> Self {
        let least = thread::Builder::new().stack_size(LEAST);
        Self::of(least.spawn(|| ()).is_ok(), is_bounded_in_memory())
    }

    fn of(has_room: bool, is_bounded: bool) -> Self {
        if has_room && is_bounded {
            Self::Memory
        } else {
            Self::Processes
        }
    }

    /// For a sentence.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Processes => "no more processes or threads can be had",
            Self::Memory => "not enough memory can be had",
            Self::Stack => "not enough stack can be had",
        }
    }

    /// In one word.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Processes => "ProcessPressure",
            Self::Memory | Self::Stack => "MemoryPressure",
        }
    }

    /// The limits that there are, and what to do.
    pub(crate) fn remedy(self) -> String {
        match self {
            Self::Processes => {
                let own = soft(Resource::RLIMIT_NPROC).filter(|_| !Uid::effective().is_root());
                let own = own.map(|limit| {
                    format!("this user may have {limit} processes and threads (`ulimit -u`)")
                });
                let group = pids_max()
                    .map(|limit| format!("the control group may have {limit} (`pids.max`)"));
                let limits: Vec<_> = own.into_iter().chain(group).collect();
                if limits.is_empty() {
                    "let processes end, or raise `ulimit -u`, the control group's `pids.max` or the host's kernel.threads-max".to_owned()
                } else {
                    format!("{}; raise it, or let processes end", limits.join(", "))
                }
            }
            Self::Stack => {
                let limit = kib(Resource::RLIMIT_STACK, 's').unwrap_or_default();
                format!("{limit}; raise it to {ENOUGH_STACK_KIB} or more")
            }
            Self::Memory => {
                let data = kib(Resource::RLIMIT_DATA, 'd');
                let all = kib(Resource::RLIMIT_AS, 'v');
                let limits: Vec<_> = data.into_iter().chain(all).collect();
                if limits.is_empty() {
                    "let something end, or raise the control group's memory limit".to_owned()
                } else {
                    format!("{}; raise it to {ENOUGH_KIB} or more", limits.join(", "))
                }
            }
        }
    }
}

fn files() -> String {
    let limit = soft(Resource::RLIMIT_NOFILE);
    let limit = limit.map_or_else(String::new, |limit| {
        format!("this process may have {limit} open files (`ulimit -n`); ")
    });
    format!(
        "{limit}raise the limit to {ENOUGH_FILES} or more, and one more for each port that the policy names"
    )
}

/// Whether the limits of memory leave this process less than its runtime takes. An allocation that is refused on the way would end it without
/// a word.
pub(crate) fn is_starved_of_memory() -> bool {
    let below = |resource, least| soft(resource).is_some_and(|limit| limit < least);
    below(Resource::RLIMIT_DATA, LEAST_DATA) || below(Resource::RLIMIT_AS, LEAST_SPACE)
}

/// Whether the first thread may have less stack than the command line takes: it would end by an abort.
pub(crate) fn is_starved_of_stack() -> bool {
    soft(Resource::RLIMIT_STACK).is_some_and(|limit| limit < LEAST_STACK)
}

fn is_bounded_in_memory() -> bool {
    let bounds = [Resource::RLIMIT_DATA, Resource::RLIMIT_AS];
    bounds.into_iter().any(|bound| soft(bound).is_some())
}

/// A limit in a sentence, with the letter of its option.
fn kib(resource: Resource, letter: char) -> Option<String> {
    let kib = soft(resource)? / 1024;
    Some(format!(
        "this process may have {kib} KiB (`ulimit -{letter}`)"
    ))
}

fn soft(resource: Resource) -> Option<u64> {
    let (soft, _) = getrlimit(resource).ok()?;
    (soft != RLIM_INFINITY).then_some(soft)
}

/// The limit of the nearest control group, if it has one and shows it.
fn pids_max() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let mounted = match controllers {
            "" => "/sys/fs/cgroup",
            "pids" => "/sys/fs/cgroup/pids",
            _ => return None,
        };
        let text = fs::read_to_string(format!("{mounted}{path}/pids.max")).ok()?;
        text.trim().parse().ok()
    })
}

const TABLE: &str = "the host's table of open files is full: raise fs.file-max, or end what holds them (`/proc/sys/fs/file-nr`)";

/// With so many open files a sandbox serves.
const ENOUGH_FILES: u64 = 64;

/// With so much memory of its own the runtime serves a sandbox.
const ENOUGH_KIB: u64 = 65_536;

/// The usual limit.
const ENOUGH_STACK_KIB: u64 = 8192;

/// What reading the command line takes at most, in bytes, where it is not optimised.
const LEAST_STACK: u64 = 384 << 10;

/// What threads, stacks and heap of a process of ours take at least, in bytes.
const LEAST_DATA: u64 = 16 << 20;

/// The same with the program itself and what it maps.
const LEAST_SPACE: u64 = 64 << 20;

/// The C library makes the least stack that it allows of less.
const LEAST: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_known_by_its_errno_and_by_its_text() {
        let of = |errno| remedy(&io::Error::from_raw_os_error(errno));

        let by_errno = of(libc::EMFILE).expect("a shortage");
        assert!(by_errno.contains("`ulimit -n`"), "{by_errno}");
        assert_eq!(of(libc::ETOOMANYREFS), Some(by_errno.clone()));
        for text in [
            "receive a socket: too many open files",
            "hand over the listener: sendmsg: Too many references: cannot splice",
        ] {
            assert_eq!(told(text), Some(by_errno.clone()), "{text}");
        }
        assert_eq!(told("make a pipe: Permission denied"), None);
        assert_eq!(of(libc::EAGAIN), None);
    }

    /// Another thread may have ended between a refusal and the look for what it was for want of.
    #[test]
    fn only_room_under_a_bound_says_that_memory_was_short() {
        assert_eq!(Shortage::of(true, true), Shortage::Memory);
        for (has_room, is_bounded) in [(true, false), (false, true), (false, false)] {
            assert_eq!(Shortage::of(has_room, is_bounded), Shortage::Processes);
        }
    }
}
