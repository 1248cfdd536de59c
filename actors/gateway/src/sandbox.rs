//! One sandbox, as the gateway sees it.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use holdfast_actor::{Actor, Fault, Me, Reply};
use tokio::sync::watch;

use crate::directory::Posted;
use crate::host::Host;
use crate::refused::Refused;
use crate::registry::row::Row;
use crate::standing;

/// What a sandbox can be told.
pub(crate) enum Message {
    /// Leave nothing of it. The answer comes when that is so.
    Delete {
        /// Even if it runs.
        force: bool,
        /// Where the answer goes.
        reply: Reply<Result<(), Refused>>,
    },
}

/// What it is born with.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) host: Host,
    pub(crate) id: String,
    pub(crate) posted: Arc<watch::Sender<Posted>>,
}

pub(crate) struct State {
    arguments: Arguments,
    row: Row,
}

pub(crate) struct Sandbox;

impl Actor for Sandbox {
    type Message = Message;
    type Arguments = Arguments;
    type State = State;

    async fn start(_: &Me<Message>, arguments: Arguments) -> Result<State, Fault> {
        let row = arguments.host.ledger.row(&arguments.id).await?;
        let row = row.ok_or_else(|| Fault::last("find the sandbox in the registry"))?;
        let status = Arc::new(standing::status(&row, None));
        arguments.posted.send_replace(Posted {
            status,
            gone: false,
        });
        Ok(State { arguments, row })
    }

    async fn handle(_: &Me<Message>, message: Message, state: &mut State) -> Result<(), Fault> {
        match message {
            Message::Delete { reply, .. } => {
                let host = &state.arguments.host;
                let _ = fs::remove_dir_all(host.places.sandbox_state(&state.row.id));
                let _ = fs::remove_dir_all(host.places.sandbox_runtime(&state.row.id));
                host.ledger.remove(&state.row.id).await?;
                host.directory.remove(&state.row.id);
                reply.send(Ok(()));
            }
        }
        Ok(())
    }
}

/// How soon one that is stuck is found. A disk may be slow.
pub(crate) const PING: Duration = Duration::from_mins(1);
