//! One session: what it has said, who reads it, and how it stands.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use holdfast_kernel::Result;
use holdfast_kernel::ready::Ready;
use holdfast_kernel::terminal::{self, Size};
use holdfast_wire::v1;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Sessions;
use super::io::{Input, Parts};
use super::ring::{self, Ring};

/// What a session is started with, besides its program.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    /// The size of its terminal, if it gets one.
    pub(crate) terminal: Option<v1::TerminalSize>,
    /// A reader is about to come: no output is overwritten before it does.
    pub(crate) attended: bool,
    /// Its whole tree can be ended.
    pub(crate) herded: bool,
    /// When the launcher kills that, in milliseconds of the host's monotonic clock; 0 for never.
    pub(crate) deadline_ms: u64,
    /// Kept for the keepers.
    pub(crate) note: Vec<u8>,
    /// A canary: nobody's session, forgotten soon after its end and never counted.
    pub(crate) fleeting: bool,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its number; never used again.
    pub(crate) id: u64,
    /// Nobody's: a canary.
    pub(super) fleeting: bool,
    note: Vec<u8>,
    started_ms: i64,
    terminal: bool,
    pub(super) output: Mutex<Output>,
    /// Output or the exit has come.
    pub(super) arrived: Notify,
    /// A client has taken output, or is gone: there may be room.
    pub(super) taken: Notify,
    input: tokio::sync::Mutex<Option<Input>>,
    master: Mutex<Option<Arc<Ready<OwnedFd>>>>,
    /// Cancelled when nothing goes to it any more: it is over, or its terminal has hung up.
    pub(crate) gone: CancellationToken,
    home: Weak<Sessions>,
}

/// What a session has said and how it stands.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) ring: Ring,
    /// Bytes that came so far: of the output, of the errors.
    written: [u64; 2],
    /// How far each attached client has read, by its number.
    readers: HashMap<u64, u64>,
    next_reader: u64,
    /// A reader is still to come, and nothing may be lost before.
    awaited: bool,
    /// How many pipes are still read.
    open: usize,
    /// Whether nobody will read it any more: the output, the errors.
    closed: [bool; 2],
    pub(super) exit: Option<v1::Exit>,
    /// Whether that was because its time was up.
    timed_out: bool,
    ended_ms: i64,
    over: bool,
}

/// The streams of a session, and where each is read.
pub(super) type Outputs = Vec<(v1::Stream, Arc<Ready<OwnedFd>>)>;

impl Session {
    /// A session that has just started, and the ends of it that have to be read.
    pub(super) fn begin(
        id: u64,
        terms: Terms,
        parts: Parts,
        home: &Arc<Sessions>,
        now_ms: i64,
    ) -> (Arc<Self>, Outputs) {
        let session = Self {
            id,
            fleeting: terms.fleeting,
            note: terms.note,
            started_ms: now_ms,
            terminal: parts.master.is_some(),
            output: Mutex::new(Output {
                ring: Ring::new(RING),
                written: [0; 2],
                readers: HashMap::new(),
                next_reader: 0,
                awaited: terms.attended,
                open: parts.outputs.len(),
                closed: [false; 2],
                exit: None,
                timed_out: false,
                ended_ms: 0,
                over: false,
            }),
            arrived: Notify::new(),
            taken: Notify::new(),
            input: tokio::sync::Mutex::new(Some(parts.input)),
            master: Mutex::new(parts.master),
            gone: CancellationToken::new(),
            home: Arc::downgrade(home),
        };
        (Arc::new(session), parts.outputs)
    }

    /// Sets the size of its terminal; without one there is nothing to set.
    pub(crate) fn resize(&self, size: Size) -> Result<()> {
        let master = self.master.lock();
        let Some(master) = master.as_ref() else {
            return Ok(());
        };
        terminal::resize(master.inner(), size)
    }

    /// Whether it has a terminal, which has only one way to be closed.
    pub(super) fn has_terminal(&self) -> bool {
        self.terminal
    }

    /// Takes its input to write to; one writer at a time.
    pub(crate) fn input(&self) -> &tokio::sync::Mutex<Option<Input>> {
        &self.input
    }

    /// Closes our end of a stream: its writers get EPIPE. A terminal hangs up: its processes get SIGHUP.
    pub(crate) fn close(&self, stream: v1::Stream) {
        self.output.lock().closed[place(stream)] = true;
        if self.terminal {
            self.let_go();
        }
        self.taken.notify_waiters();
    }

    /// How it stands.
    pub(crate) fn state(&self) -> v1::SessionState {
        let output = self.output.lock();
        let (from, to) = output.ring.kept();
        v1::SessionState {
            session: self.id,
            note: self.note.clone(),
            exit: output.exit.clone(),
            from,
            to,
            stdout_bytes: output.written[0],
            stderr_bytes: output.written[1],
            terminal: self.terminal,
            started_ms: self.started_ms,
            ended_ms: output.ended_ms,
            timed_out: output.timed_out,
        }
    }

    /// How many bytes of its output are kept.
    pub(super) fn kept(&self) -> u64 {
        let (from, to) = self.output.lock().ring.kept();
        to - from
    }

