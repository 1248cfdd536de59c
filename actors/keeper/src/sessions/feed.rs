//! What one client sends to a session: bytes, the end of them, sizes and signals.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_actor::{Fault, Me};
use holdfast_wire::v1;
use holdfast_wire::v1::session_input::Kind;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::lasting::{Live, Sessions};
use super::watcher::Watcher;

/// A client's input and what its end means.
pub(crate) struct Feed {
    pub(crate) input: Option<Streaming<v1::SessionInput>>,
    pub(crate) stdin: Stdin,
    /// Dropped without a word when this is no longer carried; told when there is nothing left to carry.
    pub(crate) carried: oneshot::Sender<()>,
}

/// What becomes of the session's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stdin {
    /// There is none: it ends at once.
    Ended,
    /// It ends with the client, whose session does too.
    EndsWithStream,
    /// It ends when a client says so, and only then: one that goes away has not said it.
    EndsByWord,
}

/// Where the bytes of all clients go.
#[derive(Debug)]
pub(super) enum Inlet {
    /// Nothing has been written yet.
    Unopened,
    Open(mpsc::Sender<Bytes>),
    Ended,
}

impl Feed {
    /// Carries what comes until there is no more, or the session is over.
    pub(super) async fn carry(
        self,
        me: Me<<Watcher as holdfast_actor::Actor>::Message>,
        sessions: Arc<Sessions>,
        live: Arc<Live>,
    ) -> Result<(), Fault> {
        let mut over = live.over();
        let carrier = Carrier { me, sessions, live };
        tokio::select! {
            _ = over.wait_for(Option::is_some) => {}
            () = carrier.carry(self.input, self.stdin) => {}
        }
        let _nobody_reads_any_more = self.carried.send(());
        Ok(())
    }
}

struct Carrier {
    me: Me<<Watcher as holdfast_actor::Actor>::Message>,
    sessions: Arc<Sessions>,
    live: Arc<Live>,
}

impl Carrier {
    async fn carry(self, input: Option<Streaming<v1::SessionInput>>, stdin: Stdin) {
        if stdin == Stdin::Ended {
            self.end();
        }
        let Some(mut input) = input else {
            return;
        };
        while let Ok(Some(told)) = input.message().await {
            self.obey(told.kind).await;
        }
        // The client is gone, in whatever order.
        if stdin == Stdin::EndsWithStream {
            self.end();
        }
    }

    async fn obey(&self, kind: Option<Kind>) {
        match kind {
            Some(Kind::Data(data)) => self.write(data).await,
            Some(Kind::End(_)) => self.end(),
            Some(Kind::Resize(size)) => {
                let request = v1::ResizeRequest {
                    session: self.live.id,
                    size: Some(size),
                };
                let mut control = self.sessions.control.clone();
                if let Err(status) = control.resize(request).await {
                    tracing::debug!(%status, session = self.live.id, "resize a terminal");
                }
            }
            Some(Kind::Signal(signal)) => {
                if let Err(status) = self.sessions.signal(self.live.id, signal).await {
                    tracing::debug!(%status, session = self.live.id, "signal a session");
                }
            }
            // A second beginning means nothing.
            Some(Kind::Start(_) | Kind::Attach(_) | Kind::Copy(_) | Kind::Dial(_)) | None => {}
        }
    }

    async fn write(&self, data: Bytes) {
        let mut data = data;
        // Twice: what carried the bytes may have fallen with the tree.
        for _ in 0..2 {
            let Some(bytes) = self.open() else {
                return;
            };
            match bytes.send(data).await {
                Ok(()) => return,
                Err(unsent) => data = unsent.0,
            }
            *self.live.inlet.lock() = Inlet::Unopened;
        }
        // A session that reads no more is no failure: what is still coming for it is dropped.
    }

    /// The way to the session's input; `None` when that has ended.
    fn open(&self) -> Option<mpsc::Sender<Bytes>> {
        let mut inlet = self.live.inlet.lock();
        match &*inlet {
            Inlet::Open(bytes) => return Some(bytes.clone()),
            Inlet::Ended => return None,
            Inlet::Unopened => {}
        }
        let (bytes, pieces) = mpsc::channel(DEPTH);
        let first = v1::Input {
            session: self.live.id,
            data: Bytes::new(),
        };
        let pieces = ReceiverStream::new(pieces).map(|data| v1::Input { session: 0, data });
        let mut data = self.live.data.clone();
        self.me.spawn(async move {
            // A session that has ended takes no input, and a link that is lost is told of elsewhere.
            let _ = data.write(tokio_stream::once(first).chain(pieces)).await;
            Ok(())
        });
        *inlet = Inlet::Open(bytes.clone());
        Some(bytes)
    }

    /// Ends the session's input behind what has been written.
    fn end(&self) {
        // What is never opened does not end: the boundary has to hear of it.
        let opened = self.open();
        *self.live.inlet.lock() = Inlet::Ended;
        drop(opened);
    }
}

/// How many pieces of input wait for the session. Signals and sizes come behind them.
const DEPTH: usize = 16;
