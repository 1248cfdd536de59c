//! Carries bytes between a workload's socket and its upstream until both have said that they are done.
//!
//! ```text
//!              EOF read, rest written
//!   Flowing ───────────────────────────▶ Ended      shutdown(SHUT_WR) on the other side: the half-close arrives as one
//!      │ readable           │ unsent rest
//!      ▼                    ▼
//!   (reads, writes)      Holding ──writable──▶ Flowing
//! ```
//!
//! Each direction is such a machine, and one task runs both: no task hop lies between a byte's arrival and its departure. A reset on either side
//! becomes a reset on the other. A connection that is open both ways is never timed out; one that is half closed is reaped after a silence of
//! [`Patience::half_closed`], because the side that still listens may be gone without a word. A vanished peer is found by TCP keepalive.
//!
//! When nobody inside is left to read, the inward direction becomes `Discarding`: carried on, its bytes would be answered by a reset that takes the
//! outward ones with it; left unread, they would turn the final close into one. Then the relay ends with its outward direction.

use super::pool::{Grade, Pool};
use futures_util::FutureExt;
use socket2::{SockRef, TcpKeepalive};
use std::future::{Future, poll_fn};
use std::io;
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// The two sockets of one connection: the workload's and the upstream's.
#[derive(Debug)]
pub struct Pair {
    /// The accepted socket; its other end is the workload. Its listener was given to [`prepare`].
    pub inside: TcpStream,
    /// The dialled socket.
    pub outside: TcpStream,
}

/// What relays share.
#[derive(Debug, Default)]
pub struct Means {
    /// Where buffers come from.
    pub pool: Pool,
    /// Bytes carried.
    pub bytes: Bytes,
    /// How long silence is borne.
    pub patience: Patience,
}

/// Bytes carried since the start, by direction.
#[derive(Debug, Default)]
pub struct Bytes {
    /// From the workload to its upstreams.
    pub outward: AtomicU64,
    /// From upstreams to the workload.
    pub inward: AtomicU64,
}

/// How long silence is borne.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// A half-closed connection on which nothing moves for this long is closed.
    pub half_closed: Duration,
    /// An open connection is probed after this long without a segment, then every [`KEEPALIVE_INTERVAL`].
    pub keepalive: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            half_closed: Duration::from_mins(10),
            keepalive: Duration::from_mins(1),
        }
    }
}

/// How a relay ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Both sides closed in order.
    Finished,
    /// One side reset the connection, and so did the relay with the other.
    Reset,
    /// Half closed and silent for too long.
    Reaped,
    /// Closed from above: a policy that denies it, or the end of the sandbox.
    Closed,
}

/// Relays until both directions have ended, one side resets, or `closing` is ready. Once `leaving` is ready, nobody inside reads any more, and the
/// outward direction's end is the end.
pub async fn relay(
    mut pair: Pair,
    means: &Means,
    closing: impl Future<Output = ()>,
    leaving: impl Future<Output = ()>,
) -> End {
    let mut both = Both::new(means);
    let (mut closing, mut leaving) = (pin!(closing), pin!(leaving.fuse()));
    prepare(&SockRef::from(&pair.outside), means.patience);
    let end = poll_fn(|cx| {
        if closing.as_mut().poll(cx).is_ready() {
            return Poll::Ready(End::Closed);
        }
        if leaving.as_mut().poll(cx).is_ready() {
            both.inward.discard(&means.pool);
        }
        both.poll(cx, &mut pair)
    })
    .await;
    match end {
        End::Finished => {}
        End::Reset | End::Reaped | End::Closed => pair.reset(),
    }
    end
}

/// Prepares a socket for relaying: prompt, and probed when it is silent. A listening socket hands this down to those it accepts.
///
/// The options only speed up or guard: a socket that refuses one is closed already, which the first read tells.
pub fn prepare(socket: &SockRef<'_>, patience: Patience) {
    let keepalive = TcpKeepalive::new()
        .with_time(patience.keepalive)
        .with_interval(KEEPALIVE_INTERVAL);
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&keepalive);
}

impl Pair {
    /// Makes the coming close a reset on both sides.
    fn reset(&self) {
        let _ = self.inside.set_zero_linger();
        let _ = self.outside.set_zero_linger();
    }
}

/// Both directions and the clock of half-closed silence.
struct Both<'a> {
    means: &'a Means,
    outward: Direction,
    inward: Direction,
    silence: Silence,
}

/// Runs only while exactly one direction has ended.
enum Silence {
    Open,
    Counting { timer: Pin<Box<Sleep>>, seen: u64 },
}

