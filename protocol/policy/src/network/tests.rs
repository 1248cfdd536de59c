use super::*;
use crate::policy::Captured;
use crate::sample::{endpoint, policy, told};

// PX-26
#[test]
fn an_endpoint_without_a_port_is_for_443_alone() {
    let policy = policy(&endpoint("host: origin.test"));
    assert_eq!(policy.captured_ports().named, BTreeSet::from([443]));
    assert!(policy.expanded().contains("ports: [443]"));
}

#[test]
fn a_wildcard_port_captures_on_demand() {
    let policy = policy(&endpoint("{host: origin.test, port: \"*\"}"));
    assert_eq!(
        policy.captured_ports(),
        Captured {
            every_port: true,
            ..Captured::default()
        }
    );
}

#[test]
fn a_wildcard_port_says_which_addresses_it_is_for() {
    let listed = |endpoint_: &str| policy(&endpoint(endpoint_)).captured_ports().listed;
    let range = |text: &str| text.parse::<crate::Cidr>().expect("a range");
    assert_eq!(
        listed("{port: \"*\", allowed_ips: [127.0.0.0/8]}"),
        [range("127.0.0.0/8")]
    );
    assert_eq!(
        listed("{host: 127.0.0.9, port: \"*\", allowed_ips: [127.0.0.0/8]}"),
        [range("127.0.0.9")]
    );
    for other in [
        "{host: 10.0.0.9, port: \"*\"}",
        "{port: 80, allowed_ips: [127.0.0.0/8]}",
        "{host: a.test, port: \"*\", allowed_ips: [127.0.0.0/8]}",
    ] {
        assert_eq!(listed(other), []);
    }
}

// PO-03
#[test]
fn a_port_that_no_connection_has_is_refused() {
    for (port, word) in [
        ("0", "no port 0"),
        ("-1", "no port -1"),
        ("65536", "no port 65536"),
        ("70000", "no port 70000"),
        ("443-442", "ranges"),
        ("443.5", "a fraction"),
        ("\"443\"", "without quotes"),
        ("https", "a number from 1"),
        ("53", "own resolver"),
    ] {
        let told = told(&endpoint(&format!("{{host: a.test, port: {port}}}")));
        assert!(told.contains(word), "{port}: {told}");
    }
    assert!(told(&endpoint("{host: a.test, port: 1, ports: [2]}")).contains("both"));
    assert!(told(&endpoint("{host: a.test, ports: [443, \"*\"]}")).contains("alone"));
}

// PO-03
#[test]
fn more_ports_than_can_be_listened_on_are_refused_where_they_become_too_many() {
    let rule = |name: &str, from: usize, to: usize| {
        let ports: Vec<String> = (from..to).map(|port| port.to_string()).collect();
        let ports = ports.join(", ");
        format!("  {name}: {{endpoints: [{{host: {name}.test, ports: [{ports}]}}]}}\n")
    };
    let first = 1_000;
    let most = first + MOST_PORTS;
    let full = format!(
        "version: 1\nnetwork_policies:\n{}{}",
        rule("b", first, most),
        rule("a", first, most)
    );
    assert_eq!(policy(&full).captured_ports().named.len(), MOST_PORTS);
    let told = told(&format!("{full}{}", rule("c", most, most + 2)));
    assert!(
        told.starts_with("policy.yaml:5:6: network_policies.c: "),
        "{told}"
    );
    for word in ["name 8002 ports", "8000 can be", "`port: \"*\"`"] {
        assert!(told.contains(word), "{word}: {told}");
    }
}

// PO-03
#[test]
fn a_name_whose_own_addresses_are_all_unlisted_is_refused() {
    let with = |hosts: &str| {
        let endpoint = endpoint("{host: a.test, allowed_ips: [10.0.0.0/8]}");
        format!("{endpoint}resolver: {{hosts: {{a.test: [{hosts}]}}}}\n")
    };
    let told = told(&with("127.0.0.1, 192.168.0.1"));
    assert!(
        told.starts_with("policy.yaml:5:37: network_policies.r.endpoints[0].allowed_ips: "),
        "{told}"
    );
    assert!(told.contains("never matches; add `127.0.0.1`"), "{told}");
    policy(&with("127.0.0.1, 10.0.0.1"));
}

