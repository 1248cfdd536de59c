//! A clock on which the processes of a host agree.

use std::time::Duration;

/// How long the host has been up and awake (`CLOCK_MONOTONIC`): every process sees the same, and no change of the date moves
/// it. For times that one process sets and another one keeps; within a process there is a clock with moments.
pub fn uptime() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec to the pointer, which is to a local of that type.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    assert_eq!(answer, 0, "every Linux has this clock");
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    // It counts from zero, and nanoseconds stay below a second.
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_sees_the_same_time() {
        let before = uptime();
        let told = std::process::Command::new("cut")
            .args(["-d ", "-f1", "/proc/uptime"])
            .output()
            .expect("read");
        let after = uptime();

        let told: f64 = String::from_utf8_lossy(&told.stdout)
            .trim()
            .parse()
            .expect("seconds");
        // That one counts while the host sleeps, too, and in hundredths.
        assert!(told + 0.02 >= before.as_secs_f64(), "{told} {before:?}");
        assert!(after > before);
    }
}
