//! Serves the sandbox's port 53, UDP and TCP, for as long as its sockets live.
//!
//! ```text
//! [::]:53 UDP ── udp::serve ──┐                       ┌── reply, from the address that was asked
//!                             ├─ Resolver::begin ─────┤
//! [::]:53 TCP ── tcp::serve ──┘   │ Lookup            └── (TCP) in whatever order they are ready
//!              └ one per client   └─ finish, with a seat in `Seats`; without one: SERVFAIL
//! ```
//!
//! Everything runs in the one future of [`Server::run`]: whoever drops it has ended all of it. It
//! ends by itself only when a socket is useless, for its supervisor to fetch another.

use std::convert::Infallible;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use holdfast_clock::Clock;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::Resolver;

mod faults;
mod tcp;
mod udp;

/// The two sockets of a sandbox. They outlive the server: their owner gives them out again.
#[derive(Debug, Clone)]
pub struct Sockets {
    /// Bound to port 53 of every address, and able to say which address was asked.
    pub udp: Arc<UdpSocket>,
    /// Listening on port 53 of every address.
    pub tcp: Arc<TcpListener>,
}

impl Sockets {
    /// Takes the descriptors as they were handed over.
    pub fn new(udp: OwnedFd, tcp: OwnedFd) -> Self {
        Self {
            udp: Arc::new(udp.into()),
            tcp: Arc::new(tcp.into()),
        }
    }
}

/// What one sandbox may use of the keeper for its names.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Lookups in flight, over UDP and TCP together.
    pub lookups: usize,
    /// TCP connections; further ones wait in the kernel's backlog.
    pub connections: usize,
    /// Lookups in flight for one TCP connection; it is not read from meanwhile.
    pub pipeline: usize,
    /// How long a TCP connection may take for its next whole query, or for taking a reply.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            lookups: 256,
            connections: 64,
            pipeline: 32,
            idle: Duration::from_secs(10),
        }
    }
}

/// A socket that is good for nothing any more.
#[derive(Debug, thiserror::Error)]
#[error("serve names over {transport}: fetch the socket again")]
pub struct Useless {
    transport: &'static str,
    #[source]
    source: holdfast_kernel::Error,
}

/// Serves names on the sockets of one sandbox.
pub struct Server {
    /// What answers.
    pub resolver: Arc<Resolver>,
    /// Where it is asked.
    pub sockets: Sockets,
    /// How much it may take.
    pub limits: Limits,
    /// What the time is.
    pub clock: Clock,
}

impl Server {
    /// Serves until a socket is useless.
    pub async fn run(&self) -> Useless {
        let desk = Desk {
            resolver: &self.resolver,
            limits: self.limits,
            clock: &self.clock,
            seats: Semaphore::new(self.limits.lookups),
        };
        let (ended, transport) = tokio::select! {
            ended = udp::serve(&desk, &self.sockets.udp) => (ended, "UDP"),
            ended = tcp::serve(&desk, &self.sockets.tcp) => (ended, "TCP"),
        };
        match ended {
            Ok(never) => match never {},
            Err(source) => Useless { transport, source },
        }
    }
}

/// What both transports share.
struct Desk<'a> {
    resolver: &'a Resolver,
    limits: Limits,
    clock: &'a Clock,
    seats: Semaphore,
}

impl Desk<'_> {
    /// A place for one more lookup, if there is one.
    fn seat(&self) -> Option<SemaphorePermit<'_>> {
        self.seats.try_acquire().ok()
    }
}

/// How serving ends: only ever with the error that made the socket useless.
type Served = holdfast_kernel::Result<Infallible>;

#[cfg(test)]
mod tests;
