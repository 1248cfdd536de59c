use std::sync::atomic::{AtomicU8, Ordering};

use futures_util::future::{join_all, select_all};
use hickory_proto::op::ResponseCode;
use holdfast_clock::ManualClock;

use super::*;
use crate::resolver::testing::{NameServer, Rules, Script, host, ip};

fn upstream(servers: &[&NameServer], clock: &Clock, patience: Patience) -> Upstream {
    let servers = servers.iter().map(|server| server.address).collect();
    upstream_of(Source::Servers(servers), clock, patience)
}

fn upstream_of(source: Source, clock: &Clock, patience: Patience) -> Upstream {
    let rules = Rules {
        hosts: vec![("fixed.test", vec![ip("127.0.0.1"), ip("127.0.0.2")])],
    };
    let config = Config {
        source,
        patience,
        clock: clock.clone(),
    };
    Upstream::new(Arc::new(rules), config, Arc::default())
}

fn short() -> Patience {
    Patience {
        server: Duration::from_millis(100),
        total: Duration::from_millis(400),
        stale: Duration::from_millis(200),
    }
}

fn one(text: &'static str, ttl: u32) -> Script {
    Script::Addresses(ttl, vec![ip(text)])
}

fn dead() -> NameServer {
    NameServer::start(|_| Script::Silence)
}

fn ips(outcome: Outcome) -> Vec<IpAddr> {
    outcome.expect("addresses").ips.to_vec()
}

// DN-06: the address that is dialled is the one upstream gives now, whatever it gave before.
#[tokio::test]
async fn upstreams_ttl_is_kept_to_the_second() {
    let turn = AtomicU8::new(0);
    let server = NameServer::start(move |_| {
        let last = turn.fetch_add(1, Ordering::SeqCst);
        Script::Addresses(30, vec![IpAddr::from([192, 0, 2, last])])
    });
    let hand = ManualClock::new();
    let upstream = upstream(&[&server], &hand.clock(), Patience::default());
    let name = host("pool.test");

    let first = upstream.resolve(&name, Family::V4).await;
    hand.advance(Duration::from_millis(29_999));
    let cached = upstream.resolve(&name, Family::V4).await;
    hand.advance(Duration::from_millis(1));
    let second = upstream.resolve(&name, Family::V4).await;

    assert_eq!(first, cached);
    assert_eq!(
        first.as_ref().expect("addresses").valid_until,
        Moment::ORIGIN + Duration::from_secs(30)
    );
    assert_eq!(ips(first), [ip("192.0.2.0")]);
    assert_eq!(ips(second), [ip("192.0.2.1")]);
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn an_answer_without_a_ttl_serves_those_who_wait_and_nobody_later() {
    let server = NameServer::start(|_| one("192.0.2.1", 0));
    let clock = ManualClock::new().clock();
    let upstream = upstream(&[&server], &clock, Patience::default());
    let name = host("zero.test");

    let together = join_all((0..50).map(|_| upstream.resolve(&name, Family::V4))).await;
    let asked_together = server.asked().len();
    let later = upstream.resolve(&name, Family::V4).await;

    assert!(
        together
            .into_iter()
            .all(|outcome| ips(outcome) == [ip("192.0.2.1")])
    );
    assert_eq!(asked_together, 1);
    assert_eq!(ips(later), [ip("192.0.2.1")]);
    assert_eq!(server.asked().len(), 2);
    assert!(upstream.flights.lock().is_empty());
}

#[tokio::test]
async fn a_caller_who_goes_away_does_not_take_the_lookup_along() {
    let server = NameServer::start(|_| one("192.0.2.1", 30));
    let upstream = upstream(&[&server], &Clock::system(), Patience::default());
    let name = host("origin.test");

    let mut leaving = Box::pin(upstream.resolve(&name, Family::V4));
    assert!(futures_util::poll!(&mut leaving).is_pending());
    let mut staying = Box::pin(upstream.resolve(&name, Family::V4));
    assert!(futures_util::poll!(&mut staying).is_pending());
    drop(leaving);

    assert_eq!(ips(staying.await), [ip("192.0.2.1")]);
    assert!(upstream.flights.lock().is_empty());

    let other = host("other.test");
    let mut alone = Box::pin(upstream.resolve(&other, Family::V4));
    assert!(futures_util::poll!(&mut alone).is_pending());
    drop(alone);
    assert!(upstream.flights.lock().is_empty());
}

// DN-11
#[tokio::test]
async fn a_silent_server_is_passed_over_within_two_seconds_and_then_at_once() {
    let (first, second) = (dead(), NameServer::start(|_| one("192.0.2.1", 30)));
    let clock = Clock::system();
    let upstream = upstream(&[&first, &second], &clock, Patience::default());

    let start = clock.now();
    let outcome = upstream.resolve(&host("one.test"), Family::V4).await;
    let failover = clock.now() - start;
    let start = clock.now();
    let next = upstream.resolve(&host("two.test"), Family::V4).await;
    let after = clock.now() - start;

    assert_eq!(ips(outcome), [ip("192.0.2.1")]);
    assert!(failover < Duration::from_secs(2), "{failover:?}");
    assert_eq!(ips(next), [ip("192.0.2.1")]);
    assert!(after < Patience::default().server, "{after:?}");
}

// DN-11
#[tokio::test]
async fn when_all_servers_are_silent_new_names_fail_in_time_and_known_ones_answer() {
    let known = NameServer::start(|asked| match asked.name.as_str() {
        "known.test" => one("192.0.2.1", 30),
        _ => Script::Silence,
    });
    let other = dead();
    let clock = Clock::system();
    let upstream = upstream(&[&known, &other], &clock, short());
    let name = host("known.test");
    upstream
        .resolve(&name, Family::V4)
        .await
        .expect("an answer");

    let start = clock.now();
    let lost: Vec<_> = (0..50).map(|n| host(&format!("n{n}.test"))).collect();
    let lost = join_all(lost.iter().map(|name| upstream.resolve(name, Family::V4)));
    let (lost, known) = futures_util::join!(lost, async {
        let known = upstream.resolve(&name, Family::V4).await;
        (known, clock.now() - start)
    });
    let took = clock.now() - start;

    assert!(
        lost.iter()
            .all(|outcome| matches!(outcome, Err(NameError::Unavailable(_))))
    );
    assert!(
        took >= short().total && took < short().total * 3,
        "{took:?}"
    );
    assert_eq!(ips(known.0), [ip("192.0.2.1")]);
    assert!(known.1 < short().total, "{:?}", known.1);
    assert!(Patience::default().total <= Duration::from_secs(5));
}

// DN-11
#[tokio::test]
async fn sockets_towards_silent_servers_are_bounded() {
    let server = dead();
    let upstream = upstream(&[&server], &Clock::system(), short());

    let names: Vec<_> = (0..200).map(|n| host(&format!("n{n}.test"))).collect();
    let lookups = names
        .iter()
        .map(|name| Box::pin(upstream.resolve(name, Family::V4)));
    let (first, _, waiting) = select_all(lookups).await;

    assert!(first.is_err());
    assert_eq!(waiting.len(), 199);
    let mut asked = server.asked();
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len(), MOST_EXCHANGES);
}

