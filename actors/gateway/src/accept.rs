//! Accepts connections for the services: bounded, patient when descriptors run out, and only from those who may come.
//!
//! ```text
//! permit ──▶ accept ──▶ who is it? ──▶ the service; the permit goes with the connection
//!    ▲          ├─ EMFILE, a spare is left: served on its number; on the last one briefly
//!    │          ├─ EMFILE, ENFILE, ENOBUFS, ENOMEM: counted, wait 10 ms … 1 s; the connection waits in the backlog
//!    │          ├─ a connection that broke before it was accepted: the next one
//!    │          ├─ the socket is none any more: the end
//!    │          └─ anything else: told, wait 10 ms … 1 s
//!    └─ a stranger: counted, dropped
//! ```
//!
//! A Unix socket whose place is empty is found by nobody: once a second it is looked for, and made anew.
//!
//! Not tonic's own loop: that one calls `accept` again at once when descriptors run out, and keeps a core busy with it.

use std::fs;
use std::future::Future as _;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use holdfast_actor::Clock;
use holdfast_kernel::descriptors::{Loan, Spares, is_exhausted, noted};
use holdfast_observability::{Limiter, exhausted, fault, transport};
use nix::unistd::geteuid;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

/// Where connections come in. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    /// What it is called in metrics.
    pub(crate) name: Arc<str>,
    socket: Arc<Socket>,
    permits: Arc<Semaphore>,
    pub(crate) counts: Arc<Counts>,
}

/// What came to a door.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) accepted: AtomicU64,
    /// Found no descriptors.
    pub(crate) starved: AtomicU64,
    /// Came from somebody who may not.
    pub(crate) strangers: AtomicU64,
}

#[derive(Debug)]
enum Socket {
    Unix(Unix),
    Tcp(TcpListener),
}

#[derive(Debug)]
struct Unix {
    path: PathBuf,
    present: Mutex<Arc<UnixListener>>,
    spares: Arc<Spares>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Wire,
    peer: Peer,
    /// When one on the last spare has been here for long enough: the next one needs it.
    leaves: Option<Pin<Box<Sleep>>>,
    _permit: OwnedSemaphorePermit,
    /// Given back after the stream is closed.
    _loan: Option<Loan>,
}

#[derive(Debug)]
enum Wire {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The process, where the kernel tells.
    pub(crate) pid: Option<u32>,
    /// Whether it has the last descriptor: what may last has no place there.
    pub(crate) last: bool,
}

/// One who came in, on what; `None` instead of the peer: one who may not come.
type Came = (Wire, Option<Peer>, Option<Loan>);

impl Door {
    /// Binds a socket that only its owner may connect to, in the place of what is there of a dead gateway.
    pub(crate) fn unix(path: &Path, spares: Arc<Spares>) -> io::Result<Self> {
        let unix = Unix {
            path: path.to_owned(),
            present: Mutex::new(Arc::new(bind(path)?)),
            spares,
        };
        Ok(Self::new("unix", Socket::Unix(unix)))
    }

    pub(crate) fn tcp(socket: TcpListener) -> Self {
        Self::new("tcp", Socket::Tcp(socket))
    }

    fn new(name: &str, socket: Socket) -> Self {
        Self {
            name: name.into(),
            socket: Arc::new(socket),
            permits: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
            counts: Arc::default(),
        }
    }

    /// Where it is, for a TCP door.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match &*self.socket {
            Socket::Unix(_) => None,
            Socket::Tcp(socket) => socket.local_addr().ok(),
        }
    }

    /// Connections, until the socket is none any more.
    pub(crate) fn connections(&self) -> impl Stream<Item = io::Result<Connection>> + Send + use<> {
        let porter = Porter {
            door: self.clone(),
            pause: LEAST,
            complaints: Limiter::default(),
        };
        unfold(porter, async |mut porter| {
            let connection = porter.next().await?;
            Some((Ok(connection), porter))
        })
    }
}

/// Stands at a door.
struct Porter {
    door: Door,
    pause: Duration,
    complaints: Limiter,
}

