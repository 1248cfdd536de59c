use super::*;
use std::io::ErrorKind;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// A relay with both of its ends in hand.
struct Bench {
    client: TcpStream,
    server: TcpStream,
    means: Arc<Means>,
    ends: JoinSet<End>,
    switch: oneshot::Sender<()>,
    leave: oneshot::Sender<()>,
}

impl Bench {
    async fn new(patience: Patience) -> Bench {
        let (client, inside) = connection().await;
        let (outside, server) = connection().await;
        prepare(&SockRef::from(&inside), patience);
        let means = Arc::new(Means {
            patience,
            ..Means::default()
        });
        let (switch, closing) = oneshot::channel();
        let (leave, leaving) = oneshot::channel();
        let mut ends = JoinSet::new();
        let shared = Arc::clone(&means);
        ends.spawn(async move {
            let (closing, leaving) = (closing.map(drop), leaving.map(drop));
            relay(Pair { inside, outside }, &shared, closing, leaving).await
        });
        Bench {
            client,
            server,
            means,
            ends,
            switch,
            leave,
        }
    }

    /// The client's place is outside, and the server's inside, unless `inside`.
    async fn turned(inside: bool) -> Bench {
        let mut bench = Bench::new(Patience::default()).await;
        if !inside {
            std::mem::swap(&mut bench.client, &mut bench.server);
        }
        bench
    }

    async fn end(&mut self) -> End {
        self.ends
            .join_next()
            .await
            .expect("one relay")
            .expect("no panic")
    }

    fn carried(&self) -> (u64, u64) {
        let Bytes { outward, inward } = &self.means.bytes;
        (
            outward.load(Ordering::Relaxed),
            inward.load(Ordering::Relaxed),
        )
    }
}

async fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let client = TcpStream::connect(listener.local_addr().expect("address"))
        .await
        .expect("connect");
    let (server, _) = listener.accept().await.expect("accept");
    (client, server)
}

/// Bytes that show a loss, a repetition or a swap.
fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| (index * 7 + index / 251).to_le_bytes()[0])
        .collect()
}

#[tokio::test]
async fn a_half_close_leaves_the_other_direction_open() {
    // PX-11: the client ends its request by FIN and gets all of the answer.
    let mut bench = Bench::new(Patience::default()).await;
    let answer = pattern(1 << 20);

    bench.client.write_all(b"req").await.expect("write");
    bench.client.shutdown().await.expect("half-close");
    let mut request = Vec::new();
    bench
        .server
        .read_to_end(&mut request)
        .await
        .expect("to the end");
    let expected = answer.clone();
    let (mut client, mut server) = (bench.client, bench.server);
    let (sent, received) = tokio::join!(
        async {
            server.write_all(&answer).await?;
            server.shutdown().await
        },
        async {
            let mut received = Vec::new();
            client.read_to_end(&mut received).await.map(|_| received)
        },
    );

    assert_eq!(request, b"req");
    sent.expect("all is taken");
    assert!(received.expect("then EOF") == expected);
    assert_eq!(
        bench
            .ends
            .join_next()
            .await
            .expect("ends")
            .expect("no panic"),
        End::Finished
    );
}

#[tokio::test]
async fn a_half_close_of_the_server_leaves_the_client_speaking() {
    // PX-11, mirrored.
    let mut bench = Bench::new(Patience::default()).await;

    bench.server.shutdown().await.expect("half-close");
    assert_eq!(bench.client.read(&mut [0; 1]).await.expect("EOF"), 0);
    bench.client.write_all(b"still here").await.expect("write");
    bench.client.shutdown().await.expect("half-close");
    let mut heard = Vec::new();
    bench
        .server
        .read_to_end(&mut heard)
        .await
        .expect("to the end");

    assert_eq!(heard, b"still here");
    assert_eq!(bench.end().await, End::Finished);
    assert_eq!(bench.carried(), (10, 0));
}

#[tokio::test]
async fn a_reset_on_one_side_is_a_reset_on_the_other() {
    for inside in [true, false] {
        let mut bench = Bench::turned(inside).await;

        bench.client.set_zero_linger().expect("linger");
        drop(bench.client);

        let fault = bench.server.read(&mut [0; 1]).await.expect_err("a reset");
        assert_eq!(fault.kind(), ErrorKind::ConnectionReset, "inside: {inside}");
        let end = bench.ends.join_next().await.expect("ends");
        assert_eq!(end.expect("no panic"), End::Reset);
    }
}

