//! Wakes a thread that waits in `poll(2)`.

use holdfast_kernel::descriptors::noted;
use holdfast_kernel::{Called, Result};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Rung by anybody, heard by one thread.
#[derive(Debug)]
pub(super) struct Bell {
    event: EventFd,
    over: AtomicBool,
}

impl Bell {
    pub(super) fn new() -> Result<Bell> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = noted(EventFd::from_flags(flags).called("eventfd2")?);
        let over = AtomicBool::new(false);
        Ok(Bell { event, over })
    }

    /// Wakes the thread, or keeps it from waiting next time.
    pub(super) fn ring(&self) {
        // It can only be full, and then it rings already.
        let _ = self.event.write(1);
    }

    /// Wakes the thread for the last time.
    pub(super) fn ring_out(&self) {
        self.over.store(true, Ordering::Release);
        self.ring();
    }

    /// Takes back what rang. False: there is nothing to wait for any more.
    pub(super) fn hush(&self) -> bool {
        // Silent already, if somebody looked before it rang.
        let _ = self.event.read();
        !self.over.load(Ordering::Acquire)
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
