//! Real servers on loopback, each of which counts who came.

pub mod dns;
pub mod git;
pub mod http;
pub mod refusing;
pub mod tcp;

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet};

/// The runtime of all servers of a test process. Two workers: the machines have two cores, and the clients are what is tested.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("start the runtime of the servers")
});

/// The local address of IPv4.
pub const FOUR: &str = "127.0.0.1";
/// The local address of IPv6.
pub const SIX: &str = "::1";

/// A TCP server; it and its connections end when this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Server {
    /// Serves every connection on a free port of this address.
    pub fn start<S, R>(ip: &str, serve: S) -> Self
    where
        S: Fn(TcpStream) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        Self::start_at(SocketAddr::new(address(ip), 0), serve)
    }

    /// Serves every connection on this address and port.
    pub fn start_at<S, R>(at: SocketAddr, serve: S) -> Self
    where
        S: Fn(TcpStream) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = RUNTIME
            .block_on(TcpListener::bind(at))
            .expect("listen on loopback");
        let address = listener.local_addr().expect("know the address");
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        let task = RUNTIME.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                drop(stream.set_nodelay(true));
                connections.spawn(serve(stream));
                while connections.try_join_next().is_some() {}
            }
        });
        Self {
            address,
            accepted,
            task,
        }
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// How many connections arrived so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn address(ip: &str) -> IpAddr {
    ip.parse().expect("a literal address")
}
