//! Sessions that outlive their clients.
//!
//! ```text
//!            ┌─ client attends: output straight from the boundary, input by the session's actor
//! begin ──> Live ── the exit is heard, by a client's stream or by the actor ──> in the book, over
//!            └─ nobody attends: the actor waits for the exit
//! ```
//!
//! A client that goes away without ending its session leaves it running; whoever attaches later goes on where it was. What
//! happens to a session here never depends on one client's stream.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_actor::{Child, Class, Clock, Dynamic, Refusal};
use holdfast_kernel::uptime::uptime;
use holdfast_wire::{problem, v1};
use parking_lot::Mutex;
use prost::Message as _;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tonic::{Code, Status};

use super::attend::{CERTAINTY, Seat};
use super::book::{Blame, Book, Known};
use super::errand;
use super::feed::{Feed, Inlet};
use super::pool::{Pool, Untaken};
use super::refusal;
use super::watcher::Watcher;
use super::withdrawal::{ANSWER, Term};
use crate::health::Event;
use crate::link::{Client, DIED};
use crate::status::Vitals;
use crate::tree::MOST_SESSIONS;

/// Every session of one sandbox.
pub(crate) struct Sessions {
    pub(super) control: Client,
    pub(super) pool: Pool,
    pub(super) clock: Clock,
    actors: Dynamic,
    pub(super) book: Mutex<Book>,
    lives: Mutex<HashMap<u64, Arc<Live>>>,
    closing: AtomicBool,
    boundary: watch::Sender<Boundary>,
    /// Counts ends.
    ended: watch::Sender<u64>,
    vitals: Vitals,
    pub(super) launches: TaskTracker,
    pub(super) home: Handle,
}

/// Whose the boundary is, and every session with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Boundary {
    Ours,
    /// Another keeper has taken it over: the sessions go on there.
    Others,
    /// Its process has ended.
    Gone,
}

/// A session that runs.
pub(crate) struct Live {
    pub(crate) id: u64,
    pub(crate) started_ms: i64,
    /// Its own connection to the boundary.
    pub(super) data: Client,
    /// How many clients read it.
    pub(super) clients: watch::Sender<u32>,
    pub(super) over: watch::Sender<Option<v1::Ending>>,
    /// It ends with its client, as nobody else could go on with it.
    pub(super) fleeting: bool,
    pub(super) inlet: Mutex<Inlet>,
    /// The inputs that clients bring.
    pub(super) feeds: mpsc::Sender<Feed>,
    pub(super) brought: tokio::sync::Mutex<mpsc::Receiver<Feed>>,
    /// The boundary holds its output back for a reader that has not come yet.
    pub(super) awaited: AtomicBool,
    sessions: std::sync::Weak<Sessions>,
}

/// What is to be started.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) what: v1::launch_request::What,
    pub(crate) note: v1::SessionNote,
    pub(crate) terminal: Option<v1::TerminalSize>,
    /// A client will read it.
    pub(crate) attended: bool,
    /// How long it may take, its launch included.
    pub(crate) limit: Option<Duration>,
}

/// A session that was asked for.
pub(crate) enum Begun {
    /// It runs, and this seat is kept for the one who asked.
    Live(Seat),
    /// It was started by an earlier request with the same id.
    Earlier(u64),
}

impl Sessions {
    /// The sessions that the boundary told of, and room for more.
    pub(crate) fn new(
        control: Client,
        pool: Pool,
        actors: Dynamic,
        attached: &v1::AttachReply,
        vitals: Vitals,
    ) -> Self {
        let note = |bytes: &[u8]| {
            let note = v1::SessionNote::decode(bytes).ok()?;
            // Canaries are nobody's sessions.
            (!matches!(note.kind.as_str(), "" | "canary")).then_some(note)
        };
        Self {
            control,
            pool,
            clock: Clock::tokio(),
            actors,
            book: Mutex::new(Book::adopt(attached, note)),
            lives: Mutex::default(),
            closing: AtomicBool::new(false),
            boundary: watch::Sender::new(Boundary::Ours),
            ended: watch::Sender::new(0),
            vitals,
            launches: TaskTracker::new(),
            home: Handle::current(),
        }
    }

