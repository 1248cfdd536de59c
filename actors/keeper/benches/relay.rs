//! Measures the relay beside native loopback and beside tokio's own copy, in one run: `cargo bench -p holdfast-keeper --bench relay`.
//!
//! Ratios count, not figures: all rows share the machine's cores with the load generator, and the rows are interleaved so that a noisy minute
//! harms all of them alike.
#![expect(clippy::print_stdout, reason = "a benchmark's result is its output")]
#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures real time and owns its tasks"
)]

use holdfast_keeper::egress::relay::{Means, Pair, relay};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// What stands between the client and the server.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Native,
    Copy(usize),
    Relay,
}

const WAYS: [Way; 5] = [
    Way::Native,
    Way::Copy(8 << 10),
    Way::Copy(64 << 10),
    Way::Copy(256 << 10),
    Way::Relay,
];
const ROUNDS: usize = 5;
const SPELL: Duration = Duration::from_millis(1500);
const CONNECTIONS: usize = 16;
const REQUEST: usize = 64;
const ANSWER: usize = 128;

fn main() {
    let relays = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("runtime");
    let sink = bulk_server();
    let talk = talk_server();
    let fronts: Vec<_> = WAYS
        .iter()
        .map(|way| (front(&relays, *way, sink), front(&relays, *way, talk)))
        .collect();

    report("bulk, 1 connection, GB/s", &of(&fronts, |f| f.0), |at| {
        bulk(at, 1)
    });
    report("bulk, 8 connections, GB/s", &of(&fronts, |f| f.0), |at| {
        bulk(at, 8)
    });
    report(
        "requests/s, 16 connections, thousands",
        &of(&fronts, |f| f.1),
        |at| talk_rate(at) / 1e3,
    );
    report("1-byte round trip, µs", &of(&fronts, |f| f.1), round_trip);
}

fn of(
    fronts: &[(SocketAddr, SocketAddr)],
    pick: impl Fn(&(SocketAddr, SocketAddr)) -> SocketAddr,
) -> Vec<SocketAddr> {
    fronts.iter().map(pick).collect()
}

fn report(what: &str, fronts: &[SocketAddr], measure: impl Fn(SocketAddr) -> f64) {
    let mut seen = vec![Vec::new(); fronts.len()];
    for _ in 0..ROUNDS {
        for (row, front) in fronts.iter().enumerate() {
            seen[row].push(measure(*front));
        }
    }
    println!("{what}");
    let mut native = 0.0;
    for (row, mut figures) in seen.into_iter().enumerate() {
        figures.sort_by(f64::total_cmp);
        let median = figures[figures.len() / 2];
        if WAYS[row] == Way::Native {
            native = median;
        }
        let best = figures[figures.len() - 1];
        println!(
            "  {:<14} {median:>8.2}  ×{:.2}  (best {best:.2})",
            name(WAYS[row]),
            median / native
        );
    }
}

fn name(way: Way) -> String {
    match way {
        Way::Native => "native".into(),
        Way::Copy(bytes) => format!("copy {} KiB", bytes >> 10),
        Way::Relay => "relay".into(),
    }
}

/// An address that leads to `server` the given way.
fn front(runtime: &Runtime, way: Way, server: SocketAddr) -> SocketAddr {
    if way == Way::Native {
        return server;
    }
    let means = Arc::new(Means::default());
    let listener = runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .expect("bind");
    let at = listener.local_addr().expect("address");
    runtime.spawn(async move {
        while let Ok((mut inside, _)) = listener.accept().await {
            let means = Arc::clone(&means);
            tokio::spawn(async move {
                let mut outside = TcpStream::connect(server).await.expect("connect");
                if let Way::Copy(bytes) = way {
                    let _ = inside.set_nodelay(true);
                    let _ = outside.set_nodelay(true);
                    let _ = copy_bidirectional_with_sizes(&mut inside, &mut outside, bytes, bytes)
                        .await;
                } else {
                    let never = std::future::pending;
                    relay(Pair { inside, outside }, &means, never(), never()).await;
                }
            });
        }
    });
    at
}

/// Reads all it is sent.
fn bulk_server() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let at = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut buffer = vec![0; 256 << 10];
                let mut total = 0u64;
                while let Ok(read) = stream.read(&mut buffer) {
                    if read == 0 {
                        break;
                    }
                    total += read as u64;
                }
                let _ = stream.write_all(&total.to_be_bytes());
            });
        }
    });
    at
}

fn bulk(at: SocketAddr, connections: usize) -> f64 {
    let begun = Instant::now();
    let senders: Vec<_> = (0..connections)
        .map(|_| {
            std::thread::spawn(move || {
                let mut stream = std::net::TcpStream::connect(at).expect("connect");
                let chunk = vec![7; 256 << 10];
                while begun.elapsed() < SPELL {
                    stream.write_all(&chunk).expect("write");
                }
                stream
                    .shutdown(std::net::Shutdown::Write)
                    .expect("half-close");
                let mut total = [0; 8];
                stream.read_exact(&mut total).expect("total");
                u64::from_be_bytes(total)
            })
        })
        .collect();
    let total: u64 = senders
        .into_iter()
        .map(|sender| sender.join().expect("sender"))
        .sum();
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let total = total as f64;
    total / begun.elapsed().as_secs_f64() / 1e9
}

/// Answers each request.
fn talk_server() -> SocketAddr {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("runtime");
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
            tell.send(listener.local_addr().expect("address"))
                .expect("tell");
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let _ = stream.set_nodelay(true);
                    let mut request = [0; REQUEST];
                    while stream.read_exact(&mut request).await.is_ok()
                        && stream.write_all(&[1; ANSWER]).await.is_ok()
                    {}
                });
            }
        });
    });
    told.recv().expect("address")
}

fn talk_rate(at: SocketAddr) -> f64 {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    runtime.block_on(async move {
        let begun = Instant::now();
        let talks: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                tokio::spawn(async move {
                    let mut stream = TcpStream::connect(at).await.expect("connect");
                    stream.set_nodelay(true).expect("nodelay");
                    let mut answer = [0; ANSWER];
                    let mut count = 0u32;
                    while begun.elapsed() < SPELL {
                        stream.write_all(&[2; REQUEST]).await.expect("ask");
                        stream.read_exact(&mut answer).await.expect("answer");
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let mut total = 0.0;
        for talk in talks {
            total += f64::from(talk.await.expect("talk"));
        }
        total / begun.elapsed().as_secs_f64()
    })
}

/// The median of one request at a time.
fn round_trip(at: SocketAddr) -> f64 {
    let mut stream = std::net::TcpStream::connect(at).expect("connect");
    stream.set_nodelay(true).expect("nodelay");
    let mut answer = [0; ANSWER];
    let mut took: Vec<f64> = (0..5000)
        .map(|_| {
            let begun = Instant::now();
            stream.write_all(&[2; REQUEST]).expect("ask");
            stream.read_exact(&mut answer).expect("answer");
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}