    /// Whether a client is at its output.
    pub(super) fn is_read(&self) -> bool {
        !self.output.lock().readers.is_empty()
    }

    /// Forgets what it has said; who reads it later hears how much that was.
    pub(super) fn drop_output(&self) {
        self.output.lock().ring.clear();
    }

    /// Its process has ended.
    pub(super) fn end(&self, exit: v1::Exit, timed_out: bool, now_ms: i64) {
        {
            let mut output = self.output.lock();
            output.exit = Some(exit);
            output.timed_out = timed_out;
            output.ended_ms = now_ms;
        }
        self.arrived.notify_waiters();
    }

    /// One of its streams is read to its end, or as far as it will be.
    pub(super) fn drained(&self) {
        self.output.lock().open -= 1;
        self.arrived.notify_waiters();
        if let Some(home) = self.home.upgrade() {
            home.settle(self);
        }
    }

    /// Lets go of its descriptors if it is over; true the first time.
    pub(super) fn settle(&self) -> bool {
        {
            let mut output = self.output.lock();
            if output.over || !output.is_complete() {
                return false;
            }
            output.over = true;
        }
        self.let_go();
        true
    }

    /// Nothing goes to it any more. A writer that is at it lets go by itself.
    fn let_go(&self) {
        self.gone.cancel();
        self.master.lock().take();
        if let Ok(mut input) = self.input.try_lock() {
            input.take();
        }
    }

    /// Attaches a client that has read up to `offset`; one at [`u64::MAX`] wants to know the exit and nothing else.
    pub(crate) fn attach(self: &Arc<Self>, offset: u64) -> Attached {
        let number = (offset != u64::MAX).then(|| {
            let mut output = self.output.lock();
            let number = output.next_reader;
            output.next_reader += 1;
            output.awaited = false;
            output.readers.insert(number, offset);
            number
        });
        Attached {
            session: Arc::clone(self),
            number,
            offset,
            told: false,
        }
    }
}

impl Output {
    /// The first byte that must not be lost, if any must not.
    pub(super) fn unread(&self) -> Option<u64> {
        let first = self.readers.values().copied().min();
        first.or(self.awaited.then_some(0))
    }

    /// Bytes of this stream have come.
    pub(super) fn push(&mut self, stream: v1::Stream, bytes: Bytes) {
        let unread = self.unread();
        self.written[place(stream)] += bytes.len() as u64;
        self.ring.push(stream, bytes, unread);
    }

    /// Whether nobody will read this stream any more.
    pub(super) fn is_closed(&self, stream: v1::Stream) -> bool {
        self.closed[place(stream)]
    }

    /// Whether its end is known and all it has said has been read.
    fn is_complete(&self) -> bool {
        self.exit.is_some() && self.open == 0
    }
}

/// A client that reads a session.
#[derive(Debug)]
pub(crate) struct Attached {
    session: Arc<Session>,
    /// `None` for one that does not count as a reader.
    number: Option<u64>,
    offset: u64,
    told: bool,
}

impl Attached {
    /// What comes next; `None` after the exit.
    pub(crate) async fn next(&mut self) -> Option<v1::Output> {
        use v1::output::Kind;
        if self.told {
            return None;
        }
        let session = Arc::clone(&self.session);
        loop {
            let arrived = session.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            let Some(kind) = self.look() else {
                arrived.await;
                continue;
            };
            let mut state = None;
            match &kind {
                Kind::Exit(_) => {
                    self.told = true;
                    state = Some(self.session.state());
                    self.leave();
                }
                Kind::Lost(bytes) => self.offset += bytes,
                Kind::Chunk(chunk) => self.offset += chunk.data.len() as u64,
            }
            self.session.taken.notify_waiters();
            return Some(v1::Output {
                kind: Some(kind),
                state,
            });
        }
    }

    /// What stands at its offset now.
    fn look(&self) -> Option<v1::output::Kind> {
        use v1::output::Kind;
        let mut output = self.session.output.lock();
        let exit = |output: &Output| {
            let exit = output.exit.clone().filter(|_| output.is_complete());
            exit.map(Kind::Exit)
        };
        let Some(number) = self.number else {
            return exit(&output);
        };
        output.readers.insert(number, self.offset);
        match output.ring.at(self.offset) {
            ring::Next::Nothing => exit(&output),
            ring::Next::Lost(bytes) => Some(Kind::Lost(bytes)),
            ring::Next::Chunk(stream, data) => Some(Kind::Chunk(v1::OutputChunk {
                stream: stream.into(),
                offset: self.offset,
                data,
            })),
        }
    }

    /// It has been told everything. That is kept all the same: what was told may be lost on its way with a keeper or a gateway,
    /// and then it is asked for again.
    fn leave(&mut self) {
        if let Some(number) = self.number.take() {
            self.session.output.lock().readers.remove(&number);
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.session.output.lock().readers.remove(&number);
        }
        self.session.taken.notify_waiters();
    }
}

/// Where a stream stands among the two.
const fn place(stream: v1::Stream) -> usize {
    match stream {
        v1::Stream::Stdout | v1::Stream::Unspecified => 0,
        v1::Stream::Stderr => 1,
    }
}

/// How much output is kept for a session that nobody reads.
const RING: u64 = 1 << 20;
