//! The lane and the listeners as actors: each is born with where its socket comes from, and fails when the socket does.

use super::desk::{Cookies, Desk};
use super::lane::{self, Races};
use super::listener::{self, Listener, Standing};
use futures_util::future::BoxFuture;
use holdfast_actor::{Actor, Fault, Me};
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::watch;

/// Where a socket comes from at every start: the parent keeps it, or fetches it again from the boundary.
pub trait Source: Send + Sync + 'static {
    /// A descriptor of the socket.
    fn fetch(&self) -> BoxFuture<'_, io::Result<OwnedFd>>;
}

/// A socket that the parent keeps; every start gets a duplicate.
#[derive(Debug)]
pub struct Kept(pub OwnedFd);

impl Source for Kept {
    fn fetch(&self) -> BoxFuture<'_, io::Result<OwnedFd>> {
        Box::pin(async { self.0.try_clone() })
    }
}

/// Answers the broker.
pub struct LaneActor;

/// What the lane is born with.
#[derive(Clone)]
pub struct LaneArguments {
    /// The keeper's end of the decision lane.
    pub source: Arc<dyn Source>,
    /// Where attempts are kept.
    pub desk: Arc<Desk>,
    /// Hears what the broker counted.
    pub races: Races,
}

impl Actor for LaneActor {
    type Message = Infallible;
    type Arguments = LaneArguments;
    type State = ();

    async fn start(me: &Me<Infallible>, arguments: LaneArguments) -> Result<(), Fault> {
        let LaneArguments {
            source,
            desk,
            races,
        } = arguments;
        let socket = source.fetch().await?;
        me.spawn(async move {
            lane::apart(socket, desk, races).await?;
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
    pub source: Arc<dyn Source>,
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
        let socket = TcpListener::from(source.fetch().await?);
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
