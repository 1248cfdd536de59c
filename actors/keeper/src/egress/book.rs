//! Keeps every attempt to connect from its announcement to its one audit record, and decides what is done about it.
//!
//! ```text
//!                   Attempted ──denied──▶ (errno, record)
//!                       │ allowed               │ address unreadable
//!                       ▼                       │
//!   (errno, record) ◀─ Asked ──Deferred───────▶ Bare
//!         DialFailed    │  └──Released─▶ Dialling
//!                       │ Dialled         │     │ DialFailed
//!                       └─────▶ Ready ◀───┘     └─▶ Broken
//!                                 │                   │
//!     (from every state above) ───┴─── Accepted ──────┘
//!                                         │ judged again
//!              denied: (reset, record) ◀──┼──▶ dial not done: Awaited ──DialFailed──▶ (reset, record)
//!                                         ▼                      │ Dialled
//!                                  (relay, record) ◀─────────────┘
//! ```
//!
//! From every state before `Accepted`, `Gone` and the deadline, which a `Reset` brings nearer, lead to a record that says "abandoned", as `Missing` does once the caller was let go, and `Unheard` to one that says why; from every state at all `Over` does.
//!
//! What a caller announces is a hint. The judgement that counts is made at `Accepted`, on the destination that the kernel reports and the
//! identity that the broker recorded for the socket's cookie and this destination; an upstream that was dialled early serves only the destination it was dialled for.
//! An announcement speaks for one arrival, and until the next one on its socket: a socket is passed on, disconnected and connected again by others.
//! A record stands before what it is about: in the order of the commands, nothing is relayed, refused or closed ahead of its record.
//! Invariants: nothing is relayed without an allowing judgement of its true destination; every attempt leaves one report; at most [`PENDING`]
//! announced attempts are pending, and none for longer than [`LIFETIME`] after its last step.

mod arrival;
mod doubt;
mod ending;
mod event;
mod open;
mod pending;

pub use event::{Accepted, Attempted, Command, Counts, Dial, Event, Hands, Waiting};

use super::attempt::{Call, Failure, Fate, Judge, Report, Serial};
use arrival::refuse;
use holdfast_clock::Moment;
use open::Connections;
use pending::{Attempt, Bound, Pending, State, Who, report};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

/// Every attempt that is pending and every connection that is open.
#[derive(Debug)]
pub struct Book<H: Hands> {
    last: u64,
    pending: Pending<H>,
    open: Connections,
    /// Where connections have led, since time last passed, that were reset before they were accepted.
    resets: HashSet<SocketAddr>,
    /// So many pending attempts are too many not to ask which of them are in doubt.
    brink: usize,
    counts: Counts,
}

/// In the order in which they are to be obeyed.
pub type Commands<H> = Vec<Command<H>>;

impl<H: Hands> Default for Book<H> {
    fn default() -> Book<H> {
        let (pending, open) = (Pending::default(), Connections::default());
        Book {
            last: 0,
            pending,
            open,
            resets: HashSet::new(),
            brink: doubt::MANY,
            counts: Counts::default(),
        }
    }
}

impl<H: Hands> Book<H> {
    /// What follows from `event`. News of a dial, a call or a connection that is settled already is late and has no consequence.
    pub fn step(&mut self, event: Event<H>, now: Moment, judge: &impl Judge) -> Commands<H> {
        match event {
            Event::Attempted(attempted) => self.attempted(attempted, now, judge),
            Event::Dialled {
                serial,
                upstream,
                address,
            } => self.dialled(serial, (upstream, address), now, judge),
            Event::DialFailed { serial, failure } => self.dial_failed(serial, failure, now),
            Event::Released { serial } => self.let_go(serial, State::Dialling, now),
            Event::Deferred { serial } => {
                self.let_go(serial, |bound| State::Bare(Some(bound)), now)
            }
            Event::Accepted(accepted) => self.accepted(accepted, now, judge),
            Event::Reset { destination } => {
                self.reset(destination);
                Vec::new()
            }
            Event::Missing { serials } => self.missing(serials),
            Event::Gone { call } => self.gone(call, Fate::Abandoned),
            Event::Unheard { call, why } => self.gone(call, Fate::Unheard(why)),
            Event::Closed { serial } => self.closed(serial),
            Event::Passed => self.passed(now),
            Event::Held => self.held(now),
            Event::Revised => self.revised(judge),
            Event::Over => self.over(),
        }
    }

