use proptest::prelude::*;

use super::*;

fn host(text: &str) -> Host {
    Host::parse(text).expect("a host")
}

fn told(text: &str) -> String {
    format!("{:?}", Host::parse(text).expect_err(text))
}

fn matches(pattern: &str, name: &str) -> bool {
    let name: Name = name.parse().expect("a name");
    match host(pattern) {
        Host::Exact(own) => own == name,
        Host::Wildcard(wildcard) => wildcard.matches(&name),
        Host::Address(_) | Host::Addresses => false,
    }
}

// PO-04
#[test]
fn one_star_is_one_label_and_never_the_apex() {
    for (name, expected) in [
        ("e.test", false),
        ("a.e.test", true),
        ("b.a.e.test", false),
        ("xe.test", false),
        ("A.E.TEST", true),
        ("a.e.test.", true),
        ("e.test.evil", false),
    ] {
        assert_eq!(matches("*.e.test", name), expected, "{name}");
        assert_eq!(matches("*.E.test.", name), expected, "{name}");
    }
}

// PO-04
#[test]
fn two_stars_are_any_depth_and_never_the_apex() {
    for (name, expected) in [
        ("e.test", false),
        ("a.e.test", true),
        ("b.a.e.test", true),
        ("xe.test", false),
        ("e.test.evil", false),
    ] {
        assert_eq!(matches("**.e.test", name), expected, "{name}");
    }
}

// PO-04, PX-19
#[test]
fn an_exact_host_is_one_name_in_any_spelling() {
    for (name, expected) in [
        ("e.test", true),
        ("E.TEST.", true),
        ("a.e.test", false),
        ("xe.test", false),
        ("e.test.evil.test", false),
    ] {
        assert_eq!(matches("e.test", name), expected, "{name}");
    }
}

#[test]
fn a_wildcard_may_be_a_part_of_the_first_label() {
    assert!(matches("*-api.e.test", "eu-api.e.test") && !matches("*-api.e.test", "eu.api.e.test"));
    assert!(
        matches("node-?.e.test", "node-7.e.test") && !matches("node-?.e.test", "node-17.e.test")
    );
    assert!(
        matches("node-[1-3].e.test", "node-2.e.test")
            && !matches("node-[1-3].e.test", "node-4.e.test")
    );
}

// PO-04
#[test]
fn a_wildcard_over_everybodys_names_is_refused() {
    for text in [
        "*", "**", "*.", "*.com", "**.com", "*test", "*.test", "*.co.uk", "**.co.uk", "*.uk.",
    ] {
        let told = told(text);
        assert!(told.contains("cover"), "{text}: {told}");
    }
}

// PO-04
#[test]
fn a_wildcard_over_nothing_but_registries_never_matches_and_is_refused() {
    for text in [
        "*.kawasaki.jp",
        "**.kawasaki.jp",
        "c*.kawasaki.jp",
        "*.ck",
        "**.mm",
    ] {
        let told = told(text);
        assert!(told.contains("cover"), "{text}: {told}");
        assert!(told.contains("one owner"), "{text}: {told}");
    }
}

// PO-04
#[test]
fn a_wildcard_does_not_reach_through_a_registry() {
    for (pattern, name, expected) in [
        ("*.hedmark.no", "www.hedmark.no", true),
        ("*.hedmark.no", "os.hedmark.no", false),
        ("o?.hedmark.no", "os.hedmark.no", false),
        ("**.hedmark.no", "a.www.hedmark.no", true),
        ("**.hedmark.no", "os.hedmark.no", false),
        ("**.hedmark.no", "evil.os.hedmark.no", false),
        ("*.evil.os.hedmark.no", "a.evil.os.hedmark.no", true),
        ("*.city.kawasaki.jp", "www.city.kawasaki.jp", true),
        ("*.owner.a.kawasaki.jp", "www.owner.a.kawasaki.jp", true),
    ] {
        assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
    }
}

