//! Watches the descriptors of this process: how many it may have, how many it has, and who may still take some.
//!
//! ```text
//!  Easy ── fewer than SHORT free ──> Pressed ── RELIEVED free again ──> Easy
//! ```
//!
//! The limit is read anew each time, for it is changed from outside (`prlimit(1)`). A count costs two system calls and no
//! descriptor, whatever is open, so it is made three times a second and not only while there is a shortage: one that has just
//! begun has to be known within half a second. The host's table of files (`ENFILE`) is asked beside it by opening one more, and
//! the audit whether it can be written to: either shortage closes the sandbox without anybody here being told.
//!
//! What follows from a count: the egress may hold more or fewer connections, the health knows, the status shows it. Nothing that
//! is open is closed, and nothing is restarted.

mod classes;
mod listeners;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_actor::{Actor, Fault, Me};
use holdfast_clock::every;
use holdfast_kernel::descriptors::{self, is_host_full};
use holdfast_wire::v1;
use tokio::sync::watch;

pub use self::classes::{Class, Exhausted, Ledger, Promise, admit};
pub(crate) use self::classes::{FOR_A_SESSION, bearable};
pub(crate) use self::listeners::Standings;
use crate::egress::desk::Desk;
use crate::health::{Event, Sample};
use crate::link::State;
use crate::status::Vitals;

/// Watches.
pub(crate) struct Pressure;

/// What it is born with.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) desk: Arc<Desk>,
    /// How the boundary stands.
    pub(crate) link: watch::Receiver<State>,
    pub(crate) vitals: Vitals,
}

impl Actor for Pressure {
    type Message = std::convert::Infallible;
    type Arguments = Arguments;
    type State = ();

    async fn start(me: &Me<Self::Message>, arguments: Arguments) -> Result<(), Fault> {
        let vitals = arguments.vitals.clone();
        // What is known of the sandbox ages here, too: with this actor its status would stand still.
        me.spawn(async move {
            vitals.refresh().await;
            Ok(())
        });
        let (vitals, link) = (arguments.vitals.clone(), arguments.link.clone());
        me.spawn(async move {
            vitals.follow(link).await;
            Ok(())
        });
        let mut strain = Strain::Easy;
        arguments.count(&mut strain)?;
        me.spawn(async move {
            let mut ticks = every(TURN);
            loop {
                ticks.tick().await;
                arguments.count(&mut strain)?;
            }
        });
        Ok(())
    }

    async fn handle(_: &Me<Self::Message>, never: Self::Message, (): &mut ()) -> Result<(), Fault> {
        match never {}
    }
}

impl Arguments {
    fn count(&self, strain: &mut Strain) -> Result<(), Fault> {
        let at = self.vitals.now();
        let counted = descriptors::observe()?;
        let free = counted.free();
        let next = strain.step(free);
        if next != *strain {
            let (limit, used) = (counted.limit, counted.used);
            tracing::warn!(limit, used, ?next, "descriptors");
        }
        *strain = next;
        let budget = &self.desk.budget;
        budget.resize(classes::connections(budget.held(), free, counted.limit));
        self.vitals.keep_descriptors(v1::Descriptors {
            limit: counted.limit,
            used: counted.used,
            high_water: counted.high_water,
            shed: self.ledger.refused(),
            waiting: self.desk.counters.waiting.load(Ordering::Relaxed) as u64,
        });
        let host_full = is_host_full();
        let sample = Sample {
            limit: counted.limit,
            used: counted.used,
            pressed: *strain == Strain::Pressed || host_full,
            host_full,
        };
        self.vitals.note(Event::Descriptors(at, sample));
        self.vitals.note(Event::Recording(self.desk.can_record()));
        Ok(())
    }
}

/// Whether there are enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strain {
    Easy,
    Pressed,
}

impl Strain {
    fn step(self, free: u64) -> Self {
        match self {
            Self::Easy if free < SHORT => Self::Pressed,
            Self::Pressed if free >= RELIEVED => Self::Easy,
            same @ (Self::Easy | Self::Pressed) => same,
        }
    }
}

/// Between two counts: half a beat, so that every other one is made when the beat wakes the process anyway.
const TURN: Duration = Duration::from_millis(350);

/// What an exec, a connection, a name and a canary take together, and one for whoever asks how things stand.
const SHORT: u64 = 10;

/// The shortage is over a little later than it begins, so that a descriptor more or less does not flap it.
const RELIEVED: u64 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_ends_a_little_later_than_it_begins() {
        let mut strain = Strain::Easy;
        let stood: Vec<_> = [30, 10, 9, 10, 13, 14, 10]
            .into_iter()
            .map(|free| {
                strain = strain.step(free);
                strain == Strain::Pressed
            })
            .collect();

        assert_eq!(stood, [false, false, true, true, true, false, false]);
    }
}
