//! Servers that speak no protocol: what they do with bytes and with time is the point.

use super::{Server, address};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Sends back whatever it receives, and ends when the client has.
pub fn echo(ip: &str) -> Server {
    echo_at(ip, 0)
}

/// The same on this port.
pub fn echo_at(ip: &str, port: u16) -> Server {
    Server::start_at((address(ip), port).into(), |mut stream| async move {
        let (mut read, mut write) = stream.split();
        drop(tokio::io::copy(&mut read, &mut write).await);
        drop(write.shutdown().await);
    })
}

/// Answers only after the client has ended its half, with this many bytes.
pub fn half_closing(ip: &str, length: usize) -> Server {
    let answer = Arc::new(vec![b'h'; length]);
    Server::start(ip, move |mut stream| {
        let answer = Arc::clone(&answer);
        async move {
            if drain(&mut stream).await > 0 {
                drop(stream.write_all(&answer).await);
            }
            drop(stream.shutdown().await);
        }
    })
}

/// Accepts and never says a word.
pub fn silent(ip: &str) -> Server {
    Server::start(ip, |mut stream| async move {
        drain(&mut stream).await;
        std::future::pending::<()>().await;
    })
}

/// Accepts and never reads.
pub fn deaf(ip: &str) -> Server {
    Server::start(ip, |stream| async move {
        let _open = stream;
        std::future::pending::<()>().await;
    })
}

/// Speaks first, then listens until the client has ended.
pub fn greeting(ip: &str, text: &'static str) -> Server {
    Server::start(ip, move |mut stream| async move {
        drop(stream.write_all(text.as_bytes()).await);
        drain(&mut stream).await;
    })
}

/// Sends without end.
pub fn source(ip: &str) -> Server {
    Server::start(ip, |mut stream| async move {
        let block = vec![b's'; 1 << 18];
        while stream.write_all(&block).await.is_ok() {}
    })
}

/// Resets every connection at once.
pub fn resetting(ip: &str) -> Server {
    Server::start(ip, |mut stream| async move {
        // Unread bytes at close make the kernel send a reset.
        let mut byte = [0; 1];
        drop(stream.peek(&mut byte).await);
        drop(stream.write_all(b"first").await);
    })
}

/// Reads nothing. Whoever comes to the second one hears `reset` as soon as a connection to the first is, or `silence` after ten seconds.
pub fn unread(ip: &str) -> (Server, Server) {
    let told = Arc::new(Notify::new());
    let tells = Arc::clone(&told);
    let unread = Server::start(ip, move |stream| {
        let tells = Arc::clone(&tells);
        async move {
            drop(stream.ready(Interest::ERROR).await);
            tells.notify_one();
        }
    });
    let witness = Server::start(ip, move |mut stream| {
        let told = Arc::clone(&told);
        async move {
            let heard = timeout(Duration::from_secs(10), told.notified()).await;
            let word = heard.map_or("silence", |()| "reset");
            drop(stream.write_all(word.as_bytes()).await);
        }
    });
    (unread, witness)
}

/// Sends as much as is taken, and resets the connection once nothing is.
pub fn breaking_off(ip: &str) -> Server {
    Server::start(ip, |mut stream| async move {
        let block = vec![b'b'; 1 << 18];
        while timeout(Duration::from_millis(500), stream.write_all(&block))
            .await
            .is_ok()
        {}
        drop(stream.set_zero_linger());
    })
}

async fn drain(stream: &mut TcpStream) -> usize {
    let mut buffer = vec![0; 1 << 14];
    let mut total = 0;
    while let Ok(got @ 1..) = stream.read(&mut buffer).await {
        total += got;
    }
    total
}
