//! One client's view of a session: its output from an offset on, and how it ended.
//!
//! The bytes come straight from the session's own connection to the boundary, and are pulled by the client's: one that reads
//! slowly holds up its own session and nothing else.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_wire::v1;
use holdfast_wire::v1::output::Kind as Out;
use holdfast_wire::v1::session_output::Kind;
use tokio::sync::oneshot;
use tonic::{Status, Streaming};

use super::book::Known;
use super::lasting::{Boundary, Live, Sessions};
use super::refusal;
use super::withdrawal::ANSWER;
use crate::link::Client;

/// A place at a session that runs. As long as somebody has one, its output waits for its readers.
pub(crate) struct Seat {
    sessions: Arc<Sessions>,
    live: Arc<Live>,
    /// A client has it, and not what writes the main process's output down.
    client: bool,
}

/// A client that reads.
pub(crate) struct Attending {
    sessions: Arc<Sessions>,
    session: u64,
    /// Of a session that runs.
    seat: Option<Seat>,
    /// Of one that is over: given back at the end.
    lent: Option<Client>,
    output: Streaming<v1::Output>,
    /// Drops when what carries the input is gone.
    carried: Option<oneshot::Receiver<()>>,
    begun: Option<v1::Begun>,
    /// What has been read, by stream; only worth something from the first byte on.
    read: [u64; 2],
    over: bool,
}

impl Seat {
    pub(super) fn take(sessions: &Arc<Sessions>, live: Arc<Live>, client: bool) -> Self {
        sessions.attend(&live, client);
        Self {
            sessions: Arc::clone(sessions),
            live,
            client,
        }
    }

    pub(crate) fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Reads from `offset` on.
    pub(crate) async fn read(
        self,
        offset: u64,
        carried: Option<oneshot::Receiver<()>>,
    ) -> Result<Attending, Status> {
        let output = open(self.live.data.clone(), self.live.id, offset).await?;
        self.live.awaited.store(false, Ordering::Relaxed);
        Ok(Attending {
            sessions: Arc::clone(&self.sessions),
            session: self.live.id,
            begun: Some(v1::Begun {
                session: self.live.id,
                started_ms: self.live.started_ms,
            }),
            seat: Some(self),
            lent: None,
            output,
            carried,
            read: [0; 2],
            over: false,
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.sessions.leave(&self.live, self.client);
    }
}

impl Sessions {
    /// A seat at `id`, if it runs.
    pub(crate) fn seat(self: &Arc<Self>, id: u64) -> Option<Seat> {
        self.live(id).map(|live| Seat::take(self, live, true))
    }

    /// A seat at `id`, if it runs, of one who is no client.
    pub(crate) fn own_seat(self: &Arc<Self>, id: u64) -> Option<Seat> {
        self.live(id).map(|live| Seat::take(self, live, false))
    }

    /// Reads what is kept of a session that is over.
    pub(crate) async fn revisit(
        self: &Arc<Self>,
        id: u64,
        offset: u64,
    ) -> Result<Attending, Status> {
        let Some(Known::Past(ending)) = self.known(id) else {
            return Err(refusal::no_such(id));
        };
        let data = self.connect("attach to a session").await?;
        // What is over changes no more: there is nothing to wait for.
        let opened = tokio::time::timeout(ANSWER, open(data.clone(), id, offset)).await;
        let unread = |_| refusal::silent(&format!("attach to session {id}"), "it has ended");
        let output = opened.map_err(unread)??;
        Ok(Attending {
            sessions: Arc::clone(self),
            session: id,
            seat: None,
            lent: Some(data),
            output,
            carried: None,
            begun: Some(v1::Begun {
                session: id,
                started_ms: ending.started_ms,
            }),
            read: [0; 2],
            over: false,
        })
    }
}

impl Attending {
    /// What comes next; `None` after the end.
    pub(crate) async fn next(&mut self) -> Option<Result<Kind, Status>> {
        if let Some(begun) = self.begun.take() {
            return Some(Ok(Kind::Begun(begun)));
        }
        if self.over {
            return None;
        }
        let told = tokio::select! {
            biased;
            told = self.output.message() => told,
            () = dropped(&mut self.carried) => Ok(None),
        };
        let answer = match told {
            Ok(Some(v1::Output {
                kind: Some(kind),
                state,
            })) => match kind {
                Out::Chunk(chunk) => {
                    self.read[usize::from(chunk.stream() == v1::Stream::Stderr)] +=
                        chunk.data.len() as u64;
                    Ok(Kind::Chunk(chunk))
                }
                Out::Lost(bytes) => Ok(Kind::Lost(bytes)),
                Out::Exit(exit) => self.end(exit, state),
            },
            Ok(Some(v1::Output { kind: None, .. }) | None) | Err(_) => self.interrupted().await,
        };
        self.over |= matches!(answer, Ok(Kind::Ended(_)) | Err(_));
        if self.over
            && let Some(data) = self.lent.take()
        {
            self.sessions.pool.put(data);
        }
        Some(answer)
    }

    fn end(&self, exit: v1::Exit, state: Option<v1::SessionState>) -> Result<Kind, Status> {
        let [stdout_bytes, stderr_bytes] = self.read;
        let seen = v1::SessionState {
            stdout_bytes,
            stderr_bytes,
            ..v1::SessionState::default()
        };
        let state = state.unwrap_or(seen);
        let ending = self.sessions.end(self.session, exit, Some(&state));
        ending
            .map(Kind::Ended)
            .ok_or_else(|| refusal::no_such(self.session))
    }

    /// The stream stopped without an exit: either the boundary is lost or another keeper's, which is known soon, or only the
    /// stream is, and the session goes on.
    async fn interrupted(&self) -> Result<Kind, Status> {
        let Some(seat) = &self.seat else {
            return match self.sessions.known(self.session) {
                Some(Known::Past(ending)) => Ok(Kind::Ended(ending)),
                Some(Known::Running) | None => Err(refusal::cut(self.session)),
            };
        };
        let mut over = seat.live.over();
        let heard = async {
            tokio::select! {
                biased;
                Ok(ending) = over.wait_for(Option::is_some) => ending.clone(),
                Boundary::Others = self.sessions.parted() => None,
                else => None,
            }
        };
        let ending = tokio::time::timeout(CERTAINTY, heard).await;
        match ending {
            Ok(Some(ending)) => Ok(Kind::Ended(ending)),
            Ok(None) => Err(refusal::taken_over()),
            Err(_) => Err(refusal::cut(self.session)),
        }
    }
}

async fn open(
    mut data: Client,
    session: u64,
    offset: u64,
) -> Result<Streaming<v1::Output>, Status> {
    let request = v1::ReadRequest { session, offset };
    let reply = data.read(request).await;
    reply
        .map(tonic::Response::into_inner)
        .map_err(|status| refusal::link(&status))
}

/// Ready when the other end was dropped without a word. One that has said that it is done is done.
async fn dropped(carried: &mut Option<oneshot::Receiver<()>>) {
    if let Some(end) = carried {
        let told = end.await;
        *carried = None;
        if told.is_err() {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// How long it may take until a boundary that is lost, or another keeper's, is known to be that.
pub(super) const CERTAINTY: Duration = Duration::from_millis(1500);
