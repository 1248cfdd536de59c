//! How a desk ends: what the sandbox has written is delivered first, and every attempt leaves its record.
//!
//! ```text
//!   Serving ──finish──▶ Leaving ──all delivered, or the limit──▶ Over
//!      └──────────────────────── close ───────────────────────────▲
//! ```
//!
//! In `Leaving` the processes of the sandbox are dead, but their sockets are not: the kernel still hands out what they wrote, and connections that
//! they made stand in the backlog, or in that of a listener that is still on its way. Listeners accept as ever; a relay ends when its outward bytes are out; a connection without an upstream
//! gets [`GRACE`] for its dial. In `Over` nothing is begun, and what is begun all the same ends in the same step: no attempt stays without a record.

use super::{Desk, Event};
use crate::egress::book::TARDY;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Where a desk stands. It only moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Serving,
    Leaving,
    Over,
}

/// The desk's hold on an open connection; dropped, it closes the connection.
pub(super) struct Switch {
    /// Dropped, it lets the connection end when its outward bytes are out.
    leave: Option<oneshot::Sender<()>>,
    _close: oneshot::Sender<()>,
}

/// The connection's end of a [`Switch`]: each is ready when its sender is gone.
#[derive(Debug)]
pub(super) struct Notices {
    pub(super) closing: oneshot::Receiver<()>,
    pub(super) leaving: oneshot::Receiver<()>,
}

impl Switch {
    /// For a connection that begins in this phase; without a switch it is closed at once.
    pub(super) fn new(phase: Phase) -> (Option<Switch>, Notices) {
        let (close, closing) = oneshot::channel();
        let (leave, leaving) = oneshot::channel();
        let switch = match phase {
            Phase::Serving => Some(Some(leave)),
            Phase::Leaving => Some(None),
            Phase::Over => None,
        };
        let switch = switch.map(|leave| Switch {
            leave,
            _close: close,
        });
        (switch, Notices { closing, leaving })
    }
}

impl Desk {
    /// Delivers what the sandbox has written, for `limit` at most; then ends what is left and records every attempt that is pending.
    ///
    /// Every process of the sandbox must be dead: nobody is left to read, so what upstreams still send is thrown away. Listeners and lane must still
    /// be served. Calling it again does no harm.
    pub async fn finish(&self, limit: Duration) {
        self.leave();
        // Running out of time is no fault: what is left is ended here.
        let _ = timeout(limit, self.delivered()).await;
        self.end();
    }

    /// Closes every connection, and waits until none is left.
    pub async fn close(&self) {
        self.end();
        for tasks in [&self.connections, &self.ahead] {
            tasks.close();
            tasks.wait().await;
        }
    }

    /// Ready when a connection should not be waited for any longer: it has had its grace, or the desk is closed.
    pub(super) async fn hurried(&self) {
        let mut phase = self.phase.subscribe();
        // The sender lives as long as the desk, so each wait ends by its phase only.
        let _ = phase.wait_for(|phase| *phase >= Phase::Leaving).await;
        let _ = timeout(GRACE, phase.wait_for(|phase| *phase == Phase::Over)).await;
    }

    pub(super) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    fn leave(&self) {
        // Under the lock: a connection begins either before, and is told here, or after, and knows it.
        let mut state = self.state.lock();
        self.advance(Phase::Leaving);
        for switch in state.switches.values_mut() {
            switch.leave = None;
        }
    }

    /// Ready when no connection is served, none is to be expected, and the listeners, given a turn, have brought none.
    async fn delivered(&self) {
        self.connections.close();
        let latest = self.clock.now() + TARDY;
        loop {
            self.connections.wait().await;
            tokio::time::sleep(TURN).await;
            for _ in 0..YIELDS {
                tokio::task::yield_now().await;
            }
            let held = self.counters.waiting.load(Ordering::Relaxed) > 0;
            let is_expected = self.clock.now() < latest && self.state.lock().book.expects();
            if self.connections.is_empty() && !held && !is_expected {
                return;
            }
        }
    }

    fn end(&self) {
        let (dials, switches) = {
            let mut state = self.state.lock();
            self.advance(Phase::Over);
            (
                std::mem::take(&mut state.dials),
                std::mem::take(&mut state.switches),
            )
        };
        for dial in dials.into_values() {
            dial.abort();
        }
        drop(switches);
        let left = self.step(Event::Over);
        self.errands.leave(left.answers);
    }

    fn advance(&self, to: Phase) {
        self.phase.send_if_modified(|phase| {
            let forward = *phase < to;
            *phase = to.max(*phase);
            forward
        });
    }
}

/// What a connection without an upstream may still cost: enough for a dial across an ocean.
const GRACE: Duration = Duration::from_millis(250);
/// Time for the listeners to hear of what stands in their backlogs, and turns for them to accept it.
const TURN: Duration = Duration::from_millis(2);
const YIELDS: usize = 8;

#[cfg(test)]
mod tests;
