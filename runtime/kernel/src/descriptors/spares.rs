//! Low numbers that nothing else gets: what is left to let somebody in when the limit is below what is open.
//!
//! ```text
//! Held ── lend: closed, and what is opened gets its number ──▶ Lent ── what was opened is closed ──▶ Held
//! ```
//!
//! A limit is no count: a process gets no descriptor whose number is not below it, however few are open below. Under a limit
//! that was set below its use nothing can be opened any more until one with a low number is closed, and those are the oldest,
//! which stay. So the lowest numbers are held by what nobody needs.

use std::fs::File;
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::unistd::close;

use super::noted;
use crate::{Error, Result};

/// Numbers that are held. The default holds none.
#[derive(Debug, Default)]
pub struct Spares {
    numbers: Vec<RawFd>,
    held: Mutex<Vec<File>>,
}

/// A number that was given up, until this is dropped: after what was opened in its place is closed.
#[derive(Debug)]
pub struct Loan {
    spares: Arc<Spares>,
    /// Whether no other is left to be given up.
    pub last: bool,
}

impl Spares {
    /// Holds these `numbers` from now on, while no thread opens anything. What was open there is closed: it must be nobody's, as
    /// the standard input of a process that reads none is.
    pub fn hold(numbers: &[RawFd]) -> Result<Self> {
        for number in numbers {
            // One that was not open is as free.
            let _ = close(*number);
        }
        let spares = Self {
            numbers: numbers.to_vec(),
            held: Mutex::default(),
        };
        spares.gather();
        if spares.held().len() < numbers.len() {
            return Err(Error::new("open /dev/null", libc::EMFILE));
        }
        Ok(spares)
    }

    /// Gives one up and lets `open` open something. `None`: all are lent.
    pub fn lend<T>(self: &Arc<Self>, open: impl FnOnce() -> T) -> Option<(T, Loan)> {
        let mut held = self.held();
        drop(held.pop()?);
        let opened = open();
        self.refill(&mut held);
        let loan = Loan {
            spares: Arc::clone(self),
            last: held.is_empty(),
        };
        Some((opened, loan))
    }

    /// Holds again what has become free meanwhile.
    pub fn gather(&self) {
        self.refill(&mut self.held());
    }

    fn refill(&self, held: &mut Vec<File>) {
        while held.len() < self.numbers.len() {
            // The lowest that is free: another than ours, or none, if ours are in use.
            match File::open(NOTHING).map(noted) {
                Ok(nothing) if self.numbers.contains(&nothing.as_raw_fd()) => {
                    held.push(nothing);
                }
                Ok(_) | Err(_) => return,
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, Vec<File>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.spares.gather();
    }
}

/// What can be opened anywhere, and means nothing.
const NOTHING: &str = "/dev/null";

#[cfg(test)]
mod tests {
    use nix::sys::resource::{Resource, setrlimit};

    use super::*;
    use crate::apart::apart;
    use crate::descriptors::limits;

    fn opened() -> std::io::Result<File> {
        File::open(NOTHING)
    }

    #[test]
    fn under_a_limit_below_what_is_open_as_many_are_let_in_as_are_held() {
        apart(|| {
            let spares = Arc::new(Spares::hold(&[0, 1]).expect("held"));
            let (_, hard) = limits().expect("told");
            setrlimit(Resource::RLIMIT_NOFILE, 3, hard).expect("lowered");
            assert!(opened().is_err());

            let (first, loan) = spares.lend(opened).expect("one is held");
            let first = first.expect("its number was free");
            assert!(!loan.last);
            let (second, last) = spares.lend(opened).expect("one is held");
            assert!(second.is_ok() && last.last);
            assert!(spares.lend(opened).is_none(), "both are lent");
            drop((first, loan));

            let (third, third_loan) = spares.lend(opened).expect("held again");
            assert!(third.is_ok() && third_loan.last);
        });
    }

    #[test]
    fn what_was_opened_elsewhere_costs_none() {
        apart(|| {
            let spares = Arc::new(Spares::hold(&[0, 1]).expect("held"));

            let (nothing, loan) = spares.lend(|| ()).expect("one is held");

            assert!(!loan.last, "{nothing:?}");
            assert!(opened().expect("there are more").as_raw_fd() > 2);
        });
    }
}
