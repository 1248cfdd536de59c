//! The actor that keeps the sandbox's port 53 served.
//!
//! ```text
//!            Adopt                       Adopt: the old task ends
//! Waiting ──────────▶ Serving ◀──────────────────────────────────┐
//!    ▲                   │ └──────────────────────────────────────┘
//!    └─ no sockets yet   └─ a socket is useless ──▶ fails, is started again with what it holds
//! ```
//!
//! The sockets outlive it: they stand in its arguments, and the boundary has duplicates. While it is
//! away, queries wait in them.

use std::sync::Arc;

use holdfast_actor::{Actor, Fault, Me, Task};
use parking_lot::Mutex;

use super::Resolver;
use super::server::{Limits, Server, Sockets};

/// What it can be told.
#[derive(Debug)]
pub enum Message {
    /// Serve these sockets from now on, and after every restart.
    Adopt(Sockets),
}

/// What it is born with.
#[derive(Clone)]
pub struct Arguments {
    /// What answers.
    pub resolver: Arc<Resolver>,
    /// Where it is asked, as soon as that is known.
    pub sockets: Arc<Mutex<Option<Sockets>>>,
    /// How much it may take.
    pub limits: Limits,
}

/// What it remembers.
pub struct State {
    arguments: Arguments,
    serving: Option<Task>,
}

/// Serves names.
pub struct Nameserver;

impl Actor for Nameserver {
    type Message = Message;
    type Arguments = Arguments;
    type State = State;

    async fn start(me: &Me<Message>, arguments: Arguments) -> Result<State, Fault> {
        let held = arguments.sockets.lock().clone();
        let serving = held.map(|sockets| serve(me, &arguments, sockets));
        Ok(State { arguments, serving })
    }

    async fn handle(me: &Me<Message>, message: Message, state: &mut State) -> Result<(), Fault> {
        let Message::Adopt(sockets) = message;
        *state.arguments.sockets.lock() = Some(sockets.clone());
        if let Some(old) = state.serving.take() {
            old.cancel();
        }
        state.serving = Some(serve(me, &state.arguments, sockets));
        Ok(())
    }
}

fn serve(me: &Me<Message>, arguments: &Arguments, sockets: Sockets) -> Task {
    let server = Server {
        resolver: Arc::clone(&arguments.resolver),
        sockets,
        limits: arguments.limits,
        clock: me.clock().clone(),
    };
    me.spawn(async move { Err(server.run().await.into()) })
}

#[cfg(test)]
mod tests;
