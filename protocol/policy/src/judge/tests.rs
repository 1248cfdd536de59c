use super::*;
use crate::rule::Enforcement;
use crate::sample::policy;

/// A policy of one rule.
pub(super) fn rule(endpoints: &str) -> Policy {
    policy(&format!(
        "version: 1\nnetwork_policies: {{r: {{endpoints: [{endpoints}]}}}}\n"
    ))
}

pub(super) fn judged(policy: &Policy, host: &str, port: u16, identity: &Identity) -> Verdict {
    let destination = host.parse().expect("a destination");
    policy.judge(&Request {
        destination,
        port,
        identity,
    })
}

pub(super) fn allowed(policy: &Policy, host: &str, port: u16) -> Allowed {
    match judged(policy, host, port, &Identity::Unobservable) {
        Verdict::Allowed(allowed) => allowed,
        Verdict::Denied(denied) => panic!("{denied:?}"),
    }
}

fn denied(policy: &Policy, host: &str, port: u16, identity: &Identity) -> Denied {
    match judged(policy, host, port, identity) {
        Verdict::Allowed(allowed) => panic!("{allowed:?}"),
        Verdict::Denied(denied) => denied,
    }
}

fn admitted(policy: &Policy, allowed: &Allowed, address: &str) -> Result<(), Reason> {
    policy
        .admits_address(allowed, address.parse().expect("an address"))
        .map_err(|denied| denied.reason)
}

fn curl() -> Identity {
    Identity::of("/usr/bin/curl")
}

const TWO: &str = r#"
version: 1
network_policies:
  origin:
    endpoints: [{host: origin.test, port: 443}, {host: "*.cdn.test", ports: [80, 443]}]
    binaries: [{path: /usr/bin/curl}, {path: "/usr/bin/python3*"}]
  open:
    endpoints: [{host: open.test, port: 8080}, {host: "**.wide.test", port: "*", enforcement: audit}]
"#;

#[test]
fn a_policy_without_rules_denies_everything() {
    let policy = policy("version: 1");
    for host in ["origin.test", "1.1.1.1", "10.0.0.1", "::1"] {
        let denied = denied(&policy, host, 443, &curl());
        assert_eq!(denied.nearest, None);
    }
    assert!(!policy.admits_name(&"origin.test".parse().expect("a name")));
}

// PX-26
#[test]
fn an_allowed_host_is_not_allowed_on_another_port() {
    let denied = denied(&policy(TWO), "origin.test", 9999, &curl());
    assert_eq!(denied.reason, Reason::PortNotAllowed);
    assert_eq!(denied.nearest.as_deref(), Some("origin"));
    assert_eq!(
        denied.hint,
        "write `ports: [443, 9999]` at `origin.test` in rule `origin`"
    );
}

#[test]
fn a_rule_is_for_the_program_or_one_of_its_ancestors() {
    let policy = policy(TWO);
    let child = Identity::Observed {
        executable: "/usr/lib/git-core/git-remote-https".into(),
        ancestors: vec!["/usr/bin/git".into(), "/usr/bin/python3.12".into()],
    };
    assert!(judged(&policy, "origin.test", 443, &child).is_allowed());
    let denied = denied(&policy, "origin.test", 443, &Identity::of("/usr/bin/wget"));
    assert_eq!(denied.reason, Reason::BinaryNotAllowed);
    assert_eq!(
        denied.hint,
        "add `{path: /usr/bin/wget}` to `binaries` of rule `origin`"
    );
}

// PX-22
#[test]
fn a_program_that_cannot_be_observed_has_only_rules_without_binaries() {
    let policy = policy(TWO);
    assert!(judged(&policy, "open.test", 8080, &Identity::Unobservable).is_allowed());
    let denied = denied(&policy, "origin.test", 443, &Identity::Unobservable);
    assert_eq!(denied.reason, Reason::IdentityUnobservable);
    assert_eq!(denied.reason.as_str(), "identity_unobservable");
    assert_eq!(denied.nearest.as_deref(), Some("origin"));
    assert!(denied.hint.contains("without them"), "{}", denied.hint);
}

#[test]
fn another_rule_without_binaries_serves_the_program_that_cannot_be_observed() {
    let text = TWO.replace(
        "{host: open.test, port: 8080}",
        "{host: origin.test, port: 443}",
    );
    let policy = policy(&text);
    assert_eq!(allowed(&policy, "origin.test", 443).rule, "open");
}

#[test]
fn an_endpoint_in_audit_is_allowed_and_marked() {
    let policy = policy(TWO);
    assert_eq!(
        allowed(&policy, "a.b.wide.test", 1).enforcement,
        Enforcement::Audit
    );
    assert_eq!(
        allowed(&policy, "open.test", 8080).enforcement,
        Enforcement::Enforce
    );
}

