//! Wakes the warden when it is time.

use std::collections::{BTreeSet, HashMap};

use holdfast_clock::{Clock, Moment};
use holdfast_supervision::{Path, Timer};
use ractor::ActorRef;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::Order;
use crate::tasks::detach;

/// The timers of a tree, one for each child at most, and one task that sleeps until the first of them.
pub(super) struct Alarm {
    queue: BTreeSet<(Moment, Path)>,
    timers: HashMap<Path, (Moment, Timer)>,
    next: watch::Sender<Moment>,
    sleeper: AbortHandle,
}

impl Alarm {
    pub(super) fn new(warden: ActorRef<Order>, clock: Clock) -> Self {
        let (next, moment) = watch::channel(Moment::NEVER);
        Self {
            queue: BTreeSet::new(),
            timers: HashMap::new(),
            next,
            sleeper: detach(sleep(warden, clock, moment)).abort_handle(),
        }
    }

    /// Replaces the timer its child has.
    pub(super) fn set(&mut self, timer: Timer, at: Moment) {
        self.forget(&timer.path);
        self.queue.insert((at, timer.path.clone()));
        self.timers.insert(timer.path.clone(), (at, timer));
    }

    pub(super) fn forget(&mut self, path: &Path) {
        if let Some((at, timer)) = self.timers.remove(path) {
            self.queue.remove(&(at, timer.path));
        }
    }

    /// Takes out what is due.
    pub(super) fn due(&mut self, now: Moment) -> Vec<Timer> {
        let mut due = Vec::new();
        while self.queue.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, path)) = self.queue.pop_first()
                && let Some((_, timer)) = self.timers.remove(&path)
            {
                due.push(timer);
            }
        }
        due
    }

    /// Sleeps until the first timer or that moment, whichever comes first.
    pub(super) fn arm(&self, latest: Moment) {
        let first = self.queue.first().map_or(Moment::NEVER, |(at, _)| *at);
        self.next.send_replace(first.min(latest));
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.sleeper.abort();
    }
}

async fn sleep(warden: ActorRef<Order>, clock: Clock, mut next: watch::Receiver<Moment>) {
    loop {
        let moment = *next.borrow_and_update();
        let rung = if moment == Moment::NEVER {
            false
        } else {
            tokio::select! {
                () = tokio::time::sleep(moment - clock.now()) => true,
                changed = next.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    continue;
                }
            }
        };
        if rung && warden.send_message(Order::Woke).is_err() {
            return;
        }
        // The warden sets the next moment when it has dealt with this one.
        if next.changed().await.is_err() {
            return;
        }
    }
}
