//! How many connections the egress may hold, so that its descriptors are never somebody else's.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits, one a connection: two descriptors.
#[derive(Debug, Clone)]
pub struct Budget {
    permits: Arc<Semaphore>,
    capacity: usize,
}

/// The right to hold one connection.
pub type Permit = OwnedSemaphorePermit;

impl Budget {
    /// For so many connections at once.
    pub fn new(connections: usize) -> Budget {
        let capacity = connections.min(Semaphore::MAX_PERMITS);
        Budget {
            permits: Arc::new(Semaphore::new(capacity)),
            capacity,
        }
    }

    /// For a dial whose connection has not come yet. The last quarter (at least one) is kept for those that have: upstreams that wait for their connections
    /// must not keep those connections from being accepted.
    pub fn ahead(&self) -> Option<Permit> {
        if self.permits.available_permits() <= (self.capacity / 4).max(1) {
            return None;
        }
        self.at_once()
    }

    /// For a connection that stands in the backlog.
    pub fn at_once(&self) -> Option<Permit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Waits for a permit, in the order in which they were asked for.
    pub async fn wait(&self) -> Permit {
        match Arc::clone(&self.permits).acquire_owned().await {
            Ok(permit) => permit,
            // Nobody closes the semaphore.
            Err(_) => std::future::pending().await,
        }
    }

    /// Connections that could be admitted now.
    pub fn free(&self) -> usize {
        self.permits.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_dialled_ahead_leave_room_for_their_connections() {
        let budget = Budget::new(8);

        let ahead: Vec<_> = std::iter::from_fn(|| budget.ahead()).collect();

        assert_eq!(ahead.len(), 6);
        assert_eq!(
            std::iter::from_fn(|| budget.at_once())
                .take(9)
                .collect::<Vec<_>>()
                .len(),
            2
        );
        drop(ahead);
        assert_eq!(budget.free(), 8);
    }
}