    /// Gives each session that runs a life here, and each life a watcher. At a start it has neither; when the tree fell it
    /// has lost its watcher.
    pub(crate) async fn resume(self: &Arc<Self>) -> Result<(), Status> {
        let running: Vec<(u64, v1::SessionNote)> = {
            let book = self.book.lock();
            book.running()
                .map(|(id, note)| (id, note.clone()))
                .collect()
        };
        for (id, note) in running {
            let known = self.live(id);
            let live = match known {
                Some(live) => live,
                None => self.enliven(id, &note, false).await?,
            };
            self.watch(&live).await;
        }
        Ok(())
    }

    /// Starts a session. What is under way goes on when the asker goes away.
    pub(crate) async fn begin(self: &Arc<Self>, order: Order) -> Result<Begun, Status> {
        if let Some(id) = self.of_request(&order.note.request) {
            return Ok(Begun::Earlier(id));
        }
        match *self.boundary.borrow() {
            Boundary::Ours => {}
            Boundary::Others => return Err(refusal::taken_over()),
            Boundary::Gone => return Err(refusal::died()),
        }
        if self.closing.load(Ordering::Relaxed) {
            return Err(refusal::stopping());
        }
        if self.book.lock().len() >= MOST_SESSIONS {
            return Err(refusal::too_many(MOST_SESSIONS));
        }
        let term = Term::from(&order, uptime());
        let (tell, told) = oneshot::channel();
        let sessions = Arc::clone(self);
        let launch = async move {
            let begun = match sessions.launch(order, term).await {
                Err(status) => Err(sessions.explained(status).await),
                begun => begun,
            };
            let live = match &begun {
                Ok(Begun::Live(seat)) => Some(Arc::clone(seat.live())),
                Ok(Begun::Earlier(_)) | Err(_) => None,
            };
            if let Err(status) = &begun {
                sessions.book.lock().fail();
                if refusal::is_ours(status) {
                    sessions.vitals.note(Event::Refused(refusal::want(status)));
                }
            }
            // The seat goes with the asker, if it is gone.
            drop(tell.send(begun));
            if let Some(live) = live {
                sessions.watch(&live).await;
            }
        };
        self.launches.spawn_on(launch, &self.home);
        let gone = |_| problem::plain(Code::Internal, "start a session: it panicked", "Internal");
        told.await.map_err(gone)?
    }

    /// A link that broke is the end of the boundary or of this keeper's hold on it, which is known soon, or is made anew.
    async fn explained(&self, refused: Status) -> Status {
        if !refusal::is_cut_off(&refused) {
            return refused;
        }
        match timeout(CERTAINTY, self.parted()).await {
            Ok(Boundary::Gone) => refusal::died(),
            Ok(Boundary::Others) => refusal::taken_over(),
            Ok(Boundary::Ours) | Err(_) => refused,
        }
    }

    /// Waits until the boundary is not ours any more; answers whose it is.
    pub(super) async fn parted(&self) -> Boundary {
        let mut boundary = self.boundary.subscribe();
        let parted = boundary.wait_for(|boundary| *boundary != Boundary::Ours);
        parted.await.map_or(Boundary::Ours, |boundary| *boundary)
    }

