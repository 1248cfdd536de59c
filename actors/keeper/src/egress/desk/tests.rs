use super::*;
use crate::egress::attempt::Caller;
use crate::egress::listener::Standing;
use crate::egress::testing::{CURL, FOREIGN, GUARDED, How, OPEN, World, curl, wget};
use holdfast_wire::v1::from_broker::Kind;
use std::io::ErrorKind;
use std::sync::atomic::AtomicU64;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

async fn is_reset(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 1]).await {
        Ok(read) => panic!("read {read} bytes"),
        Err(fault) => fault.kind() == ErrorKind::ConnectionReset,
    }
}

#[tokio::test]
async fn an_allowed_program_reaches_its_server_and_leaves_one_record() {
    // SB-20, SB-29: any protocol, the server may speak first; the workload's peer is the address it asked for.
    let mut world = World::new().await;

    for how in [How::Blocking, How::NonBlocking] {
        let mut client = world.connect(GUARDED, curl(), how).await.expect("allowed");
        let (mut served, _) = world.server.accept().await.expect("dialled");
        served.write_all(b"hello").await.expect("write");
        let mut heard = [0; 5];
        client.read_exact(&mut heard).await.expect("read");
        assert_eq!(&heard, b"hello");
        assert_eq!(
            client.peer_addr().expect("peer").ip(),
            std::net::IpAddr::from(GUARDED)
        );

        drop(client);
        assert_eq!(served.read(&mut [0; 1]).await.expect("EOF"), 0);
    }

    let line = format!("curl.test {CURL} allowed connected");
    assert_eq!(world.records(), [line.clone(), line]);
    assert_eq!(world.desk.counters.allowed.load(Ordering::Relaxed), 2);
}

/// A bounded file that was put in a directory that is gone: what makes it outgrow its bound cannot be written, and nothing noted.
fn unwritable() -> Audit {
    let place = tempfile::tempdir().expect("a directory");
    let audit = Audit::rotating(&place.path().join("audit.jsonl"), 1).expect("opens");
    let now = std::time::SystemTime::UNIX_EPOCH;
    audit.record(Record::syscall("test", now, "mount", "EPERM"));
    audit
}

#[tokio::test]
async fn what_cannot_be_noted_is_not_dialled_and_without_records_nothing_is_allowed() {
    let audit = unwritable();
    let mut world = World::recording(Budget::new(64), audit.clone()).await;

    for how in [How::Blocking, How::NonBlocking, How::Blocking] {
        assert_eq!(
            world.connect(OPEN, wget(), how).await.err(),
            Some(libc::ENOBUFS)
        );
    }

    assert_eq!((audit.tally().written, audit.tally().lost), (1, 3));
    assert!(audit.reserve().is_none());
    let came = tokio::time::timeout(Duration::from_millis(50), world.server.accept()).await;
    assert!(came.is_err(), "nobody came");
}

#[tokio::test]
async fn what_cannot_be_recorded_is_not_carried() {
    // The disk runs full between the note and the record: the note is there, the record has no room and stays owed.
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("audit.jsonl");
    let audit = Audit::rotating(&path, 1).expect("opens");
    audit.record(Record::syscall(
        "test",
        std::time::SystemTime::UNIX_EPOCH,
        "mount",
        "EPERM",
    ));
    let mut world = World::recording(Budget::new(64), audit.clone()).await;
    let socket = TcpSocket::new_v4().expect("socket");
    let verdict = world.announce(&socket, OPEN, wget(), How::Blocking).await;
    assert_eq!(verdict.errno, 0);
    drop(place);

    let mut client = world.arrive(socket, OPEN).await;

    assert!(is_reset(&mut client).await);
    // The server has seen it, so its record is still owed.
    assert_eq!((audit.tally().lost, audit.tally().waiting), (0, 1));
    assert_eq!(world.desk.counters.open.load(Ordering::Relaxed), 0);
}

/// A connect that is let go and fails in the kernel, since its source port is taken: nobody tells.
#[tokio::test]
async fn thousands_of_connects_that_fail_inside_leave_room_for_others() {
    let place = tempfile::tempdir().expect("a directory");
    let audit = Audit::file(&place.path().join("audit.jsonl")).expect("opens");
    let mut world = World::recording(Budget::new(64), audit.clone()).await;
    let waits = TcpSocket::new_v4().expect("socket");
    let verdict = world.announce(&waits, GUARDED, curl(), How::Blocking).await;
    assert_eq!(verdict.errno, 0);
    let _first = world.arrive(waits, GUARDED).await;

    for _ in 0..5000 {
        let socket = TcpSocket::new_v4().expect("socket");
        let verdict = world
            .announce(&socket, GUARDED, curl(), How::Blocking)
            .await;
        assert_eq!(verdict.errno, 0, "{} are pending", world.desk.pending());
        // A full backlog would keep the dials waiting.
        while world.server.accept().now_or_never().is_some() {}
    }

    let connected = world.connect(GUARDED, curl(), How::Blocking).await;
    let _last = connected.expect("allowed");
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    while count(&world.desk.counters.allowed) < 2 {
        tokio::task::yield_now().await;
    }
    let pending = world.desk.pending() as u64;
    assert!(pending < 4096, "{pending}");
    let abandoned = count(&world.desk.counters.abandoned);
    assert_eq!(abandoned + pending, 5000, "each leaves one record");
}

