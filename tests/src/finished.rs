//! What is left of a run when it has ended.

use crate::record::Record;
use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

/// A run that has ended. Its `Display` is what an assertion should print.
#[derive(Debug)]
pub struct Finished {
    pub(crate) who: String,
    /// How the binary ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it said beside.
    pub stderr: String,
    /// The audit records it left.
    pub records: Vec<Record>,
    /// From start to exit.
    pub took: Duration,
}

impl Finished {
    /// The exit code; a death by signal is no code.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// What the probe answered under this name.
    pub fn answer(&self, name: &str) -> String {
        crate::probe::answers(&self.stdout)
            .remove(name)
            .unwrap_or_default()
    }

    /// Asserts the exit code.
    #[track_caller]
    pub fn exited(&self, code: i32) -> &Self {
        assert_eq!(self.code(), Some(code), "exit code of {self}");
        self
    }

    /// Records about this name or address and port.
    pub fn about(&self, host: &str, port: u16) -> Vec<&Record> {
        self.records
            .iter()
            .filter(|record| record.is_about(host, port))
            .collect()
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signal = self.status.signal();
        writeln!(
            f,
            "{}: {:?} {signal:?} after {:?}",
            self.who,
            self.code(),
            self.took
        )?;
        let text = self.text();
        let short: String = text.chars().take(4000).collect();
        writeln!(
            f,
            "stdout ({} bytes): {short}\nstderr: {}",
            self.stdout.len(),
            self.stderr
        )?;
        for Record(value) in &self.records {
            writeln!(f, "audit: {value}")?;
        }
        Ok(())
    }
}
