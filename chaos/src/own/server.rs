//! The server that the policy names: it gives back what it gets, and counts who came.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// An echo on the host's loopback; gone when it is dropped.
pub(crate) struct Server {
    port: u16,
    arrived: Arc<AtomicU64>,
    _serving: JoinSet<()>,
}

impl Server {
    pub(crate) async fn start() -> Result<Self, String> {
        let failed = |error| format!("listen on the loopback: {error}");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let arrived = Arc::new(AtomicU64::new(0));
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, Arc::clone(&arrived)));
        Ok(Self {
            port,
            arrived,
            _serving: serving,
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }
}

async fn serve(listener: TcpListener, arrived: Arc<AtomicU64>) {
    let mut open = JoinSet::new();
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            arrived.fetch_add(1, Ordering::Relaxed);
            open.spawn(echo(stream));
        } else {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        while open.try_join_next().is_some() {}
    }
}

async fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let Some(read) = buffer.get(..count) else {
            return;
        };
        if stream.write_all(read).await.is_err() {
            return;
        }
    }
}
