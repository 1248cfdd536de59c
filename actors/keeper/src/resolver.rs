//! Answers the sandbox's questions for names, and finds the real addresses behind them for the dial.
//!
//! ```text
//! workload ── UDP, TCP 53 ──> server ──> Resolver::begin ─┬─ reply at once
//!                                                         ├─ denied: NXDOMAIN, one record
//!                                                         └─ Lookup ── finish ──> Upstream
//! names   a synthetic address for each name, for the sandbox's lifetime     ▲
//! egress ── name_of(address the workload connected to) ── resolve ──────────┘
//! ```
//!
//! The workload sees one kind of address only: the synthetic ones of [`Names`]. Whether a name has
//! an A or an AAAA record is answered truthfully from upstream; which address that is, only the
//! egress side learns, at the time of the dial.
//!
//! Invariant: a name that no rule could match is never spoken outside the host.

use std::borrow::Cow;
use std::sync::Arc;

use holdfast_observability::Decision;
use holdfast_policy::{Denied, Name};
use parking_lot::Mutex;

use self::answer::{Plan, Settled};
use self::counters::bump;
use self::denials::Denials;
use self::wire::{Packet, Query, Reply};
use crate::sentinel::Sentinel;

pub use self::counters::{Counters, Outcome};
pub use self::names::{Family, Full, Names};
pub use self::rules::{Admission, DeniedName, Ledger, Trail, Withheld};
pub use self::server::{Limits, Server, Sockets, Useless};
pub use self::upstream::{Addresses, Config, GRACE, NameError, Patience, Source, Upstream};
pub use self::wire::Via;

mod answer;
mod counters;
mod denials;
mod names;
pub mod nameserver;
mod rules;
mod server;
#[cfg(test)]
mod testing;
mod upstream;
mod wire;

/// Everything that answers names in one sandbox. Knows no socket.
pub struct Resolver {
    names: Arc<Names>,
    upstream: Arc<Upstream>,
    admission: Arc<dyn Admission>,
    ledger: Arc<dyn Ledger>,
    denials: Mutex<Denials>,
    counters: Arc<Counters>,
    sentinel: Option<Arc<Sentinel>>,
}

/// What a packet leads to.
#[derive(Debug)]
pub enum Begun {
    /// Send this back.
    Reply(Vec<u8>),
    /// Send nothing.
    Silence,
    /// Somebody has to be asked first.
    Lookup(Lookup),
}

/// A question that waits for a name server.
#[derive(Debug)]
pub struct Lookup {
    query: Query,
    name: Name,
    family: Family,
}

