//! A clock on which the processes of a host agree.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// How long the host has been up and awake (`CLOCK_MONOTONIC`): every process sees the same, and no change of the date moves
/// it. For times that one process sets and another one keeps; within a process there is a clock with moments.
pub fn uptime() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC);
    now.expect("every Linux has this clock").into()
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
