use super::*;
use crate::process::Account;
use crate::sample::{policy, told};

#[test]
fn the_policy_of_the_contract_is_read_in_full() {
    let policy = policy(
        r#"
version: 1
filesystem_policy:
  include_workdir: true
  read_only:  [/usr, /lib, /etc/]
  read_write: [/tmp, /home//me/./x]
landlock: {compatibility: hard_requirement}
process: {run_as_user: "1500", run_as_group: agents, limits: {nofile: 1024, nproc: 512, memory: 2g}}
network_policies:
  origin:
    endpoints:
      - {host: origin.test, port: 443}
      - {host: "*.cdn.test", ports: [80, 443]}
      - {host: 10.1.2.3, port: 5432, allowed_ips: [10.1.2.3/32]}
    binaries: [{path: /usr/bin/curl}, {path: /usr/bin/python3*}]
resolver: {hosts: {origin.test: [127.0.0.1]}}
on_link_loss: freeze
"#,
    );
    let view = policy.filesystem().expect("a view");
    assert!(view.include_workdir);
    assert_eq!(
        view.read_only,
        ["/etc", "/lib", "/usr"].map(std::path::PathBuf::from)
    );
    assert_eq!(
        view.read_write,
        ["/home/me/x", "/tmp"].map(std::path::PathBuf::from)
    );
    assert_eq!(policy.compatibility(), Compatibility::HardRequirement);
    assert_eq!(policy.process().run_as_user, Some(Account::Id(1500)));
    assert_eq!(
        policy.process().run_as_group,
        Some(Account::Name("agents".into()))
    );
    let limits = policy.process().limits;
    assert_eq!(
        (limits.nofile, limits.nproc, limits.memory),
        (Some(1024), Some(512), Some(2 << 30))
    );
    assert_eq!(policy.on_link_loss(), OnLinkLoss::Freeze);
    let named = BTreeSet::from([80, 443, 5432]);
    assert_eq!(
        policy.captured_ports(),
        Captured {
            named,
            ..Captured::default()
        }
    );
    assert_eq!(policy.hosts().len(), 1);
}

#[test]
fn what_is_left_out_has_its_documented_default() {
    let policy = policy("version: 1\n");
    assert_eq!(policy.filesystem(), None);
    assert_eq!(policy.compatibility(), Compatibility::BestEffort);
    assert_eq!(policy.process(), &Process::default());
    assert_eq!(policy.on_link_loss(), OnLinkLoss::Continue);
    assert!(policy.rules().is_empty() && policy.hosts().is_empty());
    assert_eq!(policy.captured_ports(), Captured::default());
}

#[test]
fn the_standard_policy_has_system_directories_a_tmp_and_no_network() {
    let standard = Policy::standard();
    let view = standard.filesystem().expect("a view");
    assert!(view.include_workdir);
    assert!(
        view.read_only.contains(&"/usr".into())
            && view.read_write == [std::path::Path::new("/tmp")]
    );
    assert!(standard.rules().is_empty());
    assert_eq!(policy(&standard.expanded()), standard);
}

// PO-01
#[test]
fn a_version_other_than_1_is_refused() {
    assert!(told("version: 2").contains("unknown version 2"));
    assert!(told("version: \"1\"").contains("write `version: 1`"));
    assert!(told("landlock: {}").contains("`version` is missing"));
    assert!(told("").contains("the document is empty"));
}

// PO-02, PO-03
#[test]
fn an_empty_list_that_would_allow_nothing_is_refused() {
    for text in [
        "filesystem_policy: {}",
        "filesystem_policy: {read_only: [], read_write: []}",
        "network_policies: {r: {}}",
        "network_policies: {r: {endpoints: []}}",
        "network_policies: {r: {endpoints: [{host: a.test}], binaries: []}}",
        "network_policies: {r: {endpoints: [{host: a.test, ports: []}]}}",
        "network_policies: {r: {endpoints: [{host: a.test, allowed_ips: []}]}}",
        "network_policies: {r: {endpoints: [{}]}}",
        "network_policies: {r: {endpoints: [{host: a.test}], binaries: [{}]}}",
        "resolver: {hosts: {a.test: []}}",
    ] {
        told(&format!("version: 1\n{text}\n"));
    }
    assert!(
        policy("version: 1\nnetwork_policies: {}\nresolver: {hosts: {}}\n")
            .rules()
            .is_empty()
    );
}

#[test]
fn a_path_that_cannot_be_granted_is_refused() {
    for (text, word) in [
        ("{read_only: [usr]}", "not absolute"),
        ("{read_only: [$HOME/x]}", "not expanded"),
        ("{read_only: [/a/../b]}", "`..`"),
        ("{read_only: [\"\"]}", "empty"),
        ("{read_only: [\"/a\\0b\"]}", "NUL"),
        ("{read_only: [/usr/*]}", "not globs"),
        ("{read_write: [/]}", "whole root"),
        ("{read_only: [/usr/$X]}", "variables"),
        ("{read_only: ['/usr/${X}/y']}", "variables"),
        ("{read_only: [/a], read_write: [/a/]}", "both"),
    ] {
        let told = told(&format!("version: 1\nfilesystem_policy: {text}\n"));
        assert!(told.contains(word), "{text}: {told}");
    }
    policy("version: 1\nfilesystem_policy: {read_only: [/a$, '/b/$1']}\n");
    policy("version: 1\nfilesystem_policy: {read_only: [/, /proj/.git], read_write: [/proj]}\n");
}

// LL-14
#[test]
fn two_thousand_paths_are_read() {
    let paths: Vec<String> = (0..2000).map(|n| format!("/data/{n}")).collect();
    let policy = policy(&format!(
        "version: 1\nfilesystem_policy: {{read_only: [{}]}}\n",
        paths.join(", ")
    ));
    assert_eq!(policy.filesystem().expect("a view").read_only.len(), 2000);
}

#[test]
fn static_names_have_reachable_addresses() {
    let hosts = |text: &str| format!("version: 1\nresolver: {{hosts: {{{text}}}}}\n");
    assert!(told(&hosts("a.test: [169.254.169.254]")).contains("metadata"));
    assert!(told(&hosts("a.test: [0.0.0.0]")).contains("is an unspecified address"));
    assert!(told(&hosts("localhost: [127.0.0.1]")).contains("never takes effect"));
    assert!(told(&hosts("App.Localhost: [10.0.0.1]")).contains("never takes effect"));
    assert!(told(&hosts("a.test: [a]")).contains("not an address"));
    assert!(told(&hosts("\"*.test\": [127.0.0.1]")).contains("character"));
    assert!(told(&hosts("a.test: [127.0.0.1], A.test: [127.0.0.2]")).contains("twice"));
    assert!(told(&hosts("a.test: [127.0.0.1, \"::ffff:127.0.0.1\"]")).contains("twice"));
    let policy = policy(&hosts("A.test: [\"::ffff:10.0.0.1\", \"::1\"]"));
    let expected = ["10.0.0.1", "::1"].map(|a| a.parse::<IpAddr>().expect("an address"));
    assert_eq!(
        policy.hosts().get("a.test").map(Vec::as_slice),
        Some(&expected[..])
    );
}

#[test]
fn a_link_counts_as_the_file_it_leads_to_and_leaves_the_hash_alone() {
    let text = "version: 1\nnetwork_policies: {r: {endpoints: [{host: a.test}], binaries: [{path: /bin/py}]}}";
    let plain = policy(text);
    let linked = plain
        .clone()
        .with_links(|path| (path == "/bin/py").then(|| "/usr/bin/py3.12".to_owned()));
    let py = crate::Identity::of("/usr/bin/py3.12");
    assert!(linked.rules()[0].is_for(&py) && !plain.rules()[0].is_for(&py));
    assert_eq!(linked.hash(), plain.hash());
}

#[test]
fn a_tilde_that_a_shell_would_expand_is_refused_in_a_path_and_others_are_not() {
    let with = |path: &str| format!("version: 1\nfilesystem_policy: {{read_only: [\"{path}\"]}}\n");
    for path in ["~/x", "~", "/home/~x", "/~"] {
        let told = told(&with(path));
        assert!(told.contains('~'), "{path}: {told}");
    }
    policy(&with("/home/x~"));
}
