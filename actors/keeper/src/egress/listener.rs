//! Accepts on one captured socket, for as long as the socket is one.
//!
//! ```text
//!   Serving ──── connection, permit ──▶ (connection task) ─▶ Serving
//!      │ connection, no permit ──▶ Full ── a permit ──▶ (connection task) ─▶ Serving
//!      │ EMFILE, ENFILE, ENOBUFS, ENOMEM ──▶ Starved ── backoff ──▶ Serving
//!      │ EINTR, ECONNABORTED and a peer's other faults ──▶ Serving
//!      └ EBADF, EINVAL, ENOTSOCK ──▶ (the actor fails: it is restarted with its socket fetched again)
//! ```
//!
//! Nothing but a socket that is none ends the loop. In `Full` and `Starved` connections wait in the backlog, and the health of the sandbox says so.

use super::budget::Permit;
use super::counters::{Gauge, bump};
use super::desk::{Arrival, Cookies, Desk};
use holdfast_clock::{Clock, Dice};
use holdfast_kernel::descriptors::{is_exhausted, noted};
use holdfast_kernel::ready::Ready;
use holdfast_kernel::{Called, Error, Result};
use holdfast_observability::{Limiter, exhausted};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What one listener is born with.
pub struct Arguments {
    /// A listening socket of the sandbox's network namespace.
    pub socket: Arc<TcpListener>,
    /// Where its connections go.
    pub desk: Arc<Desk>,
    /// Who knows the sandbox's sockets.
    pub cookies: Arc<dyn Cookies>,
    /// The time.
    pub clock: Clock,
    /// For the jitter of the backoff.
    pub dice: Dice,
    /// Who wants to know whether it accepts.
    pub standing: watch::Sender<Standing>,
}

/// Whether a listener accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Serving,
    /// Its connections wait for others to end.
    Full,
    /// Its connections wait for a resource of the process: the errno that the kernel gave.
    Starved(i32),
}

/// Accepts on one captured socket.
pub struct Listener {
    socket: Ready<Arc<TcpListener>>,
    desk: Arc<Desk>,
    cookies: Arc<dyn Cookies>,
    port: u16,
    backoff: Backoff,
    clock: Clock,
    complaints: Limiter,
    standing: watch::Sender<Standing>,
}

impl Listener {
    /// Must be called within a tokio runtime.
    pub fn new(arguments: Arguments) -> Result<Listener> {
        let Arguments {
            socket,
            desk,
            cookies,
            clock,
            dice,
            standing,
        } = arguments;
        let port = socket.local_addr().called("getsockname")?.port();
        socket.set_nonblocking(true).called("fcntl")?;
        desk.prepare(&socket);
        let complaints = Limiter::default();
        let backoff = Backoff {
            dice,
            ceiling: LEAST,
        };
        let socket = Ready::reading(socket)?;
        Ok(Listener {
            socket,
            desk,
            cookies,
            port,
            backoff,
            clock,
            complaints,
            standing,
        })
    }

    /// Accepts until the socket is none any more. The answer is always the reason.
    pub async fn serve(mut self) -> Error {
        loop {
            if let Err(fault) = self.serve_readiness().await {
                return fault;
            }
        }
    }

    async fn serve_readiness(&mut self) -> Result<()> {
        let desk = Arc::clone(&self.desk);
        let socket = &self.socket;
        let mut ready = socket.readable().await?;
        for _ in 0..BATCH {
            match accept(socket.inner()) {
                Ok(accepted) => {
                    self.backoff.ceiling = LEAST;
                    let permit = self.admit(&desk).await;
                    let (stream, client, destination) = accepted;
                    let cookies = Arc::clone(&self.cookies);
                    desk.receive(Arrival {
                        stream,
                        client,
                        destination,
                        cookies,
                        permit,
                    });
                }
                Err(fault) => match Fault::of(&fault) {
                    Fault::Nothing => {
                        ready.clear();
                        return Ok(());
                    }
                    Fault::Passing => {}
                    Fault::Starved(errno) => {
                        bump(&desk.counters.accept_exhausted);
                        let now = self.clock.now().since_origin();
                        if let Some(held_back) = self.complaints.admit(now) {
                            let port = self.port;
                            exhausted!(%fault, port, held_back, "accept a connection; it waits in the backlog");
                        }
                        let _waiting =
                            Waiting::begin(&desk, &self.standing, Standing::Starved(errno));
                        tokio::time::sleep(self.backoff.next()).await;
                        return Ok(());
                    }
                    Fault::NoSocket => return Err(fault).called("accept4"),
                },
            }
        }
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Waits for a permit with one connection in hand; those behind it are in the backlog.
    async fn admit(&self, desk: &Desk) -> Permit {
        if let Some(permit) = desk.budget.at_once() {
            return permit;
        }
        let _waiting = Waiting::begin(desk, &self.standing, Standing::Full);
        desk.budget.wait().await
    }
}

/// One connection, with the workload's end and the destination it asked for.
fn accept(socket: &TcpListener) -> io::Result<(TcpStream, SocketAddr, SocketAddr)> {
    let (stream, client) = socket.accept()?;
    let stream = noted(stream);
    stream.set_nonblocking(true)?;
    let destination = stream.local_addr()?;
    Ok((stream, canonical(client), canonical(destination)))
}

/// An IPv4 connection to an IPv6 socket is an IPv4 connection.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// What an error of `accept(2)` says.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// About one connection, or about nothing: the next may be good.
    Passing,
    Starved(i32),
    NoSocket,
}

impl Fault {
    fn of(fault: &io::Error) -> Fault {
        match fault.raw_os_error() {
            Some(libc::EAGAIN) => Fault::Nothing,
            Some(errno) if is_exhausted(errno) => Fault::Starved(errno),
            Some(libc::EBADF | libc::EINVAL | libc::ENOTSOCK | libc::EOPNOTSUPP) => Fault::NoSocket,
            _ => Fault::Passing,
        }
    }
}

/// Published as long as it lives.
struct Waiting<'a> {
    _gauge: Gauge<'a>,
    standing: &'a watch::Sender<Standing>,
}

impl<'a> Waiting<'a> {
    fn begin(desk: &'a Desk, standing: &'a watch::Sender<Standing>, why: Standing) -> Waiting<'a> {
        standing.send_replace(why);
        Waiting {
            _gauge: Gauge::up(&desk.counters.waiting),
            standing,
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.standing.send_replace(Standing::Serving);
    }
}

/// Doubles, with full jitter above the least pause.
struct Backoff {
    dice: Dice,
    ceiling: Duration,
}

impl Backoff {
    fn next(&mut self) -> Duration {
        let pause = self.dice.between(LEAST, self.ceiling);
        self.ceiling = (self.ceiling * 2).min(MOST);
        pause
    }
}

/// Connections accepted before others get a turn.
const BATCH: usize = 64;
/// The shortest and the longest pause after a want of resources. Ready is to be back within a second after the want: the last pause and
/// a canary are part of that.
const LEAST: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
