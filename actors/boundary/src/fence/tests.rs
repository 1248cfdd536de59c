//! What a plan says of the host that it is made for.

use super::*;

/// The host that the tests run on, with an empty root.
fn host(root: &Path) -> Host {
    let path = root.to_owned();
    Host::look(path.clone(), PathBuf::from("/"), path)
}

fn policy(text: &str) -> Policy {
    Policy::parse("policy.yaml", &format!("version: 1\n{text}")).expect("is valid")
}

#[test]
fn what_landlock_does_not_give_is_told_under_best_effort() {
    let root = tempfile::tempdir().expect("a directory");
    for (landlock, lacking) in [
        (0, vec![Lack::Landlock]),
        (1, vec![Lack::Scopes(1)]),
        (5, vec![Lack::Scopes(5)]),
        (6, vec![]),
        (7, vec![]),
    ] {
        let host = Host {
            landlock,
            ..host(root.path())
        };

        let fence = plan(&policy(""), &host).expect("planned");

        assert_eq!(fence.lacking, lacking, "version {landlock}");
    }
}

#[test]
fn a_missing_landlock_is_refused_where_it_is_demanded() {
    let root = tempfile::tempdir().expect("a directory");
    let host = Host {
        landlock: 0,
        ..host(root.path())
    };

    let planned = plan(
        &policy("landlock: {compatibility: hard_requirement}"),
        &host,
    );

    assert!(matches!(planned, Err(Unplanned::Landlock)), "{planned:?}");
}

#[test]
fn binaries_are_refused_where_nobody_can_be_observed() {
    let root = tempfile::tempdir().expect("a directory");
    let host = Host {
        unobservable: Some("pidfd_getfd: Operation not permitted".to_owned()),
        ..host(root.path())
    };
    let rule = |more: &str| {
        let endpoints = "endpoints: [{host: a.test, port: 80}]";
        policy(&format!("network_policies: {{r: {{{endpoints}{more}}}}}"))
    };

    let choosy = plan(&rule(", binaries: [{path: /bin/a}]"), &host);
    let open = plan(&rule(""), &host);

    let refused = choosy.expect_err("refused").to_string();
    assert!(
        refused.starts_with("network_policies.r names binaries"),
        "{refused}"
    );
    assert!(refused.contains("pidfd_getfd"), "{refused}");
    assert!(open.is_ok(), "{open:?}");
}
