//! One accepted connection, from its cookie to its end.

use super::leave::Notices;
use super::{Desk, Served, Upstream};
use crate::egress::attempt::{Cookie, Serial};
use crate::egress::book::{Accepted, Dial, Event};
use crate::egress::budget::Permit;
use crate::egress::counters::{Gauge, bump};
use crate::egress::relay::{End, Pair, relay};
use futures_util::FutureExt;
use holdfast_kernel::diag::Diag;
use holdfast_observability::race;
use parking_lot::Mutex;
use socket2::SockRef;
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// An accepted connection.
pub(crate) struct Arrival {
    pub(crate) stream: std::net::TcpStream,
    /// The workload's end.
    pub(crate) client: SocketAddr,
    /// Where it wanted to go.
    pub(crate) destination: SocketAddr,
    pub(crate) cookies: Arc<dyn Cookies>,
    pub(crate) permit: Permit,
}

/// Looks up sockets in the sandbox's network namespace.
pub trait Cookies: Send + Sync + 'static {
    /// `SO_COOKIE` of the socket bound to `local` and connected to `remote`; `None` if there is none.
    fn cookie(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Cookie>>;

    /// `SO_COOKIE` of every socket that has a peer or is on its way to it. Takes milliseconds; one whose neighbours in the kernel's
    /// table come and go meanwhile may be left out.
    fn connections(&self) -> io::Result<HashSet<Cookie>>;
}

/// One socket for one sandbox; an answer about one takes microseconds, and none waits for anybody.
impl Cookies for Mutex<Diag> {
    fn cookie(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Cookie>> {
        let cookie = self
            .lock()
            .cookie(local, remote)
            .map_err(io::Error::other)?;
        Ok(cookie.and_then(Cookie::new))
    }

    fn connections(&self) -> io::Result<HashSet<Cookie>> {
        let cookies = self.lock().connections().map_err(io::Error::other)?;
        Ok(cookies.into_iter().filter_map(Cookie::new).collect())
    }
}

/// Tells the book that a connection is gone, however its task ended.
struct Departure<'a> {
    desk: &'a Desk,
    serial: Serial,
}

impl Drop for Departure<'_> {
    fn drop(&mut self) {
        let serial = self.serial;
        let switch = self.desk.state.lock().switches.remove(&serial);
        drop(switch);
        let left = self.desk.step(Event::Closed { serial });
        self.desk.errands.leave(left.answers);
    }
}

/// Whether the connection was reset before anybody could ask whose it is. The kernel forgets the workload's socket a little before its reset is here.
async fn is_reset(stream: &std::net::TcpStream) -> bool {
    for pause in LOOKS {
        if stream.peer_addr().is_err() {
            return true;
        }
        tokio::time::sleep(pause).await;
    }
    stream.peer_addr().is_err()
}

impl Desk {
    /// Serves an accepted connection until it ends.
    pub(crate) fn receive(self: &Arc<Self>, arrival: Arrival) {
        let desk = Arc::clone(self);
        let work = async move { desk.serve(arrival).await };
        self.connections.spawn_on(work, &self.home);
    }

    async fn serve(self: Arc<Self>, arrival: Arrival) {
        let Arrival {
            stream,
            client,
            destination,
            cookies,
            permit,
        } = arrival;
        let cookie = match cookies.cookie(client, destination) {
            Ok(None) if is_reset(&stream).await => {
                self.step(Event::Reset { destination });
                return;
            }
            Ok(cookie) => cookie,
            Err(fault) => {
                bump(&self.counters.unlooked);
                race!(%fault, "look up the cookie of a connection");
                None
            }
        };
        if self.serve_canary(&stream, destination, cookie) {
            return;
        }
        let (waiter, served) = oneshot::channel();
        let slot = self.slot();
        let left = self.step(Event::Accepted(Accepted {
            cookie,
            destination,
            waiter,
            slot,
        }));
        self.errands.leave(left.answers);
        let departure = left.serial.map(|serial| Departure {
            desk: &self,
            serial,
        });
        let end = if let Some(Served { upstream, notices }) = self.fetch(left.dial, served).await {
            self.carry(stream, upstream, notices).await
        } else {
            // Dropped with this, the close is a reset.
            let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            End::Reset
        };
        tracing::debug!(%destination, ?end, "connection ended");
        drop((departure, permit));
    }

    /// Waits for the upstream; `None` if there is none, or none in time.
    async fn fetch(&self, dial: Option<Dial>, served: oneshot::Receiver<Served>) -> Option<Served> {
        let served = async {
            if let Some(order) = dial {
                self.dial_connected(order).await;
            }
            served.await.ok()
        };
        tokio::select! {
            biased;
            served = served => served,
            // The departure that follows tells the book.
            () = self.hurried() => None,
        }
    }

    async fn carry(
        &self,
        inside: std::net::TcpStream,
        upstream: Upstream,
        notices: Notices,
    ) -> End {
        drop(upstream.ahead);
        let _open = Gauge::up(&self.counters.open);
        let registered = TcpStream::from_std(inside).and_then(|inside| {
            Ok(Pair {
                inside,
                outside: TcpStream::from_std(upstream.stream)?,
            })
        });
        match registered {
            Ok(pair) => {
                let Notices { closing, leaving } = notices;
                relay(pair, &self.means, closing.map(drop), leaving.map(drop)).await
            }
            Err(_) => End::Reset,
        }
    }
}

/// Between the looks at a connection whose other end is gone.
const LOOKS: [Duration; 3] = [
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
];