#[test]
fn a_wildcard_port_is_every_port_but_none_is_port_0() {
    let policy = policy(TWO);
    assert!(judged(&policy, "a.wide.test", 65535, &curl()).is_allowed());
    assert!(!judged(&policy, "a.wide.test", 0, &curl()).is_allowed());
}

#[test]
fn a_rule_is_called_by_its_name_if_it_has_one() {
    let policy = policy(
        "version: 1\nnetwork_policies: {k: {name: \"the name\", endpoints: [{host: a.test}]}}",
    );
    assert_eq!(allowed(&policy, "a.test", 443).rule, "the name");
}

// PX-19
#[test]
fn only_label_boundaries_divide_names() {
    let policy = rule("{host: allowed.test}, {host: \"*.api.test\"}");
    for host in ["ALLOWED.test", "allowed.test.", "a.api.test."] {
        assert!(judged(&policy, host, 443, &curl()).is_allowed(), "{host}");
    }
    for host in [
        "xallowed.test",
        "allowed.test.evil.test",
        "api.test",
        "a.b.api.test",
        "denied.test.",
    ] {
        assert_eq!(
            denied(&policy, host, 443, &curl()).reason,
            Reason::HostNotAllowed,
            "{host}"
        );
    }
}

#[test]
fn a_name_is_admitted_if_some_rule_could_be_for_it() {
    let policy = policy(TWO);
    let admits = |name: &str| policy.admits_name(&name.parse().expect("a name"));
    assert!(admits("origin.test") && admits("x.cdn.test") && admits("a.b.wide.test"));
    assert!(
        !admits("cdn.test") && !admits("a.b.cdn.test") && !admits("wide.test") && !admits("test")
    );
}

#[test]
fn an_address_that_stands_for_no_name_is_denied_as_such() {
    let denied = denied(&policy(TWO), "198.18.7.7", 443, &curl());
    assert!(
        denied.hint.contains("stands for no name"),
        "{}",
        denied.hint
    );
}

