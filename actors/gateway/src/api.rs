//! What operators and keepers are served: the services of one gateway, on its socket and, where that was asked for, on TCP.
//!
//! ```text
//! gateway.sock ──▶ Gateway · Uplink · health · reflection      the own user and root
//! TCP          ──▶ Gateway ·          health · reflection      mutual TLS
//! ```

use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use holdfast_actor::{Actor, Address, Fault, Me};
use holdfast_wire::v1::gateway_server::GatewayServer;
use holdfast_wire::v1::uplink_server::UplinkServer;
use holdfast_wire::{v1, words};
use tokio::sync::watch;
use tonic::transport::{Server, ServerTlsConfig};
use tonic_health::pb::health_server::HealthServer;

use crate::accept::{Door, Peer};
use crate::directory::Entry;
use crate::host::Host;
use crate::refused::Refused;
use crate::roster;

mod check;
mod health;
mod present;
mod revise;
mod service;
mod session;
mod uplink;

/// What it is born with.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) host: Host,
    pub(crate) roster: Address<roster::Message>,
    pub(crate) doors: Vec<(Door, Option<ServerTlsConfig>)>,
}

/// It can be told nothing; those who ask come in by the doors.
pub(crate) enum Message {}

pub(crate) struct Api;

impl Actor for Api {
    type Message = Message;
    type Arguments = Arguments;
    type State = watch::Sender<bool>;

    async fn start(me: &Me<Message>, arguments: Arguments) -> Result<Self::State, Fault> {
        let closing = watch::Sender::new(false);
        let shortage = arguments.host.shortage.clone();
        let mut over = closing.subscribe();
        me.spawn(async move {
            tokio::select! {
                () = shortage.look_out() => {}
                _ = over.wait_for(|closing| *closing) => {}
            }
            Ok(())
        });
        for (door, tls) in arguments.doors {
            let service = service::Service {
                host: arguments.host.clone(),
                roster: arguments.roster.clone(),
                closing: closing.subscribe(),
            };
            me.spawn(serve(door, tls, service));
        }
        Ok(closing)
    }

    async fn handle(_: &Me<Message>, message: Message, _: &mut Self::State) -> Result<(), Fault> {
        match message {}
    }

    async fn stop(me: &Me<Message>, closing: Self::State) {
        closing.send_replace(true);
        let done = async {
            while me.tasks() > 0 {
                tokio::time::sleep(LOOK).await;
            }
        };
        // Streams that go on for ever end with the process.
        let _ = tokio::time::timeout(FAREWELL, done).await;
    }
}

async fn serve(
    door: Door,
    tls: Option<ServerTlsConfig>,
    service: service::Service,
) -> Result<(), Fault> {
    let mut closing = service.closing.clone();
    let over = closing.clone();
    let health = health::Service {
        directory: service.host.directory.clone(),
    };
    let described = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(holdfast_wire::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let undescribed = |error| Fault::bug(format!("describe the services: {error}"));
    let reflection = described().build_v1().map_err(undescribed)?;
    // What many clients still ask for.
    let reflection_before = described().build_v1alpha().map_err(undescribed)?;
    // Keepers are on this host, and known by their process: they come by the socket only.
    let uplink = tls.is_none().then(|| {
        UplinkServer::new(uplink::Service::new(service.host.directory.clone()))
            .max_decoding_message_size(holdfast_wire::MOST_BYTES)
    });
    let mut server = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .max_concurrent_streams(MOST_STREAMS)
        .max_frame_size(holdfast_wire::FRAME);
    if let Some(tls) = tls {
        server = server
            .tls_config(tls)
            .map_err(|error| Fault::last(format!("use the TLS files: {error}")))?;
    }
    let gateway = GatewayServer::new(service)
        .max_decoding_message_size(holdfast_wire::MOST_BYTES)
        .max_encoding_message_size(holdfast_wire::MOST_BYTES);
    let finished = server
        .add_service(gateway)
        .add_optional_service(uplink)
        .add_service(HealthServer::new(health))
        .add_service(reflection)
        .add_service(reflection_before)
        .serve_with_incoming_shutdown(door.connections(), async move {
            // An owner who is gone wants the same.
            let _ = closing.wait_for(|closing| *closing).await;
        });
    finished
        .await
        .map_err(|error| Fault::failed(format!("serve: {error}")))?;
    if *over.borrow() {
        return Ok(());
    }
    Err(Fault::failed(
        "accept connections: the socket is none any more",
    ))
}

/// How a sandbox stands now, and again at each change, until it is deleted. Changes that come faster than they are read
/// are told as one.
fn watched(entry: &Entry) -> impl Stream<Item = Arc<v1::Status>> + Send + use<> {
    let mut posted = entry.posted.subscribe();
    posted.mark_changed();
    unfold(Some(posted), async |posted| {
        let mut posted = posted?;
        posted.changed().await.ok()?;
        let now = posted.borrow_and_update().clone();
        Some((now.status, (!now.gone).then_some(posted)))
    })
}

/// Whether whoever asks has the last descriptor: the next one needs it, and a keeper could not be reached beside it.
fn is_last<T>(request: &tonic::Request<T>) -> bool {
    let peer: Option<&Peer> = request.extensions().get();
    peer.is_some_and(|peer| peer.last)
}

/// Whether a keeper is there to be asked.
fn serving(entry: &Entry) -> Result<(), Refused> {
    let status = entry.status();
    let (name, message) = (entry.name.clone(), status.message.clone());
    match status.phase() {
        v1::Phase::Ready | v1::Phase::Degraded => Ok(()),
        v1::Phase::Unspecified | v1::Phase::Pending => Err(Refused::NotReady { name, message }),
        v1::Phase::Deleting => Err(Refused::Deleting(name)),
        phase @ (v1::Phase::Stopped | v1::Phase::Failed) => Err(Refused::NotRunning {
            name,
            phase: words::phase(phase),
            message,
        }),
    }
}

/// How often a connection that says nothing is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Calls at a time on one connection.
const MOST_STREAMS: u32 = 256;

/// How long calls that are under way may take to end when the gateway stops.
const FAREWELL: Duration = Duration::from_secs(2);

const LOOK: Duration = Duration::from_millis(10);
