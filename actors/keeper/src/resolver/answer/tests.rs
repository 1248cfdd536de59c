use std::collections::HashMap;

use std::time::Duration;

use holdfast_clock::Seed;

use super::*;
use crate::resolver::testing::{ip, refusal};

struct Rules {
    names: Vec<&'static str>,
    addresses: HashMap<&'static str, Vec<IpAddr>>,
}

impl Admission for Rules {
    fn admits_name(&self, name: &Name) -> bool {
        self.names.contains(&name.as_str())
    }

    fn admits_address(&self, name: &Name, address: IpAddr) -> Result<(), Denied> {
        match self.addresses.get(name.as_str()) {
            Some(listed) if !listed.contains(&address) => Err(refusal()),
            Some(_) | None => Ok(()),
        }
    }

    fn hosts(&self, _: &Name) -> Option<Vec<IpAddr>> {
        None
    }

    fn explain(&self, _: &Name) -> Option<Denied> {
        None
    }
}

fn rules() -> Rules {
    Rules {
        names: vec!["origin.test", "db"],
        addresses: HashMap::from([("db", vec![ip("10.0.0.5")])]),
    }
}

fn host_name(text: &str) -> Name {
    text.parse().expect("a host name")
}

fn planned(asked: &str, record_type: RecordType) -> Plan {
    let names = Names::new(Seed::new(1));
    planned_with(asked, record_type, &names)
}

fn planned_with(asked: &str, record_type: RecordType, names: &Names) -> Plan {
    let asked = Label::from_ascii(asked).expect("a name");
    plan(&Question::query(asked, record_type), &rules(), names)
}

fn found(ips: &[IpAddr], ttl: u64) -> Addresses {
    Addresses {
        ips: ips.into(),
        valid_until: Moment::ORIGIN + Duration::from_secs(ttl),
    }
}

fn settled(name: &Name, found: Addresses) -> Settled {
    settle(name, &Ok(found), Moment::ORIGIN, &rules())
}

fn no_data() -> Plan {
    Plan::Reply(Reply::NoData, Outcome::NoData)
}

fn no_such_name() -> Plan {
    Plan::Reply(Reply::NoSuchName, Outcome::NoSuchName)
}

fn says(data: RData) -> Plan {
    let reply = Reply::Records {
        ttl: 60,
        data: vec![data],
    };
    Plan::Reply(reply, Outcome::Answered)
}

// DN-01
#[test]
fn an_admitted_name_is_looked_up_in_the_family_that_was_asked_for() {
    let origin = host_name("origin.test");

    let v4 = planned("Origin.TEST.", RecordType::A);
    let v6 = planned("origin.test.", RecordType::AAAA);

    assert_eq!(v4, Plan::Look(origin.clone(), Family::V4));
    assert_eq!(v6, Plan::Look(origin, Family::V6));
}

// DN-12
#[test]
fn an_admitted_name_has_no_records_of_other_types() {
    for record_type in [
        RecordType::HTTPS,
        RecordType::SVCB,
        RecordType::TXT,
        RecordType::MX,
        RecordType::CAA,
        RecordType::ANY,
        RecordType::Unknown(65_280),
    ] {
        assert_eq!(
            planned("origin.test.", record_type),
            no_data(),
            "{record_type}"
        );
    }
}

// DN-12
#[test]
fn a_service_of_an_admitted_name_is_not_said_to_be_missing() {
    assert_eq!(planned("_x._tcp.origin.test.", RecordType::SRV), no_data());
    assert_eq!(
        planned("_443._https.Origin.test.", RecordType::HTTPS),
        no_data()
    );
    let denied = Plan::Deny("_x._tcp.denied.test".to_owned());
    assert_eq!(planned("_x._tcp.denied.test.", RecordType::SRV), denied);
    let denied = Plan::Deny("x._tcp.origin.test".to_owned());
    assert_eq!(planned("x._tcp.origin.test.", RecordType::SRV), denied);
}

// DN-03
#[test]
fn a_name_no_rule_matches_is_denied_for_every_type() {
    for record_type in [
        RecordType::A,
        RecordType::AAAA,
        RecordType::TXT,
        RecordType::ANY,
    ] {
        let denied = Plan::Deny("denied.test".to_owned());
        assert_eq!(planned("Denied.test.", record_type), denied);
    }
}

// DN-10
#[test]
fn a_suffix_try_of_an_admitted_name_is_denied_like_any_other() {
    let denied = Plan::Deny("origin.test.corp.test".to_owned());

    assert_eq!(planned("origin.test.corp.test.", RecordType::A), denied);
}

#[test]
fn a_label_with_a_dot_in_it_is_not_two_labels() {
    let sly = Label::from_labels([&b"origin.test"[..]]).expect("a name");
    let mut sly = Question::query(sly, RecordType::A);
    sly.name.set_fqdn(true);

    let names = Names::new(Seed::new(1));
    let Plan::Deny(text) = plan(&sly, &rules(), &names) else {
        panic!("a sly name was taken")
    };

    assert_eq!(text, r"origin\.test");
}

