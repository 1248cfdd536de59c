//! Takes keepers in and serves the one that holds the boundary.
//!
//! ```text
//!  knocked, or forked with ── admitted ──> Guest ── Standing ──> it dials, attaches ──> Holder: is handed everything
//!      └── Fallen: from inside, or not the same user               └── too late, refused, gone: forgotten
//! ```
//!
//! Each keeper has a socket of its own, over which it dials; a connection knows whose it is. So fencing one is cutting its
//! socket and its connections, and no call has to say which keeper it comes from.

use std::sync::Arc;
use std::time::Duration;

use holdfast_actor::{Actor, Fault, Me};
use holdfast_kernel::handoff::door::Door;
use holdfast_kernel::handoff::{Socket, peer};
use holdfast_kernel::ready::Ready;
use holdfast_policy::OnLinkLoss;
use holdfast_wire::v1;
use holdfast_wire::v1::boundary_server::BoundaryServer;
use holdfast_wire::v1::handoff::Kind;
use holdfast_wire::{FRAME, MOST_BYTES};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::broker::Ports;
use crate::guest::{Guest, Wish, admit, wish};
use crate::hold::Hold;
use crate::holder::Origin;
use crate::inside::hand;
use crate::line::Line;
use crate::service::Service;
use crate::{Lasts, grace, log, loss};

/// Serves keepers.
pub(crate) struct Link;

/// What it is born with. Who is there outlives it.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) hold: Arc<Hold>,
    pub(crate) ports: Arc<Ports>,
    pub(crate) on_link_loss: OnLinkLoss,
    /// `None`: the boundary ends with its first keeper.
    pub(crate) lasts: Option<Arc<Lasts>>,
}

impl Actor for Link {
    type Message = std::convert::Infallible;
    type Arguments = Arguments;
    type State = ();

    async fn start(me: &Me<Self::Message>, arguments: Arguments) -> Result<(), Fault> {
        let Arguments {
            hold,
            ports,
            on_link_loss,
            lasts,
        } = arguments;
        let host = Host {
            hold: Arc::clone(&hold),
            ports,
            lasting: lasts.is_some(),
        };
        if on_link_loss == OnLinkLoss::Freeze {
            let sessions = Arc::clone(&hold.sessions);
            me.spawn(loss::freeze(
                hold.heard.clone(),
                sessions,
                me.clock().clone(),
            ));
        }
        for guest in hold.guests() {
            me.spawn(host.clone().serve(guest));
        }
        if let Some(lasts) = lasts {
            let clock = me.clock().clone();
            me.spawn(grace::watch(hold.heard.clone(), lasts.grace, clock));
            me.spawn(log::bound(Arc::clone(&lasts)));
            let this = me.clone();
            let door = Ready::reading(Arc::clone(&lasts.door))?;
            me.spawn(async move {
                loop {
                    if let Some(guest) = take(&hold, &door).await? {
                        this.spawn(host.clone().serve(guest));
                    }
                }
            });
        }
        Ok(())
    }

    async fn handle(_: &Me<Self::Message>, never: Self::Message, (): &mut ()) -> Result<(), Fault> {
        match never {}
    }
}

/// Takes one who knocks; `None` if it may not come in.
async fn take(hold: &Hold, door: &Ready<Arc<Door>>) -> Result<Option<Arc<Guest>>, Fault> {
    let socket = door.read(|door| door.accept()).await?;
    let own = nix::unistd::geteuid().as_raw();
    let refused = match admit(peer(&socket)?, own) {
        Ok(()) => {
            let socket = Arc::new(socket);
            match hold.welcome(Origin::Named, Arc::clone(&socket)) {
                Some(guest) => {
                    guest.post((Kind::Standing(hold.standing.clone()), Vec::new()));
                    return Ok(Some(guest));
                }
                None => refuse(&socket, "too many keepers are there; try again"),
            }
        }
        Err(why) => refuse(&socket, why),
    };
    tracing::warn!("a keeper is turned away: {refused}");
    Ok(None)
}

/// Says why to one who is turned away. A fresh socket has room for it.
fn refuse<'a>(socket: &Socket, why: &'a str) -> &'a str {
    let fallen = v1::Fallen {
        step: "take the boundary over".to_owned(),
        message: why.to_owned(),
    };
    // One that is gone already does not want to know.
    let _ = hand(socket, Kind::Fallen(fallen), &[]);
    why
}

/// What every keeper is served with.
#[derive(Clone)]
struct Host {
    hold: Arc<Hold>,
    ports: Arc<Ports>,
    lasting: bool,
}

impl Host {
    /// Serves one keeper until it is gone or cut. A boundary that is not lasting ends with its keeper, and one that nobody has attached to
    /// with the keeper that forked it.
    async fn serve(self, guest: Arc<Guest>) -> Result<(), Fault> {
        let Self {
            hold,
            ports,
            lasting,
        } = self;
        let socket = guest.ready()?;
        let (dial, connections) = mpsc::channel(MOST_DIALS);
        let service = Service {
            hold: Arc::clone(&hold),
            guest: Arc::clone(&guest),
            ports,
        };
        let server = tonic::transport::Server::builder()
            .max_frame_size(FRAME)
            .add_service(
                BoundaryServer::new(service)
                    .max_decoding_message_size(MOST_BYTES)
                    .max_encoding_message_size(MOST_BYTES),
            )
            .serve_with_incoming(ReceiverStream::new(connections));
        let ended = tokio::select! {
            () = guest.cut.cancelled() => "fenced".to_owned(),
            () = tarry(&guest) => "it did not attach".to_owned(),
            received = receive(&hold, &guest, &socket, dial) => told(received),
            delivered = guest.deliver(&socket) => told(delivered),
            end = server => told(end.map_err(Fault::from)),
        };
        hold.leave(&guest);
        tracing::info!(
            keeper = guest.seat.number,
            "a keeper's connection ends: {ended}"
        );
        match guest.seat.origin {
            Origin::Named => Ok(()),
            // Without the token that it would have brought, nobody can follow it.
            Origin::Forked if hold.is_new() => {
                Err(Fault::last("the first keeper is gone and never attached"))
            }
            Origin::Forked if lasting => Ok(()),
            Origin::Forked => Err(Fault::last("the keeper is gone")),
        }
    }
}

/// Takes the connections that a keeper dials, and hands it once more what it has missed, until it is gone.
async fn receive(
    hold: &Hold,
    guest: &Guest,
    socket: &Ready<Arc<Socket>>,
    dial: mpsc::Sender<Result<Line, std::io::Error>>,
) -> Result<(), Fault> {
    while let Some(wish) = wish(socket).await? {
        match wish {
            Wish::Serve(stream) => {
                // A server that takes none any more has said why.
                let _ = dial.send(Ok(Line::new(stream, guest.cut.clone()))).await;
            }
            Wish::Listener(port) => hold.listener(guest, port),
        }
    }
    Ok(())
}

/// Waits until one who knocked has had time enough to attach and has not.
async fn tarry(guest: &Guest) {
    if guest.seat.origin == Origin::Named {
        tokio::time::sleep(PATIENCE).await;
        if !guest.is_attached() {
            return;
        }
    }
    std::future::pending::<()>().await;
}

fn told(ended: Result<(), Fault>) -> String {
    match ended {
        Ok(()) => "it is gone".to_owned(),
        Err(fault) => fault.to_string(),
    }
}

/// How many connections may wait to be served.
const MOST_DIALS: usize = 64;

/// How long one who knocks may take to attach.
const PATIENCE: Duration = Duration::from_secs(10);
