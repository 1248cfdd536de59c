//! The service `Gateway`: checks what is asked, and hands over.

use std::pin::Pin;
use std::time::Duration;

use futures_util::stream::unfold;
use futures_util::{Stream, StreamExt as _};
use holdfast_actor::{Address, Blow, Reply, Unanswered};
use holdfast_observability::Decision;
use holdfast_wire::handshake::VERSION;
use holdfast_wire::v1::gateway_server::Gateway;
use holdfast_wire::v1::keeper_client::KeeperClient;
use holdfast_wire::{problem, v1};
use tokio::sync::watch;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};

use super::{check, is_last, present, revise, serving, session, watched};
use crate::directory::Entry;
use crate::host::Host;
use crate::life::Ask;
use crate::logs::{self, Logs, Unknown, Wanted};
use crate::refused::Refused;
use crate::{roster, sandbox, standing, tree};

pub(super) struct Service {
    pub(super) host: Host,
    pub(super) roster: Address<roster::Message>,
    pub(super) closing: watch::Receiver<bool>,
}

type Told<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send + 'static>>;

#[tonic::async_trait]
impl Gateway for Service {
    async fn create(
        &self,
        request: Request<v1::CreateRequest>,
    ) -> Result<Response<v1::Status>, Status> {
        let request = request.into_inner();
        check::create(&request)?;
        let named = request.name.clone();
        let create = |reply| roster::Message::Create(Box::new(request), reply);
        let made = self.roster.ask(create, PATIENCE).await;
        let entry = made.map_err(|why| unanswered(&named, &v1::Status::default(), why))??;
        Ok(Response::new(entry.status().as_ref().clone()))
    }

