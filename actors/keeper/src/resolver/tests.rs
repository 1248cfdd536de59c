use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query as Question, ResponseCode};
use hickory_proto::rr::{DNSClass, Name as Label, RData, RecordType};
use holdfast_clock::{ManualClock, Seed};

use super::testing::{Asked, Book, NameServer, Rules, Script, host, ip, refusal};
use super::*;

/// A resolver whose upstream is `server`.
struct World {
    resolver: Resolver,
    book: Arc<Book>,
    names: Arc<Names>,
    hand: ManualClock,
    server: NameServer,
}

fn world(play: impl Fn(&Asked) -> Script + Send + Sync + 'static) -> World {
    let server = NameServer::start(play);
    let hand = ManualClock::new();
    let admission = Arc::new(Rules {
        hosts: vec![("fixed.test", vec![ip("127.0.0.1")])],
    });
    let counters = Arc::new(Counters::default());
    let config = Config {
        source: Source::Servers(vec![server.address]),
        patience: Patience {
            total: Duration::from_millis(400),
            ..Patience::default()
        },
        clock: hand.clock(),
    };
    let upstream = Upstream::new(Arc::clone(&admission) as _, config, Arc::clone(&counters));
    let names = Arc::new(Names::new(Seed::new(5)));
    let book = Arc::new(Book::default());
    let resolver = Resolver::new(
        Arc::clone(&names),
        Arc::new(upstream),
        admission,
        Arc::clone(&book) as _,
        counters,
    );
    World {
        resolver,
        book,
        names,
        hand,
        server,
    }
}

impl World {
    async fn ask(&self, name: &str, record_type: RecordType) -> Message {
        let reply = match self.resolver.begin(&packet(name, record_type), Via::Udp) {
            Begun::Reply(reply) => reply,
            Begun::Lookup(lookup) => self.resolver.finish(lookup).await,
            Begun::Silence => panic!("no answer"),
        };
        Message::from_vec(&reply).expect("parses")
    }

    /// The only address of an answer.
    async fn address(&self, name: &str, record_type: RecordType) -> IpAddr {
        let reply = self.ask(name, record_type).await;
        assert_eq!(reply.answers.len(), 1, "{reply}");
        reply.answers[0].data.ip_addr().expect("an address")
    }
}

fn packet(name: &str, record_type: RecordType) -> Vec<u8> {
    let mut message = Message::new(77, MessageType::Query, OpCode::Query);
    let name = Label::from_ascii(name).expect("a name");
    message.add_query(Question::query(name, record_type));
    message.edns = Some(Edns::new());
    message.to_vec().expect("encodes")
}

fn both_families(_: &Asked) -> Script {
    Script::Addresses(
        20,
        vec![ip("192.0.2.1"), ip("192.0.2.2"), ip("2001:db8::1")],
    )
}

// DN-01, DN-06
#[tokio::test]
async fn an_allowed_name_has_one_synthetic_address_of_each_family_and_keeps_it() {
    let world = world(both_families);

    let v4 = world.address("Origin.test.", RecordType::A).await;
    let v6 = world.address("origin.test.", RecordType::AAAA).await;
    world.hand.advance(Duration::from_hours(1));
    let later = world.address("origin.test.", RecordType::A).await;

    assert!(Names::covers(v4) && v4.is_ipv4() && Names::covers(v6) && v6.is_ipv6());
    assert_eq!(later, v4);
    for address in [v4, v6] {
        assert_eq!(world.names.name_of(address), Some(host("origin.test")));
    }
}

#[tokio::test]
async fn the_ttl_runs_down_with_upstreams() {
    let world = world(both_families);

    let fresh = world.ask("origin.test.", RecordType::A).await;
    world.hand.advance(Duration::from_secs(15));
    let later = world.ask("origin.test.", RecordType::A).await;

    assert_eq!((fresh.answers[0].ttl, later.answers[0].ttl), (20, 5));
    assert_eq!(world.server.asked().len(), 1);
}

// DN-02
#[tokio::test]
async fn a_family_without_addresses_is_no_data_even_where_upstream_says_nxdomain() {
    let world = world(|asked| match asked.family {
        Family::V4 => Script::Addresses(20, vec![ip("192.0.2.1")]),
        Family::V6 if asked.name.starts_with("broken") => Script::Nothing(ResponseCode::NXDomain),
        Family::V6 => Script::Nothing(ResponseCode::NoError),
    });

    for name in ["v4only.test.", "broken.test."] {
        for _ in 0..2 {
            let reply = world.ask(name, RecordType::AAAA).await;
            assert_eq!(
                reply.metadata.response_code,
                ResponseCode::NoError,
                "{name}"
            );
            assert!(reply.answers.is_empty() && reply.authorities.len() == 1);
        }
    }
}

// DN-02
#[tokio::test]
async fn a_name_that_exists_for_no_type_is_nxdomain_and_is_given_no_address() {
    let world = world(|_| Script::Nothing(ResponseCode::NXDomain));

    for record_type in [RecordType::A, RecordType::AAAA] {
        let reply = world.ask("gone.test.", record_type).await;
        assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain);
    }

    assert!(world.names.is_empty());
    assert!(
        world.book.0.lock().is_empty(),
        "a missing name is no denial"
    );
}

// DN-02, DN-11
#[tokio::test]
async fn silence_of_upstream_is_servfail() {
    let world = world(|_| Script::Silence);

    let reply = world.ask("origin.test.", RecordType::A).await;

    assert_eq!(reply.metadata.response_code, ResponseCode::ServFail);
    assert_eq!(world.resolver.counters().of(Outcome::Failed), 1);
}

