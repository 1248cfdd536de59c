//! The service `Gateway`: checks what is asked, and hands over.

use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use holdfast_actor::{Address, Reply, Unanswered};
use holdfast_policy::Policy;
use holdfast_wire::handshake::VERSION;
use holdfast_wire::v1;
use holdfast_wire::v1::gateway_server::Gateway;
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};

use super::watched;
use crate::directory::Entry;
use crate::host::Host;
use crate::refused::Refused;
use crate::{name, roster, sandbox};

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
        check(&request)?;
        let named = request.name.clone();
        let create = |reply| roster::Message::Create(Box::new(request), reply);
        let made = self.roster.ask(create, PATIENCE).await;
        let entry = made.map_err(|why| unanswered(&named, why))??;
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
        Ok(Response::new(entry.status().as_ref().clone()))
    }

    type WatchStream = Told<v1::Status>;

    async fn watch(
        &self,
        request: Request<v1::SandboxRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let entry = self.host.directory.find(&request.get_ref().sandbox)?;
        let told = watched(&entry).map(|status| Ok(status.as_ref().clone()));
        Ok(Response::new(Box::pin(self.until_closing(told))))
    }

    async fn stop(&self, _: Request<v1::StopRequest>) -> Result<Response<v1::Status>, Status> {
        Err(missing())
    }

    async fn start(&self, _: Request<v1::SandboxRequest>) -> Result<Response<v1::Status>, Status> {
        Err(missing())
    }

    async fn restart(&self, _: Request<v1::StopRequest>) -> Result<Response<v1::Status>, Status> {
        Err(missing())
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteRequest>,
    ) -> Result<Response<v1::Nothing>, Status> {
        let v1::DeleteRequest { sandbox, force } = request.into_inner();
        let entry = self.host.directory.find(&sandbox)?;
        let delete = |reply| sandbox::Message::Delete { force, reply };
        ask(&entry, delete, ENDING).await??;
        // Its actor and its name go; one that is gone already is what we want.
        let _ = self.roster.send(roster::Message::Gone(entry.id));
        Ok(Response::new(v1::Nothing {}))
    }

    type SessionStream = Told<v1::SessionOutput>;

    async fn session(
        &self,
        _: Request<Streaming<v1::SessionInput>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        Err(missing())
    }

    async fn sessions(
        &self,
        _: Request<v1::SandboxRequest>,
    ) -> Result<Response<v1::SessionList>, Status> {
        Err(missing())
    }

    async fn kill(&self, _: Request<v1::KillRequest>) -> Result<Response<v1::Nothing>, Status> {
        Err(missing())
    }

    async fn trees(
        &self,
        _: Request<v1::SandboxRequest>,
    ) -> Result<Response<v1::TreeList>, Status> {
        Err(missing())
    }

    type LogsStream = Told<v1::LogLine>;

    async fn logs(
        &self,
        _: Request<v1::LogsRequest>,
    ) -> Result<Response<Self::LogsStream>, Status> {
        Err(missing())
    }

    async fn get_policy(
        &self,
        _: Request<v1::GetPolicyRequest>,
    ) -> Result<Response<v1::PolicyRevision>, Status> {
        Err(missing())
    }

    async fn set_policy(
        &self,
        _: Request<v1::SetPolicyRequest>,
    ) -> Result<Response<v1::PolicyState>, Status> {
        Err(missing())
    }

    async fn why(&self, _: Request<v1::WhyRequest>) -> Result<Response<v1::WhyReply>, Status> {
        Err(missing())
    }

    async fn strike(&self, _: Request<v1::StrikeRequest>) -> Result<Response<v1::Nothing>, Status> {
        Err(missing())
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
}

/// Asks a sandbox's actor.
async fn ask<T: Send>(
    entry: &Entry,
    question: impl FnOnce(Reply<T>) -> sandbox::Message + Send,
    patience: Duration,
) -> Result<T, Refused> {
    let answer = entry.address.ask(question, patience).await;
    answer.map_err(|why| unanswered(&entry.name, why))
}

fn unanswered(name: &str, why: Unanswered) -> Refused {
    match why {
        Unanswered::Full | Unanswered::Gone | Unanswered::Late => Refused::Busy(name.to_owned()),
    }
}

/// Whether a sandbox can be made of this at all.
fn check(request: &v1::CreateRequest) -> Result<(), Refused> {
    let wrong = |field, why| {
        Err(Refused::InvalidArgument {
            what: "create a sandbox",
            field,
            why,
        })
    };
    name::check(&request.name).map_err(|why| Refused::InvalidName {
        name: request.name.clone(),
        why,
    })?;
    if request.policy.len() > MOST_POLICY {
        return wrong("policy", "is larger than 1 MiB");
    }
    if !request.policy.is_empty() {
        policy(&request.policy_name, &request.policy)?;
    }
    if !matches!(&*request.on_link_loss, "" | "continue" | "freeze") {
        return wrong("on_link_loss", "is neither continue nor freeze");
    }
    if v1::RestartPolicy::try_from(request.restart).is_err() {
        return wrong("restart", "is none that this gateway knows");
    }
    if request.labels.len() > MOST_LABELS {
        return wrong("labels", "are more than 64");
    }
    let absolute = |path: &[u8]| path.is_empty() || path.starts_with(b"/");
    if !absolute(&request.rootfs) || !absolute(&request.workdir) || !absolute(&request.directory) {
        return wrong("directory, workdir or rootfs", "is not absolute");
    }
    Ok(())
}

fn policy(name: &str, text: &str) -> Result<Policy, Refused> {
    let name = if name.is_empty() { "policy" } else { name };
    Policy::parse(name, text).map_err(Refused::PolicyInvalid)
}

fn missing() -> Status {
    Status::unimplemented("this gateway does not do that yet")
}

/// How long a request may take that nothing has to end for.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a deletion may take.
const ENDING: Duration = Duration::from_mins(1);

const MOST_POLICY: usize = 1 << 20;
const MOST_LABELS: usize = 64;
