//! `grpc.health.v1`: "" is the gateway itself, `sandbox/NAME` a sandbox. The same evaluation as everywhere else.

use std::pin::Pin;

use futures_util::{Stream, StreamExt as _};
use holdfast_wire::v1;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::watched;
use crate::directory::{Directory, Entry};

pub(super) struct Service {
    pub(super) directory: Directory,
}

#[tonic::async_trait]
impl Health for Service {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let status = match self.find(&request.get_ref().service)? {
            None => ServingStatus::Serving,
            Some(entry) => serving(&entry.status()),
        };
        Ok(Response::new(answer(status)))
    }

    type WatchStream =
        Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send + 'static>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        // The protocol has watchers of an unknown service wait for it; one who misspelt a name is better told so.
        let stream: Self::WatchStream = match self.find(&request.get_ref().service)? {
            None => {
                let now = futures_util::stream::once(async { Ok(answer(ServingStatus::Serving)) });
                Box::pin(now.chain(futures_util::stream::pending()))
            }
            Some(entry) => Box::pin(watched(&entry).map(|status| Ok(answer(serving(&status))))),
        };
        Ok(Response::new(stream))
    }
}

impl Service {
    /// `None`: the gateway itself.
    fn find(&self, service: &str) -> Result<Option<Entry>, Status> {
        match service.strip_prefix("sandbox/") {
            _ if service.is_empty() => Ok(None),
            Some(name) => Ok(Some(self.directory.find(name)?)),
            None => Err(Status::not_found(format!(
                "check {service:?}: say nothing for the gateway or sandbox/NAME"
            ))),
        }
    }
}

fn serving(status: &v1::Status) -> ServingStatus {
    match status.phase() {
        v1::Phase::Ready => ServingStatus::Serving,
        v1::Phase::Unspecified
        | v1::Phase::Pending
        | v1::Phase::Degraded
        | v1::Phase::Failed
        | v1::Phase::Stopped
        | v1::Phase::Deleting => ServingStatus::NotServing,
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse {
        status: status.into(),
    }
}
