//! Reaches what a destination stands for, and says truthfully why not.
//!
//! ```text
//! destination ─▶ name? ─▶ addresses ─▶ each: admitted by the policy? ─▶ connect to exactly this address ─▶ connected
//!                  │ unresolved            │ none is: denied               │ the next one, within the caller's time
//!                  ▼                       ▼                               ▼
//!                errno                   EACCES                          errno of the last try
//! ```
//!
//! Who is told how its connect ended tries another address itself. Who has been told that it is connected cannot: for it, addresses that do not
//! answer are raced against the next ones, of both families, as RFC 8305 has it for programs.
//!
//! The address that is checked is the address that is dialled: nothing is looked up in between. `connect()` is never waited for when it is done
//! at once, as on loopback: then the whole dial is one poll.

use super::attempt::Failure;
use super::book::{Dial, Waiting};
use super::names::Names;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, Either};
use futures_util::stream::FuturesUnordered;
use holdfast_kernel::descriptors::{is_exhausted, noted};
use holdfast_policy::{Denied, Destination};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Dials for one sandbox.
pub struct Dialler {
    names: Arc<dyn Names>,
    own: Vec<SocketAddr>,
    limits: Limits,
}

/// How long a dial takes at most.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// In all.
    pub whole: Duration,
    /// For one address while others are left.
    pub each: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            whole: Duration::from_mins(1),
            each: Duration::from_secs(10),
        }
    }
}

/// A connected socket, non-blocking, registered nowhere yet.
#[derive(Debug)]
pub struct Dialled {
    /// The socket.
    pub stream: std::net::TcpStream,
    /// Where it leads.
    pub address: SocketAddr,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum Undialled {
    /// The caller is told.
    Failed(Failure),
    /// The keeper itself is short of something: the caller can wait.
    Exhausted(io::Error),
}

impl Dialler {
    /// `own` are the runtime's own TCP listeners, which no policy opens.
    pub fn new(names: Arc<dyn Names>, own: Vec<SocketAddr>, limits: Limits) -> Dialler {
        Dialler { names, own, limits }
    }

    /// Dials until one address answers. Cancel it by dropping it. `told`: the caller has been told that it is connected.
    pub async fn dial(
        &self,
        order: &Dial,
        told: &AtomicBool,
        admits: impl Fn(IpAddr) -> Result<(), Denied> + Sync,
    ) -> Result<Dialled, Undialled> {
        let limit = order
            .patience
            .unwrap_or(self.limits.whole)
            .min(self.limits.whole);
        let is_name = matches!(order.target, Destination::Name(_));
        let dial = if is_name && order.waiting != Waiting::Blocked {
            Either::Left(self.race(order, told, admits, limit))
        } else {
            Either::Right(self.dial_each(order, admits, limit))
        };
        match timeout(limit, dial).await {
            Ok(outcome) => outcome,
            // SO_SNDTIMEO: the kernel's own answer to a caller whose time is over.
            Err(_) if order.patience.is_some_and(|patience| patience <= limit) => {
                Err(errno(libc::EINPROGRESS))
            }
            Err(_) => Err(errno(libc::ETIMEDOUT)),
        }
    }

    async fn dial_each(
        &self,
        order: &Dial,
        admits: impl Fn(IpAddr) -> Result<(), Denied>,
        limit: Duration,
    ) -> Result<Dialled, Undialled> {
        let addresses = self.admitted(order, order.destination.ip(), admits).await?;
        let mut last = errno(libc::EHOSTUNREACH);
        for (index, address) in addresses.iter().enumerate() {
            let is_last = index + 1 == addresses.len();
            // The last one has all the time that is left.
            let each = if is_last {
                Duration::MAX
            } else {
                self.limits.each.min(limit / 2)
            };
            match timeout(each, connect(*address)).await {
                Ok(Ok(stream)) => {
                    return Ok(Dialled {
                        stream,
                        address: *address,
                    });
                }
                Ok(Err(fault)) if fault.raw_os_error().is_some_and(is_exhausted) => {
                    return Err(Undialled::Exhausted(fault));
                }
                Ok(Err(fault)) => last = errno(fault.raw_os_error().unwrap_or(libc::EIO)),
                Err(_) => last = errno(libc::ETIMEDOUT),
            }
        }
        Err(last)
    }