    async fn launch(self: &Arc<Self>, order: Order, term: Term) -> Result<Begun, Status> {
        let Order {
            what,
            note,
            terminal,
            attended,
            limit: _,
        } = order;
        let data = self.connect("start a session").await?;
        let request = v1::LaunchRequest {
            request: note.request.clone(),
            note: note.encode_to_vec(),
            what: Some(what),
            terminal,
            attended,
            herded: true,
            until_ms: term.until_ms(uptime()),
            deadline_ms: term.deadline_ms(),
        };
        let outcome = self.ask_for(request, term, &note).await?.outcome;
        match outcome {
            Some(v1::launch_reply::Outcome::Session(id)) => {
                if !self.book.lock().enter(id, note.clone()) {
                    self.pool.put(data);
                    return Ok(Begun::Earlier(id));
                }
                let live = self.place(id, &note, data, attended);
                let client = note.kind != errand::MAIN;
                Ok(Begun::Live(Seat::take(self, live, client)))
            }
            Some(v1::launch_reply::Outcome::NotStarted(refused)) => {
                self.pool.put(data);
                let program = note.arguments.first().map_or(&b""[..], Vec::as_slice);
                Err(refusal::not_started(program, &refused))
            }
            None => Err(refusal::link(&Status::internal("it answered nothing"))),
        }
    }

    /// Whether there are descriptors for a connection, if none is ready. A refusal changes the status before it is told.
    pub(crate) fn has_room(&self) -> Result<(), Status> {
        self.pool.has_room().map_err(|exhausted| {
            let status = refusal::exhausted("start a session", &exhausted);
            self.vitals.note(Event::Refused(refusal::want(&status)));
            status
        })
    }

    /// A connection of one's own. Admission comes first: what it needs is reserved before anything is opened.
    pub(super) async fn connect(&self, what: &str) -> Result<Client, Status> {
        let taken = timeout(ANSWER, self.pool.take()).await;
        let taken = taken.map_err(|_| refusal::silent(what, "nothing has been asked of it"))?;
        taken.map_err(|untaken| match untaken {
            Untaken::Exhausted(exhausted) => refusal::exhausted(what, &exhausted),
            Untaken::Failed(fault) if fault.class() == Class::Exhausted => {
                refusal::starved(what, &fault)
            }
            Untaken::Failed(fault) => refusal::link(&Status::unavailable(fault.to_string())),
        })
    }

    async fn enliven(
        self: &Arc<Self>,
        id: u64,
        note: &v1::SessionNote,
        awaited: bool,
    ) -> Result<Arc<Live>, Status> {
        let data = self.connect("take a session over").await?;
        Ok(self.place(id, note, data, awaited))
    }

    pub(super) fn place(
        self: &Arc<Self>,
        id: u64,
        note: &v1::SessionNote,
        data: Client,
        awaited: bool,
    ) -> Arc<Live> {
        let (feeds, brought) = mpsc::channel(MOST_FEEDS);
        let live = Arc::new(Live {
            id,
            started_ms: note.started_ms,
            data,
            clients: watch::Sender::new(0),
            over: watch::Sender::new(None),
            fleeting: errand::is_fleeting(note),
            inlet: Mutex::new(Inlet::Unopened),
            feeds,
            brought: tokio::sync::Mutex::new(brought),
            awaited: AtomicBool::new(awaited),
            sessions: Arc::downgrade(self),
        });
        self.lives.lock().insert(id, Arc::clone(&live));
        live
    }

    pub(super) async fn watch(self: &Arc<Self>, live: &Arc<Live>) {
        let child = Child::temporary(&live.id.to_string());
        let arguments = (Arc::clone(self), Arc::clone(live));
        match self.actors.add::<Watcher>(child, arguments).await {
            // It is watched already, or all are being placed anew and it will be.
            Ok(_) | Err(Refusal::Duplicate | Refusal::Down) => {}
            Err(refusal) => tracing::error!(session = live.id, %refusal, "watch a session"),
        }
    }

    /// The session `id`, as long as it runs.
    pub(crate) fn live(&self, id: u64) -> Option<Arc<Live>> {
        self.lives.lock().get(&id).cloned()
    }

    /// What is known of `id`.
    pub(crate) fn known(&self, id: u64) -> Option<Known> {
        self.book.lock().find(id)
    }

    /// The running session of this kind.
    pub(crate) fn of_kind(&self, kind: &str) -> Option<u64> {
        let book = self.book.lock();
        let mut running = book.running();
        running
            .find(|(_, note)| note.kind == kind)
            .map(|(id, _)| id)
    }