    async fn list(
        &self,
        request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::StatusList>, Status> {
        let wanted = request.into_inner().labels;
        let has = |status: &v1::Status| {
            wanted
                .iter()
                .all(|(label, value)| status.labels.get(label) == Some(value))
        };
        let all = self.host.directory.all();
        let sandboxes = all
            .iter()
            .map(|entry| entry.status().as_ref().clone())
            .filter(has);
        Ok(Response::new(v1::StatusList {
            sandboxes: sandboxes.collect(),
        }))
    }

    async fn get(
        &self,
        request: Request<v1::SandboxRequest>,
    ) -> Result<Response<v1::Status>, Status> {
        let entry = self.host.directory.find(&request.get_ref().sandbox)?;
        let keeper = client(&entry);
        Ok(Response::new(present::of(&entry, keeper).await))
    }

    type WatchStream = Told<v1::Status>;

    async fn watch(
        &self,
        request: Request<v1::SandboxRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let entry = self.host.directory.find(&request.get_ref().sandbox)?;
        if is_last(&request) {
            return Err(Refused::starved(entry.name).into());
        }
        let told = watched(&entry).map(|status| Ok(status.as_ref().clone()));
        Ok(Response::new(Box::pin(self.until_closing(told))))
    }

    async fn stop(
        &self,
        request: Request<v1::StopRequest>,
    ) -> Result<Response<v1::Status>, Status> {
        let v1::StopRequest { sandbox, grace_ms } = request.into_inner();
        let grace = grace(grace_ms);
        self.want(&sandbox, Ask::Stop { grace }, grace + ENDING)
            .await
    }

    async fn start(
        &self,
        request: Request<v1::SandboxRequest>,
    ) -> Result<Response<v1::Status>, Status> {
        self.want(&request.into_inner().sandbox, Ask::Start, ENDING)
            .await
    }

    async fn restart(
        &self,
        request: Request<v1::StopRequest>,
    ) -> Result<Response<v1::Status>, Status> {
        let v1::StopRequest { sandbox, grace_ms } = request.into_inner();
        let grace = grace(grace_ms);
        self.want(&sandbox, Ask::Restart { grace }, grace + ENDING)
            .await
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteRequest>,
    ) -> Result<Response<v1::Nothing>, Status> {
        let v1::DeleteRequest { sandbox, force, id } = request.into_inner();
        let entry = self.host.directory.pinned(&sandbox, &id)?;
        let delete = |reply| sandbox::Message::Ask(Ask::Delete { force }, reply);
        ask(&entry, delete, ENDING).await??;
        Ok(Response::new(v1::Nothing {}))
    }

    type SessionStream = Told<v1::SessionOutput>;

    async fn session(
        &self,
        request: Request<Streaming<v1::SessionInput>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let outputs = session::pass(&self.host, request).await?;
        Ok(Response::new(outputs))
    }

    async fn sessions(
        &self,
        request: Request<v1::SandboxRequest>,
    ) -> Result<Response<v1::SessionList>, Status> {
        let (entry, mut keeper) = self.keeper(&request.get_ref().sandbox)?;
        let answer = keeper.sessions(v1::Nothing {}).await;
        answer.map_err(|status| relayed(&entry, status))
    }

    async fn kill(
        &self,
        request: Request<v1::KillRequest>,
    ) -> Result<Response<v1::Nothing>, Status> {
        let request = request.into_inner();
        let (entry, mut keeper) = self.keeper(&request.sandbox)?;
        let answer = keeper.kill(request).await;
        answer.map_err(|status| relayed(&entry, status))
    }

    async fn close(
        &self,
        request: Request<v1::CloseStreamRequest>,
    ) -> Result<Response<v1::Nothing>, Status> {
        let request = request.into_inner();
        let (entry, mut keeper) = self.keeper(&request.sandbox)?;
        let answer = keeper.close(request).await;
        answer.map_err(|status| relayed(&entry, status))
    }

    async fn trees(
        &self,
        request: Request<v1::SandboxRequest>,
    ) -> Result<Response<v1::TreeList>, Status> {
        let name = request.into_inner().sandbox;
        let mut trees = vec![tree::told(&self.host.lookout.view().await)];
        if !name.is_empty() {
            // A sandbox that does not run has no trees of its own; the gateway's says what becomes of it.
            let entry = self.host.directory.find(&name)?;
            if serving(&entry).is_ok() {
                let (_, mut keeper) = self.keeper(&name)?;
                if let Ok(told) = keeper.trees(v1::Nothing {}).await {
                    trees.extend(told.into_inner().trees);
                }
            }
        }
        Ok(Response::new(v1::TreeList { trees }))
    }

    type LogsStream = Told<v1::LogLine>;

    async fn logs(
        &self,
        request: Request<v1::LogsRequest>,
    ) -> Result<Response<Self::LogsStream>, Status> {
        let request = request.into_inner();
        let entry = self.host.directory.find(&request.sandbox)?;
        let wanted = Wanted::of(&request).map_err(|Unknown(why)| Refused::InvalidArgument {
            what: "read logs",
            field: "the source or level",
            why,
        })?;
        let directory = self.host.places.sandbox_state(&entry.id);
        let lines = following(Logs::open(&directory, wanted), entry, request.follow);
        Ok(Response::new(Box::pin(self.until_closing(lines))))
    }

    async fn get_policy(
        &self,
        request: Request<v1::GetPolicyRequest>,
    ) -> Result<Response<v1::PolicyRevision>, Status> {
        let v1::GetPolicyRequest { sandbox, revision } = request.into_inner();
        let entry = self.host.directory.find(&sandbox)?;
        let revision = match revision {
            0 => in_force(&entry),
            revision => revision,
        };
        let found = self.host.ledger.revision(&entry.id, revision).await;
        let found = found.map_err(|why| Refused::Registry {
            what: "read a policy",
            why,
        })?;
        let found = found.ok_or(Refused::NoSuchRevision {
            name: entry.name,
            revision,
        })?;
        Ok(Response::new(v1::PolicyRevision {
            revision,
            yaml: found.yaml,
        }))
    }

    async fn set_policy(
        &self,
        request: Request<v1::SetPolicyRequest>,
    ) -> Result<Response<v1::PolicyState>, Status> {
        let asked = request.into_inner();
        let entry = self.host.directory.find(&asked.sandbox)?;
        revise::policy(&entry, asked).await
    }

    async fn why(
        &self,
        request: Request<v1::WhyRequest>,
    ) -> Result<Response<v1::WhyReply>, Status> {
        let asked = request.into_inner().decision;
        let parsed: Decision = asked.parse().map_err(|_| Refused::InvalidArgument {
            what: "find a decision",
            field: "its id",
            why: "is none: 26 characters of 0-9 and A-Z without I, L, O and U",
        })?;
        let id = parsed.to_string();
        let places = self.host.places.clone();
        let entries = self.host.directory.all();
        let wanted = id.clone();
        let found = tokio::task::spawn_blocking(move || {
            entries.into_iter().find_map(|entry| {
                let record = logs::decision(&places.sandbox_state(&entry.id), &wanted)?;
                Some(v1::WhyReply {
                    sandbox: entry.name,
                    record,
                })
            })
        });
        let found = found.await.map_err(|error| Refused::Host {
            what: "read the audit".to_owned(),
            why: error.to_string(),
        })?;
        Ok(Response::new(found.ok_or(Refused::NoSuchDecision(id))?))
    }

    async fn strike(
        &self,
        request: Request<v1::StrikeRequest>,
    ) -> Result<Response<v1::Nothing>, Status> {
        let request = request.into_inner();
        if !self.host.chaos {
            let message = "strike an actor: this gateway was not started with --chaos";
            return Err(problem::plain(
                Code::FailedPrecondition,
                message,
                "ChaosNotAllowed",
            ));
        }
        if request.process != "gateway" {
            let (entry, mut keeper) = self.keeper(&request.sandbox)?;
            let answer = keeper.strike(request).await;
            return answer.map_err(|status| relayed(&entry, status));
        }
        let blow = match request.blow() {
            v1::Blow::Hang => Blow::Hang,
            v1::Blow::Panic | v1::Blow::Unspecified => Blow::Panic,
        };
        if self
            .host
            .lookout
            .strike(&request.path.as_str().into(), blow)
            .await
        {
            return Ok(Response::new(v1::Nothing {}));
        }
        let message = format!("strike {}: nobody is there", request.path);
        Err(problem::plain(Code::NotFound, message, "NoSuchActor"))
    }

    async fn version(&self, _: Request<v1::Nothing>) -> Result<Response<v1::VersionReply>, Status> {
        Ok(Response::new(v1::VersionReply {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            protocol: VERSION.to_string(),
        }))
    }
}

impl Service {
    /// The same, ended when the gateway stops: nobody waits for a stream that has no end of its own.
    fn until_closing<T: Send + 'static>(
        &self,
        told: impl Stream<Item = T> + Send + 'static,
    ) -> impl Stream<Item = T> + Send + 'static {
        let mut closing = self.closing.clone();
        told.take_until(async move {
            let _ = closing.wait_for(|closing| *closing).await;
        })
    }

    /// Has a sandbox do something, and tells how it stands then.
    async fn want(
        &self,
        sandbox: &str,
        wanted: Ask,
        patience: Duration,
    ) -> Result<Response<v1::Status>, Status> {
        let entry = self.host.directory.find(sandbox)?;
        ask(
            &entry,
            |reply| sandbox::Message::Ask(wanted, reply),
            patience,
        )
        .await??;
        Ok(Response::new(entry.status().as_ref().clone()))
    }

    /// The keeper of a sandbox that runs.
    fn keeper(&self, sandbox: &str) -> Result<(Entry, KeeperClient<Channel>), Status> {
        let entry = self.host.directory.find(sandbox)?;
        serving(&entry)?;
        let keeper = client(&entry);
        Ok((entry, keeper))
    }
}

