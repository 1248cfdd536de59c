use super::*;

const CONTRACT: &str = r#"
version: 1
filesystem_policy:
  include_workdir: true
  read_only:  [/usr, /lib, /lib64, /bin, /sbin, /etc]
  read_write: [/tmp]
landlock: {compatibility: hard_requirement}
process: {run_as_user: "1500", run_as_group: "1500", limits: {nofile: 1024, nproc: 512, memory: 2g}}
network_policies:
  origin:
    endpoints:
      - {host: origin.test, port: 443}
      - {host: "*.cdn.test", ports: [80, 443]}
      - {host: 10.1.2.3, port: 5432, allowed_ips: [10.1.2.3/32]}
    binaries: [{path: /usr/bin/curl}, {path: /usr/bin/python3*}]
resolver: {hosts: {origin.test: [127.0.0.1]}}
on_link_loss: continue
"#;

fn judged(policy: &Policy, host: &str, port: u16, identity: &Identity) -> Verdict {
    let destination = host.parse().expect("a destination");
    policy.judge(&Request {
        destination,
        port,
        identity,
    })
}

#[test]
fn what_a_rule_names_is_allowed_and_the_rest_is_denied() {
    let policy = Policy::parse("policy.yaml", CONTRACT).expect("a policy");
    let curl = Identity::of("/usr/bin/curl");
    assert!(judged(&policy, "origin.test", 443, &curl).is_allowed());
    assert!(judged(&policy, "a.cdn.test", 80, &curl).is_allowed());
    assert!(judged(&policy, "10.1.2.3", 5432, &curl).is_allowed());
    assert!(!judged(&policy, "other.test", 443, &curl).is_allowed());
    assert!(!judged(&policy, "10.1.2.4", 5432, &curl).is_allowed());
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
        policy.admits_name_at(&name, address.parse().expect("an address"))
    };

    assert!(shown("db.test", "10.0.0.5") && shown("db.test", "::ffff:10.0.0.5"));
    assert!(shown("a.cdn.test", "192.0.1.1") && !shown("a.cdn.test", "10.0.0.5"));
    assert!(shown("a.lan.test", "10.1.2.3") && !shown("a.lan.test", "192.0.1.1"));
    assert!(shown("origin.cdn.test", "127.0.0.1") && !shown("a.cdn.test", "127.0.0.1"));
    for refused in ["169.254.169.254", "::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe", "::"] {
        assert!(!shown("db.test", refused), "{refused}");
    }
    assert!(!shown("other.test", "192.0.1.1"));
}
