//! Faults of the host: its disk, its table of files, its clock.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

use super::repair::Repair;

/// Writes until nothing more fits.
pub(super) fn fill_disk(directory: &Path) -> Result<Repair, String> {
    let path = directory.join("filler");
    let failed = |error: io::Error| format!("fill {}: {error}", directory.display());
    let file = File::options().write(true).create_new(true).open(&path);
    match pour(file.map_err(failed)?) {
        Poured::Full => Ok(Repair::File(path)),
        Poured::Bottomless => {
            let _removed = fs::remove_file(&path);
            Err(format!(
                "{} MiB do not fill {}",
                MOST >> 20,
                directory.display()
            ))
        }
        Poured::Broken(error) => {
            let _removed = fs::remove_file(&path);
            Err(failed(error))
        }
    }
}

/// How writing to the disk came to its end.
enum Poured {
    /// Not a byte more fits.
    Full,
    /// There is more room than anybody should take.
    Bottomless,
    /// Something else than a full disk.
    Broken(io::Error),
}

fn pour(mut file: File) -> Poured {
    let mut written = 0;
    // The last bytes as well.
    for size in [1 << 16, 1] {
        let block = vec![0; size];
        loop {
            match file.write_all(&block) {
                Ok(()) => written += size as u64,
                Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                Err(error) => return Poured::Broken(error),
            }
            if written > MOST {
                return Poured::Bottomless;
            }
        }
    }
    Poured::Full
}

/// Lowers the limit of files of the whole host. Whoever may administer the host is not bound by it, and nothing is done when
/// neither of `ours` is.
pub(super) fn fill_file_table(ours: &[u32], spare: i64) -> Result<Repair, String> {
    if !ours.iter().copied().any(is_bound) {
        return Err(
            "keeper and boundary have CAP_SYS_ADMIN, whom the limit of files does not bind".into(),
        );
    }
    let before =
        fs::read_to_string(FILE_MAX).map_err(|error| format!("read {FILE_MAX}: {error}"))?;
    let table = fs::read_to_string(FILE_NR).map_err(|error| format!("read {FILE_NR}: {error}"))?;
    // Without knowing what is in use there is no limit that leaves the host alive.
    let used = open_files(&table).ok_or_else(|| format!("read {FILE_NR}: no number in it"))?;
    fs::write(FILE_MAX, used.saturating_add_signed(spare).to_string())
        .map_err(|error| format!("write {FILE_MAX}: {error}"))?;
    Ok(Repair::Setting {
        path: FILE_MAX,
        before,
    })
}

/// How many files the host has open: the first of the three numbers.
fn open_files(table: &str) -> Option<u64> {
    table.split_whitespace().next()?.parse().ok()
}

/// Whether the limit binds a process: only `CAP_SYS_ADMIN` in the first user namespace, which is ours when we may write the limit,
/// stands above it.
fn is_bound(pid: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
        return false;
    };
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    let administers = effective.is_none_or(|bits| bits & CAP_SYS_ADMIN != 0);
    let namespace = |whose: &str| fs::read_link(format!("/proc/{whose}/ns/user")).ok();
    let (its, ours) = (namespace(&pid.to_string()), namespace("self"));
    !administers || (its.is_some() && its != ours)
}

pub(super) fn jump(by: Duration) -> Result<Repair, String> {
    let now = clock_gettime(ClockId::Realtime);
    set(later(now, by))?;
    Ok(Repair::Clock(by))
}

pub(super) fn set_back(by: Duration) -> Result<(), String> {
    let now = clock_gettime(ClockId::Realtime);
    set(earlier(now, by))
}

fn set(then: Timespec) -> Result<(), String> {
    clock_settime(ClockId::Realtime, then).map_err(|error| format!("set the clock: {error}"))
}

fn later(now: Timespec, by: Duration) -> Timespec {
    let nanos = now.tv_nsec + i64::from(by.subsec_nanos());
    Timespec {
        tv_sec: now.tv_sec + whole(by) + nanos / SECOND,
        tv_nsec: nanos % SECOND,
    }
}

fn earlier(now: Timespec, by: Duration) -> Timespec {
    let nanos = now.tv_nsec - i64::from(by.subsec_nanos());
    Timespec {
        tv_sec: now.tv_sec - whole(by) + nanos.div_euclid(SECOND),
        tv_nsec: nanos.rem_euclid(SECOND),
    }
}

/// Whole seconds; a scenario knows no span of more than a week.
fn whole(by: Duration) -> i64 {
    i64::try_from(by.as_secs()).unwrap_or_default()
}

const FILE_MAX: &str = "/proc/sys/fs/file-max";
const FILE_NR: &str = "/proc/sys/fs/file-nr";
const CAP_SYS_ADMIN: u64 = 1 << 21;
/// The small file system that is made for it has a quarter of this.
const MOST: u64 = 64 << 20;
const SECOND: i64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: i64, nanos: i64) -> Timespec {
        Timespec {
            tv_sec: seconds,
            tv_nsec: nanos,
        }
    }

    #[test]
    fn a_clock_jumps_by_less_than_a_second_and_comes_back() {
        let by = Duration::from_millis(1_700);

        let then = later(time(9, 500_000_000), by);
        let back = earlier(then, by);

        assert_eq!((then.tv_sec, then.tv_nsec), (11, 200_000_000));
        assert_eq!((back.tv_sec, back.tv_nsec), (9, 500_000_000));
    }

    #[test]
    fn the_use_of_files_is_read_or_not_known() {
        assert_eq!(open_files("602\t0\t2466186\n"), Some(602));
        assert_eq!(open_files(""), None);
    }

    /// Else a disk that cannot be written to for another reason would count as a full one.
    #[test]
    fn only_a_full_disk_is_full() {
        let full = File::options().write(true).open("/dev/full");
        assert!(matches!(pour(full.expect("opened")), Poured::Full));
        let read_only = File::open("/dev/null").expect("opened");
        assert!(matches!(pour(read_only), Poured::Broken(_)));
        let bottomless = File::options().write(true).open("/dev/null");
        assert!(matches!(
            pour(bottomless.expect("opened")),
            Poured::Bottomless
        ));
    }

    #[test]
    fn what_cannot_be_filled_is_left_as_it_was() {
        let nowhere = Path::new("/proc/self");
        assert!(fill_disk(nowhere).is_err());
    }
}
