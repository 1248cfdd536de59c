//! Where the lane and the listeners of one sandbox meet: it owns the book, and obeys it.
//!
//! The desk lives with the parent of the egress actors, so that a restarted lane or listener finds every attempt where it stood, and no relay ends
//! because a listener did. A step of the book and what must not be torn from it (the record, the hand-over, the switch that closes a connection)
//! happen under one lock; nothing under it waits or does network I/O.

mod canary;
mod connection;
mod errands;
mod leave;
mod missing;

pub(crate) use connection::Arrival;
pub use connection::Cookies;

use super::attempt::{Failure, Fate, Judge, Report, Serial};
use super::book::{Book, Command, Counts, Dial, Event, Hands, Waiting};
use super::budget::{Budget, Permit};
use super::counters::{Counters, bump};
use super::court::Court;
use super::dial::{Dialled, Dialler, Limits, Undialled};
use super::names::Names;
use super::relay::{Bytes, Means, prepare};
use super::trail;
use crate::sentinel::Sentinel;
use errands::Errands;
use futures_util::FutureExt;
use futures_util::future::{AbortHandle, Abortable};
use holdfast_clock::Clock;
use holdfast_kernel::bell::Bell;
use holdfast_observability::{Audit, Place, Record, Slot};
use holdfast_policy::Policy;
use holdfast_wire::v1;
use leave::{Notices, Phase, Switch};
use parking_lot::Mutex;
use socket2::SockRef;
use std::collections::{BTreeSet, HashMap};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio_util::task::TaskTracker;

/// What a desk is made of.
pub struct Arguments {
    /// The sandbox's name, for records.
    pub sandbox: String,
    /// The policy in force.
    pub policy: Arc<Policy>,
    /// The resolver's side.
    pub names: Arc<dyn Names>,
    /// Where records go.
    pub audit: Audit,
    /// The time.
    pub clock: Clock,
    /// Connections at once.
    pub budget: Budget,
    /// TCP listeners of the runtime, which nobody inside may reach.
    pub own: Vec<SocketAddr>,
    /// How long a dial takes at most.
    pub limits: Limits,
    /// Buffers, byte counts and patience of the relays.
    pub means: Means,
}

/// Shared by the lane, the listeners and the connections of one sandbox.
pub struct Desk {
    sandbox: String,
    state: Mutex<State>,
    audit: Audit,
    clock: Clock,
    dialler: Dialler,
    /// Connections at once.
    pub budget: Budget,
    /// What happened.
    pub counters: Counters,
    means: Means,
    phase: watch::Sender<Phase>,
    /// Accepted connections.
    connections: TaskTracker,
    /// Dials ahead of their connections.
    ahead: TaskTracker,
    /// Where dials and connections run, whoever begins them: they outlive lane and listeners.
    home: Handle,
    errands: Errands,
    sentinel: OnceLock<Arc<Sentinel>>,
}

/// An answer to a pending call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The notification.
    pub call: u64,
    /// 0 or what the call fails with.
    pub errno: i32,
    /// The port that must be captured before the call continues.
    pub capture: Option<u16>,
}

struct State {
    book: Book<Tokens>,
    court: Court,
    /// Dials ahead of their connections that were not done at once.
    dials: HashMap<Serial, AbortHandle>,
    /// Open connections.
    switches: HashMap<Serial, Switch>,
}

/// What the book passes on for the desk.
#[derive(Debug)]
pub(super) struct Tokens;

impl Hands for Tokens {
    type Upstream = Upstream;
    type Waiter = Waiter;
    type Slot = Slot;

    fn place(slot: &Slot) -> Place {
        slot.place()
    }
}

/// A dialled connection and, if it was dialled ahead, the permit it holds until its own connection brings one.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) stream: std::net::TcpStream,
    pub(super) ahead: Option<Permit>,
}

/// How an accepted connection is told of its upstream; dropped, it is refused.
pub(super) type Waiter = oneshot::Sender<Served>;

/// An upstream, and the notices to leave and to close.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) upstream: Upstream,
    notices: Notices,
}

/// What a step leaves to the one who took it.
#[derive(Default)]
pub(super) struct Left {
    pub(super) serial: Option<Serial>,
    pub(super) answers: Vec<Answer>,
    pub(super) dial: Option<Dial>,
    /// Room runs short: see [`Desk::look_for_missing`].
    pub(super) short: bool,
}

impl Desk {
    /// A desk on which nothing lies yet. Its connections will run in the tokio runtime of the caller.
    pub fn new(arguments: Arguments) -> Desk {
        let Arguments {
            sandbox,
            policy,
            names,
            audit,
            clock,
            budget,
            own,
            limits,
            means,
        } = arguments;
        let dialler = Dialler::new(Arc::clone(&names), own, limits);
        let court = Court::new(policy, names);
        let state = State {
            book: Book::default(),
            court,
            dials: HashMap::new(),
            switches: HashMap::new(),
        };
        Desk {
            sandbox,
            state: Mutex::new(state),
            audit,
            clock,
            dialler,
            budget,
            counters: Counters::default(),
            means,
            phase: watch::Sender::new(Phase::Serving),
            connections: TaskTracker::new(),
            ahead: TaskTracker::new(),
            home: Handle::current(),
            errands: Errands::default(),
            sentinel: OnceLock::new(),
        }
    }

