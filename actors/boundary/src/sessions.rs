//! Sessions: processes started in the sandbox, with their input, output and the way they ended.
//!
//! ```text
//!  Starting ── Started ──> Running ── Ended ──> Draining ── pipes at their end, or 100 ms ──> Over ── 1,024 later ──> forgotten
//!      └── NotStarted ──> forgotten                                                            └── read, or no room: its
//!                                                                                                  output is dropped
//! ```
//!
//! A session ends when its direct child ends: its exit is recorded before anything else happens, and what is still in the
//! pipes is read. A process that the child has left behind may go on writing; nobody listens, but it is not killed.
//!
//! What is started here is everybody's: a keeper that is cut off while a launch is under way finds its session, or its
//! successor does, under the same request.

mod io;
mod requests;
pub(crate) mod ring;
mod session;
mod table;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use holdfast_actor::Clock;
use holdfast_kernel::handoff::Socket;
use holdfast_kernel::ready::Ready;
use holdfast_kernel::terminal::Size;
use holdfast_kernel::{Error, Result};
use holdfast_wire::v1::to_launcher::Kind as Ask;
use holdfast_wire::v1::{self, ToLauncher};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::watch;
use tonic::Status;

pub(crate) use self::io::{Input, Reader};
use self::requests::{Place, Requests};
pub(crate) use self::session::{Session, Terms};
use self::table::Table;
use crate::admission;
use crate::launcher::{self, shortage};
use crate::tree::MOST_SESSIONS;

/// Every session of the sandbox, and the launcher that makes them.
#[derive(Debug)]
pub(crate) struct Sessions {
    launcher: Arc<Ready<Arc<Socket>>>,
    next: AtomicU64,
    /// How many there have been, canaries aside.
    total: AtomicU64,
    table: Mutex<Table>,
    starting: Mutex<HashMap<u64, Starting>>,
    requests: Mutex<Requests>,
    clock: Clock,
}

/// What became of a launch: the session's number.
pub(crate) type Outcome = std::result::Result<u64, Unlaunched>;

/// Why there is no session.
#[derive(Clone, Debug)]
pub(crate) enum Unlaunched {
    /// A step on the way to it failed.
    Refused(v1::NotStarted),
    /// There is no room for it now.
    Full(Status),
    /// Whoever asked first was cut off before the launcher was.
    BrokenOff,
}

impl Unlaunched {
    /// Too many run, and how many.
    pub(crate) fn too_many(why: String) -> Self {
        Self::Full(admission::too_many(why))
    }

    /// A step of this process's own failed.
    fn failed(step: &str, error: &Error) -> Self {
        Self::Refused(shortage::of_boundary(launcher::refusal(step, error)))
    }
}

/// A session that the launcher has been asked for.
#[derive(Debug)]
struct Starting {
    pipes: Option<io::Pipes>,
    terms: Terms,
    reply: watch::Sender<Option<Outcome>>,
}

/// A session that runs, and what has still to be done for it.
pub(crate) struct Begun {
    pub(crate) id: u64,
    /// What is read for it, stream by stream.
    pub(crate) readers: Vec<Reader>,
    reply: watch::Sender<Option<Outcome>>,
}

impl Begun {
    /// Tells who asked.
    pub(crate) fn tell(&self, outcome: Outcome) {
        // Nobody may be left who wants to know; the request finds it.
        self.reply.send_replace(Some(outcome));
    }
}

impl Drop for Begun {
    /// It runs, whatever became of the one who was about to tell: a request that is made again must not start it twice.
    fn drop(&mut self) {
        if self.reply.borrow().is_none() {
            self.tell(Ok(self.id));
        }
    }
}

impl Sessions {
    /// No session yet, and the launcher that will make them.
    pub(crate) fn new(launcher: Arc<Ready<Arc<Socket>>>) -> Self {
        Self {
            launcher,
            next: AtomicU64::new(1),
            total: AtomicU64::new(0),
            table: Mutex::default(),
            starting: Mutex::default(),
            requests: Mutex::default(),
            clock: Clock::tokio(),
        }
    }

    /// How every session stands, in the order of their numbers, and how many there have been.
    pub(crate) fn snapshot(&self) -> (Vec<v1::SessionState>, u64) {
        let mut states = self.table.lock().states();
        states.sort_unstable_by_key(|state| state.session);
        (states, self.total.load(Ordering::Relaxed))
    }

