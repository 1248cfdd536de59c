//! Signals as messages, one descriptor for each listener.
//!
//! ```text
//! signal ──> handler: mark the number, wake the eventfd ──> task: take the marks, lowest number first
//! ```
//!
//! Like the signals themselves, marks of one number do not add up. tokio's own driver costs each process three
//! descriptors and each runtime one, whether it listens or not.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};
use signal_hook_registry::{SigId, unregister};

use crate::descriptors::noted;
use crate::ready::Ready;
use crate::{Called, Result};

/// Whether this process ignores the signal `number`: by its own choice, or because whoever started it did.
pub fn is_ignored(number: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call changes nothing; it writes the old one to a place of the right layout.
    let answer = unsafe { libc::sigaction(number, std::ptr::null(), action.as_mut_ptr()) };
    if answer != 0 {
        return false;
    }
    // SAFETY: the call has succeeded, and so it has written the whole of it.
    let action = unsafe { action.assume_init() };
    action.sa_sigaction == libc::SIG_IGN
}

/// Ignores a file that would outgrow its limit (`ulimit -f`), in this process and its forks: the write itself says so (`EFBIG`).
/// [`reset_signals`](crate::execute::reset_signals) takes it back.
pub fn outlive_file_limits() {
    // SAFETY: no code of ours runs on the signal, whose default would end the process; the number is a valid one, so the call
    // cannot fail.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Lets this process and its forks wait for their children, whoever started it: where `SIGCHLD` is ignored the kernel throws their
/// statuses away.
pub fn keep_statuses() {
    // SAFETY: the default of the signal is to do nothing; the number is a valid one, so the call cannot fail.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Hears some signals, from its making to its drop. None of them does what the kernel's default is any more, also after that.
#[derive(Debug)]
pub struct Signals {
    marks: Arc<Marks>,
    wake: Ready<Arc<OwnedFd>>,
    handlers: Vec<SigId>,
}

/// Signals that have come and were not taken, a bit for each number.
#[derive(Debug, Default)]
struct Marks(AtomicU64);

impl Signals {
    /// Listens to `numbers` of `signal(7)`, each below 64. Panics outside a tokio runtime, and if a number cannot be
    /// caught (`SIGKILL`, `SIGSTOP`) or belongs to a fault of the program (`SIGSEGV`, `SIGFPE`, `SIGILL`).
    pub fn listen(numbers: &[i32]) -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake: OwnedFd = noted(EventFd::from_flags(flags).called("eventfd2")?).into();
        let wake = Arc::new(wake);
        let mut signals = Self {
            marks: Arc::default(),
            wake: Ready::reading(Arc::clone(&wake))?,
            handlers: Vec::new(),
        };
        for &number in numbers {
            let (marks, wake) = (Arc::clone(&signals.marks), Arc::clone(&wake));
            let mark = move || {
                marks.set(number);
                // Full means awake, and there is nobody to tell of anything else.
                let _ = nix::unistd::write(&wake, &1_u64.to_ne_bytes());
            };
            // SAFETY: the handler does an atomic operation and a `write(2)`, both async-signal-safe; it allocates
            // nothing and takes no lock, and the registry keeps `errno` as it was.
            let registered = unsafe { signal_hook_registry::register(number, mark) };
            signals.handlers.push(registered.called("sigaction")?);
        }
        Ok(signals)
    }

    /// The next signal. May be dropped halfway: nothing gets lost.
    pub async fn next(&mut self) -> i32 {
        loop {
            if let Some(number) = self.marks.take() {
                return number;
            }
            let mut count = [0; 8];
            let read = |wake: &Arc<OwnedFd>| nix::unistd::read(wake, &mut count).called("read");
            if self.wake.read(read).await.is_err() {
                // Only a runtime that is going down says so, and it is about to drop us.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            unregister(handler);
        }
    }
}

impl Marks {
    fn set(&self, number: i32) {
        self.0.fetch_or(1 << number, Ordering::Release);
    }

    fn take(&self) -> Option<i32> {
        let marks = self.0.load(Ordering::Acquire);
        // Nobody else takes, so the lowest mark is still there.
        let number = (marks != 0).then(|| marks.trailing_zeros())?;
        self.0.fetch_and(!(1 << number), Ordering::AcqRel);
        i32::try_from(number).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_taken_once_the_lowest_number_first() {
        let marks = Marks::default();
        for number in [15, 2, 15, 17] {
            marks.set(number);
        }

        let taken: Vec<i32> = std::iter::from_fn(|| marks.take()).collect();

        assert_eq!(taken, [2, 15, 17]);
    }

    #[test]
    fn what_is_ignored_is_known_and_what_is_not_there_is_not() {
        let before = is_ignored(libc::SIGWINCH);
        // SAFETY: ignoring a signal whose default is to be ignored changes nothing for anybody else in this process.
        unsafe { libc::signal(libc::SIGWINCH, libc::SIG_IGN) };

        assert!(!before && is_ignored(libc::SIGWINCH));
        assert!(!is_ignored(libc::SIGKILL) && !is_ignored(9999));
    }

    #[tokio::test]
    async fn each_listener_hears_its_own_signals() {
        let mut one = Signals::listen(&[libc::SIGUSR1, libc::SIGUSR2]).expect("heard");
        let mut two = Signals::listen(&[libc::SIGUSR2]).expect("heard");

        for signal in [nix::sys::signal::SIGUSR2, nix::sys::signal::SIGUSR1] {
            nix::sys::signal::raise(signal).expect("raised");
        }

        assert_eq!(one.next().await, libc::SIGUSR1);
        assert_eq!(one.next().await, libc::SIGUSR2);
        assert_eq!(two.next().await, libc::SIGUSR2);
    }
}
