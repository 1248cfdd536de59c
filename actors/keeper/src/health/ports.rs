//! The ports that a policy allows and that nobody can listen on.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use holdfast_actor::Moment;

use super::{Health, Kind};

/// Which they are, and why.
#[derive(Clone, Debug)]
pub(super) struct Unheard {
    pub(super) ports: BTreeMap<u16, i32>,
    /// When that was found out; what was asked for before is older news.
    since: Moment,
}

impl Health {
    /// What is wrong with the ports that nobody can listen on; empty if there are none.
    pub fn unheard(&self) -> String {
        if self.unheard.ports.is_empty() {
            return String::new();
        }
        self.unheard.message()
    }

    /// These are the ports, as far as was known at `asked` or later; true if a canary should go for it.
    pub(super) fn hear_unheard(
        &mut self,
        ports: BTreeMap<u16, i32>,
        asked: Moment,
        now: Moment,
    ) -> bool {
        if asked < self.unheard.since {
            return false;
        }
        let mended = ports.is_empty() && !self.unheard.ports.is_empty();
        if mended {
            self.back[Kind::ProxyServing as usize] = now;
        }
        self.unheard = Unheard { ports, since: now };
        mended
    }
}

impl Unheard {
    /// None.
    pub(super) const fn new(now: Moment) -> Self {
        Self {
            ports: BTreeMap::new(),
            since: now,
        }
    }

    /// The word for it: what one can do something about goes first.
    pub(super) fn reason(&self) -> &'static str {
        if self.held().next().is_some() {
            "PortHeld"
        } else {
            "AcceptBackoff"
        }
    }

    /// The sentence: which ports, and what helps.
    pub(super) fn message(&self) -> String {
        if self.held().next().is_some() {
            let (ports, is) = named(self.held());
            return format!(
                "{ports} {is} held by a program inside, so connects there that the policy allows fail with EADDRNOTAVAIL; end what holds it (`ss -tanp` inside) or take the port out of the policy; it is tried again all the time"
            );
        }
        let (ports, _) = named(self.ports.keys().copied());
        let why = self.ports.values().next().copied().unwrap_or_default();
        let why = std::io::Error::from_raw_os_error(why);
        format!("nobody can listen on {ports}: {why}; it is tried again all the time")
    }

    fn held(&self) -> impl Iterator<Item = u16> {
        let held = self.ports.iter();
        held.filter(|(_, errno)| **errno == libc::EADDRINUSE)
            .map(|(port, _)| *port)
    }
}

/// The ports as words, the first few by their numbers; and the verb for them.
fn named(ports: impl Iterator<Item = u16>) -> (String, &'static str) {
    let ports: Vec<_> = ports.collect();
    let words: Vec<_> = ports.iter().take(MOST).map(u16::to_string).collect();
    let mut words = words.join(", ");
    if let more @ 1.. = ports.len().saturating_sub(MOST) {
        // A string takes everything.
        let _ = write!(words, " and {more} more");
    }
    if ports.len() == 1 {
        (format!("port {words}"), "is")
    } else {
        (format!("ports {words}"), "are")
    }
}

/// So many are named in a message.
const MOST: usize = 8;