    /// The session `id`, running or over.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<Session>> {
        self.table.lock().find(id)
    }

    /// Starts a program, or what stands in its place, if it is admitted; a request that was made before is answered once
    /// more. One that there was no room for may be made again.
    pub(crate) async fn launch<T>(
        &self,
        request: &str,
        what: v1::launch_request::What,
        terms: Terms,
        admit: impl FnOnce() -> std::result::Result<T, Status>,
    ) -> Outcome {
        let place = self.requests.lock().enter(request, self.clock.now());
        let mut reply = match place {
            Place::Known(reply) => reply,
            Place::Fresh(tell, reply) => {
                self.room()?;
                let _admitted = admit().map_err(Unlaunched::Full)?;
                self.begin(what, terms, tell).await;
                reply
            }
        };
        let told = reply.wait_for(Option::is_some).await;
        told.ok()
            .and_then(|told| told.clone())
            .unwrap_or(Err(Unlaunched::BrokenOff))
    }

    fn room(&self) -> std::result::Result<(), Unlaunched> {
        let busy = self.table.lock().running() + self.starting.lock().len();
        if busy < MOST_SESSIONS {
            return Ok(());
        }
        let why = format!("{busy} sessions run, and that is the most");
        Err(Unlaunched::too_many(why))
    }

    /// Asks the launcher for a session; whoever asks is told over `reply`.
    async fn begin(
        &self,
        what: v1::launch_request::What,
        terms: Terms,
        reply: watch::Sender<Option<Outcome>>,
    ) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        if !terms.fleeting {
            self.total.fetch_add(1, Ordering::Relaxed);
        }
        if let Err(error) = self.ask_for(id, what, terms, &reply).await {
            let failed = Unlaunched::failed("prepare its descriptors", &error);
            reply.send_replace(Some(Err(failed)));
        }
    }

    async fn ask_for(
        &self,
        id: u64,
        what: v1::launch_request::What,
        terms: Terms,
        reply: &watch::Sender<Option<Outcome>>,
    ) -> Result<()> {
        let file = io::request_file(what)?;
        let (terminal, herded) = (terms.terminal, terms.herded);
        let deadline_ms = terms.deadline_ms;
        let (pipes, theirs) = if terminal.is_some() {
            (None, None)
        } else {
            let (ours, theirs) = io::Pipes::new()?;
            (Some(ours), Some(theirs))
        };
        let mut descriptors = vec![file.as_fd()];
        descriptors.extend(theirs.iter().flatten().map(AsFd::as_fd));
        let starting = Starting {
            pipes,
            terms,
            reply: reply.clone(),
        };
        self.starting.lock().insert(id, starting);
        // One who is cut off before the launcher has been asked leaves nothing behind.
        let mut unasked = Unasked(self, Some(id));
        let ask = Ask::Start(v1::Start {
            session: id,
            terminal,
            herded,
            deadline_ms,
        });
        self.ask(ask, &descriptors).await?;
        unasked.1 = None;
        Ok(())
    }

    /// Sends `signal` to the session's process group, or to its whole tree.
    pub(crate) async fn signal(&self, session: u64, signal: i32, tree: bool) -> Result<()> {
        let asked = v1::SignalSession {
            session,
            signal,
            tree,
        };
        self.ask(Ask::Signal(asked), &[]).await
    }

    /// Ends every process of the sandbox.
    pub(crate) async fn clear(&self) -> Result<()> {
        self.ask(Ask::Clear(v1::Clear {}), &[]).await
    }

    /// Asks the launcher for a sign of life.
    pub(crate) async fn ping(&self) -> Result<()> {
        self.ask(Ask::Ping(v1::Ping {}), &[]).await
    }

    /// Stops every process of the sandbox, or lets them go on.
    pub(crate) async fn hold(&self, stopped: bool) -> Result<()> {
        self.ask(Ask::Hold(v1::Hold { stopped }), &[]).await
    }

    /// The launcher has started a session, and made its terminal if it was asked for one.
    pub(crate) fn started(self: &Arc<Self>, id: u64, master: Option<OwnedFd>) -> Option<Begun> {
        let Starting {
            pipes,
            terms,
            reply,
        } = self.starting.lock().remove(&id)?;
        let parts = match io::Parts::new(pipes, master) {
            Ok(parts) => parts,
            Err(error) => {
                // Its ends are closed, which ends most programs; how it ends is nobody's business any more.
                let failed = Unlaunched::failed("take its descriptors", &error);
                reply.send_replace(Some(Err(failed)));
                return None;
            }
        };
        let (session, outputs) = Session::begin(id, terms, parts, self, self.wall_ms());
        self.table.lock().enter(Arc::clone(&session));
        let readers = outputs
            .into_iter()
            .map(|(stream, output)| Reader::new(Arc::clone(&session), stream, output))
            .collect();
        Some(Begun { id, readers, reply })
    }

    /// The launcher has not started a session.
    pub(crate) fn refused(&self, refused: v1::NotStarted) {
        if let Some(starting) = self.starting.lock().remove(&refused.session) {
            let outcome = Err(Unlaunched::Refused(refused));
            starting.reply.send_replace(Some(outcome));
        }
    }

    /// A session's process has ended.
    pub(crate) fn ended(&self, ended: v1::Ended) {
        let unknown = || v1::Exit {
            how: Some(v1::exit::How::Unknown(
                "the launcher did not say".to_owned(),
            )),
        };
        if let Some(session) = self.find(ended.session) {
            let exit = ended.exit.unwrap_or_else(unknown);
            session.end(exit, ended.timed_out, self.wall_ms());
            self.settle(&session);
        }
    }

    /// Lets go of what a session held if it is over now.
    fn settle(&self, session: &Session) {
        if session.settle() {
            self.table.lock().finish(session.id);
        }
    }

    async fn ask(&self, ask: Ask, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let bytes = ToLauncher { kind: Some(ask) }.encode_to_vec();
        self.launcher.send(&bytes, descriptors).await
    }

    /// Milliseconds since 1970.
    pub(crate) fn wall_ms(&self) -> i64 {
        let since = self.clock.wall().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| {
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        })
    }
}

/// A session that the launcher has not been asked for yet.
struct Unasked<'a>(&'a Sessions, Option<u64>);

impl Drop for Unasked<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.1 {
            self.0.starting.lock().remove(&id);
        }
    }
}

impl From<Error> for Unlaunched {
    fn from(error: Error) -> Self {
        Self::failed("reach the launcher", &error)
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
