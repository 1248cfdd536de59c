//! Watches over one session from its start to its end: its clients' input, and its exit when nobody reads it. Its time is the
//! launcher's to watch, who is there as long as it is.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_actor::{Actor, Backoff, Fault, Me};
use holdfast_wire::v1;
use holdfast_wire::v1::output::Kind;

use super::lasting::{Live, Sessions};

/// The actor of one session. Ends with it; one that fell with the tree is placed anew.
pub(crate) struct Watcher;

impl Actor for Watcher {
    type Message = std::convert::Infallible;
    type Arguments = (Arc<Sessions>, Arc<Live>);
    type State = ();

    async fn start(me: &Me<Self::Message>, arguments: Self::Arguments) -> Result<(), Fault> {
        let (sessions, live) = arguments;
        me.spawn(carry(me.clone(), Arc::clone(&sessions), Arc::clone(&live)));
        let this = me.clone();
        me.spawn(async move {
            wait(&this, &sessions, &live).await;
            this.end();
            Ok(())
        });
        Ok(())
    }

    async fn handle(_: &Me<Self::Message>, never: Self::Message, (): &mut ()) -> Result<(), Fault> {
        match never {}
    }
}

/// Carries what clients bring.
async fn carry(
    me: Me<std::convert::Infallible>,
    sessions: Arc<Sessions>,
    live: Arc<Live>,
) -> Result<(), Fault> {
    let mut brought = live.brought.lock().await;
    while let Some(feed) = brought.recv().await {
        me.spawn(feed.carry(me.clone(), Arc::clone(&sessions), Arc::clone(&live)));
    }
    Ok(())
}

/// Waits until it is over: told by a client's stream, or, while there is none, by the boundary.
async fn wait(me: &Me<std::convert::Infallible>, sessions: &Arc<Sessions>, live: &Arc<Live>) {
    let (mut over, mut clients) = (live.over(), live.clients.subscribe());
    let (mut dice, mut failures) = (me.seed().dice(), 0);
    loop {
        tokio::select! {
            _ = over.wait_for(Option::is_some) => return,
            _ = clients.wait_for(|clients| *clients == 0) => {}
        }
        if live.fleeting
            && let Err(status) = sessions.abandon(live.id).await
        {
            tracing::debug!(%status, session = live.id, "kill what its client has left");
        }
        let exit = tokio::select! {
            _ = over.wait_for(Option::is_some) => return,
            exit = exit_of(live) => exit,
        };
        if let Some((exit, state)) = exit {
            sessions.end(live.id, exit, state.as_ref());
            return;
        }
        // The stream is lost; whether the boundary is too, is for the link to say.
        tokio::time::sleep(BACKOFF.delay(failures, &mut dice)).await;
        failures = failures.saturating_add(1);
    }
}

/// How it ends, without reading it.
async fn exit_of(live: &Live) -> Option<(v1::Exit, Option<v1::SessionState>)> {
    let mut data = live.data.clone();
    if live.awaited.swap(false, Ordering::Relaxed) {
        // The reader for whom its output was held back went away before it came.
        let request = v1::ReadRequest {
            session: live.id,
            offset: 0,
        };
        drop(data.read(request).await);
    }
    let request = v1::ReadRequest {
        session: live.id,
        offset: u64::MAX,
    };
    let mut output = data.read(request).await.ok()?.into_inner();
    loop {
        let told = output.message().await.ok()??;
        if let Some(Kind::Exit(exit)) = told.kind {
            return Some((exit, told.state));
        }
    }
}

/// Between two tries to hear of an exit.
const BACKOFF: Backoff = Backoff::between(Duration::from_millis(20), Duration::from_secs(1));
