use std::time::SystemTime;

use hickory_proto::rr::RecordType;
use hickory_proto::rr::rdata::{A, PTR};
use proptest::prelude::*;

use super::*;

fn label(text: &str) -> Label {
    Label::from_ascii(text).expect("a name")
}

fn ask(name: &str, record_type: RecordType, edns: Option<Edns>) -> Vec<u8> {
    let mut message = Message::new(0x2a17, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Question::query(label(name), record_type));
    message.edns = edns;
    message.to_vec().expect("encodes")
}

fn understood(packet: &[u8], via: Via) -> Query {
    match read(packet, via) {
        Packet::Query(query) => query,
        Packet::Refused(..) | Packet::Silence => panic!("it is no query"),
    }
}

fn refused(packet: &[u8]) -> Message {
    match read(packet, Via::Udp) {
        Packet::Refused(reply, _) => Message::from_vec(&reply).expect("parses"),
        Packet::Query(_) | Packet::Silence => panic!("it was not refused"),
    }
}

fn decision() -> Decision {
    Decision::new(SystemTime::UNIX_EPOCH)
}

fn address() -> Reply {
    Reply::Records {
        ttl: 60,
        data: vec![RData::A(A::new(198, 18, 3, 7))],
    }
}

/// Where the question ends in a packet without compression.
fn question(packet: &[u8]) -> &[u8] {
    let name = packet[HEADER..].iter().position(|byte| *byte == 0);
    &packet[HEADER..HEADER + name.expect("a root label") + 5]
}

// DN-14
#[test]
fn id_and_question_are_copied_with_their_case() {
    let packet = ask("oRiGiN.TeSt.", RecordType::A, None);

    let reply = understood(&packet, Via::Udp).reply(address());

    assert_eq!(reply[..2], packet[..2]);
    assert_eq!(question(&reply), question(&packet));
    let parsed = Message::from_vec(&reply).expect("parses");
    assert!(parsed.answers[0].name.eq_case(&label("oRiGiN.TeSt.")));
    assert!(parsed.metadata.recursion_desired && parsed.metadata.recursion_available);
}

// DN-05
#[test]
fn an_opt_record_is_answered_with_ours() {
    let mut edns = Edns::new();
    edns.set_max_payload(4096);
    edns.set_dnssec_ok(true);
    edns.options_mut()
        .insert(EdnsOption::Unknown(10, vec![1; 8]));
    edns.options_mut()
        .insert(EdnsOption::Unknown(65_001, vec![9]));
    let packet = ask("origin.test.", RecordType::A, Some(edns));

    let reply = understood(&packet, Via::Udp).reply(address());

    let offered = Message::from_vec(&reply)
        .expect("parses")
        .edns
        .expect("OPT");
    assert_eq!((offered.version(), offered.max_payload()), (0, 1232));
    assert!(offered.flags().dnssec_ok && offered.options().as_ref().is_empty());
    let plain = ask("origin.test.", RecordType::A, None);
    let reply = understood(&plain, Via::Udp).reply(address());
    assert!(Message::from_vec(&reply).expect("parses").edns.is_none());
}

// DN-05
#[test]
fn version_1_of_edns_is_answered_with_badvers_and_our_version() {
    let mut edns = Edns::new();
    edns.set_version(1);
    let reply = refused(&ask("origin.test.", RecordType::A, Some(edns)));

    // 16 is also the number of BADSIG.
    assert_eq!(u16::from(reply.metadata.response_code), 16);
    assert_eq!(reply.edns.map(|edns| edns.version()), Some(0));
    assert_eq!(reply.queries.len(), 1);
}

#[test]
fn a_denial_says_so_to_those_who_can_read_it() {
    let packet = ask("denied.test.", RecordType::A, Some(Edns::new()));
    let decision = decision();

    let reply = understood(&packet, Via::Udp).reply(Reply::Denied(decision));

    let parsed = Message::from_vec(&reply).expect("parses");
    assert_eq!(parsed.metadata.response_code, ResponseCode::NXDomain);
    let option = parsed.edns.as_ref().and_then(|edns| edns.option(15.into()));
    let Some(EdnsOption::Unknown(15, data)) = option else {
        panic!("{option:?} is no extended error")
    };
    assert_eq!(data[..2], [0, 15]);
    assert!(data.ends_with(decision.to_string().as_bytes()));
}

// DN-02
#[test]
fn a_negative_answer_is_remembered_for_seconds_only() {
    let packet = ask("v4only.test.", RecordType::AAAA, None);

    for (reply, code) in [
        (Reply::NoData, ResponseCode::NoError),
        (Reply::NoSuchName, ResponseCode::NXDomain),
        (Reply::Denied(decision()), ResponseCode::NXDomain),
        (Reply::Withheld(decision()), ResponseCode::NoError),
    ] {
        let bytes = understood(&packet, Via::Udp).reply(reply);
        let parsed = Message::from_vec(&bytes).expect("parses");
        assert_eq!(parsed.metadata.response_code, code);
        assert!(parsed.answers.is_empty());
        let RData::SOA(soa) = &parsed.authorities[0].data else {
            panic!("no SOA")
        };
        assert_eq!((parsed.authorities[0].ttl, soa.minimum), (5, 5));
    }
}