#[tokio::test]
async fn a_reset_passes_by_what_the_other_side_does_not_read() {
    for inside in [true, false] {
        let mut bench = Bench::turned(inside).await;
        fill(&mut bench.client).await;

        bench.client.set_zero_linger().expect("linger");
        drop(bench.client);

        hear_of_a_reset(&bench.server).await;
        let end = bench.ends.join_next().await.expect("ends");
        assert_eq!(end.expect("no panic"), End::Reset, "inside: {inside}");
    }
}

#[tokio::test]
async fn a_reset_after_a_half_close_reaches_a_silent_side() {
    for inside in [true, false] {
        let mut bench = Bench::turned(inside).await;
        bench.client.shutdown().await.expect("half-close");
        assert_eq!(bench.server.read(&mut [0; 1]).await.expect("EOF"), 0);

        bench.client.set_zero_linger().expect("linger");
        drop(bench.client);

        hear_of_a_reset(&bench.server).await;
        let end = bench.ends.join_next().await.expect("ends");
        assert_eq!(end.expect("no panic"), End::Reset, "inside: {inside}");
    }
}

/// Writes until sockets and relay are full.
async fn fill(sink: &mut TcpStream) -> usize {
    let (chunk, mut sent) = (pattern(256 << 10), 0);
    let fill = async {
        loop {
            sent += sink.write(&chunk).await.expect("write");
        }
    };
    let stalled = tokio::time::timeout(Duration::from_millis(300), fill).await;
    assert!(stalled.is_err());
    sent
}