#[tokio::test]
async fn a_server_that_refuses_does_not_have_the_last_word() {
    for code in [
        ResponseCode::Refused,
        ResponseCode::ServFail,
        ResponseCode::NotImp,
    ] {
        let first = NameServer::start(move |_| Script::Nothing(code));
        let second = NameServer::start(|_| one("192.0.2.1", 30));
        let upstream = upstream(&[&first, &second], &Clock::system(), Patience::default());

        let outcome = upstream.resolve(&host("origin.test"), Family::V4).await;

        assert_eq!(ips(outcome), [ip("192.0.2.1")], "after {code}");
    }
}

// DN-02
#[tokio::test]
async fn a_failure_of_all_servers_is_a_failure_and_no_missing_name() {
    let server = NameServer::start(|_| Script::Nothing(ResponseCode::ServFail));
    let upstream = upstream(&[&server], &Clock::system(), Patience::default());

    let outcome = upstream.resolve(&host("origin.test"), Family::V4).await;

    let Err(NameError::Unavailable(why)) = outcome else {
        panic!("{outcome:?}")
    };
    assert!(why.contains(&server.address.to_string()), "{why}");
}

// DN-02
#[tokio::test]
async fn a_missing_address_and_a_missing_name_are_told_apart_and_remembered() {
    let server = NameServer::start(|asked| match asked.name.as_str() {
        "v6only.test" => Script::Nothing(ResponseCode::NoError),
        _ => Script::Nothing(ResponseCode::NXDomain),
    });
    let hand = ManualClock::new();
    let upstream = upstream(&[&server], &hand.clock(), Patience::default());

    for _ in 0..2 {
        let none = upstream.resolve(&host("v6only.test"), Family::V4).await;
        let gone = upstream.resolve(&host("gone.test"), Family::V4).await;
        assert_eq!(none, Err(NameError::NoAddress));
        assert_eq!(gone, Err(NameError::NoSuchName));
    }

    assert_eq!(server.asked().len(), 2);
    hand.advance(Duration::from_secs(20));
    let gone = upstream.resolve(&host("gone.test"), Family::V4).await;
    assert_eq!(gone, Err(NameError::NoSuchName));
    assert_eq!(server.asked().len(), 3);
}

