//! Finds the real addresses of a name, for the dial and for the question whether the name exists.
//!
//! ```text
//! resolve ──> policy's static hosts ──> cache ──> one flight per name and family ─┬─ hosts file
//!             (exact, nothing else)     (TTLs)    (all who ask wait for it)       └─ name servers
//! ```
//!
//! Nothing is opened before the first name that needs it. Addresses are unfiltered here: whoever
//! dials one asks the policy first.
//!
//! Invariant: an answer is never older than its TTL while a server can be reached, and never older
//! than its TTL and [`GRACE`] when none can.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_clock::{Clock, Moment};
use holdfast_observability::Limiter;
use holdfast_policy::Name;
use parking_lot::Mutex;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::timeout;

use self::cache::{Cache, Key, Known, Outcome};
use self::host::Stamp;
use self::reading::Said;
use self::servers::Servers;
use super::Admission;
use super::counters::{Counters, bump};
use super::names::Family;

pub use self::cache::GRACE;
pub use self::host::Source;
pub use self::servers::Patience;

mod cache;
mod host;
mod reading;
mod servers;
mod sockets;

/// The addresses of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// At least one, in the order in which they were given.
    pub ips: Arc<[IpAddr]>,
    /// The end of their TTL. In the past for addresses that are used in their grace.
    pub valid_until: Moment,
}

/// Why a name has no addresses of a family.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name does not exist for any type of record.
    #[error("find the name: it does not exist")]
    NoSuchName,
    /// The name exists without an address of this family.
    #[error("find an address of the name: it has none of this family")]
    NoAddress,
    /// Nobody who could know answered; trying again later may help.
    #[error("ask the name servers: {0}")]
    Unavailable(Arc<str>),
}

/// What the lookups of one sandbox share.
pub struct Upstream {
    admission: Arc<dyn Admission>,
    source: Source,
    patience: Patience,
    clock: Clock,
    counters: Arc<Counters>,
    cache: Mutex<Cache>,
    flights: Mutex<HashMap<Key, Flight>>,
    room: Semaphore,
    servers: Mutex<Option<Loaded>>,
    lines: Mutex<Limiter>,
}

type Flight = Arc<OnceCell<Outcome>>;

struct Loaded {
    servers: Arc<Servers>,
    stamp: Option<Stamp>,
    checked: Moment,
}

/// What an [`Upstream`] is made of.
pub struct Config {
    /// Where names are looked up.
    pub source: Source,
    /// How long to wait.
    pub patience: Patience,
    /// What the time is.
    pub clock: Clock,
}

impl Upstream {
    /// Opens and reads nothing yet.
    pub fn new(admission: Arc<dyn Admission>, config: Config, counters: Arc<Counters>) -> Self {
        Self {
            admission,
            source: config.source,
            patience: config.patience,
            clock: config.clock,
            counters,
            cache: Mutex::default(),
            flights: Mutex::default(),
            room: Semaphore::new(MOST_EXCHANGES),
            servers: Mutex::new(None),
            lines: Mutex::new(Limiter::new(LINE_PERIOD)),
        }
    }

    /// The addresses of a name, from wherever they can be had soonest.
    ///
    /// Takes at most [`Patience::total`]. Dropping the future is safe at any point: another caller
    /// who waits for the same name goes on with the lookup.
    pub async fn resolve(&self, name: &Name, family: Family) -> Outcome {
        let key = (name.clone(), family);
        match self.known(&key) {
            Known::Fresh(outcome) => outcome,
            Known::Stale(addresses) => {
                let outcome = self.fly(&key, self.patience.stale).await;
                self.or_stale(outcome, addresses)
            }
            Known::Nothing => self.fly(&key, self.patience.total).await,
        }
    }

    /// What [`Upstream::resolve`] would answer without asking anyone.
    pub fn peek(&self, name: &Name, family: Family) -> Option<Outcome> {
        match self.known(&(name.clone(), family)) {
            Known::Fresh(outcome) => Some(outcome),
            Known::Stale(_) | Known::Nothing => None,
        }
    }

