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
//! becomes a reset on the other: reading tells it and, where a socket is not being read, [`fault`] does. A connection that is open both ways is never
//! timed out; one that is half closed is reaped after a silence of [`Patience::half_closed`], because the side that still listens may be gone without a
//! word. A vanished peer is found by TCP keepalive.
//!
//! An urgent byte keeps its place and loses its urgency (RFC 6093, section 6, has programs read it so): both sockets have it inline.
//!
//! When nobody inside is left to read, the inward direction becomes `Discarding`: carried on, its bytes would be answered by a reset that takes the
//! outward ones with it; left unread, they would turn the final close into one. Then the relay ends with its outward direction.

use super::pool::{Grade, Pool};
use futures_util::FutureExt;
use futures_util::future::select;
use holdfast_kernel::urgent;
use socket2::{SockRef, TcpKeepalive};
use std::future::{Future, poll_fn};
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncWrite, Interest};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
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
    prepare(&SockRef::from(&pair.outside), means.patience);
    let end = carry(&mut pair, means, closing, leaving).await;
    match end {
        End::Finished => {}
        End::Reset | End::Reaped | End::Closed => pair.reset(),
    }
    end
}

async fn carry(
    pair: &mut Pair,
    means: &Means,
    closing: impl Future<Output = ()>,
    leaving: impl Future<Output = ()>,
) -> End {
    let (inside, to_inside) = pair.inside.split();
    let (outside, to_outside) = pair.outside.split();
    let mut ways = Ways {
        inside: &inside,
        outside: &outside,
        to_inside,
        to_outside,
    };
    let mut both = Both::new(means);
    let (mut closing, mut leaving) = (pin!(closing), pin!(leaving.fuse()));
    let mut fault = pin!(fault(&inside, &outside));
    poll_fn(|cx| {
        if closing.as_mut().poll(cx).is_ready() {
            return Poll::Ready(End::Closed);
        }
        if leaving.as_mut().poll(cx).is_ready() {
            both.inward.discard(&means.pool);
        }
        let polled = both.poll(cx, &mut ways);
        if polled.is_pending() && !both.reads() {
            return fault.as_mut().poll(cx).map(|()| End::Reset);
        }
        polled
    })
    .await
}

/// Ready when either socket has an error, whatever lies before it to be read. The end of what the other side says is none.
async fn fault(one: &ReadHalf<'_>, other: &ReadHalf<'_>) {
    let (one, other) = (one.ready(Interest::ERROR), other.ready(Interest::ERROR));
    select(pin!(one), pin!(other)).await;
}

/// Prepares a socket for relaying: prompt, probed when it is silent, and with urgent bytes in their place. A listening socket hands this down to
/// those it accepts.
///
/// A socket that refuses an option is closed already, which the first read tells.
pub fn prepare(socket: &SockRef<'_>, patience: Patience) {
    let keepalive = TcpKeepalive::new()
        .with_time(patience.keepalive)
        .with_interval(KEEPALIVE_INTERVAL);
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_out_of_band_inline(true);
}

impl Pair {
    /// Makes the coming close a reset on both sides.
    fn reset(&self) {
        let _ = self.inside.set_zero_linger();
        let _ = self.outside.set_zero_linger();
    }
}

/// The ends of both directions.
struct Ways<'a> {
    inside: &'a ReadHalf<'a>,
    outside: &'a ReadHalf<'a>,
    to_inside: WriteHalf<'a>,
    to_outside: WriteHalf<'a>,
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

    fn poll(&mut self, cx: &mut Context<'_>, ways: &mut Ways<'_>) -> Poll<End> {
        let before = (self.outward.moved, self.inward.moved);
        let pool = &self.means.pool;
        let outward = self
            .outward
            .poll(cx, ways.inside.as_ref(), &mut ways.to_outside, pool);
        let inward = self
            .inward
            .poll(cx, ways.outside.as_ref(), &mut ways.to_inside, pool);
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
            (Poll::Ready(Ok(())), Poll::Pending) => {
                self.poll_half_closed(cx, ways.outside.as_ref())
            }
            (Poll::Pending, Poll::Ready(Ok(()))) => self.poll_half_closed(cx, ways.inside.as_ref()),
        }
    }

    /// Whether both sockets are read, which tells an error of either.
    fn reads(&self) -> bool {
        self.outward.reads() && self.inward.reads()
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
        source: &TcpStream,
        sink: &mut WriteHalf<'_>,
        pool: &Pool,
    ) -> Poll<io::Result<()>> {
        loop {
            match &mut self.flow {
                Flow::Ended => return Poll::Ready(Ok(())),
                Flow::Flowing => {
                    ready!(source.poll_read_ready(cx))?;
                    if self.read(source, pool)? == Some(0) {
                        self.flow = Flow::Ended;
                    }
                }
                Flow::Discarding => {
                    ready!(source.poll_read_ready(cx))?;
                    if self.throw_away(source, pool)? == Some(0) {
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

    fn read(&mut self, source: &TcpStream, pool: &Pool) -> io::Result<Option<usize>> {
        let mut buffer = pool.take(self.grade);
        let received = receive(source, &mut buffer);
        let Ok(Some(read @ 1..)) = received else {
            pool.give(buffer);
            return received;
        };
        self.grade = self.grade.after(read);
        self.flow = Flow::Holding {
            buffer,
            from: 0,
            to: read,
        };
        received
    }

    fn throw_away(&mut self, source: &TcpStream, pool: &Pool) -> io::Result<Option<usize>> {
        let mut buffer = pool.take(self.grade);
        let received = receive(source, &mut buffer);
        pool.give(buffer);
        received
    }

    fn discard(&mut self, pool: &Pool) {
        self.surrender(pool);
        if let Flow::Flowing = self.flow {
            self.flow = Flow::Discarding;
        }
    }

    /// Whether this direction reads its source.
    fn reads(&self) -> bool {
        match self.flow {
            Flow::Flowing | Flow::Discarding => true,
            Flow::Holding { .. } | Flow::Ended => false,
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

/// What there is to be read; `None`: nothing yet. Less than there is room for is all there was, and more is news to wait for, unless an urgent
/// byte has ended the read.
fn receive(source: &TcpStream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    let mut received = None;
    let told = source.try_io(Interest::READABLE, || {
        let read = (&*SockRef::from(source)).read(buffer)?;
        received = Some(read);
        let short = (1..buffer.len()).contains(&read);
        if short && !urgent::is_next(source).unwrap_or(false) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(())
    });
    match told {
        Err(fault) if fault.kind() != io::ErrorKind::WouldBlock => Err(fault),
        Ok(()) | Err(_) => Ok(received),
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
