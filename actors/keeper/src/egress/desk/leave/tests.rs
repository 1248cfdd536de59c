use super::*;
use crate::egress::testing::{CURL, How, OPEN, World, at, curl, wget};
use holdfast_clock::Clock;
use holdfast_wire::v1::{self, from_broker::Kind};
use socket2::{Domain, Socket, Type};
use std::io::Write;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// Long enough that a test which needs it fails.
const LIMIT: Duration = Duration::from_secs(10);
/// Far below the limit, and far above what a busy machine adds to [`GRACE`].
const PROMPT: Duration = Duration::from_secs(2);

async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> T {
    timeout(limit, work).await.expect("in time")
}

/// A world, and both ends of one connection through it.
async fn connected() -> (World, TcpStream, TcpStream) {
    let mut world = World::new().await;
    let client = world.connect(OPEN, curl(), How::Blocking).await;
    let (served, _) = world.server.accept().await.expect("dialled");
    (world, client.expect("allowed"), served)
}

#[tokio::test]
async fn what_a_program_wrote_before_its_end_reaches_a_slow_upstream() {
    let (world, mut client, mut served) = connected().await;
    let sent: Vec<u8> = (0..8_u32 << 20)
        .map(|index| (index * 7 + index / 251).to_le_bytes()[0])
        .collect();

    let (wrote, received) = tokio::join!(
        async {
            client.write_all(&sent).await?;
            drop(client);
            world.desk.finish(LIMIT).await;
            world.desk.close().await;
            Ok::<_, std::io::Error>(())
        },
        async {
            let (mut received, mut some) = (Vec::new(), [0; 4096]);
            loop {
                let read = served.read(&mut some).await?;
                if read == 0 {
                    return Ok::<_, std::io::Error>(received);
                }
                received.extend_from_slice(&some[..read]);
                tokio::task::yield_now().await;
            }
        },
    );

    wrote.expect("taken");
    assert!(received.expect("an end in order") == sent);
}

#[tokio::test]
async fn an_upstream_that_never_closes_delays_nothing() {
    let (world, mut client, mut served) = connected().await;
    client.write_all(b"last words").await.expect("write");
    drop(client);

    within(PROMPT, world.desk.finish(LIMIT)).await;

    let mut heard = Vec::new();
    served.read_to_end(&mut heard).await.expect("to the end");
    assert_eq!(heard, b"last words");
    within(PROMPT, world.desk.finish(LIMIT)).await;
    assert_eq!(world.records().len(), 1);
}

#[tokio::test]
async fn who_lets_go_of_the_last_bytes_resets_their_connection_and_keeps_its_record() {
    let (world, mut client, mut served) = connected().await;
    let more = vec![0; 1 << 16];
    // Until nothing is taken any more: the upstream does not read.
    while timeout(GRACE, client.write_all(&more)).await.is_ok() {}
    drop(client);

    let finished = timeout(GRACE, world.desk.finish(LIMIT)).await;
    within(PROMPT, world.desk.close()).await;

    finished.expect_err("there was something to wait for");
    let fault = served.read_to_end(&mut Vec::new()).await;
    let fault = fault.expect_err("a reset").kind();
    assert_eq!(fault, std::io::ErrorKind::ConnectionReset);
    assert_eq!(
        world.records(),
        [format!("open.test {CURL} allowed connected")]
    );
}

#[tokio::test]
async fn a_connection_in_the_backlog_is_accepted_and_delivered() {
    let world = World::new().await;
    // Nothing here waits, so no listener gets a turn before the end begins.
    let mut client = std::net::TcpStream::connect(at(OPEN, world.port)).expect("captured");
    client.write_all(b"last words").expect("write");
    drop(client);

    within(PROMPT, world.desk.finish(LIMIT)).await;

    let (mut served, _) = within(PROMPT, world.server.accept())
        .await
        .expect("dialled");
    let mut heard = Vec::new();
    served.read_to_end(&mut heard).await.expect("to the end");
    assert_eq!(heard, b"last words");
    assert_eq!(world.records(), ["open.test - allowed connected"]);
}

