//! How all the listeners stand together, as it changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::egress::listener::Standing;
use crate::health::{Event, Listening};
use crate::status::Vitals;

/// The standings of the listeners by their ports. They outlive the listeners, and whoever starts them.
#[derive(Clone)]
pub(crate) struct Standings {
    by_port: Arc<Mutex<BTreeMap<u16, watch::Sender<Standing>>>>,
    /// Who is told; nobody in a sandbox that shows no health.
    vitals: Option<Vitals>,
}

impl Standings {
    /// No listener yet.
    pub(crate) fn new(vitals: Option<Vitals>) -> Self {
        Self {
            by_port: Arc::default(),
            vitals,
        }
    }

    /// Where the listener on `port` says how it stands.
    pub(crate) fn of(&self, port: u16) -> watch::Sender<Standing> {
        let mut by_port = self.by_port.lock();
        let made = || watch::Sender::new(Standing::Serving);
        by_port.entry(port).or_insert_with(made).clone()
    }

    /// Tells of each change of the listener on `port`. Trouble is told at once; that it is over, when it has been for a while,
    /// for a listener that is full is so again with the next connection.
    pub(crate) async fn follow(self, port: u16) {
        let Some(vitals) = &self.vitals else {
            return;
        };
        let mut standing = self.of(port).subscribe();
        while standing.changed().await.is_ok() {
            if *standing.borrow_and_update() == Standing::Serving {
                tokio::time::sleep(CALM).await;
            }
            vitals.note(Event::Listening(self.count()));
        }
    }

    fn count(&self) -> Listening {
        let mut listening = Listening::default();
        for standing in self.by_port.lock().values() {
            match *standing.borrow() {
                Standing::Serving => {}
                Standing::Full => listening.full += 1,
                Standing::Starved(_) => listening.starved += 1,
            }
        }
        listening
    }
}

/// How long a listener has to serve before that is told.
const CALM: Duration = Duration::from_millis(150);

#[cfg(test)]
mod tests {
    use holdfast_actor::Clock;
    use holdfast_wire::v1;

    use super::*;
    use crate::board::Board;

    #[tokio::test(start_paused = true)]
    async fn trouble_is_told_at_once_and_its_end_when_it_has_lasted() {
        let board = Board::new(v1::Status::default());
        let vitals = Vitals::new(board.clone(), Clock::tokio(), false);
        let standings = Standings::new(Some(vitals));
        let listener = standings.of(443);
        let reason = || board.status().conditions[4].reason.clone();
        let scene = async {
            tokio::task::yield_now().await;
            listener.send_replace(Standing::Full);
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!(reason(), "AcceptBackoff");
            listener.send_replace(Standing::Serving);
            tokio::time::sleep(CALM / 2).await;
            assert_eq!(reason(), "AcceptBackoff");
            tokio::time::sleep(CALM).await;
            assert_eq!(reason(), "CanaryStale");
        };

        tokio::select! {
            () = standings.clone().follow(443) => panic!("it ended"),
            () = scene => {}
        }
    }
}
