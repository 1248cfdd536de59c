//! Wakes a thread that waits in `poll(2)`.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::descriptors::noted;
use crate::{Called, Result};

/// Rung by anybody, heard by one thread.
#[derive(Debug)]
pub struct Bell {
    event: EventFd,
    over: AtomicBool,
}

/// Ends the thread that listens to the bell when it is dropped.
#[derive(Debug)]
pub struct Leash(Arc<Bell>);

impl Bell {
    /// One that does not ring yet.
    pub fn new() -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = noted(EventFd::from_flags(flags).called("eventfd2")?);
        let over = AtomicBool::new(false);
        Ok(Self { event, over })
    }

    /// Ties the life of the thread that listens to what is answered.
    pub fn leash(self: &Arc<Self>) -> Leash {
        Leash(Arc::clone(self))
    }

    /// Wakes the thread, or keeps it from waiting next time.
    pub fn ring(&self) {
        // It can only be full, and then it rings already.
        let _ = self.event.write(1);
    }

    /// Takes back what rang. False: the thread has to end.
    pub fn hush(&self) -> bool {
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

impl Drop for Leash {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
        self.0.ring();
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn rings(bell: &Bell) -> bool {
        let mut one = [PollFd::new(bell.as_fd(), PollFlags::POLLIN)];
        poll(&mut one, PollTimeout::ZERO).expect("poll") > 0
    }

    #[test]
    fn it_rings_until_it_is_hushed_and_says_when_its_leash_is_dropped() {
        let bell = Arc::new(Bell::new().expect("a bell"));
        let leash = bell.leash();
        assert!(!rings(&bell));

        bell.ring();
        bell.ring();
        assert!(rings(&bell));
        assert!(bell.hush());
        assert!(!rings(&bell));

        drop(leash);
        assert!(rings(&bell));
        assert!(!bell.hush());
    }
}