#[tokio::test]
async fn a_connection_whose_listener_is_late_is_delivered() {
    let mut world = World::new().await;
    let socket = TcpSocket::new_v4().expect("socket");
    let verdict = world.announce(&socket, OPEN, curl(), How::Blocking).await;
    assert_eq!(verdict.errno, 0);

    let (desk, is_leaving) = (Arc::clone(&world.desk), world.desk.phase.subscribe());
    let ((), ()) = tokio::join!(within(PROMPT, desk.finish(LIMIT)), async {
        let mut phase = is_leaving;
        let leaving = phase.wait_for(|phase| *phase == Phase::Leaving).await;
        drop(leaving.expect("it leaves"));
        // Turns enough for one that waits for nobody to be over.
        tokio::time::sleep(TURN * 20).await;
        assert_eq!(desk.phase(), Phase::Leaving);
        let mut client = world.arrive(socket, OPEN).await;
        client.write_all(b"last words").await.expect("write");
    });

    let (mut served, _) = within(PROMPT, world.server.accept())
        .await
        .expect("dialled");
    let mut heard = Vec::new();
    served.read_to_end(&mut heard).await.expect("to the end");
    assert_eq!(heard, b"last words");
    assert_eq!(
        world.records(),
        [format!("open.test {CURL} allowed connected")]
    );
}

#[tokio::test]
async fn a_connection_that_does_not_come_is_not_waited_for_long() {
    let mut world = World::new().await;
    let socket = TcpSocket::new_v4().expect("socket");
    world.announce(&socket, OPEN, curl(), How::Blocking).await;
    drop(socket);

    within(PROMPT, world.desk.finish(LIMIT)).await;

    assert_eq!(
        world.records(),
        [format!("open.test {CURL} allowed abandoned")]
    );
}

#[tokio::test]
async fn a_dial_that_nobody_answers_costs_the_grace_and_leaves_one_record() {
    let mut world = World::new().await;
    let elsewhere = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    drop(std::mem::replace(
        &mut world.server,
        elsewhere.expect("bind"),
    ));
    let _deaf = deaf(world.port);
    // One whose connection is here, one whose caller waits in connect().
    let socket = TcpSocket::new_v4().expect("socket");
    let verdict = world
        .announce(&socket, OPEN, wget(), How::NonBlocking)
        .await;
    assert_eq!(verdict.errno, 0);
    let mut client = world.arrive(socket, OPEN).await;
    client.write_all(b"lost").await.expect("write");
    drop(client);
    world.say(Kind::Attempt(blocked(world.port))).await;
    while world.desk.pending() < 2 {
        tokio::task::yield_now().await;
    }

    let clock = Clock::system();
    let begun = clock.now();
    within(PROMPT, world.desk.finish(LIMIT)).await;
    assert!(clock.now() - begun >= GRACE, "the connection had its grace");
    within(GRACE, world.desk.close()).await;

    let mut records = world.records();
    records.sort();
    let lines = [
        format!("open.test {CURL} allowed abandoned"),
        "open.test /usr/bin/wget allowed abandoned".to_owned(),
    ];
    assert_eq!(records, lines);
    assert_eq!((world.desk.pending(), world.desk.budget.free()), (0, 64));
    assert_eq!(world.hear().await.errno, libc::ENETDOWN);
}

#[tokio::test]
async fn an_attempt_after_the_end_leaves_its_record_at_once() {
    let mut world = World::new().await;
    world.desk.finish(LIMIT).await;

    world.say(Kind::Attempt(blocked(world.port))).await;

    assert_eq!(world.hear().await.errno, libc::ENETDOWN);
    assert_eq!(
        world.records(),
        [format!("open.test {CURL} allowed abandoned")]
    );
    within(PROMPT, world.desk.close()).await;
}

/// What the broker says of curl in a blocking `connect()` to `open.test`.
fn blocked(port: u16) -> v1::Attempt {
    let caller = v1::Caller {
        observed: true,
        executable: CURL.to_owned(),
        ancestors: Vec::new(),
        pid: 7,
    };
    v1::Attempt {
        id: 99,
        cookie: u64::MAX,
        address: OPEN.to_vec(),
        port: u32::from(port),
        blocking: true,
        timeout_us: 0,
        caller: Some(caller),
        thread: 7,
    }
}

/// A listener whose backlog is full, so that the kernel answers no SYN, and what fills it.
fn deaf(port: u16) -> (Socket, Vec<Socket>) {
    let address = at([127, 0, 0, 1], port).into();
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("socket");
    listener.set_reuse_address(true).expect("SO_REUSEADDR");
    listener.bind(&address).expect("bind");
    listener.listen(0).expect("listen");
    let fill = (0..4).map(|_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None).expect("socket");
        // In progress or done; it is full after the first.
        drop(socket.connect(&address));
        socket
    });
    let filling = fill.collect();
    (listener, filling)
}
