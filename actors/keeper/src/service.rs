//! The keeper's own service: what the gateway asks of one sandbox.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use holdfast_actor::{Address, Blow, Path, Unanswered};
use holdfast_kernel::uptime::uptime;
use holdfast_wire::v1::keeper_server::Keeper;
use holdfast_wire::v1::session_input::Kind;
use holdfast_wire::{problem, v1};
use tokio::sync::{mpsc, oneshot, watch};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::board::Board;
use crate::rulebook::{self, Refused};
use crate::sessions::attend::Attending;
use crate::sessions::book::Known;
use crate::sessions::errand::{self, Home};
use crate::sessions::feed::{Feed, Stdin};
use crate::sessions::lasting::{Begun, Order, Sessions};
use crate::sessions::refusal;
use crate::status::Vitals;
use crate::trees::Trees;

use self::guest::Place;

pub(crate) mod door;
mod guest;
pub(crate) mod serve;

/// Answers the gateway.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) home: Arc<Home>,
    pub(crate) board: Board,
    pub(crate) vitals: Vitals,
    pub(crate) rulebook: Address<rulebook::Message>,
    pub(crate) trees: Trees,
    /// Whether actors may be made to fail.
    pub(crate) chaos: bool,
    /// Asked to end the sandbox.
    pub(crate) halt: mpsc::Sender<Halt>,
    /// True when the service ends.
    pub(crate) closing: watch::Receiver<bool>,
}

/// The sandbox shall end.
#[derive(Debug)]
pub(crate) struct Halt {
    pub(crate) grace: Duration,
    /// How the main process ended, if there was one.
    pub(crate) reply: oneshot::Sender<Option<v1::Ending>>,
}