impl Porter {
    async fn next(&mut self) -> Option<Connection> {
        loop {
            let permit = Arc::clone(&self.door.permits).acquire_owned().await.ok()?;
            match self.accept().await {
                Ok((stream, Some(peer), loan)) => {
                    self.pause = LEAST;
                    self.door.counts.accepted.fetch_add(1, Ordering::Relaxed);
                    return Some(Connection {
                        stream,
                        peer,
                        leaves: peer.last.then(|| Box::pin(sleep(VISIT))),
                        _permit: permit,
                        _loan: loan,
                    });
                }
                Ok((_, None, _)) => {
                    self.door.counts.strangers.fetch_add(1, Ordering::Relaxed);
                    if let Some(held_back) = self.may_complain() {
                        transport!(held_back, "refused a connection of another user");
                    }
                }
                Err(error) => match Fate::of(&error) {
                    Fate::Next => {}
                    Fate::Over => return None,
                    Fate::Starved => {
                        self.door.counts.starved.fetch_add(1, Ordering::Relaxed);
                        if let Some(held_back) = self.may_complain() {
                            exhausted!(%error, held_back, "accept a connection; it waits in the backlog");
                        }
                        self.rest().await;
                    }
                    Fate::Later => {
                        if let Some(held_back) = self.may_complain() {
                            fault!(%error, held_back, "accept a connection; it is tried again");
                        }
                        self.rest().await;
                    }
                },
            }
        }
    }

    /// Longer each time, until somebody comes in.
    async fn rest(&mut self) {
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(MOST);
    }

    async fn accept(&self) -> io::Result<Came> {
        match &*self.door.socket {
            Socket::Unix(unix) => {
                let (stream, loan) = unix.accept().await?;
                let stream = noted(stream);
                // Whoever cannot be known is a stranger.
                let known = stream.peer_cred().ok();
                let own = |uid| uid == 0 || uid == geteuid().as_raw();
                let known = known.filter(|known| own(known.uid()));
                let peer = known.map(|known| Peer {
                    pid: known.pid().and_then(|pid| u32::try_from(pid).ok()),
                    last: loan.as_ref().is_some_and(|loan| loan.last),
                });
                Ok((Wire::Unix(stream), peer, loan))
            }
            Socket::Tcp(socket) => {
                let (stream, _) = socket.accept().await?;
                let stream = noted(stream);
                // One that is broken already is found out by whoever reads from it.
                let _ = stream.set_nodelay(true);
                Ok((Wire::Tcp(stream), Some(Peer::default()), None))
            }
        }
    }

    fn may_complain(&mut self) -> Option<u64> {
        self.complaints.admit(Clock::tokio().now().since_origin())
    }
}

impl Unix {
    /// The next who comes; under a limit below what is open in the place of a spare.
    async fn accept(&self) -> io::Result<(UnixStream, Option<Loan>)> {
        loop {
            let socket = Arc::clone(&self.present.lock());
            let came = tokio::select! {
                came = socket.accept() => came,
                () = sleep(LOOK) => {
                    self.spares.gather();
                    look(&self.path, &self.present);
                    continue;
                }
            };
            return match came {
                Ok((stream, _)) => Ok((stream, None)),
                Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                    self.squeeze(&socket).ok_or(error)
                }
                Err(error) => Err(error),
            };
        }
    }

    fn squeeze(&self, socket: &UnixListener) -> Option<(UnixStream, Option<Loan>)> {
        let mut now = Context::from_waker(Waker::noop());
        match self.spares.lend(|| socket.poll_accept(&mut now))? {
            (Poll::Ready(Ok((stream, _))), loan) => Some((stream, Some(loan))),
            (Poll::Ready(Err(_)) | Poll::Pending, _) => None,
        }
    }
}

/// Listens anew when somebody has removed the socket.
fn look(path: &Path, present: &Mutex<Arc<UnixListener>>) {
    if !matches!(path.try_exists(), Ok(false)) {
        return;
    }
    // Without its directory it cannot; the next look tries again.
    if let Ok(socket) = bind(path) {
        tracing::warn!(path = %path.display(), "the socket was removed; it listens anew");
        *present.lock() = Arc::new(socket);
    }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    if matches!(is_socket(path)?, Some(false)) {
        let why = "there is something that is no socket; move it away, or name another place";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    // Bound beside its place and moved there: nobody ever finds a socket that others may use, or one of a dead gateway where
    // there is a living one.
    let fresh = path.with_extension("new");
    if matches!(is_socket(&fresh)?, Some(true)) {
        fs::remove_file(&fresh)?;
    }
    let socket = UnixListener::bind(&fresh)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600))?;
    fs::rename(&fresh, path)?;
    Ok(socket)
}

