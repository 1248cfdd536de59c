//! The attempts that have not ended yet, found by serial, by call and by cookie.

use super::super::attempt::{
    Call, Caller, Cookie, Failure, Fate, Grant, Judge, Judgement, Report, Ruling, Serial, name_of,
};
use super::event::{Command, Dial, Hands, Waiting};
use holdfast_clock::Moment;
use holdfast_policy::{Denied, Destination};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// One attempt.
#[derive(Debug)]
pub(super) struct Attempt<H: Hands> {
    pub(super) who: Who<H>,
    pub(super) state: State<H>,
    pub(super) deadline: Moment,
}

/// What of an attempt does not change.
#[derive(Debug)]
pub(super) struct Who<H: Hands> {
    /// The call that announced it, if one did.
    pub(super) call: Option<Call>,
    pub(super) thread: Option<u32>,
    pub(super) cookie: Option<Cookie>,
    pub(super) caller: Caller,
    pub(super) patience: Option<Duration>,
    pub(super) slot: H::Slot,
}

/// Where an attempt stands, and the destination that was judged.
#[derive(Debug)]
pub(super) enum State<H: Hands> {
    /// The caller waits in `connect()` for the dial, or at least for its first try.
    Asked(Bound),
    /// The caller was let go; the dial is under way.
    Dialling(Bound),
    /// The caller was let go; its connection will find this upstream.
    Ready(Bound, H::Upstream, SocketAddr),
    /// The caller was let go; its connection will find that the dial failed.
    Broken(Bound, Failure),
    /// The caller was let go; nothing is dialled before its connection comes. Its memory may have been unreadable: then nothing was judged.
    Bare(Option<Bound>),
    /// The connection is here and waits for the dial.
    Awaited(Bound, H::Waiter),
}

impl<H: Hands> Attempt<H> {
    /// The call that waits for this attempt's dial.
    pub(super) fn asked(&self) -> Option<Call> {
        match self.state {
            State::Asked(_) => self.who.call,
            State::Dialling(_)
            | State::Ready(..)
            | State::Broken(..)
            | State::Bare(_)
            | State::Awaited(..) => None,
        }
    }

    /// Whether its caller has its answer, and its connection has not come.
    pub(super) fn is_let_go(&self) -> bool {
        match self.state {
            State::Dialling(_) | State::Ready(..) | State::Broken(..) | State::Bare(_) => true,
            State::Asked(_) | State::Awaited(..) => false,
        }
    }
}

impl<H: Hands> Who<H> {
    /// The one record of this attempt.
    pub(super) fn end(self, bound: Option<&Bound>, fate: Fate) -> Command<H> {
        Command::Record {
            slot: Some(self.slot),
            report: report(bound, self.caller, fate),
        }
    }
}

impl<H: Hands> State<H> {
    pub(super) fn bound(&self) -> Option<&Bound> {
        match self {
            State::Asked(bound)
            | State::Dialling(bound)
            | State::Ready(bound, ..)
            | State::Broken(bound, _)
            | State::Awaited(bound, _) => Some(bound),
            State::Bare(bound) => bound.as_ref(),
        }
    }

    /// The destination that a caller was let go to, as long as its connection has not come.
    fn prepared(&self) -> Option<&Bound> {
        match self {
            State::Dialling(bound) | State::Ready(bound, ..) | State::Broken(bound, _) => {
                Some(bound)
            }
            State::Bare(bound) => bound.as_ref(),
            State::Asked(_) | State::Awaited(..) => None,
        }
    }

    /// The policy may have been revised since the dial: is the address still admitted?
    pub(super) fn recheck(self, bound: &Bound, judge: &impl Judge) -> State<H> {
        match self {
            State::Ready(was, upstream, address) => {
                match judge.admits(&bound.grant, address.ip()) {
                    Ok(()) => State::Ready(was, upstream, address),
                    Err(denied) => State::Broken(was, Failure::Denied(denied)),
                }
            }
            state @ (State::Asked(_)
            | State::Dialling(_)
            | State::Broken(..)
            | State::Bare(_)
            | State::Awaited(..)) => state,
        }
    }

    pub(super) fn is_dialling(&self) -> bool {
        match self {
            State::Asked(_) | State::Dialling(_) | State::Awaited(..) => true,
            State::Ready(..) | State::Broken(..) | State::Bare(_) => false,
        }
    }
}

/// A destination that was judged, and the grant.
#[derive(Debug, Clone)]
pub(super) struct Bound {
    pub(super) destination: SocketAddr,
    pub(super) target: Destination,
    pub(super) grant: Grant,
}

/// A destination that was judged, and the refusal.
#[derive(Debug)]
pub(super) struct Refused {
    destination: SocketAddr,
    target: Destination,
    denied: Denied,
}

impl Bound {
    pub(super) fn of(destination: SocketAddr, judgement: Judgement) -> Result<Bound, Refused> {
        let Judgement { target, ruling } = judgement;
        match ruling {
            Ruling::Allowed(grant) => Ok(Bound {
                destination,
                target,
                grant,
            }),
            Ruling::Denied(denied) => Err(Refused {
                destination,
                target,
                denied,
            }),
        }
    }