type Answer<T> = Result<Response<T>, Status>;
type Told<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Keeper for Service {
    type WatchStream = Told<v1::Status>;
    type SessionStream = Told<v1::SessionOutput>;

    async fn watch(&self, _: Request<v1::Nothing>) -> Answer<Self::WatchStream> {
        // Whoever asks wants to know how it is now, and not at the last beat.
        self.vitals.count_now();
        self.count_sessions();
        let mut status = self.board.watch();
        status.mark_changed();
        let closing = self.closing.clone();
        let told = stream::unfold((status, closing), async |(mut status, mut closing)| {
            tokio::select! {
                biased;
                changed = status.changed() => changed.ok()?,
                _ = closing.wait_for(|closing| *closing) => return None,
            }
            let now = status.borrow_and_update().clone();
            Some((Ok(now), (status, closing)))
        });
        Ok(Response::new(Box::pin(told)))
    }

    async fn session(
        &self,
        request: Request<Streaming<v1::SessionInput>>,
    ) -> Answer<Self::SessionStream> {
        if request.extensions().get() == Some(&Place::Last) {
            self.sessions.has_room()?;
        }
        let mut input = request.into_inner();
        let first = input.message().await?;
        match first.and_then(|first| first.kind) {
            Some(Kind::Start(start)) => {
                let detach = start.detach;
                let stdin = if start.stdin {
                    Stdin::EndsByWord
                } else {
                    Stdin::Ended
                };
                let order = errand::exec(&self.home, start, self.sessions.now_ms(), uptime())?;
                if detach {
                    return self.detached(order, stdin, input).await;
                }
                self.started(order, stdin, input).await
            }
            Some(Kind::Copy(copy)) => {
                let stdin = if copy.into {
                    Stdin::EndsWithStream
                } else {
                    Stdin::Ended
                };
                self.started(
                    errand::copy(&self.home, copy, self.sessions.now_ms())?,
                    stdin,
                    input,
                )
                .await
            }
            Some(Kind::Dial(dial)) => {
                let order = errand::dial(&dial, self.sessions.now_ms())?;
                self.started(order, Stdin::EndsWithStream, input).await
            }
            Some(Kind::Attach(attach)) => {
                self.attached(attach.session, attach.offset, Stdin::EndsByWord, input)
                    .await
            }
            Some(Kind::Data(_) | Kind::End(_) | Kind::Resize(_) | Kind::Signal(_)) | None => Err(
                refusal::usage("begin a session: say first what is to be started or attached to"),
            ),
        }
    }

    async fn sessions(&self, _: Request<v1::Nothing>) -> Answer<v1::SessionList> {
        let sessions = self.sessions.rows().await?;
        Ok(Response::new(v1::SessionList { sessions }))
    }

    async fn kill(&self, request: Request<v1::KillRequest>) -> Answer<v1::Nothing> {
        let asked = request.into_inner();
        let signal = if asked.signal == 0 {
            libc::SIGTERM
        } else {
            asked.signal
        };
        self.sessions.signal(asked.session, signal).await?;
        Ok(Response::new(v1::Nothing {}))
    }

    async fn close(&self, request: Request<v1::CloseStreamRequest>) -> Answer<v1::Nothing> {
        let asked = request.into_inner();
        self.sessions.close(asked.session, asked.stream()).await?;
        Ok(Response::new(v1::Nothing {}))
    }

    async fn trees(&self, _: Request<v1::Nothing>) -> Answer<v1::TreeList> {
        let own = self.trees.tree().await;
        let mut control = self.sessions.control();
        let beat = tokio::time::timeout(LOOK, control.beat(v1::Nothing {})).await;
        // A boundary that does not answer is missing in the picture, which is what there is to see.
        let theirs = beat.ok().and_then(Result::ok);
        let theirs = theirs.and_then(|beat| beat.into_inner().tree);
        let trees = std::iter::once(own).chain(theirs).collect();
        Ok(Response::new(v1::TreeList { trees }))
    }

    async fn apply(&self, request: Request<v1::PolicyRevision>) -> Answer<v1::PolicyState> {
        let revision = request.into_inner();
        let asked = self
            .rulebook
            .ask(|reply| rulebook::Message::Apply(revision, reply), APPLY)
            .await;
        let outcome = asked.map_err(unavailable)?;
        outcome
            .map(Response::new)
            .map_err(|refused| not_applied(&refused))
    }

    async fn strike(&self, request: Request<v1::StrikeRequest>) -> Answer<v1::Nothing> {
        if !self.chaos {
            let message = "make an actor fail: start the gateway with --chaos";
            return Err(problem::plain(
                Code::FailedPrecondition,
                message,
                "ChaosNotAllowed",
            ));
        }
        let asked = request.into_inner();
        if asked.process == "boundary" {
            return self.sessions.control().strike(asked).await;
        }
        let blow = match asked.blow() {
            v1::Blow::Panic => Blow::Panic,
            v1::Blow::Hang => Blow::Hang,
            v1::Blow::Unspecified => return Err(refusal::usage("make an actor fail: say how")),
        };
        if self
            .trees
            .lookout
            .strike(&Path::new(&asked.path), blow)
            .await
        {
            return Ok(Response::new(v1::Nothing {}));
        }
        let message = format!("make an actor fail: nobody is at {}", asked.path);
        Err(problem::plain(Code::NotFound, message, "NoSuchActor"))
    }

    async fn halt(&self, request: Request<v1::HaltRequest>) -> Answer<v1::HaltReply> {
        let grace = Duration::from_millis(request.into_inner().grace_ms).min(LONGEST_GRACE);
        let (reply, answer) = oneshot::channel();
        let already = || {
            let message = "end the sandbox: it is ending";
            problem::plain(Code::Unavailable, message, "Stopping")
        };
        let asked = self.halt.try_send(Halt { grace, reply });
        asked.map_err(|_| already())?;
        let main = answer.await.map_err(|_| already())?;
        Ok(Response::new(v1::HaltReply { main }))
    }
}

impl Service {
    async fn started(
        &self,
        order: Order,
        stdin: Stdin,
        input: Streaming<v1::SessionInput>,
    ) -> Answer<Told<v1::SessionOutput>> {
        let seat = match self.sessions.begin(order).await? {
            Begun::Live(seat) => seat,
            Begun::Earlier(id) => return self.attached(id, 0, stdin, input).await,
        };
        let (carried, carrying) = oneshot::channel();
        let input = Some(input);
        seat.live().bring(Feed {
            input,
            stdin,
            carried,
        })?;
        told(seat.read(0, Some(carrying)).await?)
    }