    /// The session of an earlier request with this id.
    pub(crate) fn of_request(&self, request: &str) -> Option<u64> {
        if request.is_empty() {
            return None;
        }
        self.book.lock().of_request(request)
    }

    /// Enters the end of `id`, as it was heard, and answers it as it is known.
    pub(super) fn end(
        &self,
        id: u64,
        exit: v1::Exit,
        state: Option<&v1::SessionState>,
    ) -> Option<v1::Ending> {
        let now = self.now_ms();
        let ending = self.book.lock().end(id, exit, state, now)?;
        self.over(id, &ending);
        Some(ending)
    }

    /// The boundary is another keeper's. What runs goes on there, and whoever attends it is told to come again.
    pub(crate) fn yield_up(&self) {
        self.boundary.send_replace(Boundary::Others);
    }

    /// The boundary is gone. Every session that ran has ended, nobody knows how.
    pub(crate) fn lose(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.boundary.send_replace(Boundary::Gone);
        let now = self.now_ms();
        let lost = self.book.lock().lose(DIED, now);
        for (id, ending) in lost {
            self.over(id, &ending);
        }
    }

    fn over(&self, id: u64, ending: &v1::Ending) {
        let live = self.lives.lock().remove(&id);
        if let Some(live) = live {
            live.over.send_replace(Some(ending.clone()));
            self.ended.send_modify(|count| *count += 1);
        }
    }

    pub(super) fn attend(&self, live: &Live, client: bool) {
        if client {
            self.book.lock().attend(live.id);
        }
        live.clients.send_modify(|clients| *clients += 1);
    }

    pub(super) fn leave(&self, live: &Live, client: bool) {
        if client {
            self.book.lock().leave(live.id);
        }
        live.clients
            .send_modify(|clients| *clients = clients.saturating_sub(1));
    }

    /// Sends `signal` to the session's process group, for a client.
    pub(crate) async fn signal(&self, id: u64, signal: i32) -> Result<(), Status> {
        if signal <= 0 || signal > MOST_SIGNAL {
            return Err(refusal::usage(&format!("{signal} is no signal")));
        }
        self.running(id)?;
        self.ask(id, signal, false, Blame::Client(signal)).await
    }

    /// Closes a stream of the session, which nobody will read any more.
    pub(crate) async fn close(&self, id: u64, stream: v1::Stream) -> Result<(), Status> {
        self.running(id)?;
        let request = v1::CloseRequest {
            session: id,
            stream: stream.into(),
        };
        let mut control = self.control.clone();
        let asked = timeout(ANSWER, control.close(request)).await;
        let asked = asked
            .map_err(|_| refusal::silent(&format!("close a stream of session {id}"), CLOSED))?;
        asked.map(drop).map_err(|status| refusal::link(&status))
    }

    fn running(&self, id: u64) -> Result<(), Status> {
        match self.known(id) {
            None => Err(refusal::no_such(id)),
            Some(Known::Past(_)) => Err(refusal::not_running(id)),
            Some(Known::Running) => Ok(()),
        }
    }

    /// Kills what its client has left.
    pub(super) async fn abandon(&self, id: u64) -> Result<(), Status> {
        let killed = libc::SIGKILL;
        self.ask(id, killed, true, Blame::Client(killed)).await
    }

    async fn ask(&self, id: u64, signal: i32, tree: bool, blame: Blame) -> Result<(), Status> {
        self.book.lock().blame(id, blame);
        let request = v1::SignalRequest {
            session: id,
            signal,
            tree,
        };
        let mut control = self.control.clone();
        let asked = timeout(ANSWER, control.signal(request)).await;
        let asked =
            asked.map_err(|_| refusal::silent(&format!("signal session {id}"), SIGNALLED))?;
        asked.map(drop).map_err(|status| refusal::link(&status))
    }

