//! Seccomp's listener and Landlock's version.

use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::prctl::set_no_new_privs;

use super::child::Say;
use super::{Feature, Landlock};

/// Installs a filter that allows everything and has a listener.
pub(super) fn install(say: &mut Say) {
    if let Err(errno) = set_no_new_privs() {
        say.tell(Feature::Listener, Err(errno));
        return;
    }
    let killable = listener(libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
    say.tell(
        Feature::WaitKillable,
        killable.as_ref().map(drop).map_err(|errno| *errno),
    );
    // There is one listener to a process: the plain one is tried only where the better one is not to be had.
    match killable.or_else(|_older_kernel| listener(0)) {
        Ok(listener) => {
            say.tell(Feature::Listener, Ok(()));
            say.tell(Feature::SyncWakeUp, wake_in_step(&listener));
        }
        Err(errno) => {
            say.tell(Feature::Listener, Err(errno));
        }
    }
}

/// Landlock's version and errata.
pub(super) fn landlock() -> nix::Result<Landlock> {
    let ask = |flag: libc::c_uint| {
        let none = std::ptr::null::<libc::c_void>();
        // SAFETY: with one of these flags the call wants no attributes and only answers a number.
        let answer =
            unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0_usize, flag) };
        Errno::result(answer).map(|number| u32::try_from(number).unwrap_or_default())
    };
    Ok(Landlock {
        abi: ask(LANDLOCK_CREATE_RULESET_VERSION)?,
        errata: ask(LANDLOCK_CREATE_RULESET_ERRATA).unwrap_or(0),
    })
}

fn listener(flag: libc::c_ulong) -> nix::Result<OwnedFd> {
    let mut allow = libc::sock_filter {
        code: RETURN,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ALLOW,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: &raw mut allow,
    };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | flag;
    // SAFETY: the kernel copies the program, one instruction, which lives on this stack.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    let fd = Errno::result(answer)?;
    let fd = i32::try_from(fd).map_err(|_no_descriptor| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn wake_in_step(listener: &OwnedFd) -> nix::Result<()> {
    // SAFETY: this request takes its flags by value; the descriptor is borrowed for the call.
    let answer = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            SECCOMP_IOCTL_NOTIF_SET_FLAGS,
            SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP,
        )
    };
    Errno::result(answer).map(drop)
}

/// `BPF_RET | BPF_K`
const RETURN: u16 = 0x06;
/// `linux/landlock.h`
const LANDLOCK_CREATE_RULESET_VERSION: libc::c_uint = 1;
const LANDLOCK_CREATE_RULESET_ERRATA: libc::c_uint = 2;
/// `linux/seccomp.h`: `SECCOMP_IOW(4, __u64)`
const SECCOMP_IOCTL_NOTIF_SET_FLAGS: libc::Ioctl =
    (1 << 30) | ((size_of::<u64>() as libc::Ioctl) << 16) | ((b'!' as libc::Ioctl) << 8) | 4;
const SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP: u64 = 1;