#[test]
fn an_address_is_not_a_name() {
    assert_eq!(planned("10.0.0.5.", RecordType::A), no_such_name());
    assert!(matches!(planned("127.1.", RecordType::A), Plan::Deny(_)));
}

#[test]
fn the_root_exists() {
    assert_eq!(planned(".", RecordType::NS), no_data());
}

#[test]
fn localhost_and_all_below_it_is_the_sandbox_itself() {
    for asked in ["localhost.", "LocalHost.", "app.localhost."] {
        let v4 = says(record(ip("127.0.0.1")));
        let v6 = says(record(ip("::1")));
        assert_eq!(planned(asked, RecordType::A), v4);
        assert_eq!(planned(asked, RecordType::AAAA), v6);
        assert_eq!(planned(asked, RecordType::MX), no_data());
    }
    assert!(matches!(
        planned("notlocalhost.", RecordType::A),
        Plan::Deny(_)
    ));
}

#[test]
fn an_address_that_was_given_has_a_name() {
    let names = Names::new(Seed::new(1));
    let origin = host_name("origin.test");
    let pointer = |text: &str| says(RData::PTR(PTR(Label::from_ascii(text).expect("a name"))));

    for family in [Family::V4, Family::V6] {
        let address = names.synthetic(&origin, family).expect("room");
        let asked = Label::from(address).to_ascii();
        let told = planned_with(&asked, RecordType::PTR, &names);
        assert_eq!(told, pointer("origin.test."), "{asked}");
        assert_eq!(planned_with(&asked, RecordType::A, &names), no_data());
    }
    for own in ["127.0.0.1", "::1"] {
        let asked = Label::from(ip(own)).to_ascii();
        assert_eq!(planned(&asked, RecordType::PTR), pointer("localhost."));
    }
}

#[test]
fn no_other_address_has_a_name_and_asking_is_no_denial() {
    for asked in [
        "8.8.8.8.in-addr.arpa.",
        "1.0.18.198.in-addr.arpa.",
        "127.in-addr.arpa.",
        "5.1.0.0.127.in-addr.arpa.",
        "x.in-addr.arpa.",
        "ip6.arpa.",
        "home.arpa.",
        "arpa.",
    ] {
        assert_eq!(planned(asked, RecordType::PTR), no_such_name(), "{asked}");
    }
}

#[test]
fn the_ttl_is_upstreams_but_at_least_one_second_and_at_most_a_minute() {
    let origin = host_name("origin.test");
    let addresses = [ip("192.0.2.1")];

    for (upstream, shown) in [(0, 1), (1, 1), (30, 30), (86_400, 60)] {
        let settled = settled(&origin, found(&addresses, upstream));
        assert_eq!(settled, Settled::Exists { ttl: shown });
    }
}

// DN-09
#[test]
fn addresses_that_may_never_be_dialled_count_as_absent() {
    let db = host_name("db");
    let mixed = [ip("10.0.0.9"), ip("10.0.0.5")];

    let some = settled(&db, found(&mixed, 30));
    let none = settled(&db, found(&mixed[..1], 30));

    assert_eq!(some, Settled::Exists { ttl: 30 });
    assert_eq!(none, Settled::Withheld(mixed[0], Box::new(refusal())));
}

// DN-02
#[test]
fn a_name_exists_if_it_does_in_either_family() {
    let exists = Settled::Exists { ttl: 9 };

    for (own, sibling, said) in [
        (Settled::NoSuchName, exists.clone(), Settled::NoData),
        (Settled::NoSuchName, Settled::NoData, Settled::NoData),
        (
            Settled::NoSuchName,
            Settled::NoSuchName,
            Settled::NoSuchName,
        ),
        (Settled::NoSuchName, Settled::Failed, Settled::NoSuchName),
        (Settled::Failed, exists.clone(), Settled::Failed),
        (Settled::NoData, Settled::NoSuchName, Settled::NoData),
        (exists.clone(), Settled::NoSuchName, exists),
    ] {
        assert_eq!(
            reconcile(own.clone(), &sibling),
            said,
            "{own:?} beside {sibling:?}"
        );
    }
}

// DN-02, DN-11
#[test]
fn what_upstream_says_decides_between_no_data_no_name_and_failure() {
    let origin = host_name("origin.test");
    let settled = |error| settle(&origin, &Err(error), Moment::ORIGIN, &rules());

    assert_eq!(settled(NameError::NoAddress), Settled::NoData);
    assert_eq!(settled(NameError::NoSuchName), Settled::NoSuchName);
    assert_eq!(
        settled(NameError::Unavailable("dead".into())),
        Settled::Failed
    );
}
