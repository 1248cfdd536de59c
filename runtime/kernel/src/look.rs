//! Looks at a process that waits in a system call: its socket, its memory, its program, its parent.
//!
//! All of it may be refused (a program that must not be read) or come too late (the process is gone): both are errors
//! with an errno, never a panic.

mod pinned;

use std::fs;
use std::io::IoSliceMut;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::{Pid, gettid};

pub use self::pinned::Pinned;
use crate::descriptors::{self, noted};
use crate::error::{Called, Error, Result, answered};
use crate::fork::open_pidfd;

/// The address in a `connect`, as the caller's memory held it at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// An IPv4 or IPv6 address and port.
    Inet(SocketAddr),
    /// `AF_UNSPEC`: the caller dissolves an association.
    Unspecified,
    /// Another family: Unix sockets, netlink.
    Other(u16),
}

/// A thread that waits in a call, held so that its number cannot come to mean another one.
#[derive(Debug)]
pub struct Thread {
    tid: u32,
    pidfd: OwnedFd,
}

/// Where a process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The process: the leader of the thread's group.
    pub process: u32,
    /// Its parent; 0 when that is outside the caller's pid namespace.
    pub parent: u32,
}

impl Thread {
    /// Takes hold of the thread `tid`.
    pub fn hold(tid: u32) -> Result<Self> {
        let pidfd = open_pidfd(tid, true).or_else(|error| {
            // Before Linux 6.9 only a thread-group leader has a pidfd.
            if error.errno() == libc::EINVAL {
                open_pidfd(leader(tid)?, false)
            } else {
                Err(error)
            }
        })?;
        Ok(Self { tid, pidfd })
    }

    /// Duplicates its descriptor `number`.
    pub fn pin(&self, number: i32) -> Result<Pinned> {
        // SAFETY: the call takes numbers only.
        let answer =
            unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.pidfd.as_raw_fd(), number, 0) };
        let fd = answered("pidfd_getfd", answer)?;
        #[expect(clippy::cast_possible_truncation, reason = "a descriptor fits")]
        // SAFETY: the kernel has just made this descriptor for us alone.
        Ok(Pinned(noted(unsafe { OwnedFd::from_raw_fd(fd as i32) })))
    }

    /// Its process and that one's parent: one call where the kernel has it (Linux 6.13), two files otherwise.
    pub fn place(&self) -> Result<Place> {
        let mut info = PidfdInfo {
            mask: PIDFD_INFO_PID,
            ..PidfdInfo::default()
        };
        // SAFETY: the kernel writes at most the size that the request's number carries, which is that of `info`.
        let answer = unsafe { libc::ioctl(self.pidfd.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) };
        match answered("ioctl PIDFD_GET_INFO", answer.into()) {
            Ok(_) => Ok(Place {
                process: info.tgid,
                parent: info.ppid,
            }),
            Err(error) if matches!(error.errno(), libc::ENOTTY | libc::EINVAL) => Ok(Place {
                process: leader(self.tid)?,
                parent: status_field(self.tid, "PPid:")?.parse().unwrap_or(0),
            }),
            Err(error) => Err(error),
        }
    }
}

/// Looks at this very thread as a caller is looked at. The error names the call that is not to be had here.
pub fn attempt() -> Result<()> {
    let nowhere = [0u8; size_of::<libc::sockaddr>()];
    let tid = gettid().as_raw().unsigned_abs();
    let thread = Thread::hold(tid)?;
    thread.pin(thread.pidfd.as_raw_fd())?;
    target(tid, nowhere.as_ptr() as u64, nowhere.len() as u64).map(drop)
}

/// Reads the socket address of `length` bytes at `address` in the memory of `tid`.
pub fn target(tid: u32, address: u64, length: u64) -> Result<Target> {
    let mut bytes = [0u8; 28];
    let length = usize::try_from(length)
        .unwrap_or(usize::MAX)
        .min(bytes.len());
    let remote = RemoteIoVec {
        base: usize::try_from(address).unwrap_or(0),
        len: length,
    };
    #[expect(clippy::cast_possible_wrap, reason = "a thread id is positive")]
    let pid = Pid::from_raw(tid as i32);
    let read = process_vm_readv(pid, &mut [IoSliceMut::new(&mut bytes[..length])], &[remote])
        .called("process_vm_readv")?;
    parse(&bytes[..read]).ok_or_else(|| Error::new("connect", libc::EINVAL))
}