impl Resolver {
    /// Ties the parts together.
    pub fn new(
        names: Arc<Names>,
        upstream: Arc<Upstream>,
        admission: Arc<dyn Admission>,
        ledger: Arc<dyn Ledger>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            names,
            upstream,
            admission,
            ledger,
            denials: Mutex::default(),
            counters,
            sentinel: None,
        }
    }

    /// The same, with a name for the canary that it answers whatever the policy says.
    #[must_use]
    pub fn with_sentinel(self, sentinel: Arc<Sentinel>) -> Self {
        Self {
            sentinel: Some(sentinel),
            ..self
        }
    }

    /// What became of the queries so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Answers a packet, or says that a lookup is needed. Never waits.
    pub fn begin(&self, packet: &[u8], via: Via) -> Begun {
        let query = match wire::read(packet, via) {
            Packet::Query(query) => query,
            Packet::Refused(reply, outcome) => {
                self.counters.count(outcome);
                return Begun::Reply(reply);
            }
            Packet::Silence => {
                self.counters.count(Outcome::Ignored);
                return Begun::Silence;
            }
        };
        if !query.is_internet() {
            return Begun::Reply(self.say(&query, Reply::Refused, Outcome::NotImplemented));
        }
        if let Some(reply) = self.sentinel(&query) {
            return Begun::Reply(reply);
        }
        match answer::plan(query.question(), self.admission.as_ref(), &self.names) {
            Plan::Reply(reply, outcome) => Begun::Reply(self.say(&query, reply, outcome)),
            Plan::Deny(name) => {
                let explain = || self.admission.explain(&name.parse().ok()?);
                let decision = self.record(&name, Withheld::Name, explain);
                Begun::Reply(self.say(&query, Reply::Denied(decision), Outcome::Denied))
            }
            Plan::Look(name, family) => match self.settled(&name, family) {
                Some(settled) => Begun::Reply(self.conclude(&query, &name, family, settled)),
                None => Begun::Lookup(Lookup {
                    query,
                    name,
                    family,
                }),
            },
        }
    }

    /// Asks, and answers. Takes as long as [`Upstream::resolve`].
    pub async fn finish(&self, lookup: Lookup) -> Vec<u8> {
        let Lookup {
            query,
            name,
            family,
        } = lookup;
        let mut settled = self.settle(&name, &self.upstream.resolve(&name, family).await);
        if settled == Settled::NoSuchName {
            let sibling = self.upstream.resolve(&name, family.sibling()).await;
            settled = answer::reconcile(settled, &self.settle(&name, &sibling));
        }
        self.conclude(&query, &name, family, settled)
    }

    /// The answer when there is no room for another lookup.
    pub fn shed(&self, lookup: &Lookup) -> Vec<u8> {
        self.say(&lookup.query, Reply::Failed, Outcome::Shed)
    }

    /// The answer to the canary's question.
    fn sentinel(&self, query: &Query) -> Option<Vec<u8>> {
        let sentinel = self.sentinel.as_ref()?;
        let (name, question) = (sentinel.name(), query.question());
        if question.query_type != hickory_proto::rr::RecordType::A
            || answer::host(&question.name)? != name.as_str()
        {
            return None;
        }
        sentinel.asked();
        Some(self.conclude(query, name, Family::V4, Settled::Exists { ttl: 1 }))
    }

    /// What is known of a name without asking.
    fn settled(&self, name: &Name, family: Family) -> Option<Settled> {
        let peek = |family| {
            let known = self.upstream.peek(name, family)?;
            Some(self.settle(name, &known))
        };
        let own = peek(family)?;
        if own != Settled::NoSuchName {
            return Some(own);
        }
        Some(answer::reconcile(own, &peek(family.sibling())?))
    }

    fn settle(&self, name: &Name, found: &Result<Addresses, NameError>) -> Settled {
        answer::settle(name, found, self.upstream.now(), self.admission.as_ref())
    }

    fn conclude(&self, query: &Query, name: &Name, family: Family, settled: Settled) -> Vec<u8> {
        match settled {
            Settled::Exists { ttl } => match self.names.synthetic(name, family) {
                Ok(address) => {
                    let data = vec![answer::record(address)];
                    self.say(query, Reply::Records { ttl, data }, Outcome::Answered)
                }
                Err(Full) => self.say(query, Reply::Failed, Outcome::Full),
            },
            Settled::Withheld(address, why) => {
                let what = Withheld::Address(address);
                let decision = self.record(name.as_str(), what, || Some(*why));
                self.say(query, Reply::Withheld(decision), Outcome::Withheld)
            }
            Settled::NoData => self.say(query, Reply::NoData, Outcome::NoData),
            Settled::NoSuchName => self.say(query, Reply::NoSuchName, Outcome::NoSuchName),
            Settled::Failed => self.say(query, Reply::Failed, Outcome::Failed),
        }
    }

    fn say(&self, query: &Query, reply: Reply, outcome: Outcome) -> Vec<u8> {
        self.counters.count(outcome);
        query.reply(reply)
    }

    /// The decision by which a name is denied, with a record of its own unless it has just had one.
    fn record(&self, name: &str, what: Withheld, why: impl FnOnce() -> Option<Denied>) -> Decision {
        let key = match what {
            Withheld::Name => Cow::Borrowed(name),
            Withheld::Address(_) => Cow::Owned(format!("{name} at its address")),
        };
        let mut repeated = true;
        let mut denials = self.denials.lock();
        let decision = denials.decide(&key, self.upstream.now(), |repeats| {
            repeated = false;
            self.ledger.denied(DeniedName {
                name: name.to_owned(),
                what,
                repeats,
                why: why(),
            })
        });
        if repeated {
            bump(&self.counters.repeated_denials);
        }
        decision
    }
}

#[cfg(test)]
mod tests;
