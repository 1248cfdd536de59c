//! The link's server: what the keeper may ask, word for word.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use holdfast_actor::{Blow, Path};
use holdfast_kernel::uptime::uptime;
use holdfast_wire::v1::boundary_server::Boundary;
use holdfast_wire::{handshake, problem, v1};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::admission;
use crate::broker::Ports;
use crate::guest::Guest;
use crate::hold::{Hold, Unheld};
use crate::holder::Refusal;
use crate::sessions::{self, Input, Unlaunched};
use crate::tree;

/// Answers one keeper.
pub(crate) struct Service {
    pub(crate) hold: Arc<Hold>,
    pub(crate) guest: Arc<Guest>,
    pub(crate) ports: Arc<Ports>,
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Boundary for Service {
    async fn attach(&self, request: Request<v1::AttachRequest>) -> Answer<v1::AttachReply> {
        let asked = request.into_inner();
        let version = handshake::agree(&asked.oldest, &asked.newest)
            .map_err(|error| Status::failed_precondition(error.to_string()))?;
        self.hold
            .attach(&self.guest, asked.epoch, &asked.token)
            .map_err(|unheld| match unheld {
                Unheld::Refused(refusal) => refused(refusal),
                exhausted @ Unheld::Exhausted(_) => {
                    Status::resource_exhausted(exhausted.to_string())
                }
            })?;
        let (sessions, total) = self.hold.sessions.snapshot();
        Ok(Response::new(v1::AttachReply {
            version,
            evidence: self.hold.standing.evidence.clone(),
            sessions,
            total,
            takeovers: self.hold.takeovers(),
        }))
    }

    async fn launch(&self, request: Request<v1::LaunchRequest>) -> Answer<v1::LaunchReply> {
        self.held()?;
        let asked = request.into_inner();
        let Some(what) = asked.what else {
            return Err(Status::invalid_argument("no program"));
        };
        if asked.request.len() > LONGEST_ID {
            return Err(Status::invalid_argument("the request's id is too long"));
        }
        if asked.until_ms != 0 && uptime() > Duration::from_millis(asked.until_ms) {
            return Err(Status::deadline_exceeded(
                "the launch came too late; ask again",
            ));
        }
        if asked.deadline_ms != 0 && !asked.herded {
            // Its limit would not be kept: nobody could tell what belongs to it.
            return Err(Status::invalid_argument("a deadline without a herd"));
        }
        let terms = sessions::Terms {
            terminal: asked.terminal,
            attended: asked.attended,
            herded: asked.herded,
            deadline_ms: asked.deadline_ms,
            note: asked.note,
            fleeting: is_canary(&what),
        };
        let admit = || admission::session(&self.hold.ledger);
        let launched = self
            .hold
            .sessions
            .launch(&asked.request, what, terms, admit);
        let outcome = match launched.await {
            Ok(id) => v1::launch_reply::Outcome::Session(id),
            Err(Unlaunched::Refused(refused)) => v1::launch_reply::Outcome::NotStarted(refused),
            Err(Unlaunched::Full(why)) => return Err(why),
            Err(Unlaunched::BrokenOff) => {
                return Err(Status::unavailable("the launch was broken off; ask again"));
            }
        };
        Ok(Response::new(v1::LaunchReply {
            outcome: Some(outcome),
        }))
    }

    async fn signal(&self, request: Request<v1::SignalRequest>) -> Answer<v1::Nothing> {
        self.held()?;
        let asked = request.into_inner();
        self.hold
            .sessions
            .signal(asked.session, asked.signal, asked.tree)
            .await
            .map_err(|error| unreached(&error))?;
        Ok(Response::new(v1::Nothing {}))
    }

    async fn resize(&self, request: Request<v1::ResizeRequest>) -> Answer<v1::Nothing> {
        let asked = request.into_inner();
        let size = sessions::size(asked.size.unwrap_or_default());
        self.session(asked.session)?.resize(size).map_err(|error| {
            Status::failed_precondition(format!("set the size: {}", error.told()))
        })?;
        Ok(Response::new(v1::Nothing {}))
    }

    async fn table(&self, _: Request<v1::Nothing>) -> Answer<v1::SessionTable> {
        self.held()?;
        let (sessions, total) = self.hold.sessions.snapshot();
        Ok(Response::new(v1::SessionTable { sessions, total }))
    }

    async fn end(&self, _: Request<v1::Nothing>) -> Answer<v1::Nothing> {
        self.held()?;
        tracing::info!("the keeper ends the sandbox");
        self.hold.end.cancel();
        Ok(Response::new(v1::Nothing {}))
    }

    type ReadStream = Pin<Box<dyn Stream<Item = Result<v1::Output, Status>> + Send>>;

    async fn read(&self, request: Request<v1::ReadRequest>) -> Answer<Self::ReadStream> {
        let asked = request.into_inner();
        let attached = self.session(asked.session)?.attach(asked.offset);
        // Pulled by the connection: a client that reads slowly holds up its own session only.
        let output = stream::unfold(attached, async |mut attached| {
            let output = attached.next().await?;
            Some((Ok(output), attached))
        });
        Ok(Response::new(Box::pin(output)))
    }

    async fn write(&self, request: Request<Streaming<v1::Input>>) -> Answer<v1::Nothing> {
        let mut input = request.into_inner();
        let first = input
            .next()
            .await
            .ok_or_else(|| Status::invalid_argument("no session"))??;
        let session = self.session(first.session)?;
        let mut writer = session.input().lock().await;
        let Some(open) = writer.take() else {
            if session.gone.is_cancelled() {
                // As for one that reads no more: what is coming for it is dropped.
                return Ok(Response::new(v1::Nothing {}));
            }
            return Err(Status::failed_precondition("the session's input has ended"));
        };
        tokio::select! {
            biased;
            // Over, or hung up: what is still coming for it is dropped, and so is its input.
            () = session.gone.cancelled() => {}
            left = copy(open, first, input) => *writer = left?,
        }
        Ok(Response::new(v1::Nothing {}))
    }

    async fn close(&self, request: Request<v1::CloseRequest>) -> Answer<v1::Nothing> {
        let asked = request.into_inner();
        self.session(asked.session)?.close(asked.stream());
        Ok(Response::new(v1::Nothing {}))
    }

    async fn clear(&self, _: Request<v1::Nothing>) -> Answer<v1::Nothing> {
        self.held()?;
        self.hold
            .sessions
            .clear()
            .await
            .map_err(|error| unreached(&error))?;
        Ok(Response::new(v1::Nothing {}))
    }

    async fn cover(&self, request: Request<v1::CoverRequest>) -> Answer<v1::CoverReply> {
        self.held()?;
        let v1::CoverRequest { ports, listed } = request.into_inner();
        let listed = listed.iter().filter_map(|range| range.parse().ok());
        // Ports travel as 32 bits.
        let ports = ports.into_iter().map(u16::try_from);
        let ports = ports.filter_map(Result::ok).collect();
        let unheard = self.ports.cover(&ports, listed.collect());
        Ok(Response::new(v1::CoverReply { unheard }))
    }

    async fn strike(&self, request: Request<v1::StrikeRequest>) -> Answer<v1::Nothing> {
        self.held()?;
        let asked = request.into_inner();
        let blow = match asked.blow() {
            v1::Blow::Panic => Blow::Panic,
            v1::Blow::Hang => Blow::Hang,
            v1::Blow::Unspecified => return Err(Status::invalid_argument("no blow")),
        };
        if !self
            .hold
            .lookout
            .strike(&Path::new(&asked.path), blow)
            .await
        {
            return Err(Status::not_found(format!("no actor at {}", asked.path)));
        }
        Ok(Response::new(v1::Nothing {}))
    }

    async fn beat(&self, _: Request<v1::Nothing>) -> Answer<v1::BeatReply> {
        use std::sync::atomic::Ordering::Relaxed;
        self.held()?;
        self.hold.heard.note(self.hold.clock.now());
        let views = self.hold.lookout.view().await;
        let broker = v1::BrokerCounts {
            notifications: self.hold.counts.notifications.load(Relaxed),
            denied: self.hold.counts.denied.load(Relaxed),
            faults: self.hold.counts.faults.load(Relaxed),
        };
        let silent = self.hold.pulse.beat(self.hold.clock.now()).as_millis();
        Ok(Response::new(v1::BeatReply {
            broker: Some(broker),
            descriptors: self.hold.descriptors(),
            tree: Some(tree::told(&views, &self.hold.clock)),
            launcher_silent_ms: u64::try_from(silent).unwrap_or(u64::MAX),
            unheard: self.ports.try_again(),
        }))
    }
}

fn is_canary(what: &v1::launch_request::What) -> bool {
    match what {
        v1::launch_request::What::Program(_) => false,
        v1::launch_request::What::Builtin(builtin) => {
            matches!(builtin.what, Some(v1::builtin::What::Canary(_)))
        }
    }
}

impl Service {
    fn held(&self) -> Result<(), Status> {
        self.hold.check(&self.guest).map_err(refused)
    }