    /// Puts another policy in force and closes the connections that it denies.
    pub fn revise(&self, policy: Arc<Policy>) {
        self.step_after(Event::Revised, |court| *court = court.under(policy));
    }

    /// Says on which ports the fence listens from its start.
    pub fn stand_on(&self, ports: BTreeSet<u16>) {
        let mut state = self.state.lock();
        state.court = state.court.over(ports);
    }

    /// Attempts whose connection has not come in time end, unless a listener waits for room: then it may be in the backlog.
    pub fn pass(&self, cookies: &dyn Cookies) {
        let held = self.counters.waiting.load(Ordering::Relaxed) > 0;
        let left = self.step(if held { Event::Held } else { Event::Passed });
        self.errands.leave(left.answers);
        if left.short {
            self.look_for_missing(cookies);
        }
    }

    /// What the book has counted.
    pub fn counts(&self) -> Counts {
        self.state.lock().book.counts()
    }

    /// Attempts that are pending.
    pub fn pending(&self) -> usize {
        self.state.lock().book.pending()
    }

    /// Bytes carried.
    pub fn bytes(&self) -> &Bytes {
        &self.means.bytes
    }

    /// Records a call that the broker refused by itself.
    pub(super) fn refused(&self, refused: v1::Refused) {
        let errno = trail::name(refused.errno);
        let (observed, caller) = match refused.caller {
            Some(caller) => (caller.observed, caller),
            None => (false, v1::Caller::default()),
        };
        self.audit.record(Record {
            detail: Some(refused.detail),
            binary: observed.then_some(caller.executable),
            ancestors: caller.ancestors,
            pid: Some(caller.pid).filter(|pid| *pid != 0),
            ..Record::syscall(&self.sandbox, self.clock.wall(), &refused.syscall, &errno)
        });
    }

    /// Gives a listening socket what its connections inherit.
    pub(super) fn prepare(&self, socket: &TcpListener) {
        prepare(&SockRef::from(socket), self.means.patience);
    }

    /// Whether what is allowed can be recorded; without that nothing is.
    pub(crate) fn can_record(&self) -> bool {
        self.audit.writes()
    }

    /// Room for a record, if there is any.
    pub(super) fn slot(&self) -> Option<Slot> {
        self.audit.reserve()
    }

    /// Takes one step and obeys what can be obeyed here.
    pub(super) fn step(&self, event: Event<Tokens>) -> Left {
        self.step_after(event, |_| ())
    }

    fn step_after(&self, event: Event<Tokens>, first: impl FnOnce(&mut Court)) -> Left {
        let now = self.clock.now();
        let mut left = Left::default();
        let mut state = self.state.lock();
        first(&mut state.court);
        let State {
            book,
            court,
            dials,
            switches,
        } = &mut *state;
        let phase = self.phase();
        let (mut recorded, mut unowed) = (true, None);
        let mut commands = book.step(event, now, court);
        if phase == Phase::Over {
            commands.extend(book.step(Event::Over, now, court));
        }
        for command in commands {
            match command {
                Command::Answer {
                    call,
                    errno,
                    capture,
                } => {
                    left.answers.push(Answer {
                        call,
                        errno,
                        capture,
                    });
                }
                Command::Dial(dial) => {
                    left.serial = Some(dial.serial);
                    if self.owe(&dial) {
                        left.dial = Some(dial);
                    } else {
                        unowed = Some(dial.serial);
                    }
                }
                Command::Await(serial) => left.serial = Some(serial),
                Command::Cancel(serial) => {
                    if let Some(dial) = dials.remove(&serial) {
                        dial.abort();
                    }
                }
                Command::Relay {
                    serial,
                    waiter,
                    upstream,
                } => {
                    left.serial = Some(serial);
                    if !recorded {
                        // Nothing is carried without a record: both ends are reset.
                        drop((waiter, upstream));
                        continue;
                    }
                    let (switch, notices) = Switch::new(phase);
                    switches.extend(switch.map(|switch| (serial, switch)));
                    // A connection that is gone already says so by its departure.
                    drop(waiter.send(Served { upstream, notices }));
                }
                Command::Refuse(waiter) => drop(waiter),
                Command::Close(serial) => drop(switches.remove(&serial)),
                Command::Record { slot, report } => recorded = self.record(slot, *report),
            }
        }
        left.short = book.is_short();
        drop(state);
        if let Some(serial) = unowed {
            let failure = Failure::Errno(libc::ENOBUFS);
            let more = self.step(Event::DialFailed { serial, failure });
            left.answers.extend(more.answers);
        }
        left
    }

