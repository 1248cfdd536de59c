//! What holds for every policy and every request.

use std::fmt::Write;

use proptest::prelude::*;

use super::tests::{allowed, judged, rule};
use super::*;
use crate::sample::policy;

#[derive(Clone, Debug)]
struct Entry {
    host: &'static str,
    port: u16,
    binary: Option<&'static str>,
}

fn entry() -> impl Strategy<Value = Entry> {
    let host = prop::sample::select(vec![
        "a.test",
        "b.a.test",
        "*.a.test",
        "**.a.test",
        "x-*.b.test",
        "10.0.0.1",
    ]);
    let binary = prop::option::of(prop::sample::select(vec!["/bin/a", "/bin/*", "/opt/**"]));
    (host, 1_u16..4, binary).prop_map(|(host, port, binary)| Entry { host, port, binary })
}

/// What an entry says, by the words of its definition.
fn names(entry: &Entry, host: &str, port: u16, executable: Option<&str>) -> bool {
    let labels = |suffix: &str| {
        host.strip_suffix(suffix)
            .map(|left| left.split('.').count())
    };
    let host_fits = match entry.host {
        "*.a.test" => labels(".a.test") == Some(1),
        "**.a.test" => labels(".a.test").is_some(),
        "x-*.b.test" => host.starts_with("x-") && labels(".b.test") == Some(1),
        exact => exact == host,
    };
    let binary_fits = match (entry.binary, executable) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some("/bin/*"), Some(path)) => path.starts_with("/bin/"),
        (Some("/opt/**"), Some(path)) => path.starts_with("/opt/"),
        (Some(exact), Some(path)) => exact == path,
    };
    host_fits && entry.port == port && binary_fits
}

proptest! {
    #[test]
    fn a_connection_is_allowed_if_and_only_if_a_rule_names_it(
        entries in proptest::collection::vec(entry(), 0..6),
        host in prop::sample::select(vec![
            "a.test", "b.a.test", "c.b.a.test", "x-1.b.test", "b.test", "xa.test", "10.0.0.1", "10.0.0.2",
        ]),
        port in 1_u16..4,
        executable in prop::option::of(prop::sample::select(vec!["/bin/a", "/bin/b", "/opt/x/y", "/usr/bin/a"])),
    ) {
        let mut rules = String::new();
        for (n, e) in entries.iter().enumerate() {
            let binaries = e.binary.map_or(String::new(), |path| format!(", binaries: [{{path: {path}}}]"));
            let (host, port) = (e.host, e.port);
            writeln!(rules, "  r{n}: {{endpoints: [{{host: \"{host}\", port: {port}}}]{binaries}}}").expect("a line");
        }
        let section = if rules.is_empty() { String::new() } else { format!("network_policies:\n{rules}") };
        let policy = policy(&format!("version: 1\n{section}"));
        let identity = executable.map_or(Identity::Unobservable, Identity::of);
        let expected = entries.iter().any(|e| names(e, host, port, executable));
        prop_assert_eq!(judged(&policy, host, port, &identity).is_allowed(), expected);
    }

    #[test]
    fn whatever_is_allowed_never_leads_to_a_refused_address(bits in any::<u128>(), v4 in any::<u32>()) {
        let policy = rule("{host: a.test, allowed_ips: [10.0.0.0/8, \"fc00::/7\", 1.0.0.0/8]}, {host: b.test}");
        let v6 = std::net::Ipv6Addr::from_bits(bits);
        let v4 = std::net::Ipv4Addr::from_bits(v4);
        for address in [IpAddr::V6(v6), IpAddr::V4(v4), IpAddr::V6(v4.to_ipv6_mapped())] {
            for name in ["a.test", "b.test"] {
                if policy.admits_address(&allowed(&policy, name, 443), address).is_ok() {
                    prop_assert!(!Class::of(address).is_refused_always(), "{}", address);
                }
            }
        }
    }
}
