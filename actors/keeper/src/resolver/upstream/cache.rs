//! Remembers what upstream said for as long as upstream allowed, and a while longer for bad times.
//!
//! ```text
//! insert ──> Fresh ──(ttl)──> Stale ──(grace)──> gone
//! ```
//!
//! Only addresses have a grace: they may be used when upstream is silent (RFC 8767). A negative
//! answer or a failure is gone when its time is over. Pure: time is an argument.

use std::collections::HashMap;
use std::time::Duration;

use holdfast_clock::Moment;

use super::{Addresses, NameError};
use crate::resolver::names::Family;
use holdfast_policy::Name;

pub(super) type Key = (Name, Family);
pub(super) type Outcome = Result<Addresses, NameError>;

/// What is known about a name and family.
#[derive(Debug)]
pub(super) enum Known {
    /// It holds now.
    Fresh(Outcome),
    /// It held of late, and will do if nothing better is to be had.
    Stale(Addresses),
    Nothing,
}

#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: HashMap<Key, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// What upstream said last.
    outcome: Outcome,
    until: Moment,
    /// Addresses from before a failure, kept while their grace lasts.
    fallback: Option<Addresses>,
}

impl Cache {
    pub(super) fn find(&self, key: &Key, now: Moment) -> Known {
        let Some(entry) = self.entries.get(key) else {
            return Known::Nothing;
        };
        let usable = entry.usable(now);
        match (&entry.outcome, usable) {
            // A failure that has just been seen is not tried again at once.
            (Err(NameError::Unavailable(_)), Some(addresses)) if now < entry.until => {
                Known::Fresh(Ok(addresses.clone()))
            }
            (outcome, _) if now < entry.until => Known::Fresh(outcome.clone()),
            (_, Some(addresses)) => Known::Stale(addresses.clone()),
            (_, None) => Known::Nothing,
        }
    }

    pub(super) fn insert(&mut self, key: Key, outcome: Outcome, until: Moment, now: Moment) {
        let fallback = match outcome {
            Err(NameError::Unavailable(_)) => {
                let known = self.entries.get(&key);
                known.and_then(|entry| entry.usable(now)).cloned()
            }
            Ok(_) | Err(NameError::NoSuchName | NameError::NoAddress) => None,
        };
        if self.entries.len() >= CAPACITY && !self.entries.contains_key(&key) {
            self.make_room(now);
        }
        // Whoever has addresses that will do is not made to wait for silent servers again so soon.
        let until = match fallback {
            Some(_) => until.max(now + STALE_RETRY),
            None => until,
        };
        let entry = Entry {
            outcome,
            until,
            fallback,
        };
        self.entries.insert(key, entry);
    }

    fn make_room(&mut self, now: Moment) {
        self.entries
            .retain(|_, entry| now < entry.until || entry.usable(now).is_some());
        if self.entries.len() < CAPACITY {
            return;
        }
        let first_to_end = self.entries.iter().min_by_key(|(_, entry)| entry.until);
        if let Some(key) = first_to_end.map(|(key, _)| key.clone()) {
            self.entries.remove(&key);
        }
    }
}

impl Entry {
    fn usable(&self, now: Moment) -> Option<&Addresses> {
        let addresses = self.outcome.as_ref().ok().or(self.fallback.as_ref())?;
        (now < addresses.valid_until + GRACE).then_some(addresses)
    }
}

/// How long addresses outlive their TTL when upstream does not answer.
pub const GRACE: Duration = Duration::from_mins(10);
/// How long addresses in their grace are used before the servers are asked again.
const STALE_RETRY: Duration = Duration::from_secs(10);
pub(super) const CAPACITY: usize = 4096;

#[cfg(test)]
mod tests;
