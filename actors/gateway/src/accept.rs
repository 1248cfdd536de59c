//! Accepts connections for the services: bounded, patient when descriptors run out, and only from those who may come.
//!
//! ```text
//! permit ──▶ accept ──▶ who is it? ──▶ the service; the permit goes with the connection
//!    ▲          └─ EMFILE, ENFILE, ENOBUFS, ENOMEM: counted, wait 10 ms … 1 s; the connection waits in the backlog
//!    └─ a stranger: counted, dropped
//! ```
//!
//! A Unix socket whose place is empty is found by nobody: once a second it is looked for, and made anew.
//!
//! Not tonic's own loop: that one calls `accept` again at once when descriptors run out, and keeps a core busy with it.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use holdfast_actor::Clock;
use holdfast_kernel::descriptors::is_exhausted;
use holdfast_observability::{Limiter, exhausted, transport};
use nix::unistd::geteuid;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
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
    Unix(PathBuf, Mutex<Arc<UnixListener>>),
    Tcp(TcpListener),
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Wire,
    peer: Peer,
    _permit: OwnedSemaphorePermit,
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
}

impl Door {
    /// Binds a socket that only its owner may connect to, in the place of what is there of a dead gateway.
    pub(crate) fn unix(path: &Path) -> io::Result<Self> {
        let socket = Mutex::new(Arc::new(bind(path)?));
        Ok(Self::new("unix", Socket::Unix(path.to_owned(), socket)))
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
            Socket::Unix(..) => None,
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
                Ok((stream, Some(peer))) => {
                    self.pause = LEAST;
                    self.door.counts.accepted.fetch_add(1, Ordering::Relaxed);
                    return Some(Connection {
                        stream,
                        peer,
                        _permit: permit,
                    });
                }
                Ok((_, None)) => {
                    self.door.counts.strangers.fetch_add(1, Ordering::Relaxed);
                    if let Some(held_back) = self.may_complain() {
                        transport!(held_back, "refused a connection of another user");
                    }
                }
                Err(error) => match error.raw_os_error() {
                    Some(errno) if is_exhausted(errno) => {
                        self.door.counts.starved.fetch_add(1, Ordering::Relaxed);
                        if let Some(held_back) = self.may_complain() {
                            exhausted!(%error, held_back, "accept a connection; it waits in the backlog");
                        }
                        tokio::time::sleep(self.pause).await;
                        self.pause = (self.pause * 2).min(MOST);
                    }
                    Some(libc::EBADF | libc::EINVAL | libc::ENOTSOCK | libc::EOPNOTSUPP) => {
                        return None;
                    }
                    // About one connection only: the next may be good.
                    _ => {}
                },
            }
        }
    }

    /// `None` instead of the peer: one who may not come.
    async fn accept(&self) -> io::Result<(Wire, Option<Peer>)> {
        match &*self.door.socket {
            Socket::Unix(path, present) => {
                let (stream, _) = loop {
                    let socket = Arc::clone(&present.lock());
                    tokio::select! {
                        came = socket.accept() => break came?,
                        () = tokio::time::sleep(LOOK) => look(path, present),
                    }
                };
                let known = stream.peer_cred()?;
                let may = known.uid() == 0 || known.uid() == geteuid().as_raw();
                let pid = known.pid().and_then(|pid| u32::try_from(pid).ok());
                Ok((Wire::Unix(stream), may.then_some(Peer { pid })))
            }
            Socket::Tcp(socket) => {
                let (stream, _) = socket.accept().await?;
                stream.set_nodelay(true)?;
                Ok((Wire::Tcp(stream), Some(Peer::default())))
            }
        }
    }

    fn may_complain(&mut self) -> Option<u64> {
        self.complaints.admit(Clock::tokio().now().since_origin())
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
    if let Ok(found) = fs::symlink_metadata(path)
        && found.file_type().is_socket()
    {
        fs::remove_file(path)?;
    }
    let socket = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(socket)
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

/// How soon a socket that was removed is missed.
const LOOK: Duration = Duration::from_secs(1);

/// The shortest and the longest pause after a want of resources.
const LEAST: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_was_removed_is_made_anew() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("gateway.sock");
        let door = Door::unix(&path).expect("bound");
        let mut connections = Box::pin(door.connections());
        let guest = async {
            fs::remove_file(&path).expect("removed");
            tokio::time::sleep(LOOK * 2).await;
            let mode = fs::metadata(&path).expect("there").permissions().mode();
            (UnixStream::connect(&path).await.expect("connected"), mode)
        };

        let (came, (_guest, mode)) = tokio::join!(connections.next(), guest);

        assert_eq!(mode & 0o777, 0o600);
        assert!(came.is_some());
    }
}
