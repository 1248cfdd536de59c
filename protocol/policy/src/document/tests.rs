use std::fmt::Write;

use proptest::prelude::*;

use crate::policy::Policy;
use crate::sample::{endpoint, problems, told};

// PO-01
#[test]
fn an_unknown_key_is_refused_with_its_place_and_the_nearest_key() {
    let found = problems(
        "version: 1\nnetwork_policies:\n  r:\n    endpoints:\n      - host: a.test\n        prot: 443\n",
    );
    let problem = found.first().expect("one");
    assert_eq!((problem.line, problem.column), (6, 9));
    assert_eq!(problem.path, "network_policies.r.endpoints[0].prot");
    assert_eq!(problem.suggestion.as_deref(), Some("did you mean `port`?"));
    for (text, meant) in [
        ("filesystem: {}", "filesystem_policy"),
        ("network_policy: {}", "network_policies"),
        ("filesystem_policy: {readonly: [/usr]}", "read_only"),
        ("process: {limit: {}}", "limits"),
        ("landlock: {compatability: best_effort}", "compatibility"),
    ] {
        let all = problems(&format!("version: 1\n{text}\n"));
        let told = all
            .iter()
            .any(|p| p.suggestion.as_deref() == Some(&format!("did you mean `{meant}`?")));
        assert!(told, "{text}: {all:?}");
    }
}

// PO-02
#[test]
fn a_tag_is_refused_where_it_stands() {
    for (text, line, tag) in [
        ("version: !!int 1", 1, "int"),
        ("version: 1\non_link_loss: !!str continue", 2, "str"),
        ("version: 1\nprocess: !!map {}", 2, "map"),
        (
            "version: 1\nprocess: {limits: {nofile: !own 1024}}",
            2,
            "!own",
        ),
        ("!!str version: 1", 1, "str"),
        ("!!map {version: 1}", 1, "map"),
        (
            "version: 1\nfilesystem_policy: {read_only: [! /usr]}",
            2,
            "!",
        ),
    ] {
        let told = told(text);
        assert!(
            told.starts_with(&format!("policy.yaml:{line}:")),
            "{text}: {told}"
        );
        assert!(told.contains("tags are not supported"), "{text}: {told}");
        assert!(told.contains(tag), "{text}: {told}");
    }
}

// PO-01
#[test]
fn a_misspelt_key_is_not_told_as_a_missing_one_too() {
    for (text, key) in [
        ("verison: 1".to_owned(), "verison"),
        (
            "version: 1\nfilesystem_policy: {read_onyl: [/usr]}".to_owned(),
            "read_onyl",
        ),
        (
            "version: 1\nnetwork_policies: {r: {endpoint: []}}".to_owned(),
            "endpoint",
        ),
        (endpoint("{hots: a.test}"), "hots"),
        (
            format!(
                "{}    binaries: [{{pth: /bin/a}}]",
                endpoint("host: a.test")
            ),
            "pth",
        ),
    ] {
        assert!(
            told(&text).contains(&format!("unknown key `{key}`; did you mean")),
            "{text}"
        );
    }
    let found = problems("version: 1\nfilesystem_policy: {read_only: [], read_onyl: [/usr]}\n");
    assert_eq!(found.len(), 1, "{found:?}");
}

// PO-01
#[test]
fn a_misspelt_denial_is_refused_and_not_dropped() {
    let told = told(&endpoint("{host: a.test, deny_rule: []}"));
    assert!(
        told.contains("unknown key `deny_rule`; did you mean `deny_rules`?"),
        "{told}"
    );
}

#[test]
fn a_key_given_twice_is_refused_with_both_lines() {
    let told = told("version: 1\nprocess: {}\nlandlock: {}\nprocess: {}\n");
    assert_eq!(
        told,
        "policy.yaml:4:1: process: key `process` is given twice, first at line 2; keep one of them"
    );
}

