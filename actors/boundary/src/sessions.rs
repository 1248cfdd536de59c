//! Sessions: processes started in the sandbox, with their input, output and the way they ended.
//!
//! ```text
//!  Starting ── Started ──> Running ── Ended ──> Draining ── pipes at their end, or 100 ms ──> Over
//!      └── NotStarted ──> forgotten
//! ```
//!
//! A session ends when its direct child ends: its exit is recorded before anything else happens, and what is still in the
//! pipes is read. A process that the child has left behind may go on writing; nobody listens, but it is not killed.

mod io;
pub(crate) mod ring;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use holdfast_actor::Clock;
use holdfast_kernel::handoff::Socket;
use holdfast_kernel::ready::Ready;
use holdfast_kernel::terminal::{self, Size};
use holdfast_kernel::{Error, Result};
use holdfast_wire::v1::to_launcher::Kind as Ask;
use holdfast_wire::v1::{self, ToLauncher};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::{Notify, oneshot};

pub(crate) use self::io::{Input, Reader};
use self::ring::Ring;

/// Every session of the sandbox, and the launcher that makes them.
#[derive(Debug)]
pub(crate) struct Sessions {
    launcher: Arc<Ready<Arc<Socket>>>,
    next: AtomicU64,
    table: Mutex<Table>,
    starting: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    clock: Clock,
}

/// The sessions by their numbers.
#[derive(Debug, Default)]
struct Table {
    sessions: HashMap<u64, Arc<Session>>,
    /// How sessions ended that ended before they could be entered.
    early: HashMap<u64, (v1::Exit, i64)>,
}

/// What a session is started with, besides its program.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    /// The size of its terminal, if it gets one.
    pub(crate) terminal: Option<v1::TerminalSize>,
    /// A reader is about to come: no output is overwritten before it does.
    pub(crate) attended: bool,
    /// Kept for the keepers.
    pub(crate) note: Vec<u8>,
}

/// What the launcher answers to a start: the terminal's master, if one was asked for.
type Answer = std::result::Result<Option<OwnedFd>, v1::NotStarted>;

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its number; never used again.
    pub(crate) id: u64,
    /// As it came with the launch.
    note: Vec<u8>,
    /// Milliseconds since 1970.
    started_ms: i64,
    output: Mutex<Output>,
    /// Output or the exit has come.
    arrived: Notify,
    /// A client has taken output, or is gone: there may be room.
    taken: Notify,
    input: tokio::sync::Mutex<Option<Input>>,
    master: Option<Arc<Ready<OwnedFd>>>,
}

/// What a session has said and how it stands.
#[derive(Debug)]
struct Output {
    ring: Ring,
    /// Bytes that came so far: of the output, of the errors.
    written: [u64; 2],
    /// How far the attached client has read; without one the oldest output is overwritten.
    reader: Option<u64>,
    /// How many pipes are still read.
    open: usize,
    /// The streams that nobody will read any more.
    closed: Vec<v1::Stream>,
    exit: Option<v1::Exit>,
    /// Milliseconds since 1970; 0 while it runs.
    ended_ms: i64,
}

/// A started session and the ends of its pipes that have to be read.
pub(crate) struct Launched {
    /// The session.
    pub(crate) session: Arc<Session>,
    /// What is read for it, stream by stream.
    pub(crate) readers: Vec<Reader>,
}

impl Sessions {
    /// No session yet, and the launcher that will make them.
    pub(crate) fn new(launcher: Arc<Ready<Arc<Socket>>>) -> Self {
        Self {
            launcher,
            next: AtomicU64::new(1),
            table: Mutex::default(),
            starting: Mutex::default(),
            clock: Clock::tokio(),
        }
    }

    /// How every session stands, in the order of their numbers, and how many there have been.
    pub(crate) fn snapshot(&self) -> (Vec<v1::SessionState>, u64) {
        let table = self.table.lock();
        let mut states: Vec<_> = table.sessions.values().map(|one| one.state()).collect();
        states.sort_unstable_by_key(|state| state.session);
        (states, self.next.load(Ordering::Relaxed) - 1)
    }