#[tokio::test]
async fn a_denied_program_learns_it_at_connect_and_nothing_is_dialled() {
    // SB-19 (d), SB-29
    let mut world = World::new().await;

    for how in [How::Blocking, How::NonBlocking] {
        assert_eq!(
            world.connect(GUARDED, wget(), how).await.err(),
            Some(libc::EACCES)
        );
        assert_eq!(
            world.connect(FOREIGN, curl(), how).await.err(),
            Some(libc::EACCES)
        );
    }

    let lines = [
        "curl.test /usr/bin/wget binary_not_allowed -".to_owned(),
        format!("foreign.test {CURL} host_not_allowed -"),
    ];
    assert_eq!(world.records(), [lines.clone(), lines].concat());
    let came = tokio::time::timeout(Duration::from_millis(50), world.server.accept()).await;
    assert!(came.is_err(), "nobody came");
}

#[tokio::test]
async fn a_refusing_upstream_is_told_as_it_is() {
    // PX-25, SB-19 (b): where the answer is there at once, even a non-blocking caller gets it.
    let mut world = World::new().await;
    let elsewhere = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("bind");
    drop(std::mem::replace(&mut world.server, elsewhere));

    for how in [How::Blocking, How::NonBlocking] {
        assert_eq!(
            world.connect(OPEN, wget(), how).await.err(),
            Some(libc::ECONNREFUSED)
        );
    }

    let line = "open.test /usr/bin/wget allowed ECONNREFUSED";
    assert_eq!(world.records(), [line, line]);
    assert_eq!(
        world.desk.counters.refused_upstream.load(Ordering::Relaxed),
        2
    );
}

#[tokio::test]
async fn an_unannounced_connection_is_served_only_by_a_rule_without_programs() {
    let world = World::new().await;

    let mut refused = TcpStream::connect((std::net::IpAddr::from(GUARDED), world.port))
        .await
        .expect("captured");
    assert!(is_reset(&mut refused).await);
    let mut client = TcpStream::connect((std::net::IpAddr::from(OPEN), world.port))
        .await
        .expect("captured");
    let (mut server, _) = world.server.accept().await.expect("dialled");
    server.write_all(b"x").await.expect("write");
    client.read_exact(&mut [0; 1]).await.expect("read");

    let expected = [
        "curl.test - identity_unobservable -",
        "open.test - allowed connected",
    ];
    assert_eq!(world.records(), expected);
}

#[tokio::test]
async fn a_socket_that_arrives_elsewhere_than_announced_is_judged_where_it_arrives() {
    // SB-02
    let mut world = World::new().await;
    let socket = TcpSocket::new_v4().expect("socket");

    assert_eq!(
        world
            .announce(&socket, OPEN, wget(), How::Blocking)
            .await
            .errno,
        0
    );
    let mut stream = world.arrive(socket, GUARDED).await;

    assert!(is_reset(&mut stream).await);
    let (mut dialled, _) = world.server.accept().await.expect("dialled ahead");
    assert_eq!(
        dialled.read(&mut [0; 1]).await.expect("closed"),
        0,
        "nothing was relayed"
    );
    assert_eq!(world.records(), ["curl.test - identity_unobservable -"]);
    assert_eq!(world.desk.counts().races, 1);
}

#[tokio::test]
async fn a_caller_that_was_interrupted_costs_nothing_but_a_record() {
    let mut world = World::new().await;
    let socket = TcpSocket::new_v4().expect("socket");

    let verdict = world.announce(&socket, OPEN, curl(), How::Blocking).await;
    world
        .say(Kind::Gone(v1::Gone {
            id: verdict.id,
            ..v1::Gone::default()
        }))
        .await;

    // Heard after it, so it is done.
    let denied = world.connect(FOREIGN, curl(), How::Blocking).await;
    assert_eq!(denied.err(), Some(libc::EACCES));
    let (mut dialled, _) = world.server.accept().await.expect("dialled ahead");
    assert_eq!(dialled.read(&mut [0; 1]).await.expect("closed"), 0);
    assert_eq!(
        world.records()[0],
        format!("open.test {CURL} allowed abandoned")
    );
    assert_eq!((world.desk.pending(), world.desk.budget.free()), (0, 64));
}

