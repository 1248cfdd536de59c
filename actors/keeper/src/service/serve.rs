//! The actor that serves the keeper's socket.

use std::sync::Arc;
use std::time::Duration;

use holdfast_actor::{Actor, Fault, Me};
use holdfast_clock::every;
use holdfast_wire::v1::keeper_server::KeeperServer;
use holdfast_wire::{FRAME, MOST_BYTES};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

use super::Service;
use super::door::Door;

/// Serves the gateway.
pub(crate) struct Server;

/// What it is born with. The socket outlives it.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) door: Arc<Door>,
    pub(crate) service: Service,
    pub(crate) closing: Arc<watch::Sender<bool>>,
}

/// How it is told to leave, and when it has left.
pub(crate) struct State {
    closing: Arc<watch::Sender<bool>>,
    done: oneshot::Receiver<()>,
}

impl Actor for Server {
    type Message = std::convert::Infallible;
    type Arguments = Arguments;
    type State = State;

    async fn start(me: &Me<Self::Message>, arguments: Arguments) -> Result<State, Fault> {
        let Arguments {
            door,
            service,
            closing,
        } = arguments;
        // An earlier life was asked to leave; this one is not.
        closing.send_replace(false);
        me.spawn(tally(service.clone()));
        let (let_in, guests) = mpsc::channel(MOST_GUESTS);
        let seed = me.seed().derive("door");
        me.spawn(async move { Err(door.attend(let_in, seed).await.into()) });
        let (finish, done) = oneshot::channel();
        let mut leave = closing.subscribe();
        me.spawn(async move {
            tonic::transport::Server::builder()
                .max_frame_size(FRAME)
                .add_service(
                    KeeperServer::new(service)
                        .max_decoding_message_size(MOST_BYTES)
                        .max_encoding_message_size(MOST_BYTES),
                )
                .serve_with_incoming_shutdown(ReceiverStream::new(guests), async move {
                    // Nobody who could say it any more has said it too.
                    let _ = leave.wait_for(|closing| *closing).await;
                })
                .await?;
            let _ = finish.send(());
            Ok(())
        });
        Ok(State { closing, done })
    }

    async fn handle(
        _: &Me<Self::Message>,
        never: Self::Message,
        _: &mut State,
    ) -> Result<(), Fault> {
        match never {}
    }

    /// What is under way is answered, in a moment or not at all.
    async fn stop(_: &Me<Self::Message>, state: State) {
        state.closing.send_replace(true);
        let _in_time = timeout(LAST_ANSWERS, state.done).await;
    }
}

/// Counts that change with every exec are told at a pace of their own.
async fn tally(service: Service) -> Result<(), Fault> {
    let mut ticks = every(TALLY);
    loop {
        ticks.tick().await;
        service.count_sessions();
    }
}

impl Service {
    /// Shows how many sessions there are now.
    pub(super) fn count_sessions(&self) {
        let sessions = self.sessions.counts();
        self.board.revise(|status| status.sessions = Some(sessions));
    }
}

/// How many clients wait to be served.
const MOST_GUESTS: usize = 16;

/// How long answers that are under way may take when the service ends.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// Between two looks at the counts: when descriptors are counted, which wakes the process anyway.
const TALLY: Duration = Duration::from_millis(350);
