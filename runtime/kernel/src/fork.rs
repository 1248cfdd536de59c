//! Makes a new process, in new namespaces where asked.
//!
//! Only a process with one thread may fork here: then the child is a whole process and not one thread's copy of locked
//! locks. Nothing is executed anew, so parent and child share their pages.

use std::fmt::Write;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use nix::sched::CloneFlags;
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Pid, Uid};

use crate::descriptors::{self, noted};
use crate::error::{Called, Result, answered};

/// On which side of a fork the caller finds itself.
#[derive(Debug)]
pub enum Forked {
    /// In the new process.
    Child,
    /// In the old one.
    Parent(Child),
}

/// A child process, held by its pidfd so that its number cannot mean a stranger.
#[derive(Debug)]
pub struct Child {
    /// Its number in the parent's pid namespace.
    pub pid: Pid,
    /// Readable when the child has ended.
    pub pidfd: Arc<OwnedFd>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this status (0–255).
    Exited(i32),
    /// By this signal.
    Signalled(i32),
}

/// Forks into `namespaces` (empty for none but the caller's own).
///
/// # Panics
///
/// When the process has more than one thread.
pub fn fork(namespaces: CloneFlags) -> Result<Forked> {
    assert!(single_threaded(), "fork with several threads");
    let mut pidfd: libc::c_int = -1;
    let tid = thread_id_address();
    let settid = if tid == 0 {
        0
    } else {
        libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID
    };
    let flags = namespaces.bits() | libc::CLONE_PIDFD | settid | libc::SIGCHLD;
    // The old call and not `clone3`: a filter may have to refuse that one, because it hides its flags in memory.
    //
    // SAFETY: without CLONE_VM the child runs on a copy of this stack, and with one thread (asserted) no lock of another
    // thread stays locked in it. The kernel writes a descriptor to `pidfd`, which lives here. `tid` is where the C library
    // keeps the id of this very thread; architectures take it as fourth or fifth argument, and the other one is ignored.
    let answer = unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, tid, tid) };
    match answered("clone", answer)? {
        0 => {
            descriptors::forget();
            Ok(Forked::Child)
        }
        pid => {
            // SAFETY: CLONE_PIDFD wrote a new descriptor that nobody else owns.
            let pidfd = noted(unsafe { OwnedFd::from_raw_fd(pidfd) });
            #[expect(clippy::cast_possible_truncation, reason = "a pid fits")]
            let pid = Pid::from_raw(pid as i32);
            let pidfd = Arc::new(pidfd);
            Ok(Forked::Parent(Child { pid, pidfd }))
        }
    }
}

/// Maps the ids of a child in a new user namespace, seen from outside: an ordinary user's own two only, for root every id
/// that root has here, each to itself.
pub fn map_ids(child: Pid) -> Result<()> {
    let (uid, gid) = (Uid::effective(), Gid::effective());
    let write = |file: &str, text: &str, call| {
        fs::write(format!("/proc/{child}/{file}"), text).called(call)
    };
    if uid.is_root() {
        write(
            "uid_map",
            &whole_map("/proc/self/uid_map")?,
            "write uid_map",
        )?;
        return write(
            "gid_map",
            &whole_map("/proc/self/gid_map")?,
            "write gid_map",
        );
    }
    write("setgroups", "deny", "write setgroups")?;
    write("uid_map", &format!("{uid} {uid} 1"), "write uid_map")?;
    write("gid_map", &format!("{gid} {gid} 1"), "write gid_map")
}