    /// Notes what a dial will owe. Without the note nothing is dialled.
    fn owe(&self, dial: &Dial) -> bool {
        let owed = || trail::record(&self.sandbox, self.clock.wall(), (*dial.owed).clone());
        self.audit.owe(dial.place, owed).is_ok()
    }

    /// False: it could not be written, and what it was to be the record of must not happen.
    fn record(&self, slot: Option<Slot>, report: Report) -> bool {
        bump(match &report.fate {
            Fate::Connected(_) => &self.counters.allowed,
            Fate::Failed(_) => &self.counters.refused_upstream,
            Fate::Abandoned | Fate::Unheard(_) | Fate::Unknown => &self.counters.abandoned,
            Fate::Withdrawn(_) => &self.counters.withdrawn,
            Fate::Denied(_) | Fate::Own | Fate::Crowded | Fate::Unrecorded => &self.counters.denied,
        });
        let record = trail::record(&self.sandbox, self.clock.wall(), report);
        if let Some(slot) = slot {
            slot.record(record).is_ok()
        } else {
            self.audit.record(record);
            true
        }
    }
}

// Dialling.
impl Desk {
    /// Starts a dial that a caller may wait for, and answers what can be answered at once.
    pub(super) fn dial_ahead(self: &Arc<Self>, order: Dial) -> Vec<Answer> {
        let (serial, waiting) = (order.serial, order.waiting);
        let Some(permit) = self.budget.ahead() else {
            return self.step(Event::Deferred { serial }).answers;
        };
        let desk = Arc::clone(self);
        let told = Arc::new(AtomicBool::new(false));
        let is_told = Arc::clone(&told);
        let mut dial = Box::pin(async move {
            let dialled = desk.dial(&order, &is_told, Some(permit)).await;
            dialled.unwrap_or(Event::Deferred { serial })
        });
        let inside = self.home.enter();
        // Most dials are done at this first look; only the others become a task.
        if let Some(event) = dial.as_mut().now_or_never() {
            return self.step(event).answers;
        }
        let (abort, registration) = AbortHandle::new_pair();
        {
            let mut state = self.state.lock();
            if self.phase() == Phase::Over {
                return Vec::new();
            }
            state.dials.insert(serial, abort);
        }
        let desk = Arc::clone(self);
        drop(inside);
        let work = async move {
            if let Ok(event) = Abortable::new(dial, registration).await {
                desk.state.lock().dials.remove(&serial);
                let left = desk.step(event);
                desk.errands.leave(left.answers);
            }
        };
        self.ahead.spawn_on(work, &self.home);
        match waiting {
            Waiting::Impatient => {
                told.store(true, Ordering::Relaxed);
                self.step(Event::Released { serial }).answers
            }
            Waiting::Blocked | Waiting::Connected => Vec::new(),
        }
    }

    /// Dials for a connection that is here. Short of descriptors it tries again, as long as [`PAUSES`] says.
    async fn dial_connected(&self, order: Dial) {
        let (serial, told) = (order.serial, AtomicBool::new(true));
        let mut dialled = self.dial(&order, &told, None).await;
        for pause in PAUSES {
            if dialled.is_some() {
                break;
            }
            tokio::time::sleep(pause).await;
            dialled = self.dial(&order, &told, None).await;
        }
        let failure = Failure::Errno(libc::ENOBUFS);
        self.step(dialled.unwrap_or(Event::DialFailed { serial, failure }));
    }

    /// `None`: the keeper itself has no descriptor or memory for it.
    async fn dial(
        &self,
        order: &Dial,
        told: &AtomicBool,
        ahead: Option<Permit>,
    ) -> Option<Event<Tokens>> {
        let serial = order.serial;
        let court = self.state.lock().court.clone();
        match self
            .dialler
            .dial(order, told, |address| court.admits(&order.grant, address))
            .await
        {
            Ok(Dialled { stream, address }) => {
                let upstream = Upstream { stream, ahead };
                Some(Event::Dialled {
                    serial,
                    upstream,
                    address,
                })
            }
            Err(Undialled::Failed(failure)) => Some(Event::DialFailed { serial, failure }),
            Err(Undialled::Exhausted(_)) => None,
        }
    }

    /// Has `bell` rung whenever something is left for the lane to send.
    pub(super) fn ring(&self, bell: Arc<Bell>) {
        self.errands.ring(bell);
    }

    /// The oldest answer that was left for the lane.
    pub(super) fn next_errand(&self) -> Option<Answer> {
        self.errands.next()
    }
}

/// Between the tries of a dial for which the keeper had no descriptor: about half a minute in all.
const PAUSES: [Duration; 7] = [
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
];

#[cfg(test)]
mod tests;