// DN-04
#[tokio::test]
async fn an_answer_that_was_cut_is_fetched_over_tcp() {
    let many: Vec<IpAddr> = (1..=60)
        .map(|last| IpAddr::from([192, 0, 2, last]))
        .collect();
    let all = many.clone();
    let server = NameServer::start(move |asked| {
        if asked.tcp {
            Script::Addresses(30, all.clone())
        } else {
            Script::Cut
        }
    });
    let upstream = upstream(&[&server], &Clock::system(), Patience::default());

    let outcome = upstream.resolve(&host("big.test"), Family::V4).await;

    assert_eq!(ips(outcome), many);
    let transports: Vec<bool> = server.asked().iter().map(|asked| asked.tcp).collect();
    assert_eq!(transports, [false, true]);
}

#[tokio::test]
async fn static_names_are_exact_and_nobody_is_asked() {
    let server = NameServer::start(|_| one("192.0.2.1", 30));
    let upstream = upstream(&[&server], &Clock::system(), Patience::default());
    let fixed = host("fixed.test");

    let v4 = upstream.resolve(&fixed, Family::V4).await;
    let v6 = upstream.resolve(&fixed, Family::V6).await;

    assert_eq!(ips(v4), [ip("127.0.0.1"), ip("127.0.0.2")]);
    assert_eq!(v6, Err(NameError::NoAddress));
    assert!(server.asked().is_empty());
}

// DN-07
#[tokio::test]
async fn addresses_outlive_their_ttl_while_upstream_is_silent_and_end_with_their_grace() {
    let turn = AtomicU8::new(0);
    let server = NameServer::start(move |_| match turn.fetch_add(1, Ordering::SeqCst) {
        0 => one("192.0.2.1", 1),
        _ => Script::Silence,
    });
    let hand = ManualClock::new();
    let upstream = upstream(&[&server], &hand.clock(), short());
    let name = host("origin.test");
    upstream
        .resolve(&name, Family::V4)
        .await
        .expect("an answer");

    hand.advance(Duration::from_secs(30));
    let stale = upstream.resolve(&name, Family::V4).await;
    let asked = server.asked().len();
    let soon = upstream.resolve(&name, Family::V4).await;

    assert_eq!(ips(stale), [ip("192.0.2.1")]);
    assert_eq!(ips(soon), [ip("192.0.2.1")]);
    assert_eq!(
        server.asked().len(),
        asked,
        "dead servers are not asked by every retry"
    );
    assert_eq!(upstream.counters.stale.load(Ordering::SeqCst), 1);

    hand.advance(GRACE);
    let over = upstream.resolve(&name, Family::V4).await;
    assert!(matches!(over, Err(NameError::Unavailable(_))));
}

#[tokio::test]
async fn the_hosts_file_comes_before_the_servers_and_a_missing_list_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = Source::Host {
        hosts: directory.path().join("hosts"),
        resolv_conf: directory.path().join("resolv.conf"),
    };
    std::fs::write(directory.path().join("hosts"), "192.0.2.9 local.test\n").expect("write");
    let upstream = upstream_of(source, &Clock::system(), Patience::default());

    let listed = upstream.resolve(&host("local.test"), Family::V4).await;
    let other_family = upstream.resolve(&host("local.test"), Family::V6).await;
    let unlisted = upstream.resolve(&host("origin.test"), Family::V4).await;

    assert_eq!(ips(listed), [ip("192.0.2.9")]);
    assert_eq!(other_family, Err(NameError::NoAddress));
    let Err(NameError::Unavailable(why)) = unlisted else {
        panic!("{unlisted:?}")
    };
    assert!(why.contains("resolv.conf"), "{why}");
}

#[tokio::test]
async fn what_is_known_is_told_without_asking() {
    let server = NameServer::start(|_| one("192.0.2.1", 30));
    let hand = ManualClock::new();
    let upstream = upstream(&[&server], &hand.clock(), Patience::default());
    let name = host("origin.test");

    assert_eq!(upstream.peek(&name, Family::V4), None);
    let outcome = upstream.resolve(&name, Family::V4).await;
    assert_eq!(upstream.peek(&name, Family::V4), Some(outcome));
    hand.advance(Duration::from_secs(30));
    assert_eq!(upstream.peek(&name, Family::V4), None);
}