impl Child {
    /// Sends `signal`; a child that has ended already is no error.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        signal_by(&self.pidfd, signal as i32)
    }

    /// Waits until the child has ended and takes its status.
    pub fn wait(&self) -> Result<Ended> {
        loop {
            match wait_for(self.pid.as_raw(), 0) {
                Ok(Some((_, ended))) => return Ok(ended),
                Ok(None) => {}
                Err(error) if error.errno() == libc::EINTR => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Takes the status of a child that has ended; `None` when there is none now.
///
/// The numbers are the kernel's own, so that a real-time signal is told like any other. A child that has made this process
/// its tracer is let go: nobody here would ever let it go on.
pub fn reap() -> Result<Option<(Pid, Ended)>> {
    match wait_for(-1, libc::WNOHANG) {
        Err(error) if error.errno() == libc::ECHILD => Ok(None),
        other => other,
    }
}

/// Waits until a child has ended and takes its status; `None` when there is no child.
pub fn wait_any() -> Result<Option<(Pid, Ended)>> {
    loop {
        match wait_for(-1, 0) {
            Err(error) if error.errno() == libc::ECHILD => return Ok(None),
            Err(error) if error.errno() == libc::EINTR => {}
            other => return other,
        }
    }
}

/// `None`: no child has ended, or one was only let go.
fn wait_for(pid: libc::pid_t, flags: libc::c_int) -> Result<Option<(Pid, Ended)>> {
    loop {
        let mut status = 0;
        // SAFETY: the kernel writes one int to `status`, which lives here.
        let answer = unsafe { libc::waitpid(pid, &raw mut status, flags) };
        answered("waitpid", answer.into())?;
        if answer == 0 {
            return Ok(None);
        }
        if libc::WIFEXITED(status) {
            let code = libc::WEXITSTATUS(status);
            return Ok(Some((Pid::from_raw(answer), Ended::Exited(code))));
        }
        if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            return Ok(Some((Pid::from_raw(answer), Ended::Signalled(signal))));
        }
        let signal = libc::WSTOPSIG(status);
        // SAFETY: the request takes numbers only: the traced child and the signal it goes on with.
        let _ = unsafe { libc::ptrace(libc::PTRACE_DETACH, answer, 0, signal) };
    }
}

/// Sends the signal `number` to the process behind `pidfd`; one that has ended already is no error.
pub fn signal_by(pidfd: impl AsFd, number: i32) -> Result<()> {
    let fd = pidfd.as_fd().as_raw_fd();
    // SAFETY: the descriptor is borrowed for the call; no siginfo is passed, so the kernel reads no memory of ours.
    let answer = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, number, 0, 0) };
    match answered("pidfd_send_signal", answer) {
        Err(error) if error.errno() != libc::ESRCH => Err(error),
        _ => Ok(()),
    }
}

/// Ends this process at once, without what the process it was forked from wanted done at its own end.
pub fn leave(status: i32) -> ! {
    // SAFETY: the call takes a number and does not return.
    unsafe { libc::_exit(status) }
}

/// Opens a pidfd of the process (or, with `thread`, of the thread) `pid`.
pub fn open_pidfd(pid: u32, thread: bool) -> Result<OwnedFd> {
    let flags = if thread { libc::O_EXCL } else { 0 };
    // SAFETY: the call takes two numbers and no memory.
    let answer = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, flags) };
    let fd = answered("pidfd_open", answer)?;
    #[expect(clippy::cast_possible_truncation, reason = "a descriptor fits")]
    // SAFETY: the kernel has just made this descriptor for us alone.
    Ok(noted(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
}

/// Whether the calling process has one thread only.
fn single_threaded() -> bool {
    // A directory has two links and one more for each directory in it: here one a thread.
    fs::metadata("/proc/self/task").is_ok_and(|task| task.nlink() == 3)
}

/// Where the C library keeps this thread's id, so that the child's copy can be set right as its own `fork` would; 0 when
/// the kernel does not tell (then only `raise` in the child is affected).
fn thread_id_address() -> u64 {
    let mut address: u64 = 0;
    // SAFETY: the kernel writes one pointer to `address`, which lives here.
    let answer = unsafe { libc::prctl(PR_GET_TID_ADDRESS, &raw mut address) };
    if answer == 0 { address } else { 0 }
}

/// Every extent of an id map, mapped to itself.
fn whole_map(path: &str) -> Result<String> {
    let map = fs::read_to_string(path).called("read uid_map")?;
    let mut whole = String::new();
    for line in map.lines() {
        let mut fields = line.split_whitespace();
        if let (Some(inside), Some(_), Some(count)) = (fields.next(), fields.next(), fields.next())
        {
            let _ = writeln!(whole, "{inside} {inside} {count}");
        }
    }
    Ok(whole)
}

const PR_GET_TID_ADDRESS: libc::c_int = 40;

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_with_threads_may_not_fork() {
        let caught = std::panic::catch_unwind(|| fork(CloneFlags::empty()));

        assert!(caught.is_err());
    }

    #[test]
    fn a_child_that_a_real_time_signal_ended_is_reaped_with_it() {
        crate::apart::apart(|| {
            let child = match fork(CloneFlags::empty()).expect("fork") {
                Forked::Child => loop {
                    nix::unistd::pause();
                },
                Forked::Parent(child) => child,
            };
            signal_by(&child.pidfd, 35).expect("signal");

            assert_eq!(child.wait().expect("wait"), Ended::Signalled(35));
            assert_eq!(reap().expect("nobody is left"), None);
        });
    }

    #[test]
    fn a_pidfd_signals_the_process_it_was_opened_for() {
        let mut sleeper = Command::new("sleep")
            .arg("60")
            .process_group(0)
            .spawn()
            .expect("sleep");
        let pidfd = open_pidfd(sleeper.id(), false).expect("pidfd");

        signal_by(&pidfd, libc::SIGKILL).expect("signal");

        let status = sleeper.wait().expect("wait");
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(libc::SIGKILL)
        );
        signal_by(&pidfd, libc::SIGKILL).expect("a process that has ended is no error");
    }
}