    /// Answers as soon as it runs. What the client still sends reaches it.
    async fn detached(
        &self,
        order: Order,
        stdin: Stdin,
        input: Streaming<v1::SessionInput>,
    ) -> Answer<Told<v1::SessionOutput>> {
        let order = Order {
            attended: false,
            ..order
        };
        let begun = match self.sessions.begin(order).await? {
            Begun::Live(seat) => {
                let input = (stdin != Stdin::Ended).then_some(input);
                let (carried, _) = oneshot::channel();
                seat.live().bring(Feed {
                    input,
                    stdin,
                    carried,
                })?;
                v1::Begun {
                    session: seat.live().id,
                    started_ms: seat.live().started_ms,
                }
            }
            Begun::Earlier(session) => v1::Begun {
                session,
                started_ms: self
                    .sessions
                    .live(session)
                    .map_or(0, |live| live.started_ms),
            },
        };
        let begun = v1::SessionOutput {
            kind: Some(v1::session_output::Kind::Begun(begun)),
        };
        Ok(Response::new(Box::pin(tokio_stream::once(Ok(begun)))))
    }

    async fn attached(
        &self,
        session: u64,
        offset: u64,
        stdin: Stdin,
        input: Streaming<v1::SessionInput>,
    ) -> Answer<Told<v1::SessionOutput>> {
        if let Some(seat) = self.sessions.seat(session) {
            let (carried, carrying) = oneshot::channel();
            let input = Some(input);
            seat.live().bring(Feed {
                input,
                stdin,
                carried,
            })?;
            return told(seat.read(offset, Some(carrying)).await?);
        }
        match self.sessions.known(session) {
            Some(Known::Past(ending)) => match self.sessions.revisit(session, offset).await {
                Ok(attending) => told(attending),
                // Its output is forgotten, its end is not.
                Err(status) if status.code() == Code::NotFound => {
                    let begun = v1::Begun {
                        session,
                        started_ms: ending.started_ms,
                    };
                    let kinds = [
                        v1::session_output::Kind::Begun(begun),
                        v1::session_output::Kind::Ended(ending),
                    ];
                    let output = |kind| Ok(v1::SessionOutput { kind: Some(kind) });
                    Ok(Response::new(Box::pin(tokio_stream::iter(
                        kinds.map(output),
                    ))))
                }
                Err(status) => Err(status),
            },
            Some(Known::Running) | None => Err(refusal::no_such(session)),
        }
    }
}

/// The stream of one client.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the last word of four ways to answer"
)]
fn told(attending: Attending) -> Answer<Told<v1::SessionOutput>> {
    let output = stream::unfold(attending, async |mut attending| {
        let told = attending.next().await?;
        let output = told.map(|kind| v1::SessionOutput { kind: Some(kind) });
        Some((output, attending))
    });
    Ok(Response::new(Box::pin(output)))
}

fn unavailable(unanswered: Unanswered) -> Status {
    let why = match unanswered {
        Unanswered::Full => "it has too much to do",
        Unanswered::Gone => "it is restarting",
        Unanswered::Late => "it does not answer",
    };
    problem::plain(
        Code::Unavailable,
        format!("ask the rulebook: {why}; try again"),
        "ActorRestarting",
    )
}

fn not_applied(refused: &Refused) -> Status {
    let (code, reason) = match refused {
        Refused::Invalid(_) => (Code::InvalidArgument, "PolicyInvalid"),
        Refused::Unsupported(_) => (Code::FailedPrecondition, "HostUnsupported"),
        Refused::NeedsRestart { .. } => (Code::FailedPrecondition, "NeedsRestart"),
        Refused::Outdated { .. } => (Code::FailedPrecondition, "PolicyOutdated"),
    };
    problem::plain(code, refused.to_string(), reason)
}

/// How long putting a policy in force may take.
const APPLY: Duration = Duration::from_secs(10);

/// How long the boundary may take to show its tree.
const LOOK: Duration = Duration::from_secs(1);

/// No workload gets more time to end than this.
const LONGEST_GRACE: Duration = Duration::from_hours(1);
