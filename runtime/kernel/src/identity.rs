//! Which process it is: its number with the start of that process, so that no later one of the number is taken for it.
//!
//! Written down as one line, `PID START`, the start in ticks since the start of the host. With the boot id of the host it
//! names one process for ever.

use std::fs;
use std::io;
use std::path::Path;

use crate::look::started;
use crate::{Called, Result};

/// A process that cannot be taken for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// When it started, in ticks since the start of the host.
    pub start: u64,
}

impl Identity {
    /// The process that has this number now; `ESRCH` when none has it.
    pub fn of(pid: u32) -> Result<Self> {
        Ok(Self {
            pid,
            start: started(pid)?,
        })
    }

    /// Writes it down, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        let fresh = path.with_added_extension("new");
        fs::write(&fresh, format!("{} {}\n", self.pid, self.start)).called("write")?;
        fs::rename(fresh, path).called("rename")
    }

    /// Who was written down; `None` when nobody was.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn parse(text: &str) -> Option<Identity> {
    let (pid, start) = text.trim_end().split_once(' ')?;
    Some(Identity {
        pid: pid.parse().ok()?,
        start: start.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_written_down_is_read_again_and_half_a_line_is_nobody() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("it.pid");
        assert_eq!(Identity::read(&path).expect("read"), None);

        let own = Identity::of(std::process::id()).expect("it runs");
        own.write(&path).expect("written");

        assert_eq!(Identity::read(&path).expect("read"), Some(own));
        assert_eq!(fs::read_dir(base.path()).expect("listed").count(), 1);
        fs::write(&path, "17").expect("written");
        assert_eq!(Identity::read(&path).expect("read"), None);
    }

    #[test]
    fn nobody_has_no_identity() {
        let error = Identity::of(u32::MAX).expect_err("nobody has this number");
        assert_eq!(error.errno(), libc::ESRCH);
    }
}
