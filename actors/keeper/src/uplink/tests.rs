use std::pin::Pin;

use holdfast_actor::{Child, Root, Seed, Strategy, Supervisor, Tree};
use holdfast_wire::v1::uplink_server::{self, UplinkServer};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::*;

/// A gateway that hands on what it is told.
struct Gateway(mpsc::Sender<v1::Report>);

#[tonic::async_trait]
impl uplink_server::Uplink for Gateway {
    type LeaseStream = Pin<Box<dyn Stream<Item = Result<v1::Renewal, Status>> + Send>>;

    async fn lease(
        &self,
        request: Request<Streaming<v1::Report>>,
    ) -> Result<Response<Self::LeaseStream>, Status> {
        let tell = self.0.clone();
        let renewals = request.into_inner().then(move |report| {
            let tell = tell.clone();
            async move {
                let told = tell.send(report?).await;
                told.map_err(|_| Status::unavailable("the test is over"))?;
                Ok(v1::Renewal { expires_ms: 1 })
            }
        });
        Ok(Response::new(Box::pin(renewals)))
    }
}

/// A gateway that takes every report and renews nothing; it tells of each lease that is asked for.
struct Mute(mpsc::Sender<()>);

#[tonic::async_trait]
impl uplink_server::Uplink for Mute {
    type LeaseStream = Pin<Box<dyn Stream<Item = Result<v1::Renewal, Status>> + Send>>;

    async fn lease(
        &self,
        request: Request<Streaming<v1::Report>>,
    ) -> Result<Response<Self::LeaseStream>, Status> {
        let _the_test_is_over = self.0.send(()).await;
        let nothing = request.into_inner().filter_map(|_| None);
        Ok(Response::new(Box::pin(nothing)))
    }
}

fn serve(path: &Path) -> (JoinHandle<()>, mpsc::Receiver<v1::Report>) {
    let (tell, told) = mpsc::channel(100);
    (serve_as(Gateway(tell), path), told)
}

fn serve_as(gateway: impl uplink_server::Uplink, path: &Path) -> JoinHandle<()> {
    let _there_was_none = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).expect("bound");
    let incoming = futures_util::stream::unfold(listener, async |listener| {
        let (stream, _) = listener.accept().await.ok()?;
        Some((Ok::<_, io::Error>(stream), listener))
    });
    let server = tonic::transport::Server::builder()
        .add_service(UplinkServer::new(gateway))
        .serve_with_incoming(incoming);
    tokio::runtime::Handle::current().spawn(async move { server.await.expect("served") })
}

async fn start(path: &Path, status: &watch::Sender<v1::Status>) -> Root {
    let spec = Supervisor::new("outside", Strategy::OneForOne).child(Child::permanent("uplink"));
    let mut tree = Tree::new(spec);
    tree.bind::<Uplink>(
        "outside/uplink",
        Arguments {
            gateway: path.to_owned(),
            id: "a".to_owned(),
            generation: 2,
            epoch: 3,
            status: status.subscribe(),
        },
    );
    let root = tree
        .start(Seed::new(1), |_: &holdfast_actor::Change| {})
        .await
        .expect("fit");
    root.up().await.expect("up");
    root
}

async fn next(told: &mut mpsc::Receiver<v1::Report>) -> v1::Report {
    let told = timeout(Duration::from_secs(5), told.recv()).await;
    told.expect("in time").expect("a report")
}

#[tokio::test]
async fn each_change_is_reported_and_silence_is_filled() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("gateway.sock");
    let (_server, mut told) = serve(&path);
    let status = watch::Sender::new(v1::Status::default());
    let _root = start(&path, &status).await;

    let first = next(&mut told).await;
    assert_eq!((first.generation, first.epoch), (2, 3));
    status.send_modify(|status| status.set_phase(v1::Phase::Ready));
    let mut phases = Vec::new();
    while phases.last() != Some(&v1::Phase::Ready) {
        phases.push(next(&mut told).await.status.expect("one").phase());
    }
    let again = next(&mut told).await;

    assert_eq!(again.status.expect("one").phase(), v1::Phase::Ready);
}

/// SV-12: a gateway that was away hears of the sandbox again by itself.
#[tokio::test]
async fn a_gateway_that_comes_back_is_told_again() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("gateway.sock");
    let status = watch::Sender::new(v1::Status::default());
    let _root = start(&path, &status).await;
    let (server, mut told) = serve(&path);
    next(&mut told).await;

    server.abort();
    let _ = server.await;
    drop(told);
    let (_server, mut told) = serve(&path);

    next(&mut told).await;
}

/// A gateway that takes reports and says nothing holds no lease, however often it is told something.
#[tokio::test]
async fn a_gateway_that_renews_nothing_is_taken_to_be_gone() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("gateway.sock");
    let (tell, mut leases) = mpsc::channel(10);
    let _server = serve_as(Mute(tell), &path);
    let status = watch::Sender::new(v1::Status::default());
    let _root = start(&path, &status).await;
    leases.recv().await.expect("a lease");

    let again = timeout(SILENCE * 2, leases.recv()).await;

    assert!(again.is_ok(), "it holds the lease still");
}

/// SV-01: others may take half a second to stop; the gateway must not show Ready meanwhile.
#[tokio::test]
async fn what_fell_is_told_before_what_tells_it_is_stopped() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("gateway.sock");
    let (_server, mut told) = serve(&path);
    let mut ready = v1::Status::default();
    ready.set_phase(v1::Phase::Ready);
    let status = watch::Sender::new(ready);
    let root = start(&path, &status).await;
    next(&mut told).await;

    status.send_modify(|status| {
        status.set_phase(v1::Phase::Degraded);
        "ActorRestarting".clone_into(&mut status.reason);
    });
    root.shutdown().await;

    let mut last = v1::Phase::Unspecified;
    while let Ok(report) = told.try_recv() {
        last = report.status.expect("one").phase();
    }
    assert_eq!(last, v1::Phase::Degraded);
}

#[tokio::test]
async fn the_last_word_is_heard_before_it_leaves() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("gateway.sock");
    let (_server, mut told) = serve(&path);
    let status = watch::Sender::new(v1::Status::default());
    let root = start(&path, &status).await;
    next(&mut told).await;

    status.send_modify(|status| status.set_phase(v1::Phase::Stopped));
    root.shutdown().await;

    let mut last = v1::Phase::Unspecified;
    while let Ok(report) = told.try_recv() {
        last = report.status.expect("one").phase();
    }
    assert_eq!(last, v1::Phase::Stopped);
}