impl<'a> Both<'a> {
    fn new(means: &'a Means) -> Both<'a> {
        Both {
            means,
            outward: Direction::new(),
            inward: Direction::new(),
            silence: Silence::Open,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, pair: &mut Pair) -> Poll<End> {
        let before = (self.outward.moved, self.inward.moved);
        let outward = self
            .outward
            .poll(cx, &mut pair.inside, &mut pair.outside, &self.means.pool);
        let inward = self
            .inward
            .poll(cx, &mut pair.outside, &mut pair.inside, &self.means.pool);
        let moved = (self.outward.moved - before.0, self.inward.moved - before.1);
        count(&self.means.bytes.outward, moved.0);
        count(&self.means.bytes.inward, moved.1);
        match (outward, inward) {
            (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => Poll::Ready(End::Reset),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(End::Finished),
            (Poll::Pending, Poll::Pending) => Poll::Pending,
            // The close that follows is the half-close.
            (Poll::Ready(Ok(())), Poll::Pending) if self.inward.is_discarding() => {
                Poll::Ready(End::Finished)
            }
            // One has ended: say so to its sink, once. When both have, the close says it.
            (Poll::Ready(Ok(())), Poll::Pending) => self.poll_half_closed(cx, &pair.outside),
            (Poll::Pending, Poll::Ready(Ok(()))) => self.poll_half_closed(cx, &pair.inside),
        }
    }

    fn poll_half_closed(&mut self, cx: &mut Context<'_>, sink: &TcpStream) -> Poll<End> {
        let moved = self.outward.moved + self.inward.moved;
        loop {
            match &mut self.silence {
                Silence::Open => {
                    if half_close(sink).is_err() {
                        return Poll::Ready(End::Reset);
                    }
                    self.silence = self.count(moved);
                }
                Silence::Counting { timer, seen } => {
                    ready!(timer.as_mut().poll(cx));
                    if *seen == moved {
                        return Poll::Ready(End::Reaped);
                    }
                    // Something moved meanwhile: a silence is borne once to twice the limit.
                    self.silence = self.count(moved);
                }
            }
        }
    }

    fn count(&self, seen: u64) -> Silence {
        let timer = Box::pin(tokio::time::sleep(self.means.patience.half_closed));
        Silence::Counting { timer, seen }
    }
}

impl Drop for Both<'_> {
    fn drop(&mut self) {
        for direction in [&mut self.outward, &mut self.inward] {
            direction.surrender(&self.means.pool);
        }
    }
}

/// One way of a connection.
struct Direction {
    flow: Flow,
    grade: Grade,
    moved: u64,
}

enum Flow {
    Flowing,
    Holding {
        buffer: Box<[u8]>,
        from: usize,
        to: usize,
    },
    /// Nobody is left to write to.
    Discarding,
    Ended,
}

impl Direction {
    fn new() -> Direction {
        Direction {
            flow: Flow::Flowing,
            grade: Grade::Small,
            moved: 0,
        }
    }

    /// Ready when this direction has ended: in order, or by an error of either socket.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut TcpStream,
        sink: &mut TcpStream,
        pool: &Pool,
    ) -> Poll<io::Result<()>> {
        loop {
            match &mut self.flow {
                Flow::Ended => return Poll::Ready(Ok(())),
                Flow::Flowing => {
                    ready!(source.poll_read_ready(cx))?;
                    if ready!(self.read(cx, source, pool))? == 0 {
                        self.flow = Flow::Ended;
                    }
                }
                Flow::Discarding => {
                    ready!(source.poll_read_ready(cx))?;
                    if ready!(self.throw_away(cx, source, pool))? == 0 {
                        self.flow = Flow::Ended;
                    }
                }
                Flow::Holding { buffer, from, to } => {
                    while from < to {
                        let wrote =
                            ready!(Pin::new(&mut *sink).poll_write(cx, &buffer[*from..*to]))?;
                        *from += wrote;
                        self.moved += wrote as u64;
                    }
                    self.surrender(pool);
                }
            }
        }
    }

    fn read(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut TcpStream,
        pool: &Pool,
    ) -> Poll<io::Result<usize>> {
        let mut buffer = pool.take(self.grade);
        let mut filling = ReadBuf::new(&mut buffer);
        let polled = Pin::new(source).poll_read(cx, &mut filling);
        let read = filling.filled().len();
        if read == 0 {
            pool.give(buffer);
            return polled.map_ok(|()| 0);
        }
        self.grade = self.grade.after(read);
        self.flow = Flow::Holding {
            buffer,
            from: 0,
            to: read,
        };
        polled.map_ok(|()| read)
    }

    fn throw_away(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut TcpStream,
        pool: &Pool,
    ) -> Poll<io::Result<usize>> {
        let mut buffer = pool.take(self.grade);
        let mut filling = ReadBuf::new(&mut buffer);
        let polled = Pin::new(source).poll_read(cx, &mut filling);
        let read = filling.filled().len();
        pool.give(buffer);
        polled.map_ok(|()| read)
    }

    fn discard(&mut self, pool: &Pool) {
        self.surrender(pool);
        if let Flow::Flowing = self.flow {
            self.flow = Flow::Discarding;
        }
    }

    fn is_discarding(&self) -> bool {
        match self.flow {
            Flow::Discarding => true,
            Flow::Flowing | Flow::Holding { .. } | Flow::Ended => false,
        }
    }

    /// Gives the buffer back.
    fn surrender(&mut self, pool: &Pool) {
        match std::mem::replace(&mut self.flow, Flow::Flowing) {
            Flow::Holding { buffer, .. } => pool.give(buffer),
            flow @ (Flow::Ended | Flow::Discarding) => self.flow = flow,
            Flow::Flowing => {}
        }
    }
}

/// The other side may have closed already; then there is nobody left to tell.
fn half_close(sink: &TcpStream) -> io::Result<()> {
    match SockRef::from(sink).shutdown(Shutdown::Write) {
        Err(fault) if fault.kind() == io::ErrorKind::NotConnected => Ok(()),
        told => told,
    }
}

fn count(counter: &AtomicU64, moved: u64) {
    if moved > 0 {
        counter.fetch_add(moved, Ordering::Relaxed);
    }
}

/// Between two keepalive probes.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests;
