//! What probes and scrapers are served: `/healthz`, `/readyz`, `/sandboxes/NAME/readyz`, `/metrics` and a page.
//!
//! Everything is told from the same status that the API tells. Nothing can be changed here, and nobody is asked who they
//! are: that is why it listens on loopback only, unless somebody says otherwise.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{Path, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use axum::{Json, Router};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use holdfast_actor::{Actor, Fault, Me};
use holdfast_kernel::descriptors;
use holdfast_wire::{v1, words};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use crate::accept::{Connection, Door};
use crate::host::Host;

mod metrics;
mod page;

/// What it is born with.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) host: Host,
    /// Nobody is served without one.
    pub(crate) door: Option<Door>,
    /// The doors of the API, for what came to them.
    pub(crate) api: Vec<Door>,
}

pub(crate) struct Http;

impl Actor for Http {
    type Message = std::convert::Infallible;
    type Arguments = Arguments;
    type State = watch::Sender<bool>;

    async fn start(me: &Me<Self::Message>, arguments: Arguments) -> Result<Self::State, Fault> {
        let closing = watch::Sender::new(false);
        if let Some(door) = arguments.door.clone() {
            let told = Arc::new(Told {
                host: arguments.host,
                doors: arguments.api,
            });
            me.spawn(serve(door, router(told), closing.subscribe()));
        }
        Ok(closing)
    }

    async fn handle(
        _: &Me<Self::Message>,
        never: Self::Message,
        _: &mut Self::State,
    ) -> Result<(), Fault> {
        match never {}
    }

    async fn stop(_: &Me<Self::Message>, closing: Self::State) {
        closing.send_replace(true);
    }
}

/// What is told.
struct Told {
    host: Host,
    doors: Vec<Door>,
}

impl Told {
    fn statuses(&self) -> Vec<Arc<v1::Status>> {
        let all = self.host.directory.all();
        all.iter().map(crate::directory::Entry::status).collect()
    }
}

fn router(told: Arc<Told>) -> Router {
    Router::new()
        .route(
            "/",
            get(async |State(told): State<Arc<Told>>| Html(page::page(&told.statuses()))),
        )
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/sandboxes/{name}/readyz", get(sandbox_readyz))
        .route("/metrics", get(scraped))
        .fallback(unknown)
        .method_not_allowed_fallback(unchangeable)
        .with_state(told)
}

async fn unknown(uri: Uri) -> Response {
    let message = format!(
        "find {}: there is /healthz, /readyz, /sandboxes/NAME/readyz, /metrics and /",
        uri.path()
    );
    refused(NOT_FOUND, "NoSuchPage", &message)
}

async fn unchangeable(method: Method, uri: Uri) -> Response {
    let message = format!("{method} {}: it can only be read; use GET", uri.path());
    let answer = (StatusCode::METHOD_NOT_ALLOWED, "UNIMPLEMENTED");
    refused(answer, "ReadOnly", &message)
}

/// An error, as HTTP has it and as gRPC calls it.
fn refused((status, code): (StatusCode, &str), reason: &str, message: &str) -> Response {
    let error = json!({ "code": code, "reason": reason, "message": message });
    (status, Json(json!({ "error": error }))).into_response()
}

const NOT_FOUND: (StatusCode, &str) = (StatusCode::NOT_FOUND, "NOT_FOUND");

/// It serves, or nobody would answer. Sandboxes that are not Ready are named; they are not the gateway's own health.
async fn readyz(State(told): State<Arc<Told>>) -> Json<Value> {
    let statuses = told.statuses();
    let failing: Vec<_> = statuses
        .iter()
        .filter(|status| matches!(status.phase(), v1::Phase::Degraded | v1::Phase::Failed))
        .map(|status| told_of(status))
        .collect();
    Json(json!({ "status": "serving", "sandboxes": statuses.len(), "failing": failing }))
}

async fn sandbox_readyz(State(told): State<Arc<Told>>, Path(name): Path<String>) -> Response {
    let Ok(entry) = told.host.directory.find(&name) else {
        let message = format!("find sandbox {name}: there is none of that name");
        return refused(NOT_FOUND, "NoSuchSandbox", &message);
    };
    let status = entry.status();
    let code = if status.phase() == v1::Phase::Ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (code, Json(told_of(&status))).into_response()
}

/// A sandbox, and the first of its conditions that does not hold.
fn told_of(status: &v1::Status) -> Value {
    let failing = status
        .conditions
        .iter()
        .find(|condition| condition.status() != v1::Truth::True);
    let condition = failing.map(|condition| {
        json!({
            "type": words::condition(condition.r#type()),
            "status": words::truth(condition.status()),
            "reason": condition.reason,
            "message": condition.message,
        })
    });
    json!({
        "name": status.name,
        "phase": words::phase(status.phase()),
        "reason": status.reason,
        "message": status.message,
        "condition": condition,
    })
}

async fn scraped(State(told): State<Arc<Told>>) -> Response {
    let mut page = metrics::Page::default();
    for status in told.statuses() {
        page.sandbox(&status);
    }
    if let Ok(seen) = descriptors::observe() {
        let descriptors = v1::Descriptors {
            limit: seen.limit,
            used: seen.used,
            high_water: seen.high_water,
            shed: told
                .doors
                .iter()
                .map(|door| door.counts.starved.load(Ordering::Relaxed))
                .sum(),
            waiting: 0,
        };
        page.descriptors("", "gateway", &descriptors);
    }
    for door in &told.doors {
        let counts = &door.counts;
        for (outcome, count) in [
            ("accepted", &counts.accepted),
            ("refused", &counts.strangers),
        ] {
            let name = (
                "holdfast_gateway_connections_total",
                "Connections to the API.",
            );
            let labels = [("door", &*door.name), ("outcome", outcome)];
            page.counter(name, &labels, count.load(Ordering::Relaxed));
        }
    }
    let kind = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (kind, page.text()).into_response()
}

async fn serve(
    door: Door,
    router: Router,
    mut closing: watch::Receiver<bool>,
) -> Result<(), Fault> {
    let broken = Arc::new(Notify::new());
    let entrance = Entrance {
        connections: door.connections().boxed(),
        broken: Arc::clone(&broken),
    };
    let served = axum::serve(entrance, router).with_graceful_shutdown(async move {
        let _ = closing.wait_for(|closing| *closing).await;
    });
    tokio::select! {
        ended = served => Ok(ended?),
        () = broken.notified() => Err(Fault::failed("accept connections: the socket is none any more")),
    }
}

/// The door, as the server wants it.
struct Entrance {
    connections: BoxStream<'static, std::io::Result<Connection>>,
    broken: Arc<Notify>,
}

impl Listener for Entrance {
    type Io = Connection;
    type Addr = ();

    async fn accept(&mut self) -> (Connection, ()) {
        if let Some(Ok(connection)) = self.connections.next().await {
            return (connection, ());
        }
        self.broken.notify_one();
        std::future::pending().await
    }

    fn local_addr(&self) -> std::io::Result<()> {
        Ok(())
    }
}