    fn session(&self, id: u64) -> Result<Arc<sessions::Session>, Status> {
        self.held()?;
        self.hold
            .sessions
            .find(id)
            .ok_or_else(|| Status::not_found(format!("no session {id}")))
    }
}

/// How long the id of a request may be, in bytes.
const LONGEST_ID: usize = 256;

/// A refusal as gRPC has it.
fn refused(refusal: Refusal) -> Status {
    let text = refusal.to_string();
    match refusal {
        Refusal::Epoch { .. } | Refusal::Fenced { .. } => {
            problem::plain(Code::Aborted, text, "Fenced")
        }
        Refusal::Token => problem::plain(Code::PermissionDenied, text, "WrongToken"),
        Refusal::Early => problem::plain(Code::Unavailable, text, "NotAttached"),
        Refusal::Unattached => problem::plain(Code::FailedPrecondition, text, "NotAttached"),
    }
}

fn unreached(error: &holdfast_kernel::Error) -> Status {
    Status::unavailable(format!("reach the launcher: {}", error.told()))
}

/// Writes what comes until it ends; answers the input again if the client has gone without ending it.
async fn copy(
    open: Input,
    first: v1::Input,
    mut input: Streaming<v1::Input>,
) -> Result<Option<Input>, Status> {
    let mut next = Some(Ok(first));
    while let Some(piece) = next {
        let Ok(piece) = piece else {
            return Ok(Some(open));
        };
        // A session that reads no more is no error: what is still coming for it is dropped.
        if open.write_all(&piece.data).await.is_err() {
            while input.next().await.is_some() {}
            return Ok(None);
        }
        next = input.next().await;
    }
    let _ = open.end().await;
    Ok(None)
}
