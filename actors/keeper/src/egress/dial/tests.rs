use super::*;
use crate::egress::attempt::{Fate, Judge as _, Report, Ruling, Serial};
use crate::egress::book::Waiting;
use crate::egress::court::Court;
use crate::egress::testing::{OPEN, Table, at, policy, table, wget};
use holdfast_observability::Place;
use holdfast_policy::{Name, Reason};
use socket2::SockAddr;
use std::io::Write as _;
use std::net::TcpListener;

fn order(port: u16) -> Dial {
    let court = Court::new(policy(port), Arc::new(table()));
    let destination = at(OPEN, port);
    let judgement = court.judge(destination, &wget().identity);
    let Ruling::Allowed(grant) = judgement.ruling else {
        panic!("open.test is open");
    };
    let (serial, waiting) = (Serial(1), Waiting::Blocked);
    let owed = Box::new(Report {
        caller: wget(),
        destination: Some(destination),
        host: None,
        allowed: None,
        fate: Fate::Unknown,
    });
    Dial {
        serial,
        target: judgement.target,
        destination,
        grant,
        patience: None,
        waiting,
        place: Place::default(),
        owed,
    }
}

/// A caller who still waits to be told, and one who has been.
static UNTOLD: AtomicBool = AtomicBool::new(false);
static TOLD: AtomicBool = AtomicBool::new(true);

fn impatient(port: u16) -> Dial {
    Dial {
        waiting: Waiting::Impatient,
        ..order(port)
    }
}

/// `open.test` is at `v4`, and at `::1`.
fn leading_to_both(v4: [u8; 4]) -> Dialler {
    let mut table = table();
    let name: Name = "open.test".parse().expect("a name");
    table.addresses.insert(name.clone(), vec![v4.into()]);
    table.others.insert(name, vec![Ipv6Addr::LOCALHOST.into()]);
    Dialler::new(Arc::new(table), Vec::new(), Limits::default())
}

/// A counted line where there is no IPv6.
fn sixth(port: u16) -> Option<TcpListener> {
    let Ok(listener) = TcpListener::bind((Ipv6Addr::LOCALHOST, port)) else {
        drop(io::stderr().write_all(b"skipped: a race of both families: no IPv6\n"));
        return None;
    };
    listener.set_nonblocking(true).expect("non-blocking");
    Some(listener)
}

fn leading_to(addresses: &[IpAddr]) -> Dialler {
    let mut table = table();
    let name: Name = "open.test".parse().expect("a name");
    table.addresses.insert(name, addresses.to_vec());
    Dialler::new(Arc::new(table), Vec::new(), Limits::default())
}

#[expect(clippy::unnecessary_wraps, reason = "stands for a policy")]
fn everything(_: IpAddr) -> Result<(), Denied> {
    Ok(())
}

fn not_private(address: IpAddr) -> Result<(), Denied> {
    if address == IpAddr::V4(Ipv4Addr::LOCALHOST) {
        let (reason, hint) = (Reason::AddressPrivate, String::new());
        return Err(Denied {
            reason,
            nearest: None,
            hint,
        });
    }
    Ok(())
}

fn listener(address: [u8; 4], port: u16) -> TcpListener {
    let listener = TcpListener::bind(at(address, port)).expect("bind");
    listener.set_nonblocking(true).expect("non-blocking");
    listener
}

fn port_of(listener: &TcpListener) -> u16 {
    listener.local_addr().expect("address").port()
}

fn failed(reached: Result<Dialled, Undialled>) -> i32 {
    match reached.expect_err("no connection") {
        Undialled::Failed(failure) => failure.errno(),
        Undialled::Exhausted(fault) => panic!("{fault}"),
    }
}

/// A port of 127.0.0.1 on which nobody listens, kept so.
fn closed_port() -> (Socket, u16) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("socket");
    socket
        .bind(&SockAddr::from(at([127, 0, 0, 1], 0)))
        .expect("bind");
    let port = socket
        .local_addr()
        .expect("address")
        .as_socket()
        .expect("inet")
        .port();
    (socket, port)
}

/// A listener that takes no more connections: whoever dials it waits.
fn silent() -> (Socket, Vec<Socket>, u16) {
    let server = Socket::new(Domain::IPV4, Type::STREAM, None).expect("socket");
    server
        .bind(&SockAddr::from(at([127, 0, 0, 1], 0)))
        .expect("bind");
    server.listen(0).expect("listen");
    let address = server.local_addr().expect("address");
    let port = address.as_socket().expect("inet").port();
    let fillers = (0..3).map(|_| {
        let filler = Socket::new(Domain::IPV4, Type::STREAM, None).expect("socket");
        filler.set_nonblocking(true).expect("non-blocking");
        // In progress, or refused by the full queue without a word: both fill it.
        drop(filler.connect(&address));
        filler
    });
    let fillers = fillers.collect();
    (server, fillers, port)
}