    /// May this caller still go there, and to this address?
    pub(super) fn rejudge(
        self,
        caller: &Caller,
        address: IpAddr,
        judge: &impl Judge,
    ) -> Result<Bound, Refused> {
        let destination = self.destination;
        let bound = Bound::of(destination, judge.judge(destination, &caller.identity))?;
        match judge.admits(&bound.grant, address) {
            Ok(()) => Ok(bound),
            Err(denied) => Err(Refused {
                destination,
                target: bound.target,
                denied,
            }),
        }
    }

    pub(super) fn dial<H: Hands>(&self, serial: Serial, who: &Who<H>, waiting: Waiting) -> Dial {
        let Bound {
            destination,
            target,
            grant,
        } = self.clone();
        Dial {
            serial,
            target,
            destination,
            grant,
            patience: who.patience,
            waiting,
            place: H::place(&who.slot),
            owed: report(Some(self), who.caller.clone(), Fate::Unknown),
        }
    }

    pub(super) fn capture(&self) -> Option<u16> {
        self.grant.on_demand.then(|| self.destination.port())
    }
}

/// The report of an attempt that was allowed, as far as anything was judged at all.
pub(super) fn report(bound: Option<&Bound>, caller: Caller, fate: Fate) -> Box<Report> {
    let destination = bound.map(|bound| bound.destination);
    let host = bound.and_then(|bound| name_of(&bound.target));
    let allowed = bound.map(|bound| bound.grant.allowed.clone());
    Box::new(Report {
        caller,
        destination,
        host,
        allowed,
        fate,
    })
}

impl Refused {
    pub(super) fn report(self, caller: Caller) -> Box<Report> {
        let Refused {
            destination,
            target,
            denied,
        } = self;
        let fate = Fate::Denied(denied);
        let host = name_of(&target);
        Box::new(Report {
            caller,
            destination: Some(destination),
            host,
            allowed: None,
            fate,
        })
    }
}

/// The attempts and their indices.
#[derive(Debug)]
pub(super) struct Pending<H: Hands> {
    attempts: HashMap<Serial, Attempt<H>>,
    calls: HashMap<Call, Serial>,
    cookies: HashMap<Cookie, Serial>,
}

impl<H: Hands> Default for Pending<H> {
    fn default() -> Pending<H> {
        Pending {
            attempts: HashMap::new(),
            calls: HashMap::new(),
            cookies: HashMap::new(),
        }
    }
}

impl<H: Hands> Pending<H> {
    pub(super) fn len(&self) -> usize {
        self.attempts.len()
    }

    pub(super) fn insert(&mut self, serial: Serial, attempt: Attempt<H>) {
        if let Some(call) = attempt.who.call {
            self.calls.insert(call, serial);
        }
        if let Some(cookie) = attempt.who.cookie {
            self.cookies.insert(cookie, serial);
        }
        self.attempts.insert(serial, attempt);
    }

    pub(super) fn remove(&mut self, serial: Serial) -> Option<Attempt<H>> {
        let attempt = self.attempts.remove(&serial)?;
        if let Some(call) = attempt.who.call {
            unlink(&mut self.calls, &call, serial);
        }
        if let Some(cookie) = attempt.who.cookie {
            unlink(&mut self.cookies, &cookie, serial);
        }
        Some(attempt)
    }

    pub(super) fn get(&self, serial: Serial) -> Option<&Attempt<H>> {
        self.attempts.get(&serial)
    }

    pub(super) fn of_call(&self, call: Call) -> Option<Serial> {
        self.calls.get(&call).copied()
    }

    pub(super) fn of_cookie(&self, cookie: Cookie) -> Option<(Serial, &Attempt<H>)> {
        let serial = *self.cookies.get(&cookie)?;
        Some((serial, self.attempts.get(&serial)?))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (Serial, &Attempt<H>)> {
        let all = self.attempts.iter();
        all.map(|(serial, attempt)| (*serial, attempt))
    }

    pub(super) fn serials(&self) -> Vec<Serial> {
        self.attempts.keys().copied().collect()
    }

    /// What waits for a connection to one of `destinations` does so until `deadline` at most.
    pub(super) fn hurry(&mut self, destinations: &HashSet<SocketAddr>, deadline: Moment) {
        if destinations.is_empty() {
            return;
        }
        for attempt in self.attempts.values_mut() {
            let prepared = attempt.state.prepared();
            if prepared.is_some_and(|bound| destinations.contains(&bound.destination)) {
                attempt.deadline = attempt.deadline.min(deadline);
            }
        }
    }

    pub(super) fn past(&self, now: Moment) -> Vec<Serial> {
        let past = self
            .attempts
            .iter()
            .filter(|(_, attempt)| attempt.deadline <= now);
        past.map(|(serial, _)| *serial).collect()
    }
}

/// A later attempt may have taken the place in the index.
fn unlink<K: std::hash::Hash + Eq>(index: &mut HashMap<K, Serial>, key: &K, serial: Serial) {
    if index.get(key) == Some(&serial) {
        index.remove(key);
    }
}
