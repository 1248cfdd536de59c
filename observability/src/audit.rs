//! The audit trail: one JSON line per verdict, written by a thread of its own.
//!
//! ```text
//! record ──> queue (bounded) ──> writer thread ──> file, appended
//!    └── no room: counted; the trail itself says how many lines are missing as soon as there is room again
//! ```
//!
//! Reporting never blocks. A verdict that must not exist without its record takes a [`Slot`] *before* it is obeyed:
//! without a slot nothing is allowed, so a disk that stalls closes the sandbox instead of blinding its owner.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::{Record, Rotating};

mod writer;

/// Where records go. Cheap to clone; all clones are one trail.
#[derive(Debug, Clone)]
pub struct Audit(Arc<Shared>);

/// How the trail is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Lines that were written.
    pub written: u64,
    /// Records that found no room or could not be written.
    pub lost: u64,
    /// Records that are not written yet.
    pub waiting: u64,
}

/// An audit file that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("open {}", path.display())]
pub struct Unopened {
    path: PathBuf,
    source: io::Error,
}

impl Audit {
    /// A trail that keeps nothing.
    pub fn off() -> Self {
        Self::new(Sink::Nothing)
    }

    /// A trail in memory, for tests: see [`Audit::records`].
    pub fn memory() -> Self {
        Self::new(Sink::Memory)
    }

    /// A trail appended to a file, which is created for its owner only. Nothing is written before
    /// [`Audit::start`], so that a process can open it, fork, and only then have threads.
    pub fn file(path: &Path) -> Result<Self, Unopened> {
        Self::over(path, Rotating::unbounded(path))
    }

    /// The same, put aside when it has `most` bytes: see [`Rotating`].
    pub fn rotating(path: &Path, most: u64) -> Result<Self, Unopened> {
        Self::over(path, Rotating::open(path, most))
    }

    fn over(path: &Path, opened: io::Result<Rotating>) -> Result<Self, Unopened> {
        let file = opened.map_err(|source| Unopened {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self::new(Sink::File(file)))
    }

    /// Starts the writer thread of a file trail.
    pub fn start(&self) -> io::Result<()> {
        let mut state = self.0.state.lock();
        if let Sink::File(file) = &self.0.sink
            && state.writer == Writer::Unborn
        {
            let file = file.try_clone()?;
            writer::spawn(Arc::clone(&self.0), file)?;
            state.writer = Writer::Writing;
        }
        Ok(())
    }

    /// Takes room for one record before its verdict is obeyed. `None`: there is none, so allow nothing.
    pub fn reserve(&self) -> Option<Slot> {
        let mut state = self.0.state.lock();
        if state.occupied() >= ROOM {
            return None;
        }
        state.reserved += 1;
        Some(Slot(Arc::clone(&self.0)))
    }

    /// Leaves one record. Never blocks; without room the record is counted as lost, and the trail says so.
    pub fn record(&self, record: Record) {
        let mut state = self.0.state.lock();
        if state.occupied() >= ROOM {
            state.lose(1);
        } else {
            self.0.put(&mut state, record);
        }
    }

    /// What a trail in memory holds, oldest first.
    pub fn records(&self) -> Vec<Record> {
        match self.0.sink {
            Sink::Memory => self.0.state.lock().waiting.iter().cloned().collect(),
            Sink::Nothing | Sink::File(_) => Vec::new(),
        }
    }

    /// How the trail is doing.
    pub fn tally(&self) -> Tally {
        self.0.state.lock().tally()
    }

    /// Writes what waits and ends the writer, within `limit`. What could not be written by then counts as lost.
    pub fn close(&self, limit: Duration) -> Tally {
        let mut state = self.0.state.lock();
        state.closed = true;
        self.0.more.notify_one();
        let writing = |state: &mut State| state.writer == Writer::Writing;
        let waited = self.0.done.wait_while_for(&mut state, writing, limit);
        if waited.timed_out() {
            state.give_up();
        }
        state.tally()
    }

    fn new(sink: Sink) -> Self {
        Self(Arc::new(Shared {
            sink,
            state: Mutex::default(),
            more: Condvar::new(),
            done: Condvar::new(),
        }))
    }
}

/// Room for one record. Dropped without a record, it is free again.
#[derive(Debug)]
#[must_use = "a slot that is dropped writes nothing"]
pub struct Slot(Arc<Shared>);

impl Slot {
    /// Leaves the record that the room was taken for.
    pub fn record(self, record: Record) {
        let shared = &self.0;
        shared.put(&mut shared.state.lock(), record);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.state.lock().reserved -= 1;
    }
}

#[derive(Debug)]
struct Shared {
    sink: Sink,
    state: Mutex<State>,
    /// Told to the writer: there is something to do.
    more: Condvar,
    /// Told by the writer: it has ended.
    done: Condvar,
}

#[derive(Debug)]
enum Sink {
    Nothing,
    Memory,
    File(Rotating),
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Record>,
    /// What the writer has taken and not settled yet.
    in_hand: u64,
    reserved: usize,
    writer: Writer,
    /// The writer sleeps until it is told of more; otherwise it will look by itself.
    asleep: bool,
    closed: bool,
    written: u64,
    lost: u64,
    /// Lost since the trail last said so.
    unsaid: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Writer {
    #[default]
    Unborn,
    Writing,
    Ended,
}

impl Shared {
    fn put(&self, state: &mut State, record: Record) {
        match self.sink {
            Sink::Nothing => {}
            Sink::Memory => state.waiting.push_back(record),
            Sink::File(_) if state.writer == Writer::Ended => state.lose(1),
            Sink::File(_) => {
                state.waiting.push_back(record);
                if state.asleep {
                    state.asleep = false;
                    self.more.notify_one();
                }
            }
        }
    }
}

impl State {
    fn occupied(&self) -> usize {
        self.waiting.len() + self.reserved
    }

    fn lose(&mut self, count: u64) {
        self.lost += count;
        self.unsaid += count;
    }

    /// Nobody will write what is left.
    fn give_up(&mut self) {
        let left = self.waiting.len() as u64 + self.in_hand;
        self.waiting.clear();
        self.in_hand = 0;
        self.lose(left);
    }

    fn tally(&self) -> Tally {
        Tally {
            written: self.written,
            lost: self.lost,
            waiting: self.waiting.len() as u64 + self.in_hand,
        }
    }
}

/// How many records may wait. As many again may be in the writer's hands.
const ROOM: usize = 4096;

#[cfg(test)]
mod tests;