/// The path of the program that `pid` executes, as its own mount namespace names it.
pub fn executable(pid: u32) -> Result<String> {
    let link = fs::read_link(format!("/proc/{pid}/exe")).called("readlink /proc/PID/exe")?;
    Ok(String::from_utf8_lossy(link.as_os_str().as_bytes()).into_owned())
}

/// Whether `pid` has executed nothing since it was forked, so that it is still its parent's program
/// (`PF_FORKNOEXEC` among the flags of `proc_pid_stat(5)`). False for one that is gone.
pub fn is_fork(pid: u32) -> bool {
    field(pid, 9).is_ok_and(|flags: u64| flags & PF_FORKNOEXEC != 0)
}

/// Whether `pid` is on its way out: what it had open is closed before it has ended. `ESRCH` for one that is gone.
pub fn is_exiting(pid: u32) -> Result<bool> {
    field(pid, 9).map(|flags: u64| flags & PF_EXITING != 0)
}

/// When `pid` started, in ticks since the start of the host. `ESRCH` for one that is gone.
pub fn started(pid: u32) -> Result<u64> {
    field(pid, 22)
}

/// The parent of `pid`; 0 when that is outside the caller's pid namespace.
pub fn parent(pid: u32) -> Result<u32> {
    field(pid, 4)
}

/// Whether there is a process `pid` that still does something. A zombie does not.
pub fn is_alive(pid: u32) -> bool {
    field(pid, 3).is_ok_and(|state: char| !matches!(state, 'Z' | 'X'))
}

/// A field of `/proc/PID/stat` by its number in `proc_pid_stat(5)`, from 3 on.
fn field<T: FromStr>(pid: u32, number: usize) -> Result<T> {
    let gone = |error: Error| match error.errno() {
        libc::ENOENT => Error::new("read /proc/PID/stat", libc::ESRCH),
        _ => error,
    };
    let stat = descriptors::read(format!("/proc/{pid}/stat")).called("read /proc/PID/stat");
    nth(&stat.map_err(gone)?, number)
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| Error::new("parse /proc/PID/stat", libc::EPROTO))
}

fn nth(stat: &[u8], number: usize) -> Option<&str> {
    // The name, which may hold anything, ends at the last parenthesis; what follows begins with field 3.
    let name = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(name + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(number - 3)
}

const PF_EXITING: u64 = 0x4;
const PF_FORKNOEXEC: u64 = 0x40;

/// The process that the thread `tid` belongs to.
fn leader(tid: u32) -> Result<u32> {
    status_field(tid, "Tgid:").and_then(|value| {
        value
            .parse()
            .map_err(|_| Error::new("parse /proc/PID/status", libc::EPROTO))
    })
}

/// Whether a signal waits for the thread `tid` that it does not block.
pub fn has_signal(tid: u32) -> Result<bool> {
    let bits = |name| {
        status_field(tid, name).map(|value| u64::from_str_radix(&value, 16).unwrap_or_default())
    };
    Ok((bits("SigPnd:")? | bits("ShdPnd:")?) & !bits("SigBlk:")? != 0)
}

fn status_field(tid: u32, name: &str) -> Result<String> {
    let status =
        descriptors::read(format!("/proc/{tid}/status")).called("read /proc/PID/status")?;
    String::from_utf8_lossy(&status)
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .map(|value| value.trim().to_owned())
        .ok_or_else(|| Error::new("parse /proc/PID/status", libc::EPROTO))
}

fn parse(bytes: &[u8]) -> Option<Target> {
    let (family, rest) = bytes.split_first_chunk::<2>()?;
    let family = u16::from_ne_bytes(*family);
    match i32::from(family) {
        libc::AF_UNSPEC => Some(Target::Unspecified),
        libc::AF_INET => {
            let (port, rest) = rest.split_first_chunk::<2>()?;
            let address = Ipv4Addr::from(*rest.first_chunk::<4>()?);
            Some(Target::Inet(SocketAddr::new(
                IpAddr::V4(address),
                u16::from_be_bytes(*port),
            )))
        }
        libc::AF_INET6 => {
            let (port, rest) = rest.split_first_chunk::<2>()?;
            let address = Ipv6Addr::from(*rest.get(4..)?.first_chunk::<16>()?);
            Some(Target::Inet(SocketAddr::new(
                IpAddr::V6(address),
                u16::from_be_bytes(*port),
            )))
        }
        _ => Some(Target::Other(family)),
    }
}

/// The first version of `struct pidfd_info` (`linux/pidfd.h`).
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    pid: u32,
    tgid: u32,
    ppid: u32,
    ids: [u32; 8],
    exit_code: i32,
}

