//! How many descriptors this process may have, how many it has, and the most it ever had.
//!
//! The limit is read anew each time: an operator, or a fault injector, may lower it from outside (`prlimit(1)`).
//!
//! The most is exact although nobody looks all the time. The kernel gives a new descriptor the lowest number that is free, so whoever gets
//! number *n* knows that *n* + 1 were open then, and when *u* are open one of them once got a number of at least *u* - 1. Hence the most
//! that were ever open is the highest number ever given, and one. Whoever opens something for the runtime has it [`noted`], which costs no
//! system call; the wrappers of this crate do that by themselves.

mod ledger;
mod spares;

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

pub use self::ledger::{Ledger, Promise, Short};
pub use self::spares::{Loan, Spares};
use crate::{Called, Result};

/// The limit of the process as it was and as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raised {
    /// The soft limit that the process was started with: what a workload gets.
    pub original: u64,
    /// The soft limit now: the hard one.
    pub limit: u64,
}

/// The descriptors of this process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The soft limit.
    pub limit: u64,
    /// How many are open.
    pub used: u64,
    /// The most that were ever open, as far as they were [`noted`] or found by a count.
    pub high_water: u64,
}

impl Sample {
    /// How many more may be opened.
    pub fn free(self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

/// There is one table of descriptors, so there is one mark.
static HIGHEST: AtomicU64 = AtomicU64::new(0);

/// Notes that `fresh` has just been opened.
pub fn noted<F: AsFd>(fresh: F) -> F {
    let number = fresh.as_fd().as_raw_fd().unsigned_abs();
    HIGHEST.fetch_max(u64::from(number) + 1, Ordering::Relaxed);
    fresh
}

/// Both ends of what has just been opened.
pub fn both_noted<F: AsFd>((one, other): (F, F)) -> (F, F) {
    (noted(one), noted(other))
}

/// The same as `fs::read`, with the file [`noted`].
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    noted(File::open(path)?).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Forgets the mark of the process that this one was forked from.
pub(crate) fn forget() {
    HIGHEST.store(0, Ordering::Relaxed);
}

/// Raises the soft limit of this process to its hard limit.
pub fn raise() -> Result<Raised> {
    let (original, hard) = limits()?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).called("setrlimit RLIMIT_NOFILE")?;
    Ok(Raised {
        original,
        limit: hard,
    })
}

/// Is `errno` a shortage of this process or of the host, which passes, rather than a fault?
pub fn is_exhausted(errno: i32) -> bool {
    matches!(
        errno,
        libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM
    )
}

/// Is the host's table of files full for this process? It is asked for one more file, which is given back at once; the limit of
/// the process itself is another matter.
pub fn is_host_full() -> bool {
    File::open(TABLE)
        .map(noted)
        .is_err_and(|error| error.raw_os_error() == Some(libc::ENFILE))
}

/// Counts the open descriptors: about a microsecond, and without one of its own where the kernel is 6.2 or newer.
pub fn observe() -> Result<Sample> {
    let (limit, _) = limits()?;
    let used = used(limit)?;
    let before = HIGHEST.fetch_max(used, Ordering::Relaxed);
    Ok(Sample {
        limit,
        used,
        high_water: before.max(used),
    })
}

fn limits() -> Result<(u64, u64)> {
    getrlimit(Resource::RLIMIT_NOFILE).called("getrlimit RLIMIT_NOFILE")
}

fn used(limit: u64) -> Result<u64> {
    // Since Linux 6.2 the size of this directory is the number of its entries (proc_pid_fd(5)).
    match fs::metadata(TABLE).called("stat /proc/self/fd")?.len() {
        0 => counted(limit),
        used => Ok(used),
    }
}

/// Counts the entries one by one; the one that the directory itself takes meanwhile is not counted.
fn counted(limit: u64) -> Result<u64> {
    match fs::read_dir(TABLE).called("open /proc/self/fd") {
        Ok(entries) => Ok((entries.count() as u64).saturating_sub(1)),
        // Not even one was left to look with.
        Err(error) if error.errno() == libc::EMFILE => Ok(limit),
        Err(error) => Err(error),
    }
}

const TABLE: &str = "/proc/self/fd";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apart::apart;

    fn opened(count: usize) -> Vec<File> {
        let open = || File::open("/dev/null").expect("opened");
        std::iter::repeat_with(open).take(count).collect()
    }

    #[test]
    fn the_gauge_follows_what_is_open_and_remembers_the_most() {
        apart(|| {
            let before = observe().expect("seen");

            let files = opened(40);
            let during = observe().expect("seen");
            drop(files);
            let after = observe().expect("seen");

            assert_eq!(during.used, before.used + 40);
            assert_eq!(after.used, before.used);
            assert_eq!(
                (during.high_water, after.high_water),
                (during.used, during.used)
            );
        });
    }

    #[test]
    fn counting_one_by_one_finds_the_same() {
        apart(|| {
            let _files = opened(7);
            let (limit, hard) = limits().expect("told");

            let found = counted(limit).expect("counted");

            assert_eq!(found, used(limit).expect("told"));
            setrlimit(Resource::RLIMIT_NOFILE, 3, hard).expect("lowered");
            assert_eq!(counted(3).expect("all there are"), 3);
        });
    }

    #[test]
    fn the_limit_is_raised_and_the_original_is_known() {
        apart(|| {
            let (_, hard) = limits().expect("told");
            setrlimit(Resource::RLIMIT_NOFILE, 64, hard).expect("lowered");

            let raised = raise().expect("raised");

            let expected = Raised {
                original: 64,
                limit: hard,
            };
            assert_eq!(raised, expected);
            assert_eq!(opened(100).len(), 100);
        });
    }

    #[test]
    fn a_limit_lowered_from_outside_is_seen_and_the_count_still_works() {
        apart(|| {
            let (_, hard) = limits().expect("told");
            let used = observe().expect("seen").used;
            setrlimit(Resource::RLIMIT_NOFILE, 3, hard).expect("lowered");

            let short = File::open("/dev/null").expect_err("no descriptor left");
            let sample = observe().expect("seen");

            assert!(is_exhausted(short.raw_os_error().expect("an errno")));
            assert_eq!((sample.limit, sample.used), (3, used));
        });
    }

    #[test]
    fn only_shortages_are_exhaustion() {
        for fault in [libc::EACCES, libc::EBADF, libc::ECONNABORTED, libc::EAGAIN] {
            assert!(!is_exhausted(fault));
        }
    }
}
