//! The lane and the listeners as actors: each is born with where its socket comes from, and fails when the socket does.

use super::desk::{Cookies, Desk};
use super::lane::{self, Asides};
use super::listener::{self, Listener, Standing};
use holdfast_actor::{Actor, Fault, Me};
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tokio::sync::watch;

/// Where a socket comes from at every start.
pub trait Source<S>: Send + Sync + 'static {
    /// The socket. A life is over before the next one asks, so it may be the same.
    fn fetch(&self) -> io::Result<Arc<S>>;
}

/// A socket that the parent keeps: every life has the same descriptor.
#[derive(Debug)]
pub struct Kept<S>(pub Arc<S>);

impl<S: Send + Sync + 'static> Source<S> for Kept<S> {
    fn fetch(&self) -> io::Result<Arc<S>> {
        Ok(Arc::clone(&self.0))
    }
}

/// Answers the broker.
pub struct LaneActor;

/// What the lane is born with.
#[derive(Clone)]
pub struct LaneArguments {
    /// The keeper's end of the decision lane, a connected `SOCK_SEQPACKET` socket.
    pub source: Arc<dyn Source<UnixStream>>,
    /// Where attempts are kept.
    pub desk: Arc<Desk>,
    /// Who knows the sandbox's sockets.
    pub cookies: Arc<dyn Cookies>,
    /// Hears what the broker tells besides.
    pub asides: Asides,
}

impl Actor for LaneActor {
    type Message = Infallible;
    type Arguments = LaneArguments;
    type State = ();

    async fn start(me: &Me<Infallible>, arguments: LaneArguments) -> Result<(), Fault> {
        let LaneArguments {
            source,
            desk,
            cookies,
            asides,
        } = arguments;
        let socket = source.fetch()?;
        me.spawn(async move {
            lane::apart(socket, desk, cookies, asides).await?;
            Err(Fault::failed("broker closed the decision lane"))
        });
        Ok(())
    }

    async fn handle(_: &Me<Infallible>, message: Infallible, (): &mut ()) -> Result<(), Fault> {
        match message {}
    }
}

/// Accepts on one captured socket.
pub struct ListenerActor;

/// What a listener is born with.
#[derive(Clone)]
pub struct ListenerArguments {
    /// The captured socket.
    pub source: Arc<dyn Source<TcpListener>>,
    /// Where its connections go.
    pub desk: Arc<Desk>,
    /// Who knows the sandbox's sockets.
    pub cookies: Arc<dyn Cookies>,
    /// Who wants to know whether it accepts.
    pub standing: watch::Sender<Standing>,
}

impl Actor for ListenerActor {
    type Message = Infallible;
    type Arguments = ListenerArguments;
    type State = ();

    async fn start(me: &Me<Infallible>, arguments: ListenerArguments) -> Result<(), Fault> {
        let ListenerArguments {
            source,
            desk,
            cookies,
            standing,
        } = arguments;
        let socket = source.fetch()?;
        let (clock, dice) = (me.clock().clone(), me.seed().dice());
        let arguments = listener::Arguments {
            socket,
            desk,
            cookies,
            clock,
            dice,
            standing,
        };
        let listener = Listener::new(arguments)?;
        me.spawn(async move { Err(listener.serve().await.into()) });
        Ok(())
    }

    async fn handle(_: &Me<Infallible>, message: Infallible, (): &mut ()) -> Result<(), Fault> {
        match message {}
    }
}

#[cfg(test)]
mod tests;
