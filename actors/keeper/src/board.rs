//! How the sandbox stands, as its keeper tells it: one value that parts revise and others watch.

use std::sync::Arc;

use holdfast_wire::v1;
use tokio::sync::watch;

/// Where the status hangs. Cheap to clone; all clones are one board.
#[derive(Clone, Debug)]
pub struct Board(Arc<watch::Sender<v1::Status>>);

impl Board {
    /// Hangs up the first status.
    pub fn new(status: v1::Status) -> Self {
        Self(Arc::new(watch::Sender::new(status)))
    }

    /// Hears of each change; of several in a row perhaps only the last.
    pub fn watch(&self) -> watch::Receiver<v1::Status> {
        self.0.subscribe()
    }

    /// The present status.
    pub fn status(&self) -> v1::Status {
        self.0.borrow().clone()
    }

    /// Changes the status. Nobody hears of a change that changes nothing.
    pub fn revise(&self, change: impl FnOnce(&mut v1::Status)) {
        self.0.send_if_modified(|status| {
            let before = status.clone();
            change(status);
            *status != before
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_changes_nothing_is_not_told() {
        let board = Board::new(v1::Status::default());
        let mut watcher = board.watch();

        board.revise(|status| status.reason.clear());
        assert!(!watcher.has_changed().expect("a board"));

        board.revise(|status| status.since_ms = 7);
        assert!(watcher.has_changed().expect("a board"));
        assert_eq!(watcher.borrow_and_update().since_ms, 7);
    }
}