#[test]
fn several_problems_are_told_at_once_in_the_order_of_the_document() {
    let found = problems(
        "version: 3\nprocess: {run_as_user: -1}\nlandlock: {compatibility: none}\non_link_loss: stop\n",
    );
    assert_eq!(
        found.iter().map(|p| p.line).collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
}

// PO-02
#[test]
fn a_value_of_another_type_is_refused_wherever_it_stands() {
    let whole = [
        "filesystem_policy: []",
        "filesystem_policy: /usr",
        "filesystem_policy: {read_only: /usr}",
        "filesystem_policy: {read_only: {a: b}}",
        "filesystem_policy: {read_only: [[/usr]]}",
        "filesystem_policy: {read_only: [/usr], include_workdir: yes}",
        "filesystem_policy: {read_only: [/usr], include_workdir: 1}",
        "landlock: best_effort",
        "landlock: {compatibility: [best_effort]}",
        "process: [nofile]",
        "process: {run_as_user: [1]}",
        "process: {limits: 5}",
        "process: {limits: {nofile: \"1024\"}}",
        "process: {limits: {nofile: 1.5}}",
        "process: {limits: {memory: [2g]}}",
        "network_policies: []",
        "network_policies: {r: []}",
        "network_policies: {r: {endpoints: {host: a.test}}}",
        "network_policies: {r: {endpoints: a.test}}",
        "network_policies: {r: {endpoints: [a.test]}}",
        "resolver: []",
        "resolver: {hosts: []}",
        "resolver: {hosts: {a.test: 127.0.0.1}}",
        "resolver: {hosts: {a.test: [[127.0.0.1]]}}",
        "on_link_loss: [freeze]",
    ];
    let endpoints = [
        "{host: [a.test]}",
        "{host: 5}",
        "{host: a.test, port: \"443\"}",
        "{host: a.test, port: {a: b}}",
        "{host: a.test, ports: [[443]]}",
        "{host: a.test, ports: 80-443}",
        "{host: a.test, ports: 80}",
        "{host: a.test, port: [80]}",
        "{host: a.test, allowed_ips: 10.0.0.0/8}",
        "{host: a.test, allowed_ips: {a: b}}",
        "{host: a.test, enforcement: true}",
    ];
    let whole = whole.iter().map(|text| format!("version: 1\n{text}\n"));
    for text in whole.chain(endpoints.iter().map(|text| endpoint(text))) {
        let told = told(&text);
        assert!(
            told.contains("expected") && told.contains(';'),
            "{text}: {told}"
        );
    }
}

#[test]
fn a_number_is_told_as_it_is() {
    for (text, word) in [
        (
            "version: 99999999999999999999999",
            "found a number that is too large",
        ),
        ("version: 1.5", "found a fraction"),
        (
            "version: 1\nprocess: {limits: {memory: -1}}",
            "-1 bytes are too few",
        ),
    ] {
        let told = told(&format!("{text}\n"));
        assert!(told.contains(word) && told.contains("; write"), "{told}");
    }
}

// PO-02
#[test]
fn a_key_without_a_value_is_refused() {
    for text in [
        "filesystem_policy:",
        "filesystem_policy: ~",
        "landlock: null",
        "process:",
        "network_policies:",
        "resolver:",
        "on_link_loss:",
        "network_policies: {r: null}",
        "network_policies: {r: {endpoints: null}}",
        "network_policies: {r: {endpoints: [{host: null}]}}",
        "network_policies: {r: {endpoints: [{host: a.test, port: null}]}}",
        "network_policies: {r: {endpoints: [{host: a.test}], binaries: null}}",
        "network_policies: {r: {endpoints: [{host: a.test, allowed_ips: null}]}}",
        "resolver: {hosts: {a.test: null}}",
    ] {
        let all = problems(&format!("version: 1\n{text}\n"));
        assert!(
            all.iter().any(|p| p.message.contains("has no value")),
            "{text}: {all:?}"
        );
    }
}

#[test]
fn one_kilobyte_of_aliases_does_not_become_a_gigabyte() {
    let mut bomb = "a0: &a0 [x, x]\n".to_owned();
    for n in 1..30 {
        writeln!(bomb, "a{n}: &a{n} [*a{0}, *a{0}]", n - 1).expect("a line");
    }
    let told_bomb = told(&bomb);
    assert!(told_bomb.contains("more than"), "{told_bomb}");
    assert!(told(&("[".repeat(100) + &"]".repeat(100))).contains("more than"));
    let long = told(&format!("version: 1\n# {}\n", "x".repeat(1 << 20)));
    assert!(long.contains("longer than"), "{long}");
    for told in [told_bomb, long] {
        assert!(told.contains("; shorten it"), "{told}");
    }
}

#[test]
fn what_is_not_one_yaml_document_is_refused_with_its_place() {
    for (text, place, word) in [
        ("version: [", "1:", "YAML"),
        ("version: 1\n\tx: 1\n", "", "tab"),
        (
            "version: 1\n---\nversion: 1\n",
            "3:",
            "more than one document",
        ),
        ("version: 1\n<<: {a: b}\n", "2:1", "merge keys"),
        ("version: !tag 1\n", "1:", "tag"),
        ("version: 1\n~: x\n", "2:1", "key is empty"),
        ("a: &x [*x]\n", "1:", "alias"),
    ] {
        let told = told(text);
        assert!(
            told.starts_with(&format!("policy.yaml:{place}")) && told.contains(word),
            "{told}"
        );
    }
}

proptest! {
    #[test]
    fn reading_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Policy::parse("fuzz", &String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn reading_anything_that_looks_like_a_policy_never_panics(
        words in proptest::collection::vec(
            prop::sample::select(vec![
                "version: 1", "\n", "  ", "network_policies:", "r:", "endpoints:", "- ", "host: a.test", "port: ", "443",
                "[", "]", "{", "}", ",", "binaries:", "path: /x", "\"", "&a ", "*a", "|", ">", "?", ": ", "~", "- -", "!!str ",
                "resolver:", "hosts:", "filesystem_policy:", "read_only:", "/usr", "#", "process:", "limits:", "'", "%", "\t",
            ]),
            0..40,
        ),
    ) {
        let _ = Policy::parse("fuzz", &words.concat());
    }
}

#[test]
fn whatever_is_not_readable_is_told_with_its_place_and_what_helps() {
    let deep = format!("x: {}{}", "[".repeat(40), "]".repeat(40));
    let many = format!("x: [{}]", "1,".repeat(50_001));
    let aliases = format!("x: &a 1\ny: [{}]", "*a,".repeat(1_001));
    for (text, place, words) in [
        ("version: 1\n\tprocess: {}\n", "2:1", "spaces"),
        ("process:\n\tlimits: {}\n", "2:1", "spaces"),
        ("version: [\n", "1:10", "close it"),
        ("version: ]\n", "1:10", "remove it"),
        ("version: \"1\nx: y\n", "1:10", "close it"),
        ("version: \"1\" 2\n", "1:14", "whole text in quotes"),
        ("version: 1\n  process: {}\n", "2:10", "in one column"),
        ("process:\n    a:\n   x: {}\n", "3:4", "in one column"),
        ("a: b: c\n", "1:5", "`: ` in quotes"),
        ("host: *.a.test\n", "1:7", "`\"*.example.com\"`"),
        ("x: {host: **.a.test}\n", "1:11", "`\"*.example.com\"`"),
        ("host: *\n", "1:7", "`\"*.example.com\"`"),
        ("host: @a\n", "1:7", "in quotes"),
        ("host: %a\n", "1:7", "in quotes"),
        ("host: &\n", "1:7", "in quotes"),
        ("host: a\0b\n", "1:8", "remove the character"),
        ("host: \"a\\qb\"\n", "1:7", "single quotes"),
        ("host: \"a\\xZZ\"\n", "1:7", "single quotes"),
        ("host: !a!own x\n", "1:7", "remove the tag"),
        ("host: !!int abc\n", "1:13", "remove the tag"),
        ("host: !!map [a]\n", "1:13", "remove the tag"),
        ("[a]: b\n", "1:1", "plain text as the key"),
        ("version: 1\nprocess\n", "2:1", "`key: value`"),
        ("x: [a b: c d: e]\n", "1:13", "with `,`"),
        ("%YAML 9.9\n---\nversion: 1\n", "1:1", "`%`"),
        (&deep, "1:35", "more than 32 values in each other"),
        (&many, "1:99999", "more than 50000 values"),
        (&aliases, "2:", "aliases"),
    ] {
        let told = told(text);
        let short: String = text.chars().take(40).collect();
        assert!(
            told.starts_with(&format!("policy.yaml:{place}")),
            "{short}: {told}"
        );
        let (_, fix) = told.split_once("; ").expect(&told);
        assert!(
            fix.contains(words) || told.contains(words),
            "{short}: {told}"
        );
    }
}

#[test]
fn whatever_is_refused_in_a_value_is_told_with_what_helps() {
    let label = "a".repeat(64);
    let long = format!("{}.test", "a.".repeat(125));
    let path = format!("/{}", "a".repeat(4_096));
    let binary = |path: &str| {
        format!(
            "{}    binaries: [{{path: '{path}'}}]\n",
            endpoint("host: a.test")
        )
    };
    for (text, fix) in [
        (binary("/bin/[a"), "close it"),
        (binary("/bin/[]a"), "name the characters"),
        (binary("/bin/[z-a]"), "lower end first"),
        (binary("/bin/a\\"), "write `\\\\`"),
        (binary("/bin/a**"), "write `*`"),
        (binary(&path), "shorten it"),
        (endpoint("{host: \"n[a.b.test\"}"), "close it"),
        (endpoint("{host: a b.test}"), "entry of its own"),
        (
            endpoint(&format!("{{host: {label}.test}}")),
            "can be looked up",
        ),
        (endpoint(&format!("{{host: {long}}}")), "can be looked up"),
        (
            endpoint("{host: a.test, allowed_ips: [10.0.0.0/33]}"),
            "from 0 to 32",
        ),
        (endpoint("{host: a.test, port: 080}"), "write `80`"),
        (endpoint("{host: a.test, port: \"443\"}"), "write `443`"),
        (endpoint("{host: a.test, port: 0x}"), "a number from 1"),
        (
            endpoint("{host: a.test, protocol: TCP}"),
            "did you mean `tcp`?",
        ),
        (
            endpoint("{host: a.test, protocol: udp}"),
            "remove the endpoint",
        ),
        (
            "version: 1\nresolver: {hosts: {\"*.test\": [127.0.0.1]}}\n".to_owned(),
            "under `host` only",
        ),
    ] {
        let told = told(&text);
        let (_, said) = told.split_once("; ").expect(&told);
        assert!(said.contains(fix), "{told}");
    }
}

/// A wrong name is told where the name stands, and what it is.
#[test]
fn a_wrong_key_of_hosts_is_told_at_its_place_and_as_a_name() {
    let hosts =
        |line: &str| format!("version: 1\nresolver:\n  hosts:\n    {line}\n      - 127.0.0.1\n");
    for (line, words) in [
        ("a..test:", "did you mean `a.test`?"),
        (
            "10.0.0.1:",
            "is an address, and a key of `hosts` is a name; write the name first: `name.test: [\"10.0.0.1\"]`",
        ),
        (
            "\"fd00::1\":",
            "is an address, and a key of `hosts` is a name",
        ),
        (
            "\"127.1\":",
            "ends in a number, and a key of `hosts` is a name",
        ),
        ("localhost:", "the sandbox's own loopback"),
    ] {
        let told = told(&hosts(line));
        assert!(
            told.starts_with("policy.yaml:4:5: resolver.hosts."),
            "{told}"
        );
        assert!(told.contains(words), "{told}");
        assert!(!told.contains("four decimal"), "{told}");
    }
    let twice =
        told("version: 1\nresolver:\n  hosts:\n    a.test: [127.0.0.1]\n    A.test: [127.0.0.1]\n");
    assert!(twice.starts_with("policy.yaml:5:5: "), "{twice}");
    assert!(
        twice.contains("\"A.test\" is in the list twice: it is the name `a.test`"),
        "{twice}"
    );
}

#[test]
fn one_fault_is_one_problem() {
    for (text, words) in [
        ("network_policies: {r: }", "`r` has no value"),
        ("resolver: {hosts: {a.test: }}", "`a.test` has no value"),
        (
            "resolver: {hosts: {a.test: [127.0.0.1], a.test: [127.0.0.1]}}",
            "key `a.test` is given twice",
        ),
        (
            "filesystem_policy: {include_workdir: yes}",
            "expected `true` or `false`",
        ),
        ("filesystem_policy: {include_workdir: }", "has no value"),
        (
            "filesystem_policy: {include_workdir: false}",
            "no path is granted",
        ),
        (
            "network_policies: {r: {endpoints: [{host: a.test}], binaries: [/bin/x]}}",
            "expected a binary (a mapping), found text; write `{path: /bin/x}`",
        ),
        (
            "network_policies: {r: {endpoints: [{host: a.test, allowed_ips: [10.1.2.3/8]}]}}",
            "bits are set after the prefix; write `10.0.0.0/8` for the whole range or `10.1.2.3` for the one address",
        ),
    ] {
        let told = told(&format!("version: 1\n{text}\n"));
        assert!(told.contains(words), "{told}");
    }
}

/// As `docs/policy.md` has it.
#[test]
fn an_anchor_has_ten_aliases_for_each_anchor_from_a_hundred_on() {
    let aliases = |anchors: usize, aliases: usize| {
        let anchors: Vec<String> = (0..anchors).map(|n| format!("&a{n} /d{n}")).collect();
        let aliases = vec!["*a0"; aliases].join(", ");
        let list = format!("[{}, {aliases}]", anchors.join(", "));
        Policy::parse(
            "p",
            &format!("version: 1\nfilesystem_policy: {{read_only: {list}}}\n"),
        )
    };

    assert!(aliases(1, 99).is_ok() && aliases(10, 100).is_ok());
    assert!(aliases(1, 100).is_err() && aliases(10, 101).is_err());
}
