//! Tells the gateway how the sandbox stands, and holds the lease that says so.
//!
//! ```text
//! Dialling ── connected ──> Leased ── status changed, or REPORT passed ──> Leased
//!     ^                        │ the stream ends, or nothing is renewed for SILENCE
//!     └── full jitter, 50 ms … 2 s ──┘
//! ```
//!
//! It never gives up and nobody waits for it: a sandbox works on without a gateway.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use holdfast_actor::{Actor, Backoff, Fault, Me};
use holdfast_kernel::descriptors::noted;
use holdfast_wire::v1;
use holdfast_wire::v1::uplink_client::UplinkClient;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{interval, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// Holds the lease at the gateway.
pub(crate) struct Uplink;

/// What it is born with.
#[derive(Clone, Debug)]
pub(crate) struct Arguments {
    /// The gateway's socket.
    pub(crate) gateway: PathBuf,
    /// Which sandbox, and which of its keepers.
    pub(crate) id: String,
    pub(crate) generation: u64,
    pub(crate) epoch: u64,
    /// How it stands.
    pub(crate) status: watch::Receiver<v1::Status>,
}

/// What was reported last, for the one who leaves.
pub(crate) struct State {
    status: watch::Receiver<v1::Status>,
    reported: watch::Receiver<Told>,
}

/// Of a status that was heard: its phase, its reason.
type Told = (i32, String);

/// Why a lease is over.
#[derive(Debug, thiserror::Error)]
enum Lapsed {
    #[error("connect to the gateway: {0}")]
    Unreached(String),
    #[error("report to the gateway: {0}")]
    Refused(Box<tonic::Status>),
    #[error("hear from the gateway: it says nothing")]
    Silent,
    #[error("hear from the gateway: it ended the lease")]
    Ended,
}

impl Actor for Uplink {
    type Message = std::convert::Infallible;
    type Arguments = Arguments;
    type State = State;

    async fn start(me: &Me<Self::Message>, arguments: Arguments) -> Result<State, Fault> {
        let (report, reported) = watch::channel(Told::default());
        let state = State {
            status: arguments.status.clone(),
            reported,
        };
        let this = me.clone();
        me.spawn(async move {
            let (mut dice, mut failures) = (this.seed().dice(), 0);
            loop {
                let began = this.now();
                let lapsed = arguments.clone().hold(&report).await;
                if this.now() - began > STEADY {
                    failures = 0;
                }
                if failures == 0 {
                    tracing::warn!(%lapsed, "the gateway is away");
                } else {
                    tracing::debug!(%lapsed, failures, "the gateway is away");
                }
                sleep(BACKOFF.delay(failures, &mut dice)).await;
                failures = failures.saturating_add(1);
            }
        });
        Ok(state)
    }

    async fn handle(
        _: &Me<Self::Message>,
        never: Self::Message,
        _: &mut State,
    ) -> Result<(), Fault> {
        match never {}
    }

    /// What has changed should be heard before it leaves, if anybody listens: that the sandbox is over, or which part fell and
    /// takes this one with it. Others may take half a second to stop, and the gateway would show Ready meanwhile.
    async fn stop(_: &Me<Self::Message>, mut state: State) {
        let (phase, last) = {
            let status = state.status.borrow();
            (status.phase(), told(&status))
        };
        let patience = match phase {
            v1::Phase::Stopped | v1::Phase::Failed => LAST_WORD,
            v1::Phase::Unspecified
            | v1::Phase::Pending
            | v1::Phase::Ready
            | v1::Phase::Degraded
            | v1::Phase::Deleting => PASSING_WORD,
        };
        let heard = state.reported.wait_for(|told| *told == last);
        let _nobody_listens = timeout(patience, heard).await;
    }
}

impl Arguments {
    /// Holds one lease until it is over.
    async fn hold(mut self, told: &watch::Sender<Told>) -> Lapsed {
        match self.lease(told).await {
            Ok(never) => match never {},
            Err(lapsed) => lapsed,
        }
    }

    async fn lease(
        &mut self,
        heard: &watch::Sender<Told>,
    ) -> Result<std::convert::Infallible, Lapsed> {
        let channel = timeout(PATIENCE, dial(&self.gateway))
            .await
            .map_err(|_| Lapsed::Silent)?
            .map_err(|error| Lapsed::Unreached(error.to_string()))?;
        let (say, reports) = mpsc::channel(1);
        // The first report goes with the question: a gateway that waits for it must not wait for ever.
        let first = self.report();
        let mut last = told_by(&first);
        let _there_is_room = say.try_send(first);
        let mut client = UplinkClient::new(channel);
        let lease = timeout(PATIENCE, client.lease(ReceiverStream::new(reports)));
        let refused = |status: tonic::Status| Lapsed::Refused(Box::new(status));
        let mut renewals = lease
            .await
            .map_err(|_| Lapsed::Silent)?
            .map_err(refused)?
            .into_inner();
        // Each report is answered by one renewal.
        let mut unheard = 1u32;
        let mut ticks = interval(REPORT);
        // Counted from the last renewal, whatever is reported meanwhile.
        let mut silence = pin!(sleep(SILENCE));
        loop {
            tokio::select! {
                renewal = renewals.message() => match renewal {
                    Ok(Some(_)) => {
                        silence.set(sleep(SILENCE));
                        unheard = unheard.saturating_sub(1);
                        if unheard == 0 {
                            heard.send_replace(last.clone());
                        }
                        continue;
                    }
                    Ok(None) => return Err(Lapsed::Ended),
                    Err(status) => return Err(refused(status)),
                },
                () = &mut silence => return Err(Lapsed::Silent),
                _ = ticks.tick() => {}
                Ok(()) = self.status.changed() => {}
            }
            ticks.reset();
            let report = self.report();
            last = told_by(&report);
            unheard = unheard.saturating_add(1);
            say.send_timeout(report, PATIENCE)
                .await
                .map_err(|_| Lapsed::Silent)?;
        }
    }

    fn report(&mut self) -> v1::Report {
        v1::Report {
            id: self.id.clone(),
            generation: self.generation,
            epoch: self.epoch,
            status: Some(self.status.borrow_and_update().clone()),
        }
    }
}

fn told_by(report: &v1::Report) -> Told {
    report.status.as_ref().map(told).unwrap_or_default()
}

fn told(status: &v1::Status) -> Told {
    (status.phase, status.reason.clone())
}

/// Connects to a gRPC service on a Unix socket.
async fn dial(path: &Path) -> Result<Channel, tonic::transport::Error> {
    let path: Arc<Path> = path.into();
    let connector = service_fn(move |_| {
        let path = Arc::clone(&path);
        async move { Ok::<_, io::Error>(TokioIo::new(noted(UnixStream::connect(path).await?))) }
    });
    Endpoint::from_static("http://gateway")
        .connect_with_connector(connector)
        .await
}

/// No lease is left without a report for longer: less than half of what a gateway grants. The status changes with every beat, so it is only needed when none comes.
const REPORT: Duration = Duration::from_millis(850);

/// How long connecting, or handing over one report, may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A gateway that renews nothing for so long is taken to be gone: it is told something every [`REPORT`].
const SILENCE: Duration = Duration::from_secs(5);

/// Between two tries.
const BACKOFF: Backoff = Backoff::between(Duration::from_millis(50), Duration::from_secs(2));

/// A lease that held for so long was a good one: the next failure is a first one.
const STEADY: Duration = Duration::from_secs(10);

/// How long the last report may take.
const LAST_WORD: Duration = Duration::from_millis(300);

/// How long a report may take while the sandbox goes on: what stopped it waits to be started again.
const PASSING_WORD: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
