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
//! From every state before `Accepted`, `Gone` and the deadline lead to a record that says "abandoned".
//!
//! What a caller announces is a hint. The judgement that counts is made at `Accepted`, on the destination that the kernel reports and the
//! identity that the broker recorded for the socket's cookie; an upstream that was dialled early serves only the destination it was dialled for.
//! Invariants: nothing is relayed without an allowing judgement of its true destination; every attempt leaves one report; at most [`PENDING`]
//! announced attempts are pending, and none for longer than [`LIFETIME`] after its last step.

mod event;
mod open;
mod pending;

pub use event::{Accepted, Attempted, Command, Counts, Dial, Event, Hands, Waiting};

use super::attempt::{Call, Caller, Cookie, Failure, Fate, Judge, Report, Serial};
use holdfast_clock::Moment;
use open::{Connection, Connections};
use pending::{Attempt, Bound, Pending, Refused, State, Who, report};
use std::net::SocketAddr;
use std::time::Duration;

/// Every attempt that is pending and every connection that is open.
#[derive(Debug)]
pub struct Book<H: Hands> {
    last: u64,
    pending: Pending<H>,
    open: Connections,
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
            Event::Gone { call } => self.gone(call),
            Event::Closed { serial } => self.closed(serial),
            Event::Passed => self.passed(now),
            Event::Revised => self.revised(judge),
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
            cookie,
            hint,
            blocking,
            patience,
            caller,
            slot,
        } = attempted;
        if cookie.is_some_and(|cookie| self.has_connection(cookie)) {
            // The kernel answers EISCONN; if something arrives all the same, it is judged like anything that arrives.
            self.counts.repeated += 1;
            return vec![answer(call, 0, None)];
        }
        let judged = hint.map(|hint| Bound::of(hint, judge.judge(hint, &caller.identity)));
        let bound = match judged.transpose() {
            Ok(bound) => bound,
            Err(refused) => return turn_away(call, libc::EACCES, slot, refused.report(caller)),
        };
        // Nothing can be kept for a socket that could not be looked at: its arrival is an unannounced one.
        let Some(cookie) = cookie else {
            return vec![answer(call, 0, bound.as_ref())];
        };
        let mut commands = self.supersede(call, cookie);
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
        commands.push(match &bound {
            Some(bound) => Command::Dial(bound.dial(serial, patience, waiting)),
            None => answer(call, 0, None),
        });
        let who = Who {
            call: Some(call),
            cookie: Some(cookie),
            caller,
            patience,
            slot,
        };
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
                self.keep(serial, who, State::Ready(bound, upstream, address), now);
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
                self.keep(serial, who, State::Broken(bound, failure), now);
                Vec::new()
            }
            State::Awaited(bound, waiter) => {
                vec![
                    Command::Refuse(waiter),
                    who.end(Some(&bound), failure.into()),
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

    fn accepted(&mut self, accepted: Accepted<H>, now: Moment, judge: &impl Judge) -> Commands<H> {
        let Accepted {
            cookie,
            destination,
            waiter,
            slot,
        } = accepted;
        let (who, mut early) = match self.announced(cookie) {
            Some((serial, Attempt { who, state, .. })) => (who, Some((serial, state))),
            None => match slot {
                Some(slot) => (self.unannounced(cookie, slot), None),
                None => return reset_unrecorded(waiter, destination),
            },
        };
        let mut commands = Vec::new();
        if let (Some(call), Some((_, State::Asked(_)))) = (who.call, &early) {
            commands.push(answer(call, 0, None));
        }
        let judged = Bound::of(destination, judge.judge(destination, &who.caller.identity));
        let announced = early.as_ref().and_then(|(_, state)| state.bound());
        let elsewhere = announced.is_some_and(|bound| bound.destination != destination);
        self.counts.races += u64::from(elsewhere);
        if elsewhere || judged.is_err() {
            commands.extend(early.take().and_then(cancel));
        }
        commands.extend(match judged {
            Ok(bound) => {
                let early = early.map(|(serial, state)| (serial, state.recheck(&bound, judge)));
                self.serve(early, who, (bound, waiter), now)
            }
            Err(refused) => refuse(waiter, who, refused),
        });
        commands
    }

    /// An arrival that was allowed finds what was prepared for it, if anything was.
    fn serve(
        &mut self,
        early: Option<(Serial, State<H>)>,
        who: Who<H>,
        (bound, waiter): (Bound, H::Waiter),
        now: Moment,
    ) -> Commands<H> {
        let (serial, command) = match early {
            Some((serial, State::Ready(_, upstream, address))) => {
                return self.relay(serial, who, (bound, waiter), (upstream, address));
            }
            Some((_, State::Broken(_, failure))) => {
                return vec![
                    Command::Refuse(waiter),
                    who.end(Some(&bound), failure.into()),
                ];
            }
            Some((serial, State::Asked(_) | State::Dialling(_))) => {
                (serial, Command::Await(serial))
            }
            None | Some((_, State::Bare(_) | State::Awaited(..))) => {
                let serial = self.serial();
                (
                    serial,
                    Command::Dial(bound.dial(serial, who.patience, Waiting::Connected)),
                )
            }
        };
        let who = Who { call: None, ..who };
        self.keep(serial, who, State::Awaited(bound, waiter), now);
        vec![command]
    }

    fn relay(
        &mut self,
        serial: Serial,
        who: Who<H>,
        (bound, waiter): (Bound, H::Waiter),
        (upstream, address): (H::Upstream, SocketAddr),
    ) -> Commands<H> {
        let Who {
            cookie,
            caller,
            slot,
            ..
        } = who;
        let report = report(Some(&bound), caller.clone(), Fate::Connected(address));
        let (destination, dialled) = (bound.destination, address.ip());
        self.open.insert(
            serial,
            Connection {
                cookie,
                caller,
                destination,
                dialled,
            },
        );
        vec![
            record(Some(slot), report),
            Command::Relay {
                serial,
                waiter,
                upstream,
            },
        ]
    }

    fn gone(&mut self, call: Call) -> Commands<H> {
        self.pending
            .of_call(call)
            .map_or_else(Vec::new, |serial| self.abandon(serial))
    }

    fn closed(&mut self, serial: Serial) -> Commands<H> {
        self.open.remove(serial);
        self.abandon(serial)
    }

    fn passed(&mut self, now: Moment) -> Commands<H> {
        let past = self.pending.past(now);
        self.counts.expired += past.len() as u64;
        past.into_iter()
            .flat_map(|serial| self.expire(serial))
            .collect()
    }

    fn revised(&mut self, judge: &impl Judge) -> Commands<H> {
        let withdrawn = self.open.withdraw(judge).into_iter();
        withdrawn
            .flat_map(|(serial, report)| [Command::Close(serial), record(None, report)])
            .collect()
    }

    fn expire(&mut self, serial: Serial) -> Commands<H> {
        let asked = self.pending.get(serial).and_then(Attempt::asked);
        let told = asked.map(|call| answer(call, libc::ETIMEDOUT, None));
        told.into_iter().chain(self.abandon(serial)).collect()
    }

    /// Nobody waits for it any more, or nobody may.
    fn abandon(&mut self, serial: Serial) -> Commands<H> {
        let Some(Attempt { who, state, .. }) = self.pending.remove(serial) else {
            return Vec::new();
        };
        let record = who.end(state.bound(), Fate::Abandoned);
        let mut commands = vec![record];
        match state {
            State::Awaited(_, waiter) => {
                commands.extend([Command::Cancel(serial), Command::Refuse(waiter)]);
            }
            State::Asked(_) | State::Dialling(_) => commands.push(Command::Cancel(serial)),
            State::Ready(..) | State::Broken(..) | State::Bare(_) => {}
        }
        commands
    }

    /// A new call on the same socket, or a new call under an old id: the old attempt ends.
    fn supersede(&mut self, call: Call, cookie: Cookie) -> Commands<H> {
        let old = [
            self.pending.of_call(call),
            self.pending.of_cookie(cookie).map(|(serial, _)| serial),
        ];
        let mut commands = Vec::new();
        for serial in old.into_iter().flatten() {
            let asked = self.pending.get(serial).and_then(Attempt::asked);
            commands.extend(
                asked
                    .filter(|asked| *asked != call)
                    .map(|asked| answer(asked, 0, None)),
            );
            commands.extend(self.abandon(serial));
        }
        commands
    }

    fn announced(&mut self, cookie: Option<Cookie>) -> Option<(Serial, Attempt<H>)> {
        let (serial, attempt) = self.pending.of_cookie(cookie?)?;
        match attempt.state {
            // It has its connection; this one is another.
            State::Awaited(..) => None,
            State::Asked(_)
            | State::Dialling(_)
            | State::Ready(..)
            | State::Broken(..)
            | State::Bare(_) => Some((serial, self.pending.remove(serial)?)),
        }
    }

    /// A socket that was connected before and connects again without a word keeps its owner.
    fn unannounced(&mut self, cookie: Option<Cookie>, slot: H::Slot) -> Who<H> {
        self.counts.unannounced += 1;
        let known = cookie.and_then(|cookie| self.open.of_cookie(cookie));
        let caller = known.map_or(Caller::UNKNOWN, |connection| connection.caller.clone());
        Who {
            call: None,
            cookie,
            caller,
            patience: None,
            slot,
        }
    }

    fn has_connection(&self, cookie: Cookie) -> bool {
        let awaited =
            self.pending
                .of_cookie(cookie)
                .is_some_and(|(_, attempt)| match attempt.state {
                    State::Awaited(..) => true,
                    State::Asked(_)
                    | State::Dialling(_)
                    | State::Ready(..)
                    | State::Broken(..)
                    | State::Bare(_) => false,
                });
        awaited || self.open.of_cookie(cookie).is_some()
    }

    fn keep(&mut self, serial: Serial, who: Who<H>, state: State<H>, now: Moment) {
        let lifetime = if state.is_dialling() {
            DIALLING
        } else {
            LIFETIME
        };
        self.pending.insert(
            serial,
            Attempt {
                who,
                state,
                deadline: now + lifetime,
            },
        );
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

fn refuse<H: Hands>(waiter: H::Waiter, who: Who<H>, refused: Refused) -> Commands<H> {
    let Who { caller, slot, .. } = who;
    vec![
        Command::Refuse(waiter),
        record(Some(slot), refused.report(caller)),
    ]
}

fn reset_unrecorded<H: Hands>(waiter: H::Waiter, destination: SocketAddr) -> Commands<H> {
    let (caller, destination) = (Caller::UNKNOWN, Some(destination));
    let report = Report {
        caller,
        destination,
        host: None,
        allowed: None,
        fate: Fate::Unrecorded,
    };
    vec![Command::Refuse(waiter), record(None, Box::new(report))]
}

fn record<H: Hands>(slot: Option<H::Slot>, report: Box<Report>) -> Command<H> {
    Command::Record { slot, report }
}

fn cancel<H: Hands>((serial, state): (Serial, State<H>)) -> Option<Command<H>> {
    state.is_dialling().then_some(Command::Cancel(serial))
}

/// Announced attempts at once.
pub const PENDING: usize = 8192;
/// How long what was prepared waits for its connection.
pub const LIFETIME: Duration = Duration::from_secs(30);
/// Longer than any dial: its end, not this, ends the wait.
pub const DIALLING: Duration = Duration::from_mins(5);

#[cfg(test)]
mod tests;
