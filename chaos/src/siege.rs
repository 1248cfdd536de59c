//! Breaks and mends a world as the schedule says, and leaves nothing broken behind, however it ends.
//!
//! ```text
//!          at          until
//!  planned ──▶ broken ──────▶ mended
//!     │          └── dropped, Ctrl-C, panic ──▶ mended
//!     └── cannot be made here ──▶ spared, with the reason
//! ```

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::journal::Journal;
use crate::scenario::Kind;
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

/// Does all that is planned; times are counted from the call.
///
/// Faults of one kind follow each other, because one must be undone before the next is made; those of different kinds do not wait for
/// one another: to find whom to strike may take long, and nothing else is broken longer for it.
pub(crate) async fn assail<W: World>(
    world: &W,
    plan: &[Planned],
    journal: &Journal,
    limit: Duration,
) {
    let start = journal.now();
    let siege = Siege {
        world,
        journal,
        start,
        limit,
    };
    let of_kind = |kind| plan.iter().filter(move |one| one.fault.kind() == kind);
    let mut rows: Vec<_> = Kind::ALL
        .into_iter()
        .map(|kind| Box::pin(siege.row(of_kind(kind))))
        .collect();
    poll_fn(|context| {
        rows.retain_mut(|row| row.as_mut().poll(context).is_pending());
        if rows.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// What all rows of faults share.
struct Siege<'w, W: World> {
    world: &'w W,
    journal: &'w Journal,
    start: Duration,
    /// Nobody is waited for longer who should be struck.
    limit: Duration,
}

impl<W: World> Siege<'_, W> {
    /// Makes and undoes one fault after the other.
    async fn row<'p>(&self, planned: impl Iterator<Item = &'p Planned>) {
        for planned in planned {
            self.until(planned.at).await;
            if let Some(broken) = self.make(planned).await {
                self.until(planned.until).await;
                drop(broken);
            }
        }
    }

    async fn make(&self, planned: &Planned) -> Option<Broken<'_, W>> {
        let struck = timeout(self.limit, self.world.strike(planned)).await;
        let struck =
            struck.unwrap_or_else(|_late| Err(format!("nobody answered within {:?}", self.limit)));
        let (number, fault) = (planned.number, planned.fault.to_string());
        match struck {
            Ok(Hit { victim, repair }) => {
                self.journal.tell(Fact::Broken {
                    number,
                    fault,
                    victim,
                });
                Some(Broken {
                    world: self.world,
                    journal: self.journal,
                    number,
                    repair: Some(repair),
                })
            }
            Err(why) => {
                self.journal.tell(Fact::Spared { number, fault, why });
                None
            }
        }
    }

    async fn until(&self, time: Duration) {
        sleep((self.start + time).saturating_sub(self.journal.now())).await;
    }
}

/// What is broken now; it is mended when this is dropped.
struct Broken<'w, W: World> {
    world: &'w W,
    journal: &'w Journal,
    number: usize,
    repair: Option<W::Repair>,
}

impl<W: World> Drop for Broken<'_, W> {
    fn drop(&mut self) {
        if let Some(repair) = self.repair.take() {
            self.world.mend(repair);
            self.journal.tell(Fact::Mended {
                number: self.number,
            });
        }
    }
}

#[cfg(test)]
mod tests;
