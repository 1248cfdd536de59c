//! The way to a gateway: one socket, every call with a deadline, connected again by itself.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_wire::problem;
use holdfast_wire::v1;
use holdfast_wire::v1::gateway_client::GatewayClient;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

/// A client of one gateway. Clones share its connection; [`Gate::apart`] gives one of its own.
#[derive(Clone)]
pub(crate) struct Gate {
    socket: PathBuf,
    client: GatewayClient<Channel>,
}

/// Why a call came to nothing.
#[derive(Clone, Debug)]
pub(crate) enum Unanswered {
    /// The gateway, or whoever stands behind it, said no, and why.
    Refused {
        /// `CamelCase`, for programs.
        reason: String,
        message: String,
        /// Whether trying again makes sense.
        again: bool,
    },
    /// Nobody answered, or not in time.
    Gone(String),
}

impl Gate {
    /// Nothing is connected before the first call.
    pub(crate) fn new(socket: &Path) -> Self {
        let path = socket.to_owned();
        let connector = tower::service_fn(move |_| {
            let path = path.clone();
            async move { Ok::<_, io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
        });
        let channel =
            Endpoint::from_static("http://gateway").connect_with_connector_lazy(connector);
        Self {
            socket: socket.to_owned(),
            client: GatewayClient::new(channel)
                .max_decoding_message_size(holdfast_wire::MOST_BYTES)
                .max_encoding_message_size(holdfast_wire::MOST_BYTES),
        }
    }

    /// Another connection, whose windows nobody else fills.
    pub(crate) fn apart(&self) -> Self {
        Self::new(&self.socket)
    }

    pub(crate) fn client(&self) -> GatewayClient<Channel> {
        self.client.clone()
    }

    pub(crate) async fn version(&self) -> Result<v1::VersionReply, Unanswered> {
        let mut client = self.client();
        within(SOON, client.version(v1::Nothing {})).await
    }

    pub(crate) async fn status(
        &self,
        sandbox: &str,
        deadline: Duration,
    ) -> Result<v1::Status, Unanswered> {
        let mut client = self.client();
        within(deadline, client.get(named(sandbox))).await
    }

    pub(crate) async fn list(&self) -> Result<v1::StatusList, Unanswered> {
        let mut client = self.client();
        within(SOON, client.list(v1::ListRequest::default())).await
    }

    pub(crate) async fn create(
        &self,
        request: v1::CreateRequest,
    ) -> Result<v1::Status, Unanswered> {
        let mut client = self.client();
        within(LATE, client.create(request)).await
    }

    pub(crate) async fn delete(&self, sandbox: &str) -> Result<v1::Nothing, Unanswered> {
        let mut client = self.client();
        let request = v1::DeleteRequest {
            sandbox: sandbox.to_owned(),
            force: true,
            ..v1::DeleteRequest::default()
        };
        within(LATE, client.delete(request)).await
    }

    pub(crate) async fn trees(&self, sandbox: &str) -> Result<v1::TreeList, Unanswered> {
        let mut client = self.client();
        within(SOON, client.trees(named(sandbox))).await
    }

    pub(crate) async fn policy(&self, sandbox: &str) -> Result<v1::PolicyRevision, Unanswered> {
        let mut client = self.client();
        let request = v1::GetPolicyRequest {
            sandbox: sandbox.to_owned(),
            revision: 0,
        };
        within(SOON, client.get_policy(request)).await
    }

    pub(crate) async fn sessions(&self, sandbox: &str) -> Result<v1::SessionList, Unanswered> {
        let mut client = self.client();
        within(SOON, client.sessions(named(sandbox))).await
    }

    /// SIGKILL for a session.
    pub(crate) async fn kill(
        &self,
        sandbox: &str,
        session: u64,
    ) -> Result<v1::Nothing, Unanswered> {
        let mut client = self.client();
        let request = v1::KillRequest {
            sandbox: sandbox.to_owned(),
            session,
            signal: 9,
        };
        within(SOON, client.kill(request)).await
    }

    pub(crate) async fn strike(
        &self,
        request: v1::StrikeRequest,
    ) -> Result<v1::Nothing, Unanswered> {
        let mut client = self.client();
        within(SOON, client.strike(request)).await
    }
}

fn named(sandbox: &str) -> v1::SandboxRequest {
    v1::SandboxRequest {
        sandbox: sandbox.to_owned(),
    }
}

async fn within<T>(
    deadline: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Unanswered> {
    match timeout(deadline, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(Unanswered::from(&status)),
        Err(_late) => Err(Unanswered::Gone(format!("no answer in {deadline:?}"))),
    }
}

impl From<&Status> for Unanswered {
    fn from(status: &Status) -> Self {
        match problem::of(status) {
            Some(problem) => Self::Refused {
                reason: problem.reason,
                message: status.message().to_owned(),
                again: problem.retry_after_ms > 0,
            },
            // Said by a server of ours, but without the details it owes.
            None if !matches!(
                status.code(),
                Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Internal
            ) =>
            {
                Self::Refused {
                    reason: format!("{:?}", status.code()),
                    message: status.message().to_owned(),
                    again: matches!(
                        status.code(),
                        Code::DeadlineExceeded | Code::ResourceExhausted
                    ),
                }
            }
            None => Self::Gone(format!("{:?}: {}", status.code(), status.message())),
        }
    }
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused {
                reason, message, ..
            } => write!(f, "{message} ({reason})"),
            Self::Gone(what) => f.write_str(what),
        }
    }
}

/// For what is answered from memory.
const SOON: Duration = Duration::from_secs(3);
/// For what starts or ends processes.
const LATE: Duration = Duration::from_secs(40);
