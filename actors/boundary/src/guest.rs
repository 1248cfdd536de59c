//! A keeper's handoff socket, from its arrival to its end, and what is on its way to it.
//!
//! Whether the keeper reads its socket or not, nobody here waits for it: what it has to be handed stands in a queue.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_actor::Fault;
use holdfast_kernel::Error;
use holdfast_kernel::handoff::{Credentials, Received, Socket};
use holdfast_kernel::ready::Ready;
use holdfast_wire::v1::Handoff;
use holdfast_wire::v1::handoff::Kind;
use nix::sys::socket::{Shutdown, shutdown};
use parking_lot::Mutex;
use prost::Message;
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::holder::Seat;
use crate::stock::Parcel;

/// One keeper, attached or not.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) seat: Seat,
    /// Cancelled when it is fenced or gone.
    pub(crate) cut: CancellationToken,
    socket: Arc<Socket>,
    attached: AtomicBool,
    queue: Mutex<VecDeque<Parcel>>,
    posted: Notify,
}

impl Guest {
    /// A keeper that has not attached yet.
    pub(crate) fn new(seat: Seat, socket: Arc<Socket>) -> Self {
        Self {
            seat,
            cut: CancellationToken::new(),
            socket,
            attached: AtomicBool::new(false),
            queue: Mutex::default(),
            posted: Notify::new(),
        }
    }

    /// Whether it has ever held the boundary.
    pub(crate) fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Relaxed)
    }

    /// It holds the boundary.
    pub(crate) fn attached(&self) {
        self.attached.store(true, Ordering::Relaxed);
    }

    /// Hands it something, in order: now if it has room, so that who comes to what it is handed does not come before it. One
    /// that lets everything lie is cut.
    pub(crate) fn post(&self, parcel: Parcel) {
        let mut queue = self.queue.lock();
        if queue.is_empty() && self.try_send(&parcel).is_ok() {
            return;
        }
        if queue.len() >= MOST_PARCELS {
            self.cut.cancel();
            return;
        }
        queue.push_back(parcel);
        self.posted.notify_one();
    }

    /// Tells it something that must not wait for what serves it: that may be what has fallen.
    pub(crate) fn tell(&self, kind: Kind) {
        let parcel = (kind, Vec::new());
        if self.try_send(&parcel).is_err() {
            // No room just now. One that is gone is gone either way.
            self.post(parcel);
        }
    }

    fn try_send(&self, (kind, descriptors): &Parcel) -> Result<(), Error> {
        let kind = Some(kind.clone());
        let descriptors: Vec<_> = descriptors.iter().map(|fd| fd.as_fd()).collect();
        let bytes = Handoff { kind }.encode_to_vec();
        self.socket.try_send(&bytes, &descriptors)
    }

    /// Ends every connection with it, now.
    pub(crate) fn dismiss(&self) {
        self.cut.cancel();
        // One that is closed already is gone either way.
        let _ = shutdown(self.socket.as_fd().as_raw_fd(), Shutdown::Both);
    }

    /// Its socket in the present runtime.
    pub(crate) fn ready(&self) -> Result<Ready<Arc<Socket>>, Fault> {
        Ok(Ready::new(Arc::clone(&self.socket))?)
    }

    /// Sends what is posted until it is gone.
    pub(crate) async fn deliver(&self, socket: &Ready<Arc<Socket>>) -> Result<(), Fault> {
        loop {
            let next = self.queue.lock().front().cloned();
            let Some((kind, descriptors)) = next else {
                self.posted.notified().await;
                continue;
            };
            let bytes = Handoff { kind: Some(kind) }.encode_to_vec();
            let descriptors: Vec<_> = descriptors.iter().map(|fd| fd.as_fd()).collect();
            socket.send(&bytes, &descriptors).await?;
            self.queue.lock().pop_front();
        }
    }
}

/// What a keeper wants over its socket.
pub(crate) enum Wish {
    /// To be served over this connection.
    Serve(UnixStream),
    /// The listener on this port, once more: it had no descriptor for it.
    Listener(u16),
}

/// What a keeper wants next; `None` when it is gone.
pub(crate) async fn wish(socket: &Ready<Arc<Socket>>) -> Result<Option<Wish>, Fault> {
    let mut buffer = [0; 256];
    loop {
        let received = socket
            .read(|socket| socket.try_receive(&mut buffer))
            .await?;
        let (length, descriptors) = match received {
            Received::Packet {
                length,
                descriptors,
            } => (length, descriptors),
            // Its end of the connection is closed with ours: the keeper dials again.
            Received::Exhausted { .. } => {
                tracing::warn!("receive a connection: too many open files");
                continue;
            }
            Received::Closed => return Ok(None),
        };
        let kind = Handoff::decode(&buffer[..length])
            .ok()
            .and_then(|handoff| handoff.kind);
        match (kind, descriptors.into_iter().next()) {
            (Some(Kind::Dial(_)), Some(stream)) => {
                let stream = StdStream::from(stream);
                stream.set_nonblocking(true)?;
                return Ok(Some(Wish::Serve(UnixStream::from_std(stream)?)));
            }
            (Some(Kind::Listener(listener)), _) => {
                // Ports travel as 32 bits; on one that is none nobody listens.
                let port = u16::try_from(listener.port).unwrap_or_default();
                return Ok(Some(Wish::Listener(port)));
            }
            // Nothing else is asked for here.
            (_, _) => {}
        }
    }
}

/// Whether one who knocks may say who it is: not from inside, where every process has a number, and nobody else's.
pub(crate) fn admit(knocking: Credentials, own: u32) -> Result<(), &'static str> {
    if knocking.pid != 0 {
        return Err("only a process outside the sandbox may hold its boundary");
    }
    if knocking.uid != own {
        return Err("only a process of the same user may hold this boundary");
    }
    Ok(())
}

/// What may wait to be handed over: a listener a port, as ports of former revisions stay open, and little else.
const MOST_PARCELS: usize = u16::MAX as usize + 64;

#[cfg(test)]
mod tests {
    use holdfast_kernel::handoff::pair;
    use holdfast_wire::v1;

    use super::*;
    use crate::holder::Origin;

    #[test]
    fn a_keeper_can_be_handed_a_listener_on_every_port() {
        let (socket, _far) = pair().expect("a pair of sockets");
        let guest = Guest::new(
            Seat {
                number: 1,
                origin: Origin::Forked,
            },
            Arc::new(socket),
        );

        for port in 1..=u16::MAX.into() {
            guest.post((Kind::Listener(v1::Listener { port }), Vec::new()));
        }

        assert!(!guest.cut.is_cancelled());
    }

    #[test]
    fn only_a_process_outside_and_of_the_same_user_is_admitted() {
        let knocking = |pid, uid| Credentials { pid, uid, gid: 7 };

        assert_eq!(admit(knocking(0, 1000), 1000), Ok(()));
        assert!(admit(knocking(12, 1000), 1000).is_err(), "from inside");
        assert!(admit(knocking(0, 1001), 1000).is_err(), "somebody else");
        assert!(admit(knocking(0, 65534), 1000).is_err(), "not mapped");
    }
}