#[test]
fn a_hint_quotes_what_yaml_would_read_otherwise() {
    let denied = denied(
        &policy(TWO),
        "origin.test",
        443,
        &Identity::of("/opt/my app: x"),
    );
    assert!(
        denied.hint.contains(r#"`{path: "/opt/my app: x"}`"#),
        "{}",
        denied.hint
    );
}

#[test]
fn the_nearest_rule_is_of_the_same_owner_or_a_slip_of_the_hand_away() {
    let policy = policy(TWO);
    let nearest = |host: &str| denied(&policy, host, 443, &curl()).nearest;
    assert_eq!(nearest("cdn.test").as_deref(), Some("origin"));
    assert_eq!(nearest("a.b.cdn.test").as_deref(), Some("origin"));
    assert_eq!(nearest("www.open.test").as_deref(), Some("open"));
    assert_eq!(nearest("orgin.test").as_deref(), Some("origin"));
    assert_eq!(nearest("elsewhere.example"), None);
}

// PX-13
#[test]
fn no_spelling_of_the_loopback_or_of_metadata_is_reachable() {
    let policy = rule("{host: \"**.example.com\", port: \"*\"}, {host: 1.1.1.1, port: \"*\"}");
    for host in [
        "127.0.0.1",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "0.0.0.0",
        "[::]",
        "169.254.169.254",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "224.0.0.1",
    ] {
        let denied = denied(&policy, host, 80, &curl());
        assert_eq!(denied.reason, Reason::AddressRefused, "{host}");
        assert!(denied.hint.contains("address"), "{}", denied.hint);
    }
    for host in ["100.64.0.1", "[fd00::1]", "10.0.0.1", "8.8.8.8"] {
        assert_eq!(
            denied(&policy, host, 80, &curl()).reason,
            Reason::HostNotAllowed,
            "{host}"
        );
    }
}

// PX-13
#[test]
fn an_ambiguous_number_is_no_destination() {
    for text in [
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "fe80::1%eth0",
        "[::1",
        "",
    ] {
        assert!(text.parse::<Destination>().is_err(), "{text}");
    }
}

// SB-21
#[test]
fn a_mapped_address_is_judged_as_its_ipv4_address() {
    let policy =
        rule("{host: 10.1.2.3, port: 5432}, {host: 127.0.0.1, port: 80, allowed_ips: [127.0.0.1]}");
    assert!(judged(&policy, "::ffff:10.1.2.3", 5432, &curl()).is_allowed());
    assert!(judged(&policy, "::ffff:127.0.0.1", 80, &curl()).is_allowed());
    assert!(!judged(&policy, "::ffff:10.1.2.4", 5432, &curl()).is_allowed());
    assert!(!judged(&policy, "127.0.0.1", 81, &curl()).is_allowed());
}

// PX-14, DN-09
#[test]
fn an_allowed_name_does_not_lead_to_an_address_that_is_refused() {
    let policy = rule("{host: good.test}, {host: \"*.good.test\"}");
    for name in ["good.test", "a.good.test"] {
        let allowed = allowed(&policy, name, 443);
        for address in [
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "169.254.169.254",
            "fe80::1",
            "0.0.0.0",
            "ff02::1",
        ] {
            assert_eq!(
                admitted(&policy, &allowed, address),
                Err(Reason::AddressRefused),
                "{address}"
            );
        }
        assert_eq!(admitted(&policy, &allowed, "93.184.216.34"), Ok(()));
        assert_eq!(
            admitted(&policy, &allowed, "64:ff9b::93.184.216.34"),
            Ok(())
        );
    }
}

// PX-14, PO-15
#[test]
fn a_private_address_needs_the_host_written_exactly_or_listed() {
    let policy = rule(
        "{host: exact.test}, {host: \"*.wild.test\"}, {host: \"*.listed.test\", allowed_ips: [10.0.0.0/8, 1.1.1.1]}",
    );
    let to = |name: &str, address: &str| admitted(&policy, &allowed(&policy, name, 443), address);
    assert_eq!(to("exact.test", "10.0.0.5"), Ok(()));
    assert_eq!(to("exact.test", "fd00::5"), Ok(()));
    assert_eq!(to("a.wild.test", "10.0.0.5"), Err(Reason::AddressPrivate));
    assert_eq!(
        to("a.wild.test", "::ffff:10.0.0.5"),
        Err(Reason::AddressPrivate)
    );
    assert_eq!(to("a.wild.test", "100.64.0.1"), Err(Reason::AddressPrivate));
    assert_eq!(to("a.listed.test", "10.0.0.5"), Ok(()));
    assert_eq!(to("a.listed.test", "1.1.1.1"), Ok(()));
    assert_eq!(
        to("a.listed.test", "192.168.0.1"),
        Err(Reason::AddressNotListed)
    );
    assert_eq!(
        to("a.listed.test", "8.8.8.8"),
        Err(Reason::AddressNotListed)
    );
}

#[test]
fn metadata_is_refused_even_in_a_range_that_is_listed() {
    let policy = rule("{host: a.test, allowed_ips: [100.64.0.0/10, \"fd00::/8\"]}");
    let allowed = allowed(&policy, "a.test", 443);
    assert_eq!(
        admitted(&policy, &allowed, "100.100.100.200"),
        Err(Reason::AddressRefused)
    );
    assert_eq!(
        admitted(&policy, &allowed, "fd00:ec2::254"),
        Err(Reason::AddressRefused)
    );
    assert_eq!(admitted(&policy, &allowed, "100.64.0.1"), Ok(()));
}

#[test]
fn the_hosts_loopback_is_reached_only_by_the_name_or_range_that_names_it() {
    let policy = policy(
        r#"
version: 1
network_policies:
  r: {endpoints: [{host: given.test}, {host: "*.given.test"}, {host: other.test}, {host: listed.test, allowed_ips: [127.0.0.1]}]}
resolver: {hosts: {given.test: [127.0.0.1], a.given.test: [127.0.0.2, 10.0.0.1]}}
"#,
    );
    let to = |name: &str, address: &str| admitted(&policy, &allowed(&policy, name, 443), address);
    assert_eq!(to("given.test", "127.0.0.1"), Ok(()));
    assert_eq!(to("given.test", "127.0.0.2"), Err(Reason::AddressRefused));
    assert_eq!(to("a.given.test", "127.0.0.2"), Ok(()));
    assert_eq!(to("a.given.test", "10.0.0.1"), Ok(()));
    assert_eq!(to("b.given.test", "127.0.0.1"), Err(Reason::AddressRefused));
    assert_eq!(to("other.test", "127.0.0.1"), Err(Reason::AddressRefused));
    assert_eq!(to("listed.test", "127.0.0.1"), Ok(()));
    assert_eq!(to("listed.test", "::ffff:127.0.0.1"), Ok(()));
    assert_eq!(
        to("listed.test", "127.0.0.2"),
        Err(Reason::AddressNotListed)
    );
}

#[test]
fn an_endpoint_without_a_host_is_for_addresses_and_not_for_names() {
    let policy = rule("{port: 5432, allowed_ips: [10.0.0.0/8]}");
    assert!(judged(&policy, "10.1.2.3", 5432, &curl()).is_allowed());
    assert!(!judged(&policy, "10.1.2.3", 5433, &curl()).is_allowed());
    assert!(!judged(&policy, "11.1.2.3", 5432, &curl()).is_allowed());
    assert!(!judged(&policy, "db.test", 5432, &curl()).is_allowed());
    assert!(!policy.admits_name(&"db.test".parse().expect("a name")));
}

#[test]
fn the_order_of_rules_and_endpoints_changes_no_verdict() {
    let one = rule("{host: \"*.a.test\", allowed_ips: [10.0.0.0/8]}, {host: x.a.test}");
    let other = rule("{host: x.a.test}, {host: \"*.a.test\", allowed_ips: [10.0.0.0/8]}");
    for address in ["10.0.0.1", "8.8.8.8", "192.168.0.1"] {
        let of = |policy: &Policy| admitted(policy, &allowed(policy, "x.a.test", 443), address);
        assert_eq!(of(&one), of(&other));
        assert_eq!(of(&one), Ok(()), "{address}");
    }
}

#[test]
fn a_name_is_shown_at_an_address_that_any_of_its_rules_could_dial() {
    let text = r#"
version: 1
network_policies:
  exact: {endpoints: [{host: db.test, port: 5432}], binaries: [{path: /usr/bin/psql}]}
  wide: {endpoints: [{host: "*.cdn.test", port: 443}]}
  listed: {endpoints: [{host: "*.lan.test", port: 443, allowed_ips: [10.1.0.0/16]}]}
resolver: {hosts: {origin.cdn.test: [127.0.0.1]}}
"#;
    let policy = Policy::parse("policy.yaml", text).expect("a policy");
    let shown = |name: &str, address: &str| {
        let name = name.parse().expect("a name");
        let address = address.parse().expect("an address");
        policy.admits_name_at(&name, address).is_ok()
    };

    assert!(shown("db.test", "10.0.0.5") && shown("db.test", "::ffff:10.0.0.5"));
    assert!(shown("a.cdn.test", "192.0.1.1") && !shown("a.cdn.test", "10.0.0.5"));
    assert!(shown("a.lan.test", "10.1.2.3") && !shown("a.lan.test", "192.0.1.1"));
    assert!(shown("origin.cdn.test", "127.0.0.1") && !shown("a.cdn.test", "127.0.0.1"));
    for refused in [
        "169.254.169.254",
        "::ffff:127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "::",
    ] {
        assert!(!shown("db.test", refused), "{refused}");
    }
    assert!(!shown("other.test", "192.0.1.1"));
    let why = policy.admits_name_at(
        &"a.cdn.test".parse().expect("a name"),
        "10.0.0.5".parse().expect("an address"),
    );
    let why = why.expect_err("a private address behind a wildcard");
    assert_eq!(
        (why.reason, why.nearest.as_deref()),
        (Reason::AddressPrivate, Some("wide"))
    );
}

fn hinted(policy: &Policy, host: &str, port: u16) -> String {
    denied(policy, host, port, &Identity::Unobservable).hint
}

/// What a hint says to write, a policy takes.
#[test]
fn no_hint_says_to_write_what_is_refused() {
    let listed = rule("{host: a.test, port: 8080}");
    let every = rule("{host: \"*.a.test\", port: \"*\"}");

    for (policy, host) in [
        (&listed, "a.test"),
        (&listed, "b.test"),
        (&every, "x.a.test"),
    ] {
        let hint = hinted(policy, host, 0);
        assert!(hint.starts_with("there is no port 0"), "{hint}");
    }
    for host in ["a.test", "b.test"] {
        let hint = hinted(&listed, host, 53);
        assert!(hint.starts_with("port 53 is answered by"), "{hint}");
    }
    for host in ["localhost", "app.localhost"] {
        let hint = hinted(&listed, host, 8080);
        assert!(hint.contains("own loopback and needs no rule"), "{hint}");
    }
    assert_eq!(
        hinted(&listed, "0.0.0.0", 8080),
        "0.0.0.0 is an unspecified address, which no rule can open"
    );
}

#[test]
fn the_path_of_a_hint_matches_that_program_and_no_other() {
    let odd = r"/opt/a[1]*?\tool";
    let hint = denied(&policy(TWO), "origin.test", 443, &Identity::of(odd)).hint;
    let written = hint.split('`').nth(1).expect("what to write");
    let followed = policy(&TWO.replace("{path: /usr/bin/curl}", written));

    assert!(judged(&followed, "origin.test", 443, &Identity::of(odd)).is_allowed());
    for other in ["/opt/a1tool", r"/opt/a[1]xy\tool", "/opt/a[1]*?tool"] {
        assert!(!judged(&followed, "origin.test", 443, &Identity::of(other)).is_allowed());
    }
}