#[tokio::test]
async fn a_dial_on_loopback_is_done_at_its_first_look() {
    let server = listener([127, 0, 0, 1], 0);
    let order = order(port_of(&server));
    let dialler = leading_to(&[[127, 0, 0, 1].into()]);

    let reached = futures_util::FutureExt::now_or_never(dialler.dial(&order, &UNTOLD, everything));

    let Dialled { address, .. } = reached.expect("at once").expect("connected");
    assert_eq!(address, at([127, 0, 0, 1], port_of(&server)));
    assert!(server.accept().is_ok());
}

#[tokio::test]
async fn a_mixed_answer_never_dials_the_private_record() {
    // PX-14
    let server = listener([127, 0, 0, 2], 0);
    let private = listener([127, 0, 0, 1], port_of(&server));
    let order = order(port_of(&server));
    let dialler = leading_to(&[[127, 0, 0, 1].into(), [127, 0, 0, 2].into()]);

    let reached = dialler
        .dial(&order, &UNTOLD, not_private)
        .await
        .expect("connected");

    assert_eq!(reached.address.ip(), IpAddr::from([127, 0, 0, 2]));
    let fault = private.accept().expect_err("nobody came");
    assert_eq!(fault.kind(), io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn a_name_that_has_only_refused_addresses_is_denied_and_nothing_is_dialled() {
    // PX-13, PX-14
    let server = listener([127, 0, 0, 1], 0);
    let order = order(port_of(&server));

    let reached = leading_to(&[[127, 0, 0, 1].into()])
        .dial(&order, &UNTOLD, not_private)
        .await;

    let Err(Undialled::Failed(Failure::Denied(denied))) = reached else {
        panic!("{reached:?}");
    };
    assert_eq!(denied.reason, Reason::AddressPrivate);
    assert!(server.accept().is_err());
}

#[tokio::test]
async fn the_next_address_is_tried_and_the_last_errno_told() {
    let (_kept, port) = closed_port();
    let order = order(port);
    assert_eq!(
        failed(
            leading_to(&[[127, 0, 0, 1].into()])
                .dial(&order, &UNTOLD, everything)
                .await
        ),
        libc::ECONNREFUSED
    );

    let server = listener([127, 0, 0, 2], port);
    let both = leading_to(&[[127, 0, 0, 1].into(), [127, 0, 0, 2].into()]);
    let reached = both
        .dial(&order, &UNTOLD, everything)
        .await
        .expect("the second");

    assert_eq!(reached.address.ip(), IpAddr::from([127, 0, 0, 2]));
    drop(server);
}

#[tokio::test]
async fn a_name_that_is_nowhere_is_unreachable() {
    let order = order(443);
    let dialler = Dialler::new(Arc::new(Table::default()), Vec::new(), Limits::default());

    assert_eq!(
        failed(dialler.dial(&order, &UNTOLD, everything).await),
        libc::EHOSTUNREACH
    );
}

#[tokio::test]
async fn an_upstream_that_never_answers_ends_by_the_limit_or_by_the_callers() {
    let (_server, _fillers, port) = silent();
    let mut order = order(port);
    let mut dialler = leading_to(&[[127, 0, 0, 1].into()]);
    let short = Duration::from_millis(50);

    dialler.limits = Limits {
        whole: short,
        each: short,
    };
    assert_eq!(
        failed(dialler.dial(&order, &UNTOLD, everything).await),
        libc::ETIMEDOUT
    );

    // SO_SNDTIMEO
    dialler.limits = Limits::default();
    order.patience = Some(short);
    assert_eq!(
        failed(dialler.dial(&order, &UNTOLD, everything).await),
        libc::EINPROGRESS
    );
}

#[tokio::test]
async fn a_silent_address_leaves_time_for_the_next() {
    let (_server, _fillers, port) = silent();
    let second = listener([127, 0, 0, 2], port);
    let order = order(port);
    let mut dialler = leading_to(&[[127, 0, 0, 1].into(), [127, 0, 0, 2].into()]);
    dialler.limits.each = Duration::from_millis(50);

    let reached = dialler
        .dial(&order, &UNTOLD, everything)
        .await
        .expect("the second");

    assert_eq!(reached.address.ip(), IpAddr::from([127, 0, 0, 2]));
    drop(second);
}

#[tokio::test]
async fn a_family_that_swallows_is_raced_for_a_caller_who_tries_no_other() {
    let (_server, _fillers, port) = silent();
    let Some(sixth) = sixth(port) else { return };
    let order = impatient(port);

    let dialler = leading_to_both([127, 0, 0, 1]);
    let reached = dialler.dial(&order, &TOLD, everything).await;

    let reached = reached.expect("by the other family");
    assert_eq!(reached.address, (Ipv6Addr::LOCALHOST, port).into());
    assert!(sixth.accept().is_ok());
}

#[tokio::test]
async fn a_family_that_refuses_is_told_to_whom_it_can_be() {
    let (_kept, port) = closed_port();
    let Some(sixth) = sixth(port) else { return };
    let dialler = leading_to_both([127, 0, 0, 1]);

    let blocked = dialler.dial(&order(port), &UNTOLD, everything).await;
    assert_eq!(failed(blocked), libc::ECONNREFUSED);
    let untold = dialler.dial(&impatient(port), &UNTOLD, everything).await;
    assert_eq!(failed(untold), libc::ECONNREFUSED);
    assert!(sixth.accept().is_err(), "nobody came");

    let told = dialler.dial(&impatient(port), &TOLD, everything).await;
    let reached = told.expect("by the other family");
    assert_eq!(reached.address, (Ipv6Addr::LOCALHOST, port).into());
}

#[tokio::test]
async fn an_address_of_the_other_family_is_checked_like_any_other() {
    let (_kept, port) = closed_port();
    let Some(sixth) = sixth(port) else { return };
    let dialler = leading_to_both([127, 0, 0, 1]);
    let only_v4 = |address: IpAddr| match address {
        IpAddr::V4(_) => Ok(()),
        IpAddr::V6(_) => not_private(IpAddr::V4(Ipv4Addr::LOCALHOST)),
    };

    let reached = dialler.dial(&impatient(port), &TOLD, only_v4).await;

    assert_eq!(failed(reached), libc::ECONNREFUSED);
    assert!(sixth.accept().is_err(), "nobody came");
}

#[tokio::test]
async fn more_silent_addresses_than_are_raced_at_a_time_leave_time_for_the_last() {
    let (_server, _fillers, port) = silent();
    let last = listener([127, 0, 0, 2], port);
    let mut addresses = vec![[127, 0, 0, 1].into(); AT_ONCE + 1];
    addresses.push([127, 0, 0, 2].into());
    let mut dialler = leading_to(&addresses);
    dialler.limits.each = Duration::from_millis(50);

    let reached = dialler.dial(&impatient(port), &TOLD, everything).await;

    let reached = reached.expect("the last");
    assert_eq!(reached.address.ip(), IpAddr::from([127, 0, 0, 2]));
    drop(last);
}

#[test]
fn families_alternate_and_nothing_is_lost() {
    let all = |ports: &[u16]| ports.iter().map(|port| at(OPEN, *port)).collect();
    let mixed = |first: &[u16], second: &[u16]| {
        let first: Vec<_> = all(first);
        alternating(first, all(second).into())
    };

    assert_eq!(mixed(&[1, 2], &[6, 7, 8]), all(&[1, 6, 2, 7, 8]));
    assert_eq!(mixed(&[1, 2], &[]), all(&[1, 2]));
    assert_eq!(mixed(&[], &[6]), all(&[6]));
}

#[tokio::test]
async fn the_runtimes_own_listeners_are_out_of_reach_in_every_spelling() {
    // PX-15
    let own = listener([127, 0, 0, 1], 0);
    let order = order(port_of(&own));
    for spelling in ["127.0.0.1", "::ffff:127.0.0.1"] {
        for bound in ["127.0.0.1", "0.0.0.0"] {
            let mut dialler = leading_to(&[spelling.parse().expect("an address")]);
            dialler.own =
                vec![(bound.parse::<IpAddr>().expect("an address"), port_of(&own)).into()];

            let reached = dialler.dial(&order, &UNTOLD, everything).await;

            assert!(
                matches!(reached, Err(Undialled::Failed(Failure::Own))),
                "{spelling} {bound}"
            );
        }
    }
    assert!(own.accept().is_err(), "nobody came");
}

#[tokio::test]
async fn a_name_that_moves_is_followed_at_each_connect() {
    // DN-06, DN-07: what the workload holds never expires; where it leads is looked up when it is used.
    let first = listener([127, 0, 0, 1], 0);
    let port = port_of(&first);
    let second = listener([127, 0, 0, 2], port);
    let order = order(port);

    for (server, address) in [(&first, [127, 0, 0, 1]), (&second, [127, 0, 0, 2])] {
        let reached = leading_to(&[address.into()])
            .dial(&order, &UNTOLD, everything)
            .await
            .expect("connected");

        assert_eq!(reached.address, at(address, port));
        assert!(server.accept().is_ok());
    }
}