    /// How often what is rare has happened.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Attempts that are pending.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Whether a connection is to be expected whose caller has its answer.
    pub fn expects(&self) -> bool {
        self.pending.all().any(|(_, attempt)| attempt.is_let_go())
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    fn attempted(
        &mut self,
        attempted: Attempted<H>,
        now: Moment,
        judge: &impl Judge,
    ) -> Commands<H> {
        let Attempted {
            call,
            thread,
            cookie,
            hint,
            blocking,
            patience,
            caller,
            slot,
        } = attempted;
        // The socket is not connected any more, if it was: what it was announced for before speaks for nobody now.
        let mut commands = self.supersede(call, cookie);
        let judged = hint.map(|hint| Bound::of(hint, judge.judge(hint, &caller.identity)));
        let bound = match judged.transpose() {
            Ok(bound) => bound,
            Err(refused) => {
                commands.extend(turn_away(call, libc::EACCES, slot, refused.report(caller)));
                return commands;
            }
        };
        // Nothing can be kept for a socket that could not be looked at: its arrival is an unannounced one.
        let Some(cookie) = cookie else {
            commands.push(answer(call, 0, bound.as_ref()));
            return commands;
        };
        let Some(slot) = slot else {
            let report = report(bound.as_ref(), caller, Fate::Unrecorded);
            commands.extend(turn_away(call, libc::ENOBUFS, None, report));
            return commands;
        };
        if self.pending.len() >= PENDING {
            self.counts.crowded += 1;
            let report = report(bound.as_ref(), caller, Fate::Crowded);
            commands.extend(turn_away(call, libc::ENOBUFS, Some(slot), report));
            return commands;
        }
        let serial = self.serial();
        let waiting = if blocking {
            Waiting::Blocked
        } else {
            Waiting::Impatient
        };
        let who = Who {
            call: Some(call),
            thread,
            cookie: Some(cookie),
            caller,
            patience,
            slot,
        };
        commands.push(match &bound {
            Some(bound) => Command::Dial(bound.dial(serial, &who, waiting)),
            None => answer(call, 0, None),
        });
        self.keep(
            serial,
            who,
            bound.map_or(State::Bare(None), State::Asked),
            now,
        );
        commands
    }

    fn dialled(
        &mut self,
        serial: Serial,
        (upstream, address): (H::Upstream, SocketAddr),
        now: Moment,
        judge: &impl Judge,
    ) -> Commands<H> {
        let Some(Attempt {
            who,
            state,
            deadline,
        }) = self.pending.remove(serial)
        else {
            return Vec::new();
        };
        match state {
            State::Asked(bound) => {
                let told = who.call.map(|call| answer(call, 0, Some(&bound)));
                self.keep(serial, who, State::Ready(bound, upstream, address), now);
                told.into_iter().collect()
            }
            State::Dialling(bound) => {
                let state = State::Ready(bound, upstream, address);
                self.keep_until(serial, who, state, deadline.min(now + LIFETIME));
                Vec::new()
            }
            // It may have waited for long: what was judged when it came is judged again.
            State::Awaited(bound, waiter) => {
                match bound.rejudge(&who.caller, address.ip(), judge) {
                    Ok(bound) => self.relay(serial, who, (bound, waiter), (upstream, address)),
                    Err(refused) => refuse(waiter, who, refused),
                }
            }
            state @ (State::Ready(..) | State::Broken(..) | State::Bare(_)) => {
                self.pending.insert(
                    serial,
                    Attempt {
                        who,
                        state,
                        deadline,
                    },
                );
                Vec::new()
            }
        }
    }

    fn dial_failed(&mut self, serial: Serial, failure: Failure, now: Moment) -> Commands<H> {
        let Some(Attempt {
            who,
            state,
            deadline,
        }) = self.pending.remove(serial)
        else {
            return Vec::new();
        };
        match state {
            State::Asked(bound) => {
                let told = who.call.map(|call| answer(call, failure.errno(), None));
                told.into_iter()
                    .chain([who.end(Some(&bound), failure.into())])
                    .collect()
            }
            State::Dialling(bound) => {
                let state = State::Broken(bound, failure);
                self.keep_until(serial, who, state, deadline.min(now + LIFETIME));
                Vec::new()
            }
            State::Awaited(bound, waiter) => {
                vec![
                    who.end(Some(&bound), failure.into()),
                    Command::Refuse(waiter),
                ]
            }
            state @ (State::Ready(..) | State::Broken(..) | State::Bare(_)) => {
                self.pending.insert(
                    serial,
                    Attempt {
                        who,
                        state,
                        deadline,
                    },
                );
                Vec::new()
            }
        }
    }

    /// The caller continues without waiting for the dial; `state` says whether there is one.
    fn let_go(
        &mut self,
        serial: Serial,
        state: impl FnOnce(Bound) -> State<H>,
        now: Moment,
    ) -> Commands<H> {
        let Some(Attempt {
            who,
            state: was,
            deadline,
        }) = self.pending.remove(serial)
        else {
            return Vec::new();
        };
        match was {
            State::Asked(bound) => {
                let told = who.call.map(|call| answer(call, 0, Some(&bound)));
                self.keep(serial, who, state(bound), now);
                told.into_iter().collect()
            }
            state @ (State::Dialling(_)
            | State::Ready(..)
            | State::Broken(..)
            | State::Bare(_)
            | State::Awaited(..)) => {
                self.pending.insert(
                    serial,
                    Attempt {
                        who,
                        state,
                        deadline,
                    },
                );
                Vec::new()
            }
        }
    }

    fn keep(&mut self, serial: Serial, who: Who<H>, state: State<H>, now: Moment) {
        let lifetime = if state.is_dialling() {
            DIALLING
        } else {
            LIFETIME
        };
        self.keep_until(serial, who, state, now + lifetime);
    }

    fn keep_until(&mut self, serial: Serial, who: Who<H>, state: State<H>, deadline: Moment) {
        let attempt = Attempt {
            who,
            state,
            deadline,
        };
        self.pending.insert(serial, attempt);
    }

    fn serial(&mut self) -> Serial {
        self.last += 1;
        Serial(self.last)
    }
}

fn answer<H: Hands>(call: Call, errno: i32, bound: Option<&Bound>) -> Command<H> {
    Command::Answer {
        call,
        errno,
        capture: bound.and_then(Bound::capture),
    }
}

fn turn_away<H: Hands>(
    call: Call,
    errno: i32,
    slot: Option<H::Slot>,
    report: Box<Report>,
) -> Commands<H> {
    vec![answer(call, errno, None), record(slot, report)]
}

fn record<H: Hands>(slot: Option<H::Slot>, report: Box<Report>) -> Command<H> {
    Command::Record { slot, report }
}

/// Announced attempts at once.
pub const PENDING: usize = 8192;
/// How long what was prepared waits for its connection.
pub const LIFETIME: Duration = Duration::from_secs(30);
/// The same where a connection was reset before it was accepted. Its cookie went with its socket, so this may be the one that was prepared for;
/// a caller that was let go is here in less than this.
pub const TARDY: Duration = Duration::from_secs(1);
/// Destinations of such connections that are remembered; what was prepared for others waits for as long as ever.
const RESETS: usize = 1024;
/// Longer than any dial: its end, not this, ends the wait.
pub const DIALLING: Duration = Duration::from_mins(5);

#[cfg(test)]
mod tests;
