//! Has the boundary listen on every port that a rule names, from the moment that the rule is in force.
//!
//! ```text
//!  Covered ── a revision, another keeper ──> Wanted ── the boundary has answered ──> Covered
//!                                               └── it does not: asked again, with backoff
//! ```
//!
//! A port that a socket inside has cannot be listened on. The answer says so, and each beat does until it can; both tell the health.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_actor::Backoff;
use holdfast_clock::Dice;
use holdfast_policy::Captured;
use holdfast_wire::v1;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::health::Event;
use crate::link::{self, Client};
use crate::status::Vitals;

/// What is wanted, and what of it the boundary has answered. It outlives the actor that asks.
#[derive(Debug)]
pub(crate) struct Coverage {
    wanted: watch::Sender<Wanted>,
    answered: watch::Sender<u64>,
}

/// What rules want captured, and how often that has changed.
#[derive(Clone, Debug)]
struct Wanted {
    turn: u64,
    captured: Captured,
}

impl Coverage {
    /// This is wanted at the start.
    pub(crate) fn of(captured: Captured) -> Self {
        Self {
            wanted: watch::Sender::new(Wanted { turn: 0, captured }),
            answered: watch::Sender::new(0),
        }
    }

    /// Rules want this from now on. Returns when the health knows what of them cannot be listened on; a boundary that takes
    /// longer than [`PATIENCE`] is not waited for.
    pub(crate) async fn cover(&self, captured: Captured) {
        let mut turn = 0;
        self.wanted.send_modify(|wanted| {
            turn = wanted.turn + 1;
            *wanted = Wanted { turn, captured };
        });
        let mut answered = self.answered.subscribe();
        let _late = timeout(PATIENCE, answered.wait_for(|last| *last >= turn)).await;
    }

    /// Asks for what is wanted, at the start and at each change. Never ends.
    pub(crate) async fn serve(&self, mut control: Client, vitals: &Vitals, mut dice: Dice) {
        let mut wanted = self.wanted.subscribe();
        let mut failures = 0;
        loop {
            let Wanted { turn, captured } = wanted.borrow_and_update().clone();
            let request = v1::CoverRequest {
                ports: captured.named.into_iter().map(u32::from).collect(),
                listed: captured.listed.iter().map(ToString::to_string).collect(),
            };
            let answer = timeout(link::PATIENCE, control.cover(request)).await;
            let unheard = match answer {
                Ok(Ok(reply)) => reply.into_inner().unheard,
                // A boundary of an older version listens when somebody connects.
                Ok(Err(status)) if status.code() == Code::Unimplemented => Vec::new(),
                // The link says what is wrong with it.
                Ok(Err(_)) | Err(_) => {
                    sleep(BACKOFF.delay(failures, &mut dice)).await;
                    failures = failures.saturating_add(1);
                    continue;
                }
            };
            failures = 0;
            vitals.note(Event::Unheard(by_port(&unheard)));
            self.answered.send_replace(turn);
            if wanted.changed().await.is_err() {
                // This holds the sender.
                return;
            }
        }
    }
}

/// The ports that nobody listens on, and why.
pub(crate) fn by_port(unheard: &[v1::Unheard]) -> BTreeMap<u16, i32> {
    // Ports travel as 32 bits.
    let port = |one: &v1::Unheard| Some((u16::try_from(one.port).ok()?, one.errno));
    unheard.iter().filter_map(port).collect()
}

/// How long a change of the policy waits for the boundary's answer.
const PATIENCE: Duration = Duration::from_millis(300);

/// Between two times that a boundary which does not answer is asked.
const BACKOFF: Backoff = Backoff::between(Duration::from_millis(50), Duration::from_secs(1));