/// Told of it at once, though nothing is read.
async fn hear_of_a_reset(socket: &TcpStream) {
    let told = tokio::time::timeout(Duration::from_secs(5), socket.ready(Interest::ERROR)).await;
    assert!(told.expect("in time").expect("told").is_error());
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_a_download_resets_the_upstream() {
    // OB-07: an everyday event, and no reason to go on downloading.
    let mut bench = Bench::new(Patience::default()).await;
    bench.server.write_all(&pattern(1000)).await.expect("write");
    bench.client.read_exact(&mut [0; 10]).await.expect("read");

    // Closed with unread bytes: the kernel resets.
    drop(bench.client);

    let chunk = pattern(64 << 10);
    let fault = loop {
        if let Err(fault) = bench.server.write_all(&chunk).await {
            break fault.kind();
        }
    };
    assert!(
        matches!(fault, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        "{fault:?}"
    );
    assert_eq!(
        bench
            .ends
            .join_next()
            .await
            .expect("ends")
            .expect("no panic"),
        End::Reset
    );
}

#[tokio::test]
async fn bulk_arrives_whole_in_both_directions_at_once_with_slow_readers() {
    let mut bench = Bench::new(Patience::default()).await;
    let (there, back) = (pattern(3 << 20), pattern(5 << 20));
    let (mut client_reads, mut client_writes) = bench.client.split();
    let (mut server_reads, mut server_writes) = bench.server.split();
    let (there_sent, back_sent) = (there.clone(), back.clone());

    let ((), (), heard_there, heard_back) = tokio::join!(
        async {
            client_writes.write_all(&there_sent).await.expect("write");
            client_writes.shutdown().await.expect("half-close");
        },
        async {
            server_writes.write_all(&back_sent).await.expect("write");
            server_writes.shutdown().await.expect("half-close");
        },
        read_slowly(&mut server_reads),
        read_slowly(&mut client_reads),
    );

    assert!(heard_there == there && heard_back == back);
    assert_eq!(
        bench
            .ends
            .join_next()
            .await
            .expect("ends")
            .expect("no panic"),
        End::Finished
    );
    assert_eq!(bench.means.bytes.outward.load(Ordering::Relaxed), 3 << 20);
    assert_eq!(bench.means.bytes.inward.load(Ordering::Relaxed), 5 << 20);
}

/// Small reads with turns for others in between: the relay meets full sockets.
async fn read_slowly(source: &mut (impl AsyncReadExt + Unpin)) -> Vec<u8> {
    let (mut heard, mut chunk) = (Vec::new(), vec![0; 10_007]);
    loop {
        let read = source.read(&mut chunk).await.expect("read");
        if read == 0 {
            return heard;
        }
        heard.extend_from_slice(&chunk[..read]);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_idle_connection_holds_no_buffer_and_a_stalled_one_holds_one() {
    let bench = Bench::new(Patience::default()).await;
    let mut server = bench.server;

    let sent = fill(&mut server).await;
    assert!(bench.means.pool.large_out() <= 1);
    server.shutdown().await.expect("half-close");
    let mut client = bench.client;
    let mut heard = 0;
    let mut buffer = vec![0; 1 << 16];
    while heard < sent {
        heard += client.read(&mut buffer).await.expect("read");
    }
    assert_eq!(client.read(&mut buffer).await.expect("EOF"), 0);

    assert_eq!(heard, sent);
    assert_eq!(bench.means.pool.large_out(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_open_connection_is_never_timed_out_and_a_silent_half_closed_one_is_reaped() {
    // PX-11, PX-24.
    let patience = Patience {
        half_closed: Duration::from_mins(1),
        ..Patience::default()
    };
    let mut bench = Bench::new(patience).await;

    let long = tokio::time::timeout(Duration::from_hours(1), bench.ends.join_next()).await;
    assert!(long.is_err(), "an hour of silence ends nothing");

    bench.client.shutdown().await.expect("half-close");
    assert_eq!(bench.server.read(&mut [0; 1]).await.expect("EOF"), 0);
    let end = tokio::time::timeout(Duration::from_mins(3), bench.end()).await;

    assert_eq!(end.expect("reaped in time"), End::Reaped);
    let fault = bench.client.read(&mut [0; 1]).await.expect_err("a reset");
    assert_eq!(fault.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_connection_that_is_closed_from_above_is_reset_on_both_sides() {
    let mut bench = Bench::new(Patience::default()).await;

    drop(bench.switch);

    let end = bench
        .ends
        .join_next()
        .await
        .expect("ends")
        .expect("no panic");
    assert_eq!(end, End::Closed);
    for socket in [&mut bench.client, &mut bench.server] {
        let fault = socket.read(&mut [0; 1]).await.expect_err("a reset");
        assert_eq!(fault.kind(), ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn an_urgent_byte_keeps_its_place_and_holds_nothing_up() {
    for turned in [false, true] {
        let mut bench = Bench::turned(turned).await;
        // All of it lies there before the relay reads: nothing comes after that would wake it.
        let urgent = SockRef::from(&bench.client);
        for (ordinary, last) in [(b"abc", b"!"), (b"def", b"?")] {
            urgent.send(ordinary).expect("taken");
            urgent.send_out_of_band(last).expect("taken");
        }
        urgent.send(b"ghi").expect("taken");

        let mut heard = [0; 11];
        let read = bench.server.read_exact(&mut heard);
        let read = tokio::time::timeout(Duration::from_secs(10), read).await;

        read.expect("all is carried").expect("in order");
        assert_eq!(&heard, b"abc!def?ghi");
        let (outward, inward) = bench.carried();
        assert_eq!(outward + inward, 11);
    }
}

#[tokio::test]
async fn a_listening_socket_hands_down_that_its_connections_are_prompt_and_probed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    prepare(&SockRef::from(&listener), Patience::default());

    let address = listener.local_addr().expect("address");
    let _client = TcpStream::connect(address).await.expect("connect");
    let (inside, _) = listener.accept().await.expect("accept");

    let socket = SockRef::from(&inside);
    assert!(inside.nodelay().expect("option"));
    assert!(socket.keepalive().expect("option"));
    assert!(socket.out_of_band_inline().expect("option"));
    let probed = socket.tcp_keepalive_time().expect("option");
    assert_eq!(probed, Duration::from_mins(1));
}

#[tokio::test]
async fn when_nobody_inside_is_left_the_last_bytes_arrive_though_the_server_talks_on() {
    let bench = Bench::new(Patience::default()).await;
    let Bench {
        mut client,
        mut server,
        mut ends,
        switch: _switch,
        leave,
        ..
    } = bench;
    let (sent, mut received) = (pattern(1 << 20), Vec::new());

    drop(leave);
    // Carried on, it would lie unread in the client, whose close would be a reset.
    server.write_all(&[b'n'; 1000]).await.expect("write");
    let (wrote, read) = tokio::join!(
        async {
            let wrote = client.write_all(&sent).await;
            drop(client);
            wrote
        },
        server.read_to_end(&mut received),
    );

    wrote.expect("taken");
    read.expect("an end in order");
    assert!(received == sent);
    let end = ends.join_next().await.expect("one relay");
    assert_eq!(end.expect("no panic"), End::Finished);
}
