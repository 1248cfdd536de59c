//! The thread that turns records into lines where writing may take as long as a reader likes.
//!
//! ```text
//! writes ──error──> failing: no slots ──a record waits, or AGAIN has passed──> tries ──written──> writes
//!                      ▲                                                         │
//!                      └───────────────────── AFTER_FAILURE ───────────error─────┘
//! ```
//!
//! What was allowed before an error is known here is at most what the queue and the writer held; each of these records counts
//! as lost unless it can be written yet.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::lines::{say, say_missing};
use super::{Shared, State, Writer};
use crate::{Limiter, Record, Rotating, fault};

pub(super) fn spawn(shared: Arc<Shared>, file: Rotating) -> io::Result<()> {
    let ending = Ending(Arc::clone(&shared));
    thread::Builder::new()
        .name("audit".into())
        .stack_size(STACK)
        .spawn(move || {
            let _ending = ending;
            Trail::new(file).follow(&shared);
        })
        .map(drop)
}

/// Says that the writer has ended, however it ended.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.give_up();
        state.writer = Writer::Ended;
        self.0.done.notify_all();
    }
}

struct Trail {
    file: Rotating,
    text: Vec<u8>,
    /// The last write stopped inside a line.
    torn: bool,
    complaints: Limiter,
    waited: Duration,
}

/// What the writer took out of the queue in one go.
struct Batch {
    records: VecDeque<Record>,
    unsaid: u64,
    last: bool,
}

impl Trail {
    fn new(file: Rotating) -> Self {
        Self {
            file,
            text: Vec::new(),
            torn: false,
            complaints: Limiter::default(),
            waited: Duration::ZERO,
        }
    }

    fn follow(mut self, shared: &Shared) {
        loop {
            let batch = take(shared);
            self.say(&batch);
            let before = self.file.length();
            let result = self.file.write_lines(&self.text);
            self.torn = result.is_err() && (self.torn || self.file.length() > before);
            let settled = settle(&mut shared.state.lock(), &batch, result.is_ok());
            if let Err(error) = result {
                self.complain(&error, batch.lines());
                self.recover(shared);
            }
            if settled {
                return;
            }
        }
    }

    fn say(&mut self, batch: &Batch) {
        self.text.clear();
        self.text.shrink_to(KEPT);
        if self.torn {
            self.text.push(b'\n');
        }
        say_missing(&mut self.text, batch.unsaid);
        for record in &batch.records {
            say(&mut self.text, record);
        }
    }

    fn complain(&mut self, error: &io::Error, lost: u64) {
        if let Some(held_back) = self.complaints.admit(self.waited) {
            fault!(%error, lost, held_back, "write to the audit file");
        }
    }

    /// Gives the disk time; only one who closes does not wait for it.
    fn recover(&mut self, shared: &Shared) {
        let mut state = shared.state.lock();
        if !state.closed {
            shared.more.wait_for(&mut state, AFTER_FAILURE);
            self.waited += AFTER_FAILURE;
        }
    }
}

impl Batch {
    fn lines(&self) -> u64 {
        self.records.len() as u64
    }
}

/// Books the outcome of one write. True when nothing is left to do.
fn settle(state: &mut State, batch: &Batch, written: bool) -> bool {
    state.in_hand = 0;
    state.failing = !written;
    if written {
        state.written += batch.lines();
    } else {
        state.lose(batch.lines());
        // It is still to be said how many were lost before.
        state.unsaid += batch.unsaid;
    }
    batch.last && state.waiting.is_empty()
}

/// Waits for something to write and takes all of it. After a failure there is always something to say: what is missing.
fn take(shared: &Shared) -> Batch {
    let mut state = shared.state.lock();
    while state.waiting.is_empty() && !state.closed {
        state.asleep = true;
        let over = if state.failing {
            shared.more.wait_for(&mut state, AGAIN).timed_out()
        } else {
            shared.more.wait(&mut state);
            false
        };
        state.asleep = false;
        if over {
            break;
        }
        if !state.closed {
            // Whoever reports next does not have to wake anybody: we look again by ourselves.
            shared.more.wait_for(&mut state, LINGER);
        }
    }
    state.in_hand = state.waiting.len() as u64;
    Batch {
        records: std::mem::take(&mut state.waiting),
        unsaid: std::mem::take(&mut state.unsaid),
        last: state.closed,
    }
}

/// How long the writer gathers records before it writes them in one go.
const LINGER: Duration = Duration::from_millis(2);

/// How long it waits after a write that failed.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// How often a trail that fails is tried while nobody asks for a verdict.
const AGAIN: Duration = Duration::from_secs(1);

/// How much of its text buffer the writer keeps between batches.
const KEPT: usize = 64 * 1024;

/// The writer formats lines and writes them; that needs little.
const STACK: usize = 128 * 1024;