// PO-04
#[test]
fn a_wildcard_reaches_names_under_no_registry_and_under_private_ones() {
    assert!(matches("*.corp.test", "a.corp.test"));
    assert!(matches("**.corp.test", "c.b.a.corp.test"));
    assert!(matches("**.corp.internal", "b.a.corp.internal"));
    assert!(matches("*.github.io", "anybody.github.io"));
    assert!(matches(
        "**.amazonaws.com",
        "bucket.s3.eu-west-1.amazonaws.com"
    ));
}

proptest! {
    // PO-04
    #[test]
    fn no_registry_lies_between_a_wildcard_and_what_it_matches(
        under in prop::collection::vec(prop::sample::select(vec!["a", "city", "os", "co", "www"]), 1..4),
        base in prop::sample::select(vec![
            "hedmark.no", "os.hedmark.no", "kawasaki.jp", "city.kawasaki.jp", "jp", "uk", "e.co.uk",
            "e.test", "corp.e.test", "nom.br", "a.nom.br", "github.io", "ck", "www.ck", "a.ck",
        ]),
        deep in any::<bool>(),
    ) {
        let stars = if deep { "**" } else { "*" };
        let name = format!("{}.{base}", under.join("."));
        let registered = |name: &str| {
            psl::suffix(name.as_bytes()).is_some_and(|suffix| {
                suffix == name.as_bytes() && suffix.typ() != Some(psl::Type::Private)
            })
        };
        let shared = (0..under.len()).any(|n| registered(&format!("{}.{base}", under[n..].join("."))));
        match Host::parse(&format!("{stars}.{base}")) {
            Ok(_) => prop_assert_eq!(
                matches(&format!("{stars}.{base}"), &name),
                !shared && (deep || under.len() == 1)
            ),
            Err(_) => prop_assert!(
                registered(base) || registered(&format!("_.{base}")),
                "{} is taken",
                base
            ),
        }
    }
}

#[test]
fn a_wildcard_under_the_domain_of_one_owner_is_taken() {
    assert!(matches("*.googleapis.com", "storage.googleapis.com"));
    assert!(matches(
        "*.githubusercontent.com",
        "raw.githubusercontent.com"
    ));
    assert!(matches(
        "**.internal.example.co.uk",
        "a.b.internal.example.co.uk"
    ));
}

// PO-04
#[test]
fn a_wildcard_behind_the_first_label_is_refused() {
    for text in [
        "a.*.test",
        "api.*.example.com",
        "*.*.example.com",
        "a.b?.example.com",
        "*.[a].example.com",
    ] {
        assert!(told(text).contains("first label only"), "{text}");
    }
    assert!(told("a**.example.com").contains("whole segment"));
    assert!(told("*..example.com").contains("empty label"));
    assert!(told("*.example.com..").contains("empty label"));
}

// PX-19, PO-03
#[test]
fn what_is_no_host_is_refused_with_what_to_write() {
    assert!(told("").contains("would match nothing"));
    assert!(told("https://origin.test:8443/x").contains("`host: origin.test`"));
    assert!(told("origin.test:443").contains("`host: origin.test` and `port: 443`"));
    assert!(told("origin.test/path").contains("write the host alone"));
    assert!(told("10.0.0.0/8").contains("`allowed_ips`"));
    assert!(told("bücher.test").contains("xn--"));
    assert!(told("a..test").contains("did you mean `a.test`?"));
    assert!(told(" a.test").contains("did you mean `a.test`?"));
    assert!(told("127.1").contains("four decimal numbers"));
    assert!(told("fe80::1%eth0").contains("neither"));
    assert!(told("localhost").contains("the sandbox's own loopback"));
    assert!(told("x.localhost").contains("the sandbox's own loopback"));
}

// SB-21
#[test]
fn an_address_is_kept_in_canonical_form() {
    let v4 = Host::Address("10.1.2.3".parse().expect("an address"));
    assert_eq!(host("10.1.2.3"), v4);
    assert_eq!(host("::ffff:10.1.2.3"), v4);
    assert_eq!(
        host("[fd00::1]"),
        Host::Address("fd00::1".parse().expect("an address"))
    );
}
