use std::collections::HashSet;

use hickory_proto::op::{MessageType, OpCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SOA};
use proptest::prelude::*;

use super::*;

fn label(text: &str) -> Label {
    Label::from_ascii(text).expect("a name")
}

fn v4(owner: &str, ttl: u32, last: u8) -> Record {
    Record::from_rdata(label(owner), ttl, RData::A(A::new(192, 0, 2, last)))
}

fn alias(owner: &str, ttl: u32, target: &str) -> Record {
    Record::from_rdata(label(owner), ttl, RData::CNAME(CNAME(label(target))))
}

fn message(answers: Vec<Record>) -> Message {
    let mut message = Message::new(1, MessageType::Response, OpCode::Query);
    message.add_answers(answers);
    message
}

fn said(answers: Vec<Record>) -> Said {
    let message = message(answers);
    read(&label("www.test."), Family::V4, Ok(&message)).expect("an answer")
}

fn addresses(last: &[u8], ttl: u32) -> Said {
    let ips = last
        .iter()
        .map(|last| IpAddr::from([192, 0, 2, *last]))
        .collect();
    Said::Addresses { ips, ttl }
}

#[test]
fn a_chain_is_followed_to_its_addresses_whatever_the_order() {
    let chain = vec![
        v4("c.test.", 300, 2),
        alias("b.test.", 20, "c.test."),
        v4("c.test.", 400, 1),
        alias("WWW.test.", 60, "b.test."),
    ];

    assert_eq!(said(chain), addresses(&[2, 1], 20));
}

#[test]
fn addresses_that_belong_to_other_names_or_families_are_not_taken() {
    let mixed = vec![
        v4("www.test.", 30, 1),
        v4("evil.test.", 30, 66),
        Record::from_rdata(
            label("www.test."),
            1,
            RData::AAAA(AAAA::new(1, 0, 0, 0, 0, 0, 0, 1)),
        ),
    ];

    assert_eq!(said(mixed), addresses(&[1], 30));
}

#[test]
fn a_chain_without_an_end_has_no_address() {
    let circle = vec![
        alias("www.test.", 9, "b.test."),
        alias("b.test.", 9, "www.test."),
    ];
    let dangling = vec![alias("www.test.", 9, "b.test.")];

    assert_eq!(said(circle), Said::NoAddress { ttl: 5 });
    assert_eq!(said(dangling), Said::NoAddress { ttl: 5 });
}

#[test]
fn a_chain_to_a_name_that_does_not_exist_is_no_name() {
    let mut dangling = message(vec![alias("www.test.", 9, "b.test.")]);
    dangling.metadata.response_code = ResponseCode::NXDomain;
    let soa = SOA::new(label("ns.test."), label("me.test."), 1, 1, 1, 1, 7);
    dangling.add_authority(Record::from_rdata(label("test."), 900, RData::SOA(soa)));

    let said = read(&label("www.test."), Family::V4, Ok(&dangling));

    assert_eq!(said, Ok(Said::NoSuchName { ttl: 7 }));
}

#[test]
fn the_number_of_addresses_is_bounded() {
    let many = (0..200).map(|last| v4("www.test.", 30, last)).collect();

    let Said::Addresses { ips, .. } = said(many) else {
        panic!("no addresses")
    };

    assert_eq!(ips.len(), MOST_ADDRESSES);
}

#[test]
fn an_absurd_ttl_is_not_believed() {
    assert_eq!(
        said(vec![v4("www.test.", u32::MAX, 1)]),
        addresses(&[1], 86_400)
    );
}

#[test]
fn an_error_is_no_answer() {
    let error = NetError::Dns(DnsError::ResponseCode(ResponseCode::Refused));

    let said = read(&label("www.test."), Family::V4, Err(error));

    assert!(said.is_err_and(|why| why.contains("Refused")));
}

proptest! {
    #[test]
    fn any_chain_in_any_order_leads_to_its_end_and_nowhere_else(
        length in 0..LONGEST_CHAIN,
        ttls in proptest::collection::vec(1..1000_u32, LONGEST_CHAIN + 1),
        order in Just((0..=LONGEST_CHAIN).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let owner = |n: usize| if n == 0 { "www.test.".to_owned() } else { format!("n{n}.test.") };
        let record = |n: usize| if n < length {
            alias(&owner(n), ttls[n], &owner(n + 1))
        } else {
            v4(&owner(n), ttls[n], u8::try_from(n).expect("small"))
        };
        let records = order.into_iter().filter(|n| *n <= length).map(record).collect();

        let Said::Addresses { ips, ttl } = said(records) else {
            panic!("no addresses")
        };

        let expected = IpAddr::from([192, 0, 2, u8::try_from(length).expect("small")]);
        prop_assert_eq!(ips.into_iter().collect::<HashSet<_>>(), HashSet::from([expected]));
        prop_assert_eq!(Some(ttl), ttls[..=length].iter().min().copied());
    }
}