const PIDFD_INFO_PID: u64 = 1;
/// `_IOWR(0xFF, 11, struct pidfd_info)`.
const PIDFD_GET_INFO: libc::Ioctl = libc::_IOWR::<PidfdInfo>(0xff, 11);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_executed_something_is_no_fork() {
        assert!(!is_fork(std::process::id()), "this program was executed");
        assert!(!is_fork(u32::MAX), "nobody has this number");
    }

    #[test]
    fn a_field_is_read_whatever_the_name_is() {
        assert_eq!(nth(b"17 (a) b (c)) S 12 17 17 0", 4), Some("12"));
        assert_eq!(nth(b"17 (\xff) R 1 1", 3), Some("R"));
        assert_eq!(nth(b"garbage", 4), None);
        assert_eq!(
            parent(std::process::id()).expect("it runs"),
            std::os::unix::process::parent_id()
        );
    }

    #[test]
    fn a_zombie_is_on_its_way_out_and_who_runs_is_not() {
        let mut child = std::process::Command::new("true").spawn().expect("true");
        while is_alive(child.id()) {
            std::thread::yield_now();
        }

        assert!(is_exiting(child.id()).expect("there"));
        assert!(!is_exiting(std::process::id()).expect("there"));
        child.wait().expect("waited for");
    }

    #[test]
    fn one_that_is_gone_is_told_as_gone() {
        assert!(is_alive(std::process::id()));
        assert!(!is_alive(u32::MAX));
        let error = started(u32::MAX).expect_err("nobody has this number");
        assert_eq!(error.errno(), libc::ESRCH);
    }

    #[test]
    fn whoever_may_look_at_callers_is_told_so() {
        attempt().expect("a thread may look at itself");
    }

    #[test]
    fn an_address_is_read_as_the_memory_holds_it() {
        let family = u16::try_from(libc::AF_INET).expect("family");
        let mut bytes = family.to_ne_bytes().to_vec();
        bytes.extend([1, 187, 93, 184, 216, 34, 0, 0, 0, 0, 0, 0, 0, 0]);
        let tid = gettid().as_raw().unsigned_abs();

        let read = target(tid, bytes.as_ptr() as u64, bytes.len() as u64).expect("read");

        assert_eq!(
            read,
            Target::Inet("93.184.216.34:443".parse().expect("address"))
        );
        assert_eq!(
            target(tid, bytes.as_ptr() as u64, 1).map_err(|e| e.errno()),
            Err(libc::EINVAL)
        );
        assert_eq!(
            target(tid, 8, 16).map_err(|error| error.errno()),
            Err(libc::EFAULT)
        );
    }

    #[test]
    fn a_thread_knows_its_process_and_that_ones_parent() {
        let place = std::thread::spawn(|| {
            let tid = gettid().as_raw().unsigned_abs();
            (
                tid,
                Thread::hold(tid)
                    .and_then(|thread| thread.place())
                    .expect("place"),
            )
        });
        let (tid, place) = place.join().expect("join");

        assert_ne!(tid, std::process::id());
        assert_eq!(place.process, std::process::id());
        assert_eq!(place.parent, std::os::unix::process::parent_id());
        let parent = status_field(std::process::id(), "PPid:")
            .expect("status")
            .parse()
            .ok();
        assert_eq!(parent, Some(place.parent), "both ways say the same");
        assert!(
            executable(std::process::id())
                .expect("exe")
                .starts_with('/')
        );
    }
}
