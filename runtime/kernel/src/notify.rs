//! The broker's side of a seccomp listener: takes calls that wait for an answer, and answers them.

use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::error::{Result, answered};

/// The listener of a seccomp filter.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// A system call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Names the pending call; never used again while it is pending.
    pub id: u64,
    /// The calling thread, in this process's pid namespace.
    pub tid: u32,
    /// The number of the system call.
    pub number: i64,
    /// Its arguments, as the registers held them.
    pub arguments: [u64; 6],
}

impl Listener {
    /// Takes the listener that a filter's installation gave.
    pub fn new(fd: OwnedFd) -> Self {
        crate::seccomp::wake_synchronously(&fd);
        Self(fd)
    }

    /// Takes the next call; `None` if its caller is gone meanwhile.
    ///
    /// RECV ignores `O_NONBLOCK`, so this is only called when `poll(2)` has seen a call (`POLLIN`); with one consumer it
    /// cannot block long. `POLLHUP` alone means that nobody is left under the filter.
    pub fn take(&self) -> Result<Option<Call>> {
        match self.receive() {
            Ok(call) => Ok(Some(call)),
            Err(error) if matches!(error.errno(), libc::ENOENT | libc::EINTR) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lets the call go on in the kernel as if nobody had asked. Answers whether it was still pending.
    pub fn let_go(&self, id: u64) -> Result<bool> {
        self.send(id, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE)
    }

    /// Makes the call fail with `errno`. Answers whether it was still pending.
    pub fn refuse(&self, id: u64, errno: i32) -> Result<bool> {
        self.send(id, -errno, 0)
    }

    /// Makes the call end as if a signal had interrupted it before it did anything: it fails with EINTR or is made again,
    /// as the signal's handler says. Answers whether it was still pending.
    pub fn interrupt(&self, id: u64) -> Result<bool> {
        self.send(id, -ERESTARTSYS, 0)
    }

    /// Whether the call still waits: then `tid` still is the thread that made it.
    pub fn is_pending(&self, id: u64) -> bool {
        // SAFETY: the request reads one u64, which lives here.
        let answer = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
                &raw const id,
            )
        };
        answer == 0
    }

    fn receive(&self) -> Result<Call> {
        // SAFETY: the structure holds numbers only, for which zero is a value; the kernel wants it zeroed.
        let mut notification: libc::seccomp_notif = unsafe { zeroed() };
        // SAFETY: the request writes one `seccomp_notif`, which lives here.
        let answer = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_RECV,
                &raw mut notification,
            )
        };
        answered("ioctl SECCOMP_IOCTL_NOTIF_RECV", answer.into())?;
        Ok(Call {
            id: notification.id,
            tid: notification.pid,
            number: notification.data.nr.into(),
            arguments: notification.data.args,
        })
    }

    fn send(&self, id: u64, error: i32, flags: u32) -> Result<bool> {
        let response = libc::seccomp_notif_resp {
            id,
            val: 0,
            error,
            flags,
        };
        // SAFETY: the request reads one `seccomp_notif_resp`, which lives here.
        let answer = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SEND,
                &raw const response,
            )
        };
        match answered("ioctl SECCOMP_IOCTL_NOTIF_SEND", answer.into()) {
            Ok(_) => Ok(true),
            Err(error) if error.errno() == libc::ENOENT => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const SECCOMP_USER_NOTIF_FLAG_CONTINUE: u32 = 1;
/// The kernel's own errno for "make the call again after the signal" (`linux/errno.h`).
const ERESTARTSYS: i32 = 512;