#[tokio::test]
async fn a_revised_policy_resets_what_it_denies_and_leaves_the_rest_alone() {
    // DN-07: refused at once after the policy no longer allows the name.
    let mut world = World::new().await;
    let mut open = world
        .connect(OPEN, wget(), How::Blocking)
        .await
        .expect("allowed");
    let (mut served, _) = world.server.accept().await.expect("dialled");
    served.write_all(b"x").await.expect("write");
    open.read_exact(&mut [0; 1]).await.expect("read");

    world
        .desk
        .revise(crate::egress::testing::policy(world.port));
    served.write_all(b"y").await.expect("still open");
    open.read_exact(&mut [0; 1]).await.expect("still open");
    world.desk.revise(Arc::new(Policy::standard()));

    assert!(is_reset(&mut open).await);
    assert!(is_reset(&mut served).await);
    assert_eq!(
        world.connect(OPEN, wget(), How::Blocking).await.err(),
        Some(libc::EACCES)
    );
    assert_eq!(world.records().len(), 3);
}

#[tokio::test]
async fn when_the_budget_is_used_up_connections_wait_in_the_backlog() {
    // PX-01
    let mut world = World::with(Budget::new(1)).await;
    let first = world
        .connect(OPEN, wget(), How::Blocking)
        .await
        .expect("allowed");
    let (served, _) = world.server.accept().await.expect("dialled");

    let mut second = world
        .connect(OPEN, wget(), How::Blocking)
        .await
        .expect("it waits in the backlog");
    let full = world
        .standing
        .wait_for(|standing| *standing == Standing::Full)
        .await;
    full.expect("published");
    assert_eq!(world.desk.counters.waiting.load(Ordering::Relaxed), 1);
    drop((first, served));
    let (mut served, _) = world.server.accept().await.expect("dialled");
    served.write_all(b"x").await.expect("write");

    second
        .read_exact(&mut [0; 1])
        .await
        .expect("served after the first");
    let serving = world
        .standing
        .wait_for(|standing| *standing == Standing::Serving)
        .await;
    serving.expect("published");
}

#[tokio::test]
async fn an_unreadable_caller_is_judged_by_what_the_kernel_says_at_its_arrival() {
    let mut world = World::new().await;
    let socket = TcpSocket::new_v4().expect("socket");
    let cookie = SockRef::from(&socket).cookie().expect("SO_COOKIE");
    let attempt = v1::Attempt {
        id: 77,
        cookie,
        blocking: true,
        ..v1::Attempt::default()
    };

    world.say(Kind::Attempt(attempt)).await;
    assert_eq!(
        world.hear().await,
        v1::Verdict {
            id: 77,
            errno: 0,
            capture_port: 0
        }
    );
    let mut stream = world.arrive(socket, OPEN).await;
    let (mut served, _) = world.server.accept().await.expect("dialled");
    served.write_all(b"x").await.expect("write");
    stream.read_exact(&mut [0; 1]).await.expect("read");

    assert_eq!(world.records(), ["open.test - allowed connected"]);
}

#[tokio::test]
async fn a_packet_that_is_none_is_counted_and_harms_nobody() {
    let mut world = World::new().await;

    world
        .broker
        .write_all(&[0xff; 40])
        .await
        .expect("one packet");

    world
        .connect(OPEN, Caller::UNKNOWN, How::Blocking)
        .await
        .expect("the next is served");
    assert_eq!(world.desk.counters.malformed.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn what_the_broker_refused_is_on_record() {
    let mut world = World::new().await;
    let caller = v1::Caller {
        observed: true,
        executable: "/bin/mount".into(),
        ancestors: vec![],
        pid: 5,
    };

    let (syscall, detail) = ("mount".to_owned(), "mount(/dev/sda)".to_owned());
    world
        .say(Kind::Refused(v1::Refused {
            syscall,
            detail,
            errno: libc::EPERM,
            caller: Some(caller),
        }))
        .await;
    world
        .connect(FOREIGN, curl(), How::Blocking)
        .await
        .expect_err("a packet later");

    assert_eq!(world.records()[0], "- /bin/mount syscall_refused EPERM");
}

#[tokio::test]
async fn closing_the_desk_ends_every_connection() {
    let mut world = World::new().await;
    let mut stream = world
        .connect(OPEN, curl(), How::Blocking)
        .await
        .expect("allowed");
    let (mut served, _) = world.server.accept().await.expect("dialled");
    served.write_all(b"x").await.expect("write");
    stream.read_exact(&mut [0; 1]).await.expect("read");

    world.desk.close().await;

    assert!(is_reset(&mut stream).await);
    assert_eq!(world.desk.budget.free(), 64);
}