    /// For a name whose caller is not waited for. Until it has been `told`, only what would have been its own next try is made.
    async fn race(
        &self,
        order: &Dial,
        told: &AtomicBool,
        admits: impl Fn(IpAddr) -> Result<(), Denied> + Sync,
        limit: Duration,
    ) -> Result<Dialled, Undialled> {
        let own = order.destination.ip();
        let mut left = VecDeque::from(self.admitted(order, own, &admits).await?);
        let mut steps: FuturesUnordered<BoxFuture<'_, Step>> = FuturesUnordered::new();
        let (mut last, mut tried, mut asked) = (errno(libc::EHOSTUNREACH), false, false);
        loop {
            if tried && !asked && told.load(Ordering::Relaxed) {
                asked = true;
                let admits = &admits;
                steps.push(Box::pin(async move {
                    let others = self.admitted(order, other_family(own), admits).await;
                    Step::Found(others.unwrap_or_default())
                }));
            } else if let Some(address) = left.pop_front() {
                tried = true;
                // Where all that are left fit beside it, it has all the time there is.
                let is_roomy = steps.len() + left.len() < AT_ONCE;
                let each = if is_roomy {
                    Duration::MAX
                } else {
                    self.limits.each.min(limit / 2)
                };
                steps.push(Box::pin(async move {
                    let connected = timeout(each, connect(address)).await;
                    let silent = || Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
                    Step::Tried(address, connected.unwrap_or_else(|_| silent()))
                }));
            } else if steps.is_empty() {
                return Err(last);
            }
            let more = steps.len() < AT_ONCE && !(asked && left.is_empty());
            tokio::select! {
                biased;
                Some(step) = steps.next() => match step {
                    Step::Found(others) => left = alternating(others, left),
                    Step::Tried(address, Ok(stream)) => return Ok(Dialled { stream, address }),
                    Step::Tried(_, Err(fault)) => {
                        let fault = fault.raw_os_error().unwrap_or(libc::EIO);
                        if is_exhausted(fault) && steps.is_empty() {
                            return Err(Undialled::Exhausted(io::Error::from_raw_os_error(fault)));
                        }
                        last = errno(fault);
                    }
                },
                () = sleep(HEAD_START), if more => {}
            }
        }
    }

    /// The addresses of the family of `like` that may be dialled; if there is none, why.
    async fn admitted(
        &self,
        order: &Dial,
        like: IpAddr,
        admits: impl Fn(IpAddr) -> Result<(), Denied>,
    ) -> Result<Vec<SocketAddr>, Undialled> {
        let found = match &order.target {
            Destination::Address(address) => vec![*address],
            Destination::Name(name) => {
                let resolved = self.names.resolve(name, like).await;
                // connect(2) knows no names: what cannot be found cannot be reached.
                resolved.map_err(|_| errno(libc::EHOSTUNREACH))?
            }
        };
        let mut refused = errno(libc::EHOSTUNREACH);
        let mut addresses = Vec::with_capacity(found.len().min(ADDRESSES));
        for address in found.into_iter().take(ADDRESSES) {
            let at = SocketAddr::new(address, order.destination.port());
            match admits(address) {
                Err(denied) => refused = Undialled::Failed(Failure::Denied(denied)),
                Ok(()) if self.is_own(at) => refused = Undialled::Failed(Failure::Own),
                Ok(()) => addresses.push(at),
            }
        }
        if addresses.is_empty() {
            Err(refused)
        } else {
            Ok(addresses)
        }
    }

    fn is_own(&self, at: SocketAddr) -> bool {
        let reaches = |own: &SocketAddr| {
            own.port() == at.port()
                && (own.ip().is_unspecified() || own.ip().to_canonical() == at.ip().to_canonical())
        };
        self.own.iter().any(reaches)
    }
}

/// What came of a step of a race.
enum Step {
    /// The name's addresses in the other family.
    Found(Vec<SocketAddr>),
    /// An address that was dialled.
    Tried(SocketAddr, io::Result<std::net::TcpStream>),
}

fn other_family(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    }
}

/// One of each in turn, beginning with `first`.
fn alternating(first: Vec<SocketAddr>, mut second: VecDeque<SocketAddr>) -> VecDeque<SocketAddr> {
    let mut all = VecDeque::with_capacity(first.len() + second.len());
    for address in first {
        all.push_back(address);
        all.extend(second.pop_front());
    }
    all.extend(second);
    all
}

/// Connects without waiting if that is possible.
async fn connect(address: SocketAddr) -> io::Result<std::net::TcpStream> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )
    .map(noted)?;
    match socket.connect(&address.into()) {
        Ok(()) => return Ok(socket.into()),
        Err(fault) if fault.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(fault) => return Err(fault),
    }
    // On loopback the answer is here already, though the call could not say so.
    if socket.peer_addr().is_ok() {
        return Ok(socket.into());
    }
    if let Some(fault) = socket.take_error()? {
        return Err(fault);
    }
    let stream = TcpStream::from_std(socket.into())?;
    stream.writable().await?;
    match stream.take_error()? {
        Some(fault) => Err(fault),
        None => stream.into_std(),
    }
}

fn errno(errno: i32) -> Undialled {
    Undialled::Failed(Failure::Errno(errno))
}

/// How long an address may be silent before the next one is tried beside it (RFC 8305, section 5).
const HEAD_START: Duration = Duration::from_millis(250);

/// Addresses that are raced at a time: each is a descriptor.
const AT_ONCE: usize = 4;

/// Addresses tried for one connect; a name that has more is served by the first of them.
pub const ADDRESSES: usize = 8;

#[cfg(test)]
mod tests;
