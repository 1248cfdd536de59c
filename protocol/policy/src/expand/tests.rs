use crate::sample::policy;

const PLAIN: &str = r#"
version: 1
filesystem_policy: {read_only: [/usr, "/odd \"päth\"\n"]}
network_policies:
  a: {endpoints: [{host: one.test}, {host: "*.two.test", ports: [443, 80]}, {allowed_ips: [10.0.0.0/8]}]}
  "b b": {name: B, endpoints: [{host: three.test, port: "*", enforcement: audit}], binaries: [{path: '/bin/\**'}]}
resolver: {hosts: {one.test: [127.0.0.1, "::1"]}}
"#;

/// The same, said otherwise.
const OTHER: &str = r#"
# A comment.
on_link_loss: continue
resolver:
  hosts:
    ONE.test.: ["::ffff:127.0.0.1", "::1"]
network_policies:
  "b b":
    binaries: [{path: '/bin//\**'}]
    endpoints: [{enforcement: audit, port: "*", host: three.test}]
    name: B
  a:
    endpoints:
      - {allowed_ips: [10.0.0.0/8], port: 443}
      - {host: "*.Two.test", ports: [80, 443, 80]}
      - {host: ONE.test., port: 443, enforcement: enforce}
filesystem_policy: {read_only: ["/odd \"päth\"\n", /usr/], include_workdir: false}
process: {limits: {}}
version: 1
"#;

#[test]
fn what_is_written_out_reads_back_as_the_same_policy() {
    let once = policy(PLAIN).expanded();
    assert_eq!(policy(&once).expanded(), once);
}

// PO-07
#[test]
fn comments_order_and_spelling_make_no_difference_to_the_hash() {
    assert_eq!(policy(PLAIN).expanded(), policy(OTHER).expanded());
    assert_eq!(policy(PLAIN).hash(), policy(OTHER).hash());
}

#[test]
fn any_change_of_meaning_changes_the_hash() {
    let hash = policy(PLAIN).hash();
    assert!(hash.starts_with("sha256:") && hash.len() == 7 + 64);
    for (from, to) in [
        ("one.test}", "uno.test}"),
        ("443, 80", "443, 81"),
        ("audit", "enforce"),
        ("10.0.0.0/8", "10.0.0.0/9"),
        ("name: B", "name: C"),
        (r"/bin/\**", r"/bin/**"),
        ("127.0.0.1", "127.0.0.2"),
        ("/usr", "/opt"),
        (", binaries: [{path: '/bin/\\**'}]", ""),
        ("version: 1\n", "version: 1\non_link_loss: freeze\n"),
        (
            "version: 1\n",
            "version: 1\nlandlock: {compatibility: hard_requirement}\n",
        ),
        ("version: 1\n", "version: 1\nprocess: {run_as_user: 5}\n"),
        (
            "version: 1\n",
            "version: 1\nprocess: {limits: {nproc: 5}}\n",
        ),
    ] {
        assert!(PLAIN.contains(from), "{from}");
        assert_ne!(
            policy(&PLAIN.replace(from, to)).hash(),
            hash,
            "{from} -> {to}"
        );
    }
}
