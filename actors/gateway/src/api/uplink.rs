//! The service `Uplink`: keepers report, and hear until when that holds.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use holdfast_wire::v1;
use holdfast_wire::v1::uplink_server::Uplink;
use tonic::{Request, Response, Status, Streaming};

use crate::accept::Peer;
use crate::directory::{Directory, Entry};
use crate::refused::Refused;
use crate::sandbox::{Message, Origin};

pub(super) struct Service {
    pub(super) directory: Directory,
    /// How many streams there have been.
    streams: AtomicU64,
}

impl Service {
    pub(super) fn new(directory: Directory) -> Self {
        Self {
            directory,
            streams: AtomicU64::new(1),
        }
    }
}

#[tonic::async_trait]
impl Uplink for Service {
    type LeaseStream = Pin<Box<dyn Stream<Item = Result<v1::Renewal, Status>> + Send + 'static>>;

    async fn lease(
        &self,
        request: Request<Streaming<v1::Report>>,
    ) -> Result<Response<Self::LeaseStream>, Status> {
        let pid = request.extensions().get::<Peer>().and_then(|peer| peer.pid);
        let keeper = Keeper {
            directory: self.directory.clone(),
            reports: request.into_inner(),
            origin: Origin {
                pid,
                stream: self.streams.fetch_add(1, Ordering::Relaxed),
            },
            sandbox: None,
        };
        let renewals = unfold(Some(keeper), async |keeper| {
            let mut keeper = keeper?;
            let report = keeper.reports.message().await.ok()??;
            match keeper.renew(report).await {
                Ok(renewal) => Some((Ok(renewal), Some(keeper))),
                // One that is fenced hears it once, and nothing more.
                Err(refused) => Some((Err(refused.into()), None)),
            }
        });
        Ok(Response::new(Box::pin(renewals)))
    }
}

/// One keeper's lease.
struct Keeper {
    directory: Directory,
    reports: Streaming<v1::Report>,
    origin: Origin,
    /// Whose reports were accepted.
    sandbox: Option<Entry>,
}

impl Drop for Keeper {
    /// However the stream ended: nobody vouches for the last report any more.
    fn drop(&mut self) {
        if let Some(entry) = self.sandbox.take() {
            // A sandbox with so much to do finds the lease lapsed.
            let _ = entry.address.send(Message::Unlinked(self.origin.stream));
        }
    }
}

impl Keeper {
    async fn renew(&mut self, report: v1::Report) -> Result<v1::Renewal, Refused> {
        let id = report.id.clone();
        let entry = self.directory.by_id(&id);
        let entry = entry.ok_or(Refused::Fenced {
            id,
            why: "there is no such sandbox here",
        })?;
        let report = Box::new(report);
        let ask = |reply| Message::Report(report, self.origin, reply);
        let answer = entry.address.ask(ask, PATIENCE).await;
        let expires_ms = answer.map_err(|_| Refused::Busy(entry.name.clone()))??;
        self.sandbox = Some(entry);
        Ok(v1::Renewal { expires_ms })
    }
}

const PATIENCE: Duration = Duration::from_secs(4);
