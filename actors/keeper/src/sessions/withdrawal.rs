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

use holdfast_kernel::uptime::uptime;
use holdfast_wire::v1;
use holdfast_wire::v1::launch_reply::Outcome;
use tokio::time::timeout;
use tonic::{Code, Response, Status};

use super::book::Known;
use super::errand::MAIN;
use super::lasting::{Order, Sessions};
use super::refusal;

/// What a launch is good for, by the clock of the host: nobody's change of the date shortens or lengthens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Term {
    /// It may begin at any time, and run for ever.
    Unbounded,
    /// Somebody waits for it to begin, and then it may run for ever.
    Awaited,
    /// Somebody waits for it to begin, and then its time is up.
    Limited { deadline_ms: u64 },
}

impl Term {
    /// That of an order that was given at `now`.
    pub(super) fn from(order: &Order, now: Duration) -> Self {
        match order.limit {
            None if order.note.kind == MAIN => Self::Unbounded,
            None => Self::Awaited,
            Some(limit) => Self::Limited {
                deadline_ms: millis(now.saturating_add(limit)),
            },
        }
    }

    /// When the launch is void if it is asked for at `now`. 0: never.
    pub(super) fn until_ms(self, now: Duration) -> u64 {
        let until = millis(now.saturating_add(ANSWER));
        match self {
            Self::Unbounded => 0,
            Self::Awaited => until,
            // What begins after its own end is wanted by nobody.
            Self::Limited { deadline_ms } => until.min(deadline_ms),
        }
    }

    /// When the session's time is up. 0: never.
    pub(super) fn deadline_ms(self) -> u64 {
        match self {
            Self::Unbounded | Self::Awaited => 0,
            Self::Limited { deadline_ms } => deadline_ms,
        }
    }

    fn is_over(self, now: Duration) -> bool {
        match self {
            Self::Unbounded | Self::Awaited => false,
            Self::Limited { deadline_ms } => deadline_ms <= millis(now),
        }
    }
}

/// What a refused launch of this term is told as at `now`.
fn refused(status: &Status, term: Term, now: Duration) -> Status {
    // Asked behind its time, the boundary has started nothing.
    if status.code() == Code::DeadlineExceeded && term.is_over(now) {
        refusal::overdue("nothing was started")
    } else {
        refusal::link(status)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Sessions {
    /// Asks for a launch, no longer than it is good for.
    pub(super) async fn ask_for(
        self: &Arc<Self>,
        request: v1::LaunchRequest,
        term: Term,
        note: &v1::SessionNote,
    ) -> Result<v1::LaunchReply, Status> {
        let left = match request.until_ms {
            0 => Duration::MAX,
            until => Duration::from_millis(until).saturating_sub(uptime()),
        };
        let mut control = self.control.clone();
        let mut answer = Box::pin(async move { control.launch(request).await });
        let Ok(answered) = timeout(left, &mut answer).await else {
            let (sessions, late) = (Arc::clone(self), note.clone());
            let late = async move { sessions.withdraw(answer.await, late).await };
            self.launches.spawn_on(late, &self.home);
            return Err(if term.is_over(uptime()) {
                refusal::overdue(WITHDRAWN)
            } else {
                refusal::silent("start a session", WITHDRAWN)
            });
        };
        answered
            .map(Response::into_inner)
            .map_err(|status| refused(&status, term, uptime()))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn term(kind: &str, limit: Option<u64>) -> Term {
        let order = Order {
            what: v1::launch_request::What::Program(v1::Program::default()),
            note: v1::SessionNote {
                kind: kind.to_owned(),
                ..v1::SessionNote::default()
            },
            terminal: None,
            attended: true,
            limit: limit.map(Duration::from_millis),
        };
        Term::from(&order, AT)
    }

    #[test]
    fn a_launch_is_void_when_nobody_waits_for_it_or_its_time_is_up() {
        let void = |kind, limit| term(kind, limit).until_ms(AT);

        assert_eq!(void("main", None), 0);
        assert_eq!(void("exec", None), 60_000);
        assert_eq!(void("exec", Some(700)), 50_700);
        assert_eq!(void("exec", Some(20_000)), 60_000);
        assert_eq!(void("exec", Some(u64::MAX)), 60_000);
    }

    #[test]
    fn a_limit_counts_from_the_order() {
        assert_eq!(term("exec", None).deadline_ms(), 0);
        assert_eq!(term("exec", Some(700)).deadline_ms(), 50_700);
        assert_eq!(term("exec", Some(u64::MAX)).deadline_ms(), u64::MAX);
        assert!(!term("exec", Some(1)).is_over(AT));
        assert!(term("exec", Some(1)).is_over(AT + Duration::from_millis(1)));
        assert!(!term("main", None).is_over(Duration::MAX));
    }

    /// Whoever set the limit is not told to ask again.
    #[test]
    fn a_launch_that_came_behind_its_own_limit_is_told_as_that() {
        let late = Status::deadline_exceeded("the launch came too late; ask again");
        let told = |limit, after| {
            let after = AT + Duration::from_millis(after);
            refused(&late, term("exec", limit), after).code()
        };

        assert_eq!(told(Some(700), 701), Code::DeadlineExceeded);
        assert_eq!(told(Some(700), 699), Code::Unavailable);
        assert_eq!(told(None, 10_001), Code::Unavailable);
    }

    /// When the order is given.
    const AT: Duration = Duration::from_secs(50);
}
