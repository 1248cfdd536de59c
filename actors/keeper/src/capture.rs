//! The listeners of a sandbox: those that its policy names from the start, and those that are opened on demand.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use holdfast_actor::{Actor, Child, Dynamic, Fault, Me, Refusal};
use holdfast_kernel::diag::Diag;
use parking_lot::Mutex;

use crate::arrivals::captured;
use crate::egress::actor::{Kept, ListenerActor, ListenerArguments};
use crate::egress::desk::{Cookies, Desk};
use crate::link::Dialler;
use crate::pressure::Standings;

/// Gives every captured socket a listener.
pub(crate) struct Capture;

/// What it is born with. The sockets outlive it and their listeners.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) dialler: Dialler,
    pub(crate) sockets: Captured,
    pub(crate) listeners: Dynamic,
    pub(crate) desk: Arc<Desk>,
    pub(crate) cookies: Arc<dyn Cookies>,
    pub(crate) standings: Standings,
}

/// The captured sockets by their ports.
pub(crate) type Captured = Arc<Mutex<Vec<(u16, Arc<Kept>)>>>;

impl Actor for Capture {
    type Message = Infallible;
    type Arguments = Arguments;
    type State = ();

    async fn start(me: &Me<Self::Message>, arguments: Arguments) -> Result<(), Fault> {
        let this = me.clone();
        me.spawn(async move {
            let known = arguments.sockets.lock().clone();
            for (port, socket) in known {
                arguments.listen(&this, port, socket).await?;
            }
            while let Some((port, socket)) = captured(arguments.dialler.handoff()).await? {
                let socket = Arc::new(Kept(socket));
                arguments.sockets.lock().push((port, Arc::clone(&socket)));
                arguments.listen(&this, port, socket).await?;
            }
            // Whether the boundary is dead or another's, the link finds out and says.
            arguments.dialler.closed();
            Ok(())
        });
        Ok(())
    }

    async fn handle(_: &Me<Self::Message>, never: Self::Message, (): &mut ()) -> Result<(), Fault> {
        match never {}
    }
}

impl Arguments {
    async fn listen(&self, me: &Me<Infallible>, port: u16, source: Arc<Kept>) -> Result<(), Fault> {
        let standings = self.standings.clone();
        let standing = standings.of(port);
        me.spawn(async move {
            standings.follow(port).await;
            Ok(())
        });
        let arguments = ListenerArguments {
            source,
            desk: Arc::clone(&self.desk),
            cookies: Arc::clone(&self.cookies),
            standing,
        };
        let child = Child::permanent(&port.to_string());
        match self.listeners.add::<ListenerActor>(child, arguments).await {
            // Listeners outlive this actor's restart.
            Ok(_) | Err(Refusal::Duplicate) => Ok(()),
            Err(refusal) => Err(Fault::failed(format!("listen on port {port}: {refusal}"))),
        }
    }
}

/// Knows the sockets of the sandbox's network.
pub(crate) struct Sockets(Mutex<Diag>);

impl Sockets {
    /// Asks over a `sock_diag` socket of that network.
    pub(crate) fn new(diag: OwnedFd) -> Result<Self, Fault> {
        Ok(Self(Mutex::new(Diag::connected(diag)?)))
    }
}

impl Cookies for Sockets {
    fn cookie(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<NonZeroU64>> {
        Ok(self
            .0
            .lock()
            .cookie(local, remote)?
            .and_then(NonZeroU64::new))
    }
}
