//! What others see of a process's command line and environment.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use crate::error::{Called, Error, Result};

/// Overwrites the command line and the environment that this process was started with, or inherited by a fork: from now on
/// `/proc/PID/cmdline` says `title` and `/proc/PID/environ` nothing. Either may hold secrets of the one who gave them.
///
/// Nothing in this process may want them any more.
pub fn retitle(title: &str) -> Result<()> {
    let stat = fs::read_to_string("/proc/self/stat").called("read /proc/self/stat")?;
    let [arguments, arguments_end, environment, environment_end] =
        areas(&stat).ok_or_else(|| Error::new("parse /proc/self/stat", libc::EPROTO))?;
    let memory = OpenOptions::new()
        .write(true)
        .open("/proc/self/mem")
        .called("open /proc/self/mem")?;
    let blank = |from: u64, to: u64, text: &[u8]| {
        let length = usize::try_from(to.saturating_sub(from)).unwrap_or(0);
        let mut bytes = vec![0; length];
        let kept = text.len().min(length);
        bytes[..kept].copy_from_slice(&text[..kept]);
        memory
            .write_all_at(&bytes, from)
            .called("write /proc/self/mem")
    };
    blank(arguments, arguments_end, title.as_bytes())?;
    blank(environment, environment_end, b"")
}

/// Where the arguments and the environment begin and end: fields 48 to 51 of `proc_pid_stat(5)`.
fn areas(stat: &str) -> Option<[u64; 4]> {
    let (_, fields) = stat.rsplit_once(')')?;
    // The first field behind the name is the third one.
    let mut fields = fields.split_ascii_whitespace().skip(48 - 3);
    let mut next = || fields.next()?.parse().ok();
    Some([next()?, next()?, next()?, next()?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apart::apart;

    #[test]
    fn nobody_reads_the_old_command_line_and_environment() {
        apart(|| {
            assert!(
                !fs::read("/proc/self/environ")
                    .expect("environ")
                    .iter()
                    .all(|byte| *byte == 0)
            );

            retitle("title").expect("retitle");

            let line = fs::read("/proc/self/cmdline").expect("cmdline");
            assert!(line.starts_with(b"title\0"), "{line:?}");
            assert!(line[5..].iter().all(|byte| *byte == 0), "{line:?}");
            assert!(
                fs::read("/proc/self/environ")
                    .expect("environ")
                    .iter()
                    .all(|byte| *byte == 0)
            );
        });
    }
}