    /// Asks every session to end and waits for that, no longer than `grace`. No session is started from now on.
    pub(crate) async fn halt(&self, grace: Duration) {
        let _they_had_their_time = timeout(grace, self.end_all(libc::SIGTERM, false)).await;
    }

    /// Kills what still runs, and waits, not for ever, until it is known how each ended: what is killed together with its
    /// shepherd has nobody who could tell.
    pub(crate) async fn fell(&self) {
        let _the_rest_is_cleared = timeout(LAST_KILLS, self.end_all(libc::SIGKILL, true)).await;
    }

    /// Waits, not for ever, until the end of every session has been heard.
    pub(crate) async fn drained(&self) {
        let _unheard = timeout(LAST_EXITS, self.emptied()).await;
    }

    /// Sends every session this signal and waits until all have ended, for as long as the boundary takes.
    async fn end_all(&self, signal: i32, tree: bool) {
        self.closing.store(true, Ordering::Relaxed);
        let running: Vec<u64> = {
            let book = self.book.lock();
            book.running().map(|(id, _)| id).collect()
        };
        for id in running {
            // One that cannot be asked is killed with the others at the end.
            let _ = self.ask(id, signal, tree, Blame::Halt).await;
        }
        self.emptied().await;
    }

    /// Waits until no session runs.
    async fn emptied(&self) {
        let mut ended = self.ended.subscribe();
        while self.book.lock().len() > 0 && ended.changed().await.is_ok() {}
    }

    /// What asks the boundary.
    pub(crate) fn control(&self) -> Client {
        self.control.clone()
    }

    /// A row for each session.
    pub(crate) async fn rows(&self) -> Result<Vec<v1::SessionRow>, Status> {
        let mut control = self.control.clone();
        // Without it the offsets are missing, and nothing else.
        let table = match timeout(LOOK, control.table(v1::Nothing {})).await {
            Ok(Ok(table)) => table.into_inner().sessions,
            Ok(Err(status)) => {
                tracing::debug!(%status, "read the table of sessions");
                Vec::new()
            }
            Err(_) => Vec::new(),
        };
        Ok(self.book.lock().rows(&table))
    }

    /// How many there are.
    pub(crate) fn counts(&self) -> v1::SessionCounts {
        self.book.lock().counts()
    }

    /// The date.
    pub(crate) fn wall(&self) -> SystemTime {
        self.clock.wall()
    }

    /// Milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        let since = self.clock.wall().duration_since(UNIX_EPOCH);
        let since = since.unwrap_or_default().as_millis();
        i64::try_from(since).unwrap_or(i64::MAX)
    }
}

impl Live {
    /// Hears of its end.
    pub(crate) fn over(&self) -> watch::Receiver<Option<v1::Ending>> {
        self.over.subscribe()
    }

    /// Brings a client's input. One too many is not heard.
    pub(crate) fn bring(&self, feed: Feed) -> Result<(), Status> {
        let brought = self.feeds.try_send(feed);
        brought.map_err(|_| refusal::too_many_clients(self.id, MOST_FEEDS))
    }
}

impl Drop for Live {
    /// The last who knew it is gone: its connection serves the next.
    fn drop(&mut self) {
        if let Some(sessions) = self.sessions.upgrade() {
            sessions.pool.put(self.data.clone());
        }
    }
}

/// What becomes of a signal that the boundary has not taken yet.
const SIGNALLED: &str = "the signal may still arrive";

/// The same of a stream that was to be closed.
const CLOSED: &str = "it may still be closed";

/// How long the boundary may take to show what it keeps of the sessions.
const LOOK: Duration = Duration::from_secs(1);

/// How many clients may come to one session at the same moment.
const MOST_FEEDS: usize = 64;

/// The highest signal that Linux has.
const MOST_SIGNAL: i32 = 64;

/// How long the ends of those that are killed one by one may take to be heard.
const LAST_KILLS: Duration = Duration::from_millis(1500);

/// How long the last exits may be on their way when every process has been killed.
const LAST_EXITS: Duration = Duration::from_secs(2);
