//! How many connections the egress may hold, so that its descriptors are never somebody else's.
//!
//! The number may change at any time: the limit of descriptors is lowered and raised from outside. A smaller budget ends
//! nothing that is open; it is a debt, which is paid as connections end.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits, one a connection: two descriptors.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    permits: Arc<Semaphore>,
    size: Mutex<Size>,
}

#[derive(Debug)]
struct Size {
    capacity: usize,
    /// Permits that are held and will not be given again.
    debt: usize,
}

/// The right to hold one connection.
#[derive(Debug)]
pub struct Permit {
    permit: Option<OwnedSemaphorePermit>,
    shared: Arc<Shared>,
}

impl Budget {
    /// For so many connections at once.
    pub fn new(connections: usize) -> Budget {
        let capacity = connections.min(Semaphore::MAX_PERMITS);
        Budget(Arc::new(Shared {
            permits: Arc::new(Semaphore::new(capacity)),
            size: Mutex::new(Size { capacity, debt: 0 }),
        }))
    }

    /// For a dial whose connection has not come yet. The last quarter (at least one) is kept for those that have: upstreams that wait for their connections
    /// must not keep those connections from being accepted.
    pub fn ahead(&self) -> Option<Permit> {
        let kept = (self.0.size.lock().capacity / 4).max(1);
        if self.0.permits.available_permits() <= kept {
            return None;
        }
        self.at_once()
    }

    /// For a connection that stands in the backlog.
    pub fn at_once(&self) -> Option<Permit> {
        let permit = Arc::clone(&self.0.permits).try_acquire_owned().ok()?;
        Some(self.permit(permit))
    }

    /// Waits for a permit, in the order in which they were asked for.
    pub async fn wait(&self) -> Permit {
        match Arc::clone(&self.0.permits).acquire_owned().await {
            Ok(permit) => self.permit(permit),
            // Nobody closes the semaphore.
            Err(_) => std::future::pending().await,
        }
    }

    /// Connections that could be admitted now.
    pub fn free(&self) -> usize {
        self.0.permits.available_permits()
    }

    /// Connections that are held now.
    pub fn held(&self) -> usize {
        let size = self.0.size.lock();
        (size.capacity + size.debt).saturating_sub(self.0.permits.available_permits())
    }

    /// For so many connections from now on. Those that are open stay open.
    pub fn resize(&self, connections: usize) {
        let to = connections.min(Semaphore::MAX_PERMITS);
        let mut size = self.0.size.lock();
        if let Some(more) = to.checked_sub(size.capacity) {
            let paid = more.min(size.debt);
            size.debt -= paid;
            self.0.permits.add_permits(more - paid);
        } else {
            let less = size.capacity - to;
            let taken = self.0.permits.forget_permits(less);
            size.debt += less - taken;
        }
        size.capacity = to;
    }

    fn permit(&self, permit: OwnedSemaphorePermit) -> Permit {
        Permit {
            permit: Some(permit),
            shared: Arc::clone(&self.0),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut size = self.shared.size.lock();
        if size.debt > 0 {
            size.debt -= 1;
            self.permit
                .take()
                .into_iter()
                .for_each(OwnedSemaphorePermit::forget);
        } else {
            // Under the lock: nobody sees a permit that is neither held nor free.
            drop(self.permit.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(budget: &Budget) -> Vec<Permit> {
        std::iter::from_fn(|| budget.at_once()).collect()
    }

    #[test]
    fn upstreams_dialled_ahead_leave_room_for_their_connections() {
        let budget = Budget::new(8);

        let ahead: Vec<_> = std::iter::from_fn(|| budget.ahead()).collect();

        assert_eq!(ahead.len(), 6);
        assert_eq!(all(&budget).len(), 2);
        drop(ahead);
        assert_eq!(budget.free(), 8);
    }

    /// PX-01: a limit that is lowered ends nothing, and holds from the next connection on.
    #[test]
    fn a_smaller_budget_is_a_debt_that_is_paid_as_connections_end() {
        let budget = Budget::new(8);
        let mut held = all(&budget);

        budget.resize(3);
        assert_eq!((budget.held(), budget.free()), (8, 0));
        held.truncate(4);
        assert!(budget.at_once().is_none());
        held.truncate(2);

        let more = all(&budget);
        assert_eq!((more.len(), budget.held()), (1, 3));
    }

    #[test]
    fn a_budget_that_grows_again_forgives_its_debt() {
        let budget = Budget::new(8);
        let held = all(&budget);

        budget.resize(3);
        budget.resize(10);

        assert_eq!((budget.held(), budget.free()), (8, 2));
        drop(held);
        assert_eq!((budget.held(), budget.free()), (0, 10));
    }

    #[tokio::test]
    async fn whoever_waits_is_served_when_the_budget_grows() {
        let budget = Budget::new(1);
        let _held = all(&budget);
        let waiting = budget.wait();
        tokio::pin!(waiting);
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());

        budget.resize(2);

        assert!(futures_util::poll!(waiting).is_ready());
    }
}
