//! Breaks and mends a world as the schedule says, and leaves nothing broken behind, however it ends.
//!
//! ```text
//!          at          until
//!  planned ──▶ broken ──────▶ mended
//!     │          └── dropped, Ctrl-C, panic ──▶ mended
//!     └── cannot be made here ──▶ spared, with the reason
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::journal::Journal;
use crate::schedule::Planned;
use crate::timeline::Fact;

/// What can be broken and mended.
pub(crate) trait World {
    /// What mends a fault. Mending needs nobody to answer.
    type Repair;

    /// Makes a fault; or says why it cannot be made here.
    fn strike(
        &self,
        planned: &Planned,
    ) -> impl Future<Output = Result<Hit<Self::Repair>, String>> + Send;

    /// Undoes one.
    fn mend(&self, repair: Self::Repair);
}

/// A fault that was made.
pub(crate) struct Hit<R> {
    /// Whom it hit.
    pub(crate) victim: String,
    /// What undoes it.
    pub(crate) repair: R,
}

impl<R> Hit<R> {
    pub(crate) fn new(victim: impl Into<String>, repair: R) -> Self {
        Self {
            victim: victim.into(),
            repair,
        }
    }
}

/// What is broken now; all of it is mended when this is dropped.
struct Broken<'w, W: World> {
    world: &'w W,
    journal: &'w Journal,
    repairs: BTreeMap<usize, W::Repair>,
}

impl<W: World> Broken<'_, W> {
    fn mend(&mut self, number: usize) {
        if let Some(repair) = self.repairs.remove(&number) {
            self.world.mend(repair);
            self.journal.tell(Fact::Mended { number });
        }
    }
}

impl<W: World> Drop for Broken<'_, W> {
    fn drop(&mut self) {
        while let Some((number, repair)) = self.repairs.pop_first() {
            self.world.mend(repair);
            self.journal.tell(Fact::Mended { number });
        }
    }
}

/// Does all that is planned; times are counted from the call.
pub(crate) async fn assail<W: World>(
    world: &W,
    plan: &[Planned],
    journal: &Journal,
    limit: Duration,
) {
    let start = journal.now();
    let mut broken = Broken {
        world,
        journal,
        repairs: BTreeMap::new(),
    };
    for turn in turns(plan) {
        let (at, planned) = match turn {
            Turn::Break(planned) => (planned.at, planned),
            Turn::Mend(planned) => (planned.until, planned),
        };
        sleep((start + at).saturating_sub(journal.now())).await;
        match turn {
            Turn::Mend(planned) => broken.mend(planned.number),
            Turn::Break(_) => {
                let struck = timeout(limit, world.strike(planned)).await;
                let struck =
                    struck.unwrap_or_else(|_late| Err(format!("nobody answered within {limit:?}")));
                let (number, fault) = (planned.number, planned.fault.to_string());
                match struck {
                    Ok(Hit { victim, repair }) => {
                        journal.tell(Fact::Broken {
                            number,
                            fault,
                            victim,
                        });
                        broken.repairs.insert(number, repair);
                    }
                    Err(why) => journal.tell(Fact::Spared { number, fault, why }),
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Turn<'p> {
    Break(&'p Planned),
    Mend(&'p Planned),
}

/// Breaking and mending in the order of time; at one time what is mended comes first, unless it is broken at that time.
fn turns(plan: &[Planned]) -> Vec<Turn<'_>> {
    let mut turns = Vec::new();
    for planned in plan {
        turns.push((planned.at, 1, Turn::Break(planned)));
        let order = if planned.at == planned.until { 2 } else { 0 };
        turns.push((planned.until, order, Turn::Mend(planned)));
    }
    turns.sort_by_key(|(at, order, _)| (*at, *order));
    turns.into_iter().map(|(_, _, turn)| turn).collect()
}

#[cfg(test)]
mod tests;
