//! Writes a record where its verdict is given: when the call returns, the kernel has it.
//!
//! One `write(2)` of whole lines on a file that is opened to append: what follows the verdict can rely on the record, a
//! process that is killed takes none with it, and two processes never mix their lines.

use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::lines::{say, say_missing};
use super::owed;
use crate::{Limiter, Record, Rotating, fault};

#[derive(Debug)]
pub(super) struct Direct {
    file: Rotating,
    text: Vec<u8>,
    /// The last write may have stopped inside a line.
    torn: bool,
    complaints: Limiter,
}

impl Direct {
    pub(super) fn new(file: Rotating) -> Self {
        Self {
            // One who was killed inside its write may have left half a line.
            torn: file.ends_inside_a_line().unwrap_or_default(),
            file,
            text: Vec::new(),
            complaints: Limiter::default(),
        }
    }

    /// Writes the record, before it a word about those that are missing, if any are.
    pub(super) fn write(&mut self, record: &Record, missing: u64) -> io::Result<()> {
        self.begin();
        say_missing(&mut self.text, missing);
        say(&mut self.text, record);
        let result = self.file.write_at_once(&self.text);
        self.torn = result.is_err();
        if let Err(error) = &result {
            self.complain(record.time, error);
        }
        result
    }

    /// Writes a word about records that are missing.
    pub(super) fn say_missing(&mut self, missing: u64) -> io::Result<()> {
        self.begin();
        say_missing(&mut self.text, missing);
        let result = self.file.write_at_once(&self.text);
        self.torn = result.is_err();
        result
    }

    /// Nothing to write yet, behind a whole line. Half a record was never answered by a verdict, and is no record: it goes, unless
    /// the file is somebody else's.
    fn begin(&mut self) {
        self.text.clear();
        if self.torn && !(self.is_bounded() && self.file.cut_half_line().is_ok()) {
            self.text.push(b'\n');
        }
    }

    /// Once in a while.
    pub(super) fn complain(&mut self, now: SystemTime, error: &io::Error) {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        if let Some(held_back) = self.complaints.admit(now) {
            fault!(%error, held_back, "write to the audit file");
        }
    }

    /// Writes what processes that were killed owe to this trail.
    pub(super) fn collect(&mut self) -> io::Result<()> {
        if !self.file.is_bounded() {
            return Ok(());
        }
        for (claim, records) in owed::collect(self.file.path())? {
            for record in &records {
                self.write(record, 0)?;
            }
            claim.settle()?;
        }
        Ok(())
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.file.is_bounded()
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }
}