/// Lines until there are none, or, for one who follows, until the sandbox is gone.
fn following(
    logs: Logs,
    entry: Entry,
    follow: bool,
) -> impl Stream<Item = Result<v1::LogLine, Status>> + Send {
    let batches = unfold(Some((logs, entry)), move |state| async move {
        let (mut logs, entry) = state?;
        loop {
            let read = tokio::task::spawn_blocking(move || {
                let lines = logs.next();
                (logs, lines)
            });
            let lines;
            (logs, lines) = read.await.ok()?;
            if !lines.is_empty() {
                return Some((lines, Some((logs, entry))));
            }
            if !logs.has_more() {
                if !follow || entry.posted.borrow().gone {
                    return None;
                }
                tokio::time::sleep(LOOK).await;
            }
        }
    });
    batches.flat_map(|lines| futures_util::stream::iter(lines.into_iter().map(Ok)))
}

/// Asks a sandbox's actor.
pub(super) async fn ask<T: Send>(
    entry: &Entry,
    question: impl FnOnce(Reply<T>) -> sandbox::Message + Send,
    patience: Duration,
) -> Result<T, Refused> {
    let answer = entry.address.ask(question, patience).await;
    answer.map_err(|why| unanswered(&entry.name, &entry.status(), why))
}

fn unanswered(name: &str, status: &v1::Status, why: Unanswered) -> Refused {
    let name = name.to_owned();
    match why {
        Unanswered::Full => Refused::Busy(name),
        Unanswered::Gone => {
            if status.reason == standing::UNOBSERVED {
                let why = status.message.clone();
                return Refused::Unobserved { name, why };
            }
            let why = "the gateway lost sight of it meanwhile".to_owned();
            Refused::OutcomeUnknown { name, why }
        }
        Unanswered::Late => {
            let why = "it did not answer in time".to_owned();
            Refused::OutcomeUnknown { name, why }
        }
    }
}

/// The one connection to a keeper for everything but sessions.
pub(super) fn client(entry: &Entry) -> KeeperClient<Channel> {
    KeeperClient::new(entry.control.clone())
        .max_decoding_message_size(holdfast_wire::MOST_BYTES)
        .max_encoding_message_size(holdfast_wire::MOST_BYTES)
}

/// The revision that counts now.
pub(super) fn in_force(entry: &Entry) -> u64 {
    let status = entry.status();
    let policy = status.policy.clone().unwrap_or_default();
    match policy.enforced {
        0 => policy.desired,
        enforced => enforced,
    }
}

/// Whether an error is the keeper's own word, and not the way to it.
pub(super) fn is_own(status: &Status) -> bool {
    problem::of(status).is_some()
}

pub(super) fn relayed(entry: &Entry, status: Status) -> Status {
    if is_own(&status) || status.code() == Code::Unimplemented {
        return status;
    }
    Refused::unreached(&entry.name, &status).into()
}

/// Between TERM and KILL.
fn grace(ms: u64) -> Duration {
    match ms {
        0 => GRACE,
        ms => Duration::from_millis(ms).min(LONGEST_GRACE),
    }
}

/// How long a request may take that nothing has to end for.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How long an end may take beyond the grace.
const ENDING: Duration = Duration::from_mins(1);

/// What a workload has between TERM and KILL when nobody says otherwise.
const GRACE: Duration = Duration::from_secs(10);
const LONGEST_GRACE: Duration = Duration::from_hours(1);

/// How often a log that is followed is looked at.
const LOOK: Duration = Duration::from_millis(150);
