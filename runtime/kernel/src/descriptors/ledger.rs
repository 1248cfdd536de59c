//! Promises descriptors before they are opened, so that two who begin at once do not count on the same ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Sample, observe};

/// The descriptors of this process that are promised.
#[derive(Debug, Default)]
pub struct Ledger {
    promised: AtomicU64,
    refused: AtomicU64,
}

/// Descriptors that are promised: held until they are open.
#[derive(Debug)]
#[must_use = "a promise that is dropped is none"]
pub struct Promise {
    ledger: Arc<Ledger>,
    count: u64,
}

/// There are too few.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "reserve {needed} descriptors: {free} of {limit} are free; raise the limit of open files, or let some be closed"
)]
pub struct Short {
    /// How many are needed.
    pub needed: u64,
    /// How many are free and nobody else's.
    pub free: u64,
    /// How many there may be in all.
    pub limit: u64,
}

impl Ledger {
    /// Promises `needed` descriptors if so many are free besides `kept` others. Nothing is opened.
    pub fn promise(self: &Arc<Self>, needed: u64, kept: u64) -> Result<Promise, Short> {
        let before = self.promised.fetch_add(needed, Ordering::Relaxed);
        let promise = Promise {
            ledger: Arc::clone(self),
            count: needed,
        };
        let Ok(Sample { limit, used, .. }) = observe() else {
            // Who cannot count lets the call itself say what is wrong.
            return Ok(promise);
        };
        let taken = used.saturating_add(before).saturating_add(kept);
        let free = limit.saturating_sub(taken);
        if free >= needed {
            return Ok(promise);
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(Short {
            needed,
            free,
            limit,
        })
    }

    /// How many promises were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.ledger
            .promised
            .fetch_sub(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apart::apart;
    use crate::descriptors::limits;
    use nix::sys::resource::{Resource, setrlimit};

    /// A ledger of a process that has so many descriptors free.
    fn free(count: u64) -> Arc<Ledger> {
        let ledger = Arc::new(Ledger::default());
        let used = observe().expect("counted").used;
        let (_, hard) = limits().expect("told");
        setrlimit(Resource::RLIMIT_NOFILE, used + count, hard).expect("lowered");
        ledger
    }

    #[test]
    fn what_is_promised_is_not_promised_again_until_the_promise_is_kept() {
        apart(|| {
            let ledger = free(10);

            let first = ledger.promise(6, 0).expect("enough");
            let short = ledger.promise(6, 0).expect_err("promised already");
            assert_eq!((short.needed, short.free), (6, 4));
            drop(first);

            drop(ledger.promise(10, 0).expect("all of them"));
            assert_eq!(ledger.refused(), 1);
        });
    }

    #[test]
    fn what_is_kept_for_others_is_not_promised() {
        apart(|| {
            let ledger = free(10);

            assert!(ledger.promise(4, 7).is_err());
            assert!(ledger.promise(4, 6).is_ok());
        });
    }

    #[test]
    fn a_limit_that_is_raised_makes_room_at_once() {
        apart(|| {
            let ledger = free(2);
            assert!(ledger.promise(4, 0).is_err());

            let (_, hard) = limits().expect("told");
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("raised");

            assert!(ledger.promise(4, 0).is_ok());
        });
    }
}