/// `None` when nothing is there.
fn is_socket(path: &Path) -> io::Result<Option<bool>> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found.file_type().is_socket())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What follows when a connection could not be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It was about that connection only: the next may be good.
    Next,
    /// There is something wanting that will be there again.
    Starved,
    /// Nobody can be accepted on this socket any more.
    Over,
    /// Nobody knows. It may be the same at once, so it is not tried at once.
    Later,
}

impl Fate {
    fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ECONNABORTED | libc::EINTR) => Self::Next,
            Some(libc::EBADF | libc::EINVAL | libc::ENOTSOCK | libc::EOPNOTSUPP) => Self::Over,
            Some(errno) if is_exhausted(errno) => Self::Starved,
            Some(_) | None => Self::Later,
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let over = |leaves: &mut Pin<Box<Sleep>>| leaves.as_mut().poll(task).is_ready();
        if self.leaves.as_mut().is_some_and(over) {
            return Poll::Ready(Ok(()));
        }
        match &mut self.stream {
            Wire::Unix(stream) => Pin::new(stream).poll_read(task, buffer),
            Wire::Tcp(stream) => Pin::new(stream).poll_read(task, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Wire::Unix(stream) => Pin::new(stream).poll_write(task, bytes),
            Wire::Tcp(stream) => Pin::new(stream).poll_write(task, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Wire::Unix(stream) => Pin::new(stream).poll_write_vectored(task, parts),
            Wire::Tcp(stream) => Pin::new(stream).poll_write_vectored(task, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Wire::Unix(stream) => Pin::new(stream).poll_flush(task),
            Wire::Tcp(stream) => Pin::new(stream).poll_flush(task),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Wire::Unix(stream) => Pin::new(stream).poll_shutdown(task),
            Wire::Tcp(stream) => Pin::new(stream).poll_shutdown(task),
        }
    }
}

/// Connections at a time, per door.
const MOST_CONNECTIONS: usize = 1024;

/// How long one may stay on the last spare.
const VISIT: Duration = Duration::from_secs(1);

/// How soon a socket that was removed is missed.
const LOOK: Duration = Duration::from_secs(1);

/// The shortest and the longest pause after a want of resources.
const LEAST: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;

    #[test]
    fn what_nobody_knows_is_not_tried_at_once() {
        let fate = |errno| Fate::of(&io::Error::from_raw_os_error(errno));
        assert_eq!(fate(libc::ECONNABORTED), Fate::Next);
        assert_eq!(fate(libc::EMFILE), Fate::Starved);
        assert_eq!(fate(libc::EBADF), Fate::Over);
        for unknown in [libc::EPERM, libc::EPROTO, libc::ENETDOWN] {
            assert_eq!(fate(unknown), Fate::Later);
        }
        assert_eq!(Fate::of(&io::ErrorKind::Other.into()), Fate::Later);
    }

    #[tokio::test]
    async fn a_dead_gateways_socket_is_replaced_and_nothing_else_is() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("gateway.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));

        let _door = Door::unix(&path, Arc::default()).expect("replaced");

        let _guest = UnixStream::connect(&path).await.expect("connected");
        assert_eq!(fs::read_dir(base.path()).expect("listed").count(), 1);
        let file = base.path().join("notes");
        fs::write(&file, "mine").expect("written");
        let refused = Door::unix(&file, Arc::default()).expect_err("somebody's file");
        assert!(refused.to_string().contains("no socket"), "{refused}");
        assert_eq!(fs::read(&file).expect("still there"), b"mine");
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_was_removed_is_made_anew() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("gateway.sock");
        let door = Door::unix(&path, Arc::default()).expect("bound");
        let mut connections = Box::pin(door.connections());
        let guest = async {
            fs::remove_file(&path).expect("removed");
            sleep(LOOK * 2).await;
            let mode = fs::metadata(&path).expect("there").permissions().mode();
            (UnixStream::connect(&path).await.expect("connected"), mode)
        };

        let (came, (_guest, mode)) = tokio::join!(connections.next(), guest);

        assert_eq!(mode & 0o777, 0o600);
        assert!(came.is_some());
    }
}