// PO-03
#[test]
fn a_range_that_is_never_reachable_is_refused() {
    for (range, word) in [
        ("169.254.0.0/16", "link-local"),
        ("169.254.169.254", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("0.0.0.0/0", "takes in"),
        ("::/0", "takes in"),
        ("224.0.0.0/4", "multicast"),
        ("0.0.0.0", "unspecified"),
        ("::", "unspecified"),
        ("::ffff:10.0.0.0/104", "disguise"),
        ("64:ff9b::/96", "disguise"),
        ("10.1.2.3/8", "`10.0.0.0/8`"),
        ("10.0.0.0/33", "at most 32"),
        ("ten", "not an address"),
        ("", "not an address"),
    ] {
        let told = told(&endpoint(&format!(
            "{{host: a.test, allowed_ips: [\"{range}\"]}}"
        )));
        assert!(
            told.contains(word) && told.contains("allowed_ips[0]"),
            "{range}: {told}"
        );
    }
    policy(&endpoint(
        "{host: a.test, allowed_ips: [127.0.0.1, \"::1\", 10.0.0.0/8, 1.1.1.1]}",
    ));
}

// PO-03
#[test]
fn an_address_as_host_that_is_never_reachable_is_refused() {
    for (host, word) in [
        ("127.0.0.1", "allowed_ips: [127.0.0.1/32]"),
        ("::1", "allowed_ips: [::1/128]"),
        ("::ffff:127.0.0.1", "loopback"),
        ("169.254.169.254", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("fe80::1", "link-local"),
        ("224.0.0.1", "multicast"),
        ("0.0.0.0", "unspecified"),
        ("255.255.255.255", "broadcast"),
        ("198.18.0.9", "stands for a name"),
        ("fd48:6f6c:6466:6173::9", "stands for a name"),
    ] {
        let told = told(&endpoint(&format!("{{host: \"{host}\"}}")));
        assert!(told.contains(word), "{host}: {told}");
    }
    assert!(
        told(&endpoint("{host: 10.1.2.3, allowed_ips: [10.9.0.0/16]}")).contains("never matches")
    );
    assert!(told(&endpoint("{allowed_ips: [198.18.0.0/16]}")).contains("stand for names"));
    policy(&endpoint("{host: 127.0.0.1, allowed_ips: [127.0.0.1/32]}"));
}

// PO-03
#[test]
fn an_endpoint_listed_twice_is_refused() {
    let twice = "version: 1\nnetwork_policies:\n  r:\n    endpoints:\n      - {host: a.test, ports: [80, 443]}\n      - {host: A.test.}\n";
    let told = told(twice);
    assert!(
        told.contains("6:9")
            && told.contains("port 443 of `a.test` is already in network_policies.r.endpoints[0]"),
        "{told}"
    );
}

// PO-03
#[test]
fn a_binary_that_no_program_can_be_is_refused() {
    for (path, word) in [
        ("curl", "not absolute"),
        ("~/bin/x", "not expanded"),
        ("/usr/bin/", "`/usr/bin/*`"),
        ("/usr/../bin/x", "`..`"),
        ("/usr/bin/[a", "never closed"),
        ("/usr/b**", "whole segment"),
        ("", "empty"),
    ] {
        let text = format!(
            "version: 1\nnetwork_policies: {{r: {{endpoints: [{{host: a.test}}], binaries: [{{path: \"{path}\"}}]}}}}"
        );
        let told = told(&text);
        assert!(told.contains(word), "{path}: {told}");
    }
}

#[test]
fn what_needs_inspection_is_refused_by_name() {
    for text in [
        "protocol: rest",
        "protocol: graphql",
        "protocol: websocket",
        "protocol: mcp",
        "tls: terminate",
        "access: read-only",
        "rules: [{allow: {method: GET, path: /**}}]",
        "deny_rules: [{method: POST, path: /**}]",
        "path: /graphql",
        "mcp: {versions: [a]}",
        "credential_binding: {provider: p}",
    ] {
        let told = told(&endpoint(&format!("{{host: a.test, {text}}}")));
        let key = text.split(':').next().expect("a key");
        assert!(
            told.contains(&format!("`{key}")) && told.contains("this version does not have"),
            "{told}"
        );
        assert!(told.contains(&format!("remove `{key}`")), "{told}");
    }
    assert!(
        told("version: 1\nnetwork_middlewares: {}\n").contains("not supported by this version")
    );
}

#[test]
fn a_file_of_openshell_without_inspection_loads_unchanged() {
    let policy = policy(
        "
version: 1
filesystem_policy:
  include_workdir: true
  read_only: [/usr, /lib, /proc, /dev/urandom, /app, /etc, /var/log]
  read_write: [/sandbox, /tmp, /dev/null]
landlock:
  compatibility: best_effort
process:
  run_as_user: sandbox
  run_as_group: sandbox
network_policies:
  claude_code:
    name: claude-code
    endpoints:
      - { host: api.anthropic.com, port: 443 }
      - { host: statsig.anthropic.com, port: 443, protocol: tcp, tls: skip, enforcement: audit }
      - { host: '*-aiplatform.googleapis.com', ports: [443] }
      - { port: 5432, allowed_ips: ['10.0.0.0/8'] }
    binaries:
      - { path: /usr/local/bin/claude }
      - { path: '/usr/lib/jvm/*/bin/java' }
",
    );
    assert_eq!(policy.rules().len(), 1);
    assert_eq!(policy.rules()[0].name, "claude-code");
}