    /// The present moment, on the clock by which answers expire.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    fn known(&self, key: &Key) -> Known {
        let now = self.clock.now();
        if let Some(fixed) = self.admission.hosts(&key.0) {
            return Known::Fresh(exact(fixed.iter().copied(), key.1, now));
        }
        self.cache.lock().find(key, now)
    }

    fn or_stale(&self, outcome: Outcome, addresses: Addresses) -> Outcome {
        match outcome {
            Err(NameError::Unavailable(_)) => {
                bump(&self.counters.stale);
                Ok(addresses)
            }
            Ok(_) | Err(NameError::NoSuchName | NameError::NoAddress) => outcome,
        }
    }

    /// One lookup for all who ask at the same time. Should the caller who does the work go away,
    /// the next one takes over.
    async fn fly(&self, key: &Key, patience: Duration) -> Outcome {
        let boarded = Boarded::new(&self.flights, key);
        let fetch = || async {
            let outcome = match timeout(patience, self.fetch(key)).await {
                Ok(outcome) => outcome,
                Err(_elapsed) => Err(unavailable("no answer in time")),
            };
            self.keep(key, outcome)
        };
        boarded.flight.get_or_init(fetch).await.clone()
    }

    async fn fetch(&self, key: &Key) -> Result<Said, NameError> {
        let (name, family) = key;
        let listed = self.source.find(name);
        if !listed.is_empty() {
            return Ok(listed_only(listed, *family));
        }
        let servers = self.servers().map_err(|error| unavailable(&error))?;
        let Ok(_permit) = self.room.acquire().await else {
            return Err(unavailable("the resolver is being closed"));
        };
        let said = servers.ask(name, *family).await;
        said.map_err(|error| unavailable(&error))
    }

    /// Remembers what was said, for as long as it may be.
    fn keep(&self, key: &Key, said: Result<Said, NameError>) -> Outcome {
        let now = self.clock.now();
        let seconds = |ttl: u32| now + Duration::from_secs(ttl.into());
        let (outcome, until) = match said {
            Ok(Said::Addresses { ips, ttl }) => {
                let valid_until = seconds(ttl);
                let ips = ips.into();
                (Ok(Addresses { ips, valid_until }), valid_until)
            }
            Ok(Said::NoAddress { ttl }) => (Err(NameError::NoAddress), seconds(ttl)),
            Ok(Said::NoSuchName { ttl }) => (Err(NameError::NoSuchName), seconds(ttl)),
            Err(error) => {
                self.warn(&key.0, &error, now);
                (Err(error), now + FAILURE_TTL)
            }
        };
        let mut cache = self.cache.lock();
        cache.insert(key.clone(), outcome.clone(), until, now);
        outcome
    }

    /// The servers of the host as they are now: a laptop changes networks, a VPN comes and goes.
    fn servers(&self) -> Result<Arc<Servers>, String> {
        let now = self.clock.now();
        let mut loaded = self.servers.lock();
        if let Some(known) = loaded.as_mut() {
            let due = now >= known.checked + RECHECK;
            known.checked = if due { now } else { known.checked };
            if !due || self.source.stamp() == known.stamp {
                return Ok(Arc::clone(&known.servers));
            }
        }
        let stamp = self.source.stamp();
        let list = match (self.source.list(), loaded.as_ref()) {
            (Ok(list), _) => list,
            // The file is being replaced, or there is no descriptor to read it with.
            (Err(_), Some(known)) => return Ok(Arc::clone(&known.servers)),
            (Err(error), None) => return Err(error),
        };
        let servers = Servers::new(
            &list.addresses,
            list.edns,
            self.patience,
            self.clock.clone(),
        );
        let servers = Arc::new(servers.map_err(|error| error.to_string())?);
        *loaded = Some(Loaded {
            servers: Arc::clone(&servers),
            stamp,
            checked: now,
        });
        Ok(servers)
    }

    /// One line a minute: when the servers are dead, every lookup fails.
    fn warn(&self, name: &Name, error: &NameError, now: Moment) {
        if let Some(held) = self.lines.lock().admit(now.since_origin()) {
            holdfast_observability::transport!(%name, %error, held, "cannot look names up");
        }
    }
}

/// One caller's place in the lookup of a name. The last one to leave clears it away.
struct Boarded<'a> {
    flights: &'a Mutex<HashMap<Key, Flight>>,
    key: &'a Key,
    flight: Flight,
}

impl<'a> Boarded<'a> {
    fn new(flights: &'a Mutex<HashMap<Key, Flight>>, key: &'a Key) -> Self {
        let mut open = flights.lock();
        // A flight that has landed is of the past: its answer may have had a TTL of 0.
        if open.get(key).is_some_and(|flight| flight.initialized()) {
            open.remove(key);
        }
        let flight = Arc::clone(open.entry(key.clone()).or_default());
        Self {
            flights,
            key,
            flight,
        }
    }
}

impl Drop for Boarded<'_> {
    fn drop(&mut self) {
        let mut open = self.flights.lock();
        let same = |flight: &Flight| Arc::ptr_eq(flight, &self.flight);
        // The table's own and this one.
        let last = Arc::strong_count(&self.flight) == 2;
        if last && open.get(self.key).is_some_and(same) {
            open.remove(self.key);
        }
    }
}

/// A list that is the whole truth: the families it has and no other.
fn exact(listed: impl Iterator<Item = IpAddr>, family: Family, now: Moment) -> Outcome {
    let ips: Arc<[IpAddr]> = listed.filter(|ip| Family::of(*ip) == family).collect();
    if ips.is_empty() {
        return Err(NameError::NoAddress);
    }
    let valid_until = now + LISTED_TTL;
    Ok(Addresses { ips, valid_until })
}

fn listed_only(listed: Vec<IpAddr>, family: Family) -> Said {
    let of_family = listed.into_iter().filter(|ip| Family::of(*ip) == family);
    let ips: Vec<IpAddr> = of_family.collect();
    let ttl = FILE_TTL;
    if ips.is_empty() {
        Said::NoAddress { ttl }
    } else {
        Said::Addresses { ips, ttl }
    }
}

fn unavailable(why: &str) -> NameError {
    NameError::Unavailable(why.into())
}

/// Exchanges with name servers at a time. Each may hold three sockets per server while it retransmits.
const MOST_EXCHANGES: usize = 32;
/// What the policy lists holds until the policy changes, and then at once: it is not cached.
const LISTED_TTL: Duration = Duration::from_mins(1);
/// Seconds for which the hosts file is not read again for the same name.
const FILE_TTL: u32 = 5;
/// A failure is remembered so long (RFC 9520 wants at least a second), or dead servers would be
/// asked by every retry of every program.
const FAILURE_TTL: Duration = Duration::from_secs(2);
const RECHECK: Duration = Duration::from_secs(1);
const LINE_PERIOD: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests;
