//! Faults of the host: its disk, its table of files, its clock.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

use super::repair::Repair;

/// Writes until nothing more fits.
pub(super) fn fill_disk(directory: &Path) -> Result<Repair, String> {
    let path = directory.join("filler");
    let mut file =
        File::create(&path).map_err(|error| format!("create {}: {error}", path.display()))?;
    let block = vec![0; 1 << 16];
    let mut left = MOST_BLOCKS;
    while left > 0 && file.write_all(&block).is_ok() {
        left -= 1;
    }
    // The last bytes as well.
    while left > 0 && file.write_all(&[0]).is_ok() {
        left -= 1;
    }
    if left == 0 {
        let _removed = fs::remove_file(&path);
        return Err("the file system is too large to be filled".into());
    }
    Ok(Repair::File(path))
}

/// Lowers the limit of files of the whole host. Whoever may administer the host is not bound by it.
pub(super) fn fill_file_table(keeper: u32, spare: i64) -> Result<Repair, String> {
    let status = fs::read_to_string(format!("/proc/{keeper}/status")).unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    if effective.is_none_or(|bits| bits & CAP_SYS_ADMIN != 0) {
        return Err("the keeper has CAP_SYS_ADMIN, whom the limit of files does not bind".into());
    }
    let before =
        fs::read_to_string(FILE_MAX).map_err(|error| format!("read {FILE_MAX}: {error}"))?;
    let table = fs::read_to_string(FILE_NR).unwrap_or_default();
    let used: u64 = table
        .split_whitespace()
        .next()
        .and_then(|used| used.parse().ok())
        .unwrap_or(0);
    fs::write(FILE_MAX, used.saturating_add_signed(spare).to_string())
        .map_err(|error| format!("write {FILE_MAX}: {error}"))?;
    Ok(Repair::Setting {
        path: FILE_MAX,
        before,
    })
}

pub(super) fn jump(by: Duration) -> Result<Repair, String> {
    shift(by, true).map(|()| Repair::Clock(by))
}

pub(super) fn set_back(by: Duration) {
    let _refused = shift(by, false);
}

fn shift(by: Duration, forward: bool) -> Result<(), String> {
    let now = clock_gettime(ClockId::Realtime);
    let seconds = i64::try_from(by.as_secs()).unwrap_or(i64::MAX);
    let seconds = if forward { seconds } else { -seconds };
    let then = Timespec {
        tv_sec: now.tv_sec.saturating_add(seconds),
        tv_nsec: now.tv_nsec,
    };
    clock_settime(ClockId::Realtime, then).map_err(|error| format!("set the clock: {error}"))
}

const FILE_MAX: &str = "/proc/sys/fs/file-max";
const FILE_NR: &str = "/proc/sys/fs/file-nr";
const CAP_SYS_ADMIN: u64 = 1 << 21;
/// 16 MiB blocks of 64 KiB, and a block of single bytes.
const MOST_BLOCKS: usize = 1 << 17;
