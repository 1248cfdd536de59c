//! Launches that nobody answers: told as failed in bounded time, and then they do not run.
//!
//! ```text
//! asked ── an answer within ANSWER, and the session's own limit ──> as it says
//!   └── none ──> told as LinkLost, or Timeout ── read after that ──> the boundary starts nothing
//!                                └── started already ──> in the book without a client, killed
//! ```
//!
//! The main process is no such launch. It belongs to its generation and not to a client, and is asked for until it runs.

use std::sync::Arc;
use std::time::Duration;

use holdfast_wire::v1;
use holdfast_wire::v1::launch_reply::Outcome;
use tokio::time::timeout;
use tonic::{Response, Status};

use super::book::Known;
use super::errand::MAIN;
use super::lasting::Sessions;
use super::refusal;

impl Sessions {
    /// When a launch with this note is void. 0: never.
    pub(super) fn until_ms(&self, note: &v1::SessionNote) -> i64 {
        if note.kind == MAIN {
            return 0;
        }
        let answer = i64::try_from(ANSWER.as_millis()).unwrap_or(i64::MAX);
        let until = self.now_ms().saturating_add(answer);
        match note.deadline_ms {
            0 => until,
            // What begins after its own end is wanted by nobody.
            deadline => until.min(deadline),
        }
    }

    /// Asks for a launch, no longer than it is good for.
    pub(super) async fn ask_for(
        self: &Arc<Self>,
        request: v1::LaunchRequest,
        note: &v1::SessionNote,
    ) -> Result<v1::LaunchReply, Status> {
        let left = match request.until_ms {
            0 => Duration::MAX,
            until => {
                let left = until.saturating_sub(self.now_ms());
                Duration::from_millis(u64::try_from(left).unwrap_or_default())
            }
        };
        let mut control = self.control.clone();
        let mut answer = Box::pin(async move { control.launch(request).await });
        let Ok(answered) = timeout(left, &mut answer).await else {
            let (sessions, late) = (Arc::clone(self), note.clone());
            let late = async move { sessions.withdraw(answer.await, late).await };
            self.launches.spawn_on(late, &self.home);
            let overdue = note.deadline_ms != 0 && self.now_ms() >= note.deadline_ms;
            return Err(if overdue {
                refusal::overdue(WITHDRAWN)
            } else {
                refusal::silent("start a session", WITHDRAWN)
            });
        };
        answered
            .map(Response::into_inner)
            .map_err(|status| refusal::link(&status))
    }

    /// Nobody waits for it any more. If it was started after all, it is killed, and listed as such.
    async fn withdraw(
        self: Arc<Self>,
        answered: Result<Response<v1::LaunchReply>, Status>,
        note: v1::SessionNote,
    ) {
        let outcome = answered.ok().and_then(|reply| reply.into_inner().outcome);
        let Some(Outcome::Session(id)) = outcome else {
            return;
        };
        tracing::warn!(session = id, "kill a session that came too late");
        let fresh = self.book.lock().enter(id, note.clone());
        let data = self.connect("kill a session that came too late").await;
        match data {
            Ok(data) if fresh => {
                let live = self.place(id, &note, data, true);
                self.watch(&live).await;
            }
            Ok(data) => self.pool.put(data),
            Err(status) => tracing::error!(%status, session = id, "watch a session that is killed"),
        }
        while self.known(id) == Some(Known::Running) {
            if let Err(status) = self.abandon(id).await {
                tracing::warn!(%status, session = id, "kill a session that came too late");
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// How long the boundary may take to start a session, or to take a signal: a hiccup and a takeover are shorter.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// Between two kills of what does not die.
const AGAIN: Duration = Duration::from_millis(500);

/// What becomes of a launch that was not answered.
const WITHDRAWN: &str = "the session is withdrawn and will not run";