// DN-03
#[tokio::test]
async fn a_denied_name_never_leaves_the_host_and_is_recorded_once() {
    let world = world(both_families);

    for record_type in [RecordType::A, RecordType::AAAA, RecordType::TXT] {
        let denied = packet("Denied.test.", record_type);
        let Begun::Reply(reply) = world.resolver.begin(&denied, Via::Udp) else {
            panic!("a denied name waits for nobody")
        };
        let reply = Message::from_vec(&reply).expect("parses");
        assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain);
    }

    let denied = |repeats| DeniedName {
        name: "denied.test".to_owned(),
        what: Withheld::Name,
        repeats,
        why: None,
    };
    assert_eq!(*world.book.0.lock(), [denied(0)]);
    assert!(world.server.asked().is_empty());
    let counters = world.resolver.counters();
    assert_eq!(counters.of(Outcome::Denied), 3);
    assert_eq!(counters.repeated_denials.load(Ordering::SeqCst), 2);

    world.hand.advance(Duration::from_mins(1));
    world.ask("denied.test.", RecordType::A).await;
    assert_eq!(*world.book.0.lock(), [denied(0), denied(2)]);
}

// DN-09
#[tokio::test]
async fn a_name_with_none_but_forbidden_addresses_looks_empty() {
    let world = world(|_| Script::Addresses(20, vec![ip("10.0.0.5"), ip("2001:db8::1")]));

    let v4 = world.ask("inner.test.", RecordType::A).await;
    let v6 = world.ask("inner.test.", RecordType::AAAA).await;

    assert_eq!(v4.metadata.response_code, ResponseCode::NoError);
    assert!(v4.answers.is_empty());
    assert_eq!(v6.answers.len(), 1);
    assert_eq!(world.resolver.counters().of(Outcome::Withheld), 1);
    let record = DeniedName {
        name: "inner.test".to_owned(),
        what: Withheld::Address(ip("10.0.0.5")),
        repeats: 0,
        why: Some(refusal()),
    };
    assert_eq!(*world.book.0.lock(), [record]);
}

#[tokio::test]
async fn a_static_name_answers_at_once_in_its_own_family_only() {
    let world = world(both_families);

    let Begun::Reply(v4) = world
        .resolver
        .begin(&packet("fixed.test.", RecordType::A), Via::Udp)
    else {
        panic!("a static name waits for nobody")
    };
    let v4 = Message::from_vec(&v4).expect("parses");
    let v6 = world.ask("fixed.test.", RecordType::AAAA).await;

    assert!(v4.answers[0].data.ip_addr().is_some_and(Names::covers));
    assert_eq!(v6.metadata.response_code, ResponseCode::NoError);
    assert!(v6.answers.is_empty());
    assert!(world.server.asked().is_empty());
}

// DN-12
#[tokio::test]
async fn other_classes_are_refused() {
    let world = world(both_families);
    let mut message = Message::new(77, MessageType::Query, OpCode::Query);
    let mut question = Question::query(
        Label::from_ascii("version.bind.").expect("a name"),
        RecordType::TXT,
    );
    question.query_class = DNSClass::CH;
    message.add_query(question);

    let Begun::Reply(reply) = world
        .resolver
        .begin(&message.to_vec().expect("encodes"), Via::Udp)
    else {
        panic!("no answer")
    };

    let reply = Message::from_vec(&reply).expect("parses");
    assert_eq!(reply.metadata.response_code, ResponseCode::Refused);
}

#[tokio::test]
async fn when_there_is_no_room_for_another_name_it_fails_and_is_counted() {
    let world = world(both_families);
    for n in 0..names::CAPACITY {
        world
            .names
            .synthetic(&host(&format!("n{n}.test")), Family::V4)
            .expect("room");
    }

    let reply = world.ask("origin.test.", RecordType::A).await;

    assert_eq!(reply.metadata.response_code, ResponseCode::ServFail);
    assert_eq!(world.resolver.counters().of(Outcome::Full), 1);
}

#[tokio::test]
async fn a_lookup_that_is_shed_says_servfail() {
    let world = world(both_families);
    let Begun::Lookup(lookup) = world
        .resolver
        .begin(&packet("origin.test.", RecordType::A), Via::Udp)
    else {
        panic!("nothing is known yet")
    };

    let reply = Message::from_vec(&world.resolver.shed(&lookup)).expect("parses");

    assert_eq!(reply.metadata.response_code, ResponseCode::ServFail);
    assert_eq!(world.resolver.counters().of(Outcome::Shed), 1);
}

#[tokio::test]
async fn a_chain_of_aliases_is_not_shown() {
    let world = world(both_families);

    let reply = world.ask("origin.test.", RecordType::A).await;

    assert!(matches!(reply.answers[..], [ref only] if matches!(only.data, RData::A(_))));
}

/// The canary's name is answered whatever the policy says, leaves no record, and is nobody else's business.
#[tokio::test]
async fn the_sentinel_is_answered_without_a_record_and_its_neighbours_are_denied() {
    let mut world = world(both_families);
    let sentinel = Arc::new(Sentinel::new(Seed::new(3)));
    world.resolver = world.resolver.with_sentinel(Arc::clone(&sentinel));
    sentinel.expect(b"word".to_vec());

    let address = world.address(sentinel.name().as_str(), RecordType::A).await;
    assert_eq!(world.names.name_of(address), Some(sentinel.name().clone()));
    assert_eq!(sentinel.reached(), crate::sentinel::Reached::Asked);
    assert!(world.book.0.lock().is_empty());

    let neighbour = world.ask("denied.holdfast.internal", RecordType::A).await;
    assert_eq!(neighbour.response_code, ResponseCode::NXDomain);
    assert_eq!(world.book.0.lock().len(), 1);
    assert!(world.server.asked().is_empty());
}
