//! The audit trail: one JSON line per verdict.
//!
//! ```text
//! a file      record ──> write(2), appended
//! a pipe      record ──> queue (bounded) ──> writer thread ──> write(2)
//!                └── no room: counted; the trail itself says how many lines are missing as soon as it can
//! ```
//!
//! What a regular file is told is in the kernel when the call returns, so it outlives the process however that ends. A pipe
//! or a device may make its writer wait, and reporting never waits for a reader: there the record is only on its way.
//!
//! A verdict that must not exist without its record takes a [`Slot`] *before* it is obeyed: without a slot nothing is
//! allowed, so a disk that is full or a reader that stalls or leaves closes the sandbox instead of blinding its owner.
//! [Why](../../docs/decisions/0031-write-the-record-before-the-verdict.md).

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use parking_lot::{Condvar, Mutex};

use crate::{Record, Rotating, fault};

mod direct;
mod lines;
mod owed;
mod writer;

use direct::Direct;
use owed::Owed;

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
pub enum Unopened {
    /// The kernel says why.
    #[error("open {}", path.display())]
    Refused {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// To wait for a reader would be to wait for somebody who may never come.
    #[error("open {}, a pipe that nobody reads", path.display())]
    Unread {
        /// Which one.
        path: PathBuf,
    },
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

    /// A trail appended to a file, which is created for its owner only. What is no regular file is not written to before
    /// [`Audit::start`], so that a process can open it, fork, and only then have threads. Waits for no reader of a pipe.
    pub fn file(path: &Path) -> Result<Self, Unopened> {
        Self::over(path, Rotating::unbounded(path))
    }

    /// The same, put aside when it has `most` bytes: see [`Rotating`]. What was allowed and is not recorded yet is noted beside
    /// it, in `NAME.owed.ID`; the next process that opens the trail and starts it writes the records of one that was killed.
    pub fn rotating(path: &Path, most: u64) -> Result<Self, Unopened> {
        Self::over(path, Rotating::open(path, most))
    }

    fn over(path: &Path, opened: io::Result<Rotating>) -> Result<Self, Unopened> {
        let unopened = |source| {
            let path = path.to_owned();
            if is_unread(&path, &source) {
                Unopened::Unread { path }
            } else {
                Unopened::Refused { path, source }
            }
        };
        let file = opened.map_err(unopened)?;
        Ok(if file.is_regular().map_err(unopened)? {
            Self::direct(file)
        } else {
            Self::new(Sink::Queue(file))
        })
    }

    fn direct(file: Rotating) -> Self {
        let trail = Self::new(Sink::File);
        trail.0.state.lock().direct = Some(Direct::new(file));
        trail
    }

    /// Starts the writer thread, where there has to be one. Writes to a bounded file what killed processes owe it.
    pub fn start(&self) -> io::Result<()> {
        let mut state = self.0.state.lock();
        if let Some(direct) = &mut state.direct
            && let Err(error) = direct.collect()
        {
            // The notes stay, and the next one tries again.
            fault!(%error, "collect the audit records of the process before");
        }
        if let Sink::Queue(file) = &self.0.sink
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
        // The next refusal tries whether it can be written to again.
        if state.failing || state.occupied() >= ROOM {
            return None;
        }
        state.reserved += 1;
        let place = state.free.pop().unwrap_or_else(|| {
            state.places += 1;
            Place(state.places)
        });
        Some(Slot {
            shared: Arc::clone(&self.0),
            place,
            kept: false,
        })
    }

    /// Notes what the slot of this place will say, as far as it is known, where it outlives this process: see
    /// [`Audit::rotating`]. Without it, nothing whose outcome is to stand in the record may be begun.
    pub fn owe(&self, place: Place, record: impl FnOnce() -> Record) -> Result<(), Unwritten> {
        let mut state = self.0.state.lock();
        let State {
            direct,
            owed,
            closed,
            ..
        } = &mut *state;
        let Some(direct) = direct.as_mut().filter(|direct| direct.is_bounded()) else {
            return Ok(());
        };
        let record = record();
        let now = record.time;
        let noted = match owed {
            _ if *closed => return Err(Unwritten),
            Some(owed) => owed.note(place, record),
            None => {
                Owed::begin(direct.path()).and_then(|begun| owed.insert(begun).note(place, record))
            }
        };
        let noted = noted.map_err(|error| direct.complain(now, &error));
        state.unnoted = noted.is_err().then_some(place);
        noted.map_err(|()| Unwritten)
    }

    /// Whether what is allowed can be recorded now. When the last record or note could not be written, this tries again: nobody
    /// needs to be refused for it to be known that there is room again.
    pub fn writes(&self) -> bool {
        let mut state = self.0.state.lock();
        if !state.closed {
            state.retry();
        }
        !state.failing && state.unnoted.is_none()
    }

    /// Leaves one record. A file has it when this returns. Never waits for a reader; a record for which there is no room or
    /// that cannot be written is counted as lost, and the trail says so.
    pub fn record(&self, record: Record) {
        let mut state = self.0.state.lock();
        match self.0.sink {
            Sink::Queue(_) | Sink::Memory if state.occupied() >= ROOM => state.lose(1),
            Sink::Nothing | Sink::Memory | Sink::File | Sink::Queue(_) => {
                // It is counted.
                let _ = self.0.put(&mut state, record);
            }
        }
    }

    /// What a trail in memory holds, oldest first.
    pub fn records(&self) -> Vec<Record> {
        match self.0.sink {
            Sink::Memory => self.0.state.lock().waiting.iter().cloned().collect(),
            Sink::Nothing | Sink::File | Sink::Queue(_) => Vec::new(),
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
        if let Some(owed) = state.owed.take() {
            owed.end();
        }
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
pub struct Slot {
    shared: Arc<Shared>,
    place: Place,
    /// Its record could not be written yet; the place is given back when it is.
    kept: bool,
}

/// Names a slot while it is held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Place(u16);

/// A record that could not be written: what it is about must not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write the audit record")]
pub struct Unwritten;

impl Slot {
    /// Which one it is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Leaves the record that the room was taken for. A file has it when this returns. What was owed at this place gave the
    /// record its decision, and stays owed until the record could be written: something has come of it already.
    pub fn record(mut self, record: Record) -> Result<(), Unwritten> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.lock();
        let owed = state.owed.as_ref();
        let Some(decision) = owed.and_then(|owed| owed.decision(self.place)) else {
            return shared.put(&mut state, record);
        };
        let record = Record { decision, ..record };
        let written = state.write(&record);
        if written.is_err() {
            self.kept = true;
            state.late.push_back((self.place, record));
        }
        written
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.kept {
            self.shared.state.lock().give_back(self.place);
        }
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
    /// A regular file: [`State::direct`].
    File,
    /// Anything whose writer may have to wait.
    Queue(Rotating),
}

#[derive(Debug, Default)]
struct State {
    direct: Option<Direct>,
    /// The last write failed: nothing is allowed before one succeeds.
    failing: bool,
    /// The last note failed, and where.
    unnoted: Option<Place>,
    waiting: VecDeque<Record>,
    /// What the writer has taken and not settled yet.
    in_hand: u64,
    reserved: usize,
    /// Places that were given back; the last one is taken first.
    free: Vec<Place>,
    /// How many places there are.
    places: u16,
    /// What slots owe, once one owes anything.
    owed: Option<Owed>,
    /// Owed, and could not be written so far; each keeps its place.
    late: VecDeque<(Place, Record)>,
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
    fn put(&self, state: &mut State, record: Record) -> Result<(), Unwritten> {
        match self.sink {
            Sink::Nothing => Ok(()),
            Sink::Memory => {
                state.waiting.push_back(record);
                Ok(())
            }
            Sink::File => {
                let written = state.write(&record);
                if written.is_err() {
                    state.lose(1);
                }
                written
            }
            Sink::Queue(_) if state.writer == Writer::Ended => {
                state.lose(1);
                Err(Unwritten)
            }
            Sink::Queue(_) => {
                state.waiting.push_back(record);
                if state.asleep {
                    state.asleep = false;
                    self.more.notify_one();
                }
                // It is tried all the same; what it is about does not happen on a promise that was just broken.
                if state.failing {
                    Err(Unwritten)
                } else {
                    Ok(())
                }
            }
        }
    }
}

impl State {
    fn occupied(&self) -> usize {
        self.waiting.len() + self.reserved
    }

    /// Writes a record to the file, and behind it what is late.
    fn write(&mut self, record: &Record) -> Result<(), Unwritten> {
        self.write_one(record)?;
        self.write_late();
        Ok(())
    }

    fn write_late(&mut self) {
        while let Some((place, late)) = self.late.pop_front() {
            if self.write_one(&late).is_err() {
                self.late.push_front((place, late));
                break;
            }
            self.give_back(place);
        }
    }

    /// Tries again what failed last.
    fn retry(&mut self) {
        if self.failing && self.late.is_empty() {
            let direct = self.direct.as_mut();
            let said = direct.is_some_and(|direct| direct.say_missing(self.unsaid).is_ok());
            if said {
                self.failing = false;
                self.unsaid = 0;
            }
        } else if self.failing {
            self.write_late();
        }
        if let Some(place) = self.unnoted {
            let room = match (&self.owed, &self.direct) {
                (Some(owed), _) => owed.try_place(place).is_ok(),
                (None, Some(direct)) => match Owed::begin(direct.path()) {
                    Ok(begun) => self.owed.insert(begun).try_place(place).is_ok(),
                    Err(_) => false,
                },
                (None, None) => true,
            };
            if room {
                self.unnoted = None;
            }
        }
    }

    fn write_one(&mut self, record: &Record) -> Result<(), Unwritten> {
        let written = match &mut self.direct {
            Some(direct) if !self.closed => direct.write(record, self.unsaid).is_ok(),
            Some(_) | None => false,
        };
        self.failing = !written;
        if !written {
            return Err(Unwritten);
        }
        self.written += 1;
        self.unsaid = 0;
        Ok(())
    }

    /// The place is free again, and nothing is owed there.
    fn give_back(&mut self, place: Place) {
        if let Some(owed) = &mut self.owed {
            owed.settle(place);
        }
        self.free.push(place);
        self.reserved -= 1;
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
            waiting: (self.waiting.len() + self.late.len()) as u64 + self.in_hand,
        }
    }
}

/// Whether this is what opening a pipe without a reader comes to.
fn is_unread(path: &Path, error: &io::Error) -> bool {
    let is_pipe = || fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
    error.raw_os_error() == Some(Errno::ENXIO as i32) && is_pipe()
}

/// How many records may wait. As many again may be in the writer's hands.
const ROOM: usize = 4096;

#[cfg(test)]
mod tests;