// DN-04
#[test]
fn what_a_datagram_cannot_hold_is_cut_and_whole_over_tcp() {
    let long = |n: u32| format!("{}.{}.test.", "x".repeat(60), n);
    let data: Vec<_> = (0..30).map(|n| RData::PTR(PTR(label(&long(n))))).collect();
    let reply = Reply::Records { ttl: 60, data };
    let mut wide = Edns::new();
    wide.set_max_payload(4096);

    for (edns, limit) in [(None, 512), (Some(Edns::new()), 512), (Some(wide), 1232)] {
        let packet = ask("1.0.18.198.in-addr.arpa.", RecordType::PTR, edns);
        let bytes = understood(&packet, Via::Udp).reply(reply.clone());
        let parsed = Message::from_vec(&bytes).expect("parses");
        assert!(bytes.len() <= limit, "{} of {limit}", bytes.len());
        assert!(parsed.metadata.truncation);

        let bytes = understood(&packet, Via::Tcp).reply(reply.clone());
        let parsed = Message::from_vec(&bytes).expect("parses");
        assert!(!parsed.metadata.truncation);
        assert_eq!(parsed.answers.len(), 30);
    }
}

#[test]
fn what_is_not_a_query_is_not_answered() {
    let mut response = ask("origin.test.", RecordType::A, None);
    response[2] |= RESPONSE;

    for packet in [&response[..], &[], &[0x2a], &response[..11]] {
        assert!(matches!(read(packet, Via::Udp), Packet::Silence));
    }
}

#[test]
fn other_opcodes_are_not_implemented() {
    for opcode in 1..16_u8 {
        let mut packet = ask("origin.test.", RecordType::A, None);
        packet[2] |= opcode << 3;

        let Packet::Refused(reply, outcome) = read(&packet, Via::Udp) else {
            panic!("opcode {opcode} was taken")
        };

        assert_eq!(outcome, Outcome::NotImplemented);
        assert_eq!(reply[..2], packet[..2]);
        assert_eq!(reply[2], RESPONSE | opcode << 3 | RECURSION_DESIRED);
        assert_eq!(reply[3], ResponseCode::NotImp.low());
    }
}

#[test]
fn a_query_without_exactly_one_question_is_malformed() {
    let none = {
        let mut packet = ask("origin.test.", RecordType::A, None);
        packet.truncate(HEADER);
        packet[5] = 0;
        packet
    };
    let two = {
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        message.add_query(Question::query(label("one.test."), RecordType::A));
        message.add_query(Question::query(label("two.test."), RecordType::A));
        message.to_vec().expect("encodes")
    };
    let cut = ask("origin.test.", RecordType::A, None)[..20].to_vec();

    for packet in [none, two, cut] {
        let reply = refused(&packet);
        assert_eq!(reply.metadata.response_code, ResponseCode::FormErr);
        assert_eq!(reply.metadata.id.to_be_bytes(), packet[..2]);
    }
}

fn replies() -> impl Strategy<Value = Reply> {
    prop_oneof![
        Just(address()),
        Just(Reply::NoData),
        Just(Reply::NoSuchName),
        Just(Reply::Denied(decision())),
        Just(Reply::Withheld(decision())),
        Just(Reply::Failed),
        Just(Reply::Refused),
    ]
}

/// A query whose labels may hold any byte, of any type and class.
fn queries() -> impl Strategy<Value = Vec<u8>> {
    let labels = proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..30), 0..6);
    let edns = proptest::option::of(any::<u16>());
    (any::<[u8; 2]>(), labels, any::<[u8; 4]>(), edns).prop_map(|(id, labels, kind, edns)| {
        let mut packet = vec![
            id[0],
            id[1],
            1,
            0,
            0,
            1,
            0,
            0,
            0,
            0,
            0,
            u8::from(edns.is_some()),
        ];
        for label in labels {
            packet.push(u8::try_from(label.len()).expect("short"));
            packet.extend(label);
        }
        packet.push(0);
        packet.extend(kind);
        if let Some(payload) = edns {
            packet.extend([0, 0, 41]);
            packet.extend(payload.to_be_bytes());
            packet.extend([0; 6]);
        }
        packet
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_make_it_panic_and_every_refusal_parses(
        packet in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        match read(&packet, Via::Udp) {
            Packet::Query(query) => {
                let reply = query.reply(Reply::NoSuchName);
                prop_assert_eq!(&reply[..2], &packet[..2]);
            }
            Packet::Refused(reply, _) => {
                prop_assert_eq!(&reply[..2], &packet[..2]);
                prop_assert!(Message::from_vec(&reply).is_ok());
            }
            Packet::Silence => prop_assert!(packet.len() < HEADER || packet[2] & RESPONSE != 0),
        }
    }

    #[test]
    fn every_reply_parses_fits_and_keeps_id_and_question(packet in queries(), reply in replies()) {
        let query = match read(&packet, Via::Udp) {
            Packet::Query(query) => query,
            Packet::Refused(refused, _) => {
                prop_assert_eq!(&refused[..2], &packet[..2]);
                return Ok(());
            }
            Packet::Silence => panic!("a query was ignored"),
        };

        let bytes = query.reply(reply);

        prop_assert!(bytes.len() <= 1232);
        prop_assert_eq!(&bytes[..2], &packet[..2]);
        let asked = &packet[HEADER..packet.len() - if packet[11] == 1 { 11 } else { 0 }];
        prop_assert_eq!(&bytes[HEADER..HEADER + asked.len()], asked);
        prop_assert!(Message::from_vec(&bytes).is_ok());
    }
}
