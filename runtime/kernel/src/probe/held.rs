//! What a broker does to a caller: hold it, take its socket, read its memory.

use std::io::{IoSliceMut, PipeReader, Read as _};
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use super::Feature;
use super::child::{Report, forked};

/// Makes a child that waits, and looks at it.
pub(super) fn look() -> Report {
    let mut report = Report::default();
    let Ok((reader, writer)) = std::io::pipe() else {
        return report;
    };
    let waiting = || {
        let _end = (&reader).read(&mut [0]);
    };
    let child = match forked(waiting) {
        Ok(child) => child,
        Err(errno) => {
            report.add(Feature::PidfdOpen, Err(errno));
            return report;
        }
    };
    let held = pidfd(child, 0);
    let thread = pidfd(child, libc::O_EXCL);
    if let Ok(held) = &held {
        report.add(Feature::PidfdGetfd, take(held, &reader));
    }
    report.add(Feature::PidfdOpen, held.map(drop));
    report.add(Feature::PidfdThread, thread.map(drop));
    report.add(Feature::ReadMemory, read(child));
    drop(writer);
    let _gone = kill(child, Signal::SIGKILL);
    let _reaped = waitpid(child, None);
    report
}

fn pidfd(child: Pid, flags: i32) -> nix::Result<OwnedFd> {
    // SAFETY: the call takes two numbers and no memory.
    let answer = unsafe { libc::syscall(libc::SYS_pidfd_open, child.as_raw(), flags) };
    descriptor(answer)
}

/// Takes the child's copy of `wanted`.
fn take(held: &OwnedFd, wanted: &PipeReader) -> nix::Result<()> {
    let (held, wanted) = (held.as_raw_fd(), wanted.as_raw_fd());
    // SAFETY: the call takes three numbers; both descriptors are borrowed for it.
    let answer = unsafe { libc::syscall(libc::SYS_pidfd_getfd, held, wanted, 0) };
    descriptor(answer).map(drop)
}

/// Reads a word that stands at the same place in the child.
fn read(child: Pid) -> nix::Result<()> {
    static WORD: u64 = 0x484f_4c44_4641_5354;
    let mut copy = [0; size_of::<u64>()];
    let there = RemoteIoVec {
        base: &raw const WORD as usize,
        len: copy.len(),
    };
    process_vm_readv(child, &mut [IoSliceMut::new(&mut copy)], &[there])?;
    if u64::from_ne_bytes(copy) == WORD {
        Ok(())
    } else {
        Err(Errno::EBADMSG)
    }
}

fn descriptor(answer: libc::c_long) -> nix::Result<OwnedFd> {
    let fd = Errno::result(answer)?;
    let fd = i32::try_from(fd).map_err(|_no_descriptor| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
