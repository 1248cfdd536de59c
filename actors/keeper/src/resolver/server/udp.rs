//! Serves the datagrams: one in, at most one out, from the address that was asked.

use std::net::UdpSocket;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use holdfast_kernel::listen::{self, Datagram};
use holdfast_kernel::ready::Ready;
use holdfast_kernel::{Error, Result};

use super::faults::{Faults, Remedy};
use super::{Desk, Served};
use crate::resolver::{Begun, Via};

/// Serves until the socket is useless.
pub(super) async fn serve(desk: &Desk<'_>, socket: &Arc<UdpSocket>) -> Served {
    let socket = Ready::reading(Arc::clone(socket))?;
    let mut faults = Faults::new();
    let mut lookups = FuturesUnordered::new();
    let mut buffer = vec![0; LONGEST_QUERY];
    loop {
        let received: Result<Datagram> = tokio::select! {
            Some(done) = lookups.next() => {
                let (reply, datagram): (Vec<u8>, Datagram) = done;
                send(&socket, &reply, &datagram);
                continue;
            }
            received = socket.read(|socket| listen::receive(socket, &mut buffer)) => received,
        };
        let datagram = match received {
            Ok(datagram) => datagram,
            Err(error) => {
                rest(&mut faults, error, desk).await?;
                continue;
            }
        };
        faults.clear();
        match desk.resolver.begin(&buffer[..datagram.length], Via::Udp) {
            Begun::Reply(reply) => send(&socket, &reply, &datagram),
            Begun::Silence => {}
            Begun::Lookup(lookup) => match desk.seat() {
                None => send(&socket, &desk.resolver.shed(&lookup), &datagram),
                Some(seat) => lookups.push(async move {
                    let reply = desk.resolver.finish(lookup).await;
                    drop(seat);
                    (reply, datagram)
                }),
            },
        }
    }
}

/// Waits as the error demands, or gives up.
pub(super) async fn rest(faults: &mut Faults, error: Error, desk: &Desk<'_>) -> Result<()> {
    match faults.remedy(&error, desk.clock.now()) {
        Remedy::GoOn => Ok(()),
        Remedy::Wait(time) => {
            tokio::time::sleep(time).await;
            Ok(())
        }
        Remedy::GiveUp => Err(error),
    }
}

/// A reply that cannot be sent now is dropped, as the network might: the client asks again.
fn send(socket: &Ready<Arc<UdpSocket>>, reply: &[u8], datagram: &Datagram) {
    if let Err(error) = listen::reply(socket.inner(), reply, datagram.peer, datagram.asked) {
        tracing::debug!(peer = %datagram.peer, errno = error.errno(), "drop a reply");
    }
}

/// Longer than any question: a name has 255 bytes, and options are few. What is longer is dropped.
const LONGEST_QUERY: usize = 4096;