    fn wall_ms(&self) -> i64 {
        let since = self.clock.wall().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| {
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        })
    }

    /// The session `id`, running or over.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<Session>> {
        self.table.lock().sessions.get(&id).cloned()
    }

    /// Starts a program, or what stands in its place.
    pub(crate) async fn launch(
        &self,
        what: v1::launch_request::What,
        terms: Terms,
    ) -> std::result::Result<Launched, v1::NotStarted> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let Terms {
            terminal,
            attended,
            note,
        } = terms;
        let refused = |error: Error| crate::launcher::refusal("prepare its descriptors", &error);
        let file = io::request_file(what).map_err(refused)?;
        let pipes = if terminal.is_some() {
            None
        } else {
            Some(io::Pipes::new().map_err(refused)?)
        };
        let (answer, answered) = oneshot::channel();
        self.starting.lock().insert(id, answer);
        let mut descriptors = vec![file.as_fd()];
        descriptors.extend(pipes.iter().flat_map(io::Pipes::theirs));
        let ask = Ask::Start(v1::Start {
            session: id,
            terminal,
        });
        self.ask(ask, &descriptors).await.map_err(refused)?;
        let gone =
            |_| crate::launcher::refusal("reach the launcher", &Error::new("recvmsg", libc::EPIPE));
        let master = answered.await.map_err(gone)??;
        let parts = io::Parts::new(pipes, master).map_err(refused)?;
        let session = Arc::new(Session {
            id,
            note,
            started_ms: self.wall_ms(),
            output: Mutex::new(Output {
                ring: Ring::new(RING),
                written: [0; 2],
                reader: attended.then_some(0),
                open: parts.outputs.len(),
                closed: Vec::new(),
                exit: None,
                ended_ms: 0,
            }),
            arrived: Notify::new(),
            taken: Notify::new(),
            input: tokio::sync::Mutex::new(Some(parts.input)),
            master: parts.master,
        });
        {
            let mut table = self.table.lock();
            if let Some((exit, at)) = table.early.remove(&id) {
                session.output.lock().end(exit, at);
            }
            table.sessions.insert(id, Arc::clone(&session));
        }
        let readers = parts
            .outputs
            .into_iter()
            .map(|(stream, output)| Reader::new(Arc::clone(&session), stream, output))
            .collect();
        Ok(Launched { session, readers })
    }

    /// Sends `signal` to the session's process group.
    pub(crate) async fn signal(&self, session: u64, signal: i32) -> Result<()> {
        self.ask(Ask::Signal(v1::SignalSession { session, signal }), &[])
            .await
    }

    /// Ends every process of the sandbox.
    pub(crate) async fn clear(&self) -> Result<()> {
        self.ask(Ask::Clear(v1::Clear {}), &[]).await
    }

    /// Stops every process of the sandbox, or lets them go on.
    pub(crate) async fn hold(&self, stopped: bool) -> Result<()> {
        self.ask(Ask::Hold(v1::Hold { stopped }), &[]).await
    }

    /// The launcher has started, or not started, a session.
    pub(crate) fn answered(&self, session: u64, answer: Answer) {
        if let Some(waiting) = self.starting.lock().remove(&session) {
            // A request whose caller has gone has nobody to tell.
            let _ = waiting.send(answer);
        }
    }

    /// A session's process has ended.
    pub(crate) fn ended(&self, session: u64, exit: Option<v1::Exit>) {
        let unknown = || v1::Exit {
            how: Some(v1::exit::How::Unknown(
                "the launcher did not say".to_owned(),
            )),
        };
        let (exit, at) = (exit.unwrap_or_else(unknown), self.wall_ms());
        let mut table = self.table.lock();
        match table.sessions.get(&session) {
            Some(session) => {
                session.output.lock().end(exit, at);
                session.arrived.notify_waiters();
            }
            // It ended before the one who starts it has heard that it runs.
            None => drop(table.early.insert(session, (exit, at))),
        }
    }

    async fn ask(&self, ask: Ask, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let bytes = ToLauncher { kind: Some(ask) }.encode_to_vec();
        self.launcher
            .write(|socket| socket.try_send(&bytes, descriptors))
            .await
    }
}

impl Session {
    /// Sets the size of its terminal; without one there is nothing to set.
    pub(crate) fn resize(&self, size: Size) -> Result<()> {
        self.master
            .as_ref()
            .map_or(Ok(()), |master| terminal::resize(master.inner(), size))
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
            terminal: self.master.is_some(),
            started_ms: self.started_ms,
            ended_ms: output.ended_ms,
        }
    }

    /// Takes its input to write to; one writer at a time.
    pub(crate) fn input(&self) -> &tokio::sync::Mutex<Option<Input>> {
        &self.input
    }

    /// Closes our end of a stream: its writers get EPIPE.
    pub(crate) fn close(&self, stream: v1::Stream) {
        self.output.lock().closed.push(stream);
        self.taken.notify_waiters();
    }

    /// Attaches a client that has read up to `offset`.
    pub(crate) fn attach(self: &Arc<Self>, offset: u64) -> Attached {
        self.output.lock().reader = Some(offset);
        Attached {
            session: Arc::clone(self),
            offset,
            told: false,
        }
    }
}

impl Output {
    /// Its process has ended.
    fn end(&mut self, exit: v1::Exit, at: i64) {
        self.exit = Some(exit);
        self.ended_ms = at;
    }
}

/// A client that reads a session.
#[derive(Debug)]
pub(crate) struct Attached {
    session: Arc<Session>,
    offset: u64,
    told: bool,
}

impl Attached {
    /// What comes next; `None` after the exit.
    pub(crate) async fn next(&mut self) -> Option<v1::output::Kind> {
        use v1::output::Kind;
        if self.told {
            return None;
        }
        loop {
            let arrived = self.session.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            let found = {
                let mut output = self.session.output.lock();
                output.reader = Some(self.offset);
                match output.ring.at(self.offset) {
                    ring::Next::Nothing if output.open > 0 => None,
                    ring::Next::Nothing => output.exit.clone().map(Kind::Exit),
                    ring::Next::Lost(bytes) => Some(Kind::Lost(bytes)),
                    ring::Next::Chunk(stream, data) => Some(Kind::Chunk(v1::OutputChunk {
                        stream: stream.into(),
                        offset: self.offset,
                        data,
                    })),
                }
            };
            match &found {
                None => {
                    arrived.await;
                    continue;
                }
                Some(Kind::Exit(_)) => self.told = true,
                Some(Kind::Lost(bytes)) => self.offset += bytes,
                Some(Kind::Chunk(chunk)) => self.offset += chunk.data.len() as u64,
            }
            self.session.taken.notify_waiters();
            return found;
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.session.output.lock().reader = None;
        self.session.taken.notify_waiters();
    }
}

/// A size that a client sends; 0 means that it has none.
pub(crate) fn size(size: v1::TerminalSize) -> Size {
    let clamp = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
    if size.rows == 0 || size.columns == 0 {
        return Size::default();
    }
    Size {
        rows: clamp(size.rows),
        columns: clamp(size.columns),
    }
}

/// How much output is kept for a session that nobody reads.
const RING: u64 = 1 << 20;
