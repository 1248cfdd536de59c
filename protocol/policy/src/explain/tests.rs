use super::*;
use crate::request::Identity;

const POLICY: &str = r#"
version: 1
network_policies:
  origin:
    endpoints: [{host: origin.test, port: 443}, {host: "*.cdn.test", ports: [80, 443], enforcement: audit}]
    binaries: [{path: /usr/bin/curl}]
  inner:
    endpoints: [{host: "*.inner.test", allowed_ips: [10.0.0.0/8]}]
resolver: {hosts: {origin.test: [127.0.0.1], a.inner.test: [127.0.0.1], b.inner.test: [127.0.0.1, 10.0.0.1]}}
"#;

fn explained(host: &str, port: u16, binary: &str) -> Explanation {
    let policy = Policy::parse("policy.yaml", POLICY).expect("a policy");
    let identity = Identity::of(binary);
    policy.explain(&Request {
        destination: host.parse().expect("a destination"),
        port,
        identity: &identity,
    })
}

#[test]
fn an_allowed_request_shows_its_rule_and_its_addresses() {
    let text = explained("Origin.test.", 443, "/usr/bin/curl").to_string();
    assert_eq!(
        text,
        "origin.test port 443 by /usr/bin/curl: allowed by rule `origin`\n  \
         address 127.0.0.1 (loopback)\n  \
         compared with rule `origin`: host origin.test matches, port 443 matches, binary /usr/bin/curl matches\n"
    );
    assert!(
        explained("a.cdn.test", 80, "/usr/bin/curl")
            .to_string()
            .contains("marked for audit")
    );
}

// PO-11
#[test]
fn a_denied_request_shows_what_differs_and_what_to_write() {
    let text = explained("origin.test", 9999, "/usr/bin/curl").to_string();
    assert!(
        text.contains("denied (port_not_allowed)\n  nearest rule: origin\n"),
        "{text}"
    );
    assert!(
        text.contains("hint: write `ports: [443, 9999]` at `origin.test` in rule `origin`"),
        "{text}"
    );
    assert!(text.contains("port 443 differs"), "{text}");
}

#[test]
fn a_host_none_of_whose_known_addresses_is_reachable_is_denied() {
    let denied = explained("a.inner.test", 443, "/usr/bin/curl");
    assert!(
        denied.to_string().contains("denied (address_not_listed)"),
        "{denied}"
    );
    assert!(!denied.verdict.is_allowed());
    let one_of_two = explained("b.inner.test", 443, "/usr/bin/curl");
    assert!(one_of_two.verdict.is_allowed(), "{one_of_two}");
}

#[test]
fn an_explanation_in_json_has_the_verdict_at_its_top() {
    let denied = serde_json::to_value(explained("origin.test", 443, "/bin/nc")).expect("json");
    assert_eq!(denied["verdict"], "denied");
    assert_eq!(denied["reason"], "binary_not_allowed");
    assert_eq!(denied["nearest"], "origin");
    assert_eq!(denied["host"], "origin.test");
    let allowed =
        serde_json::to_value(explained("origin.test", 443, "/usr/bin/curl")).expect("json");
    assert_eq!(allowed["verdict"], "allowed");
    assert_eq!(allowed["rule"], "origin");
    assert_eq!(allowed["addresses"][0]["class"], "loopback");
}
