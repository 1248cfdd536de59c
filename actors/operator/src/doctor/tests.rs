use holdfast_kernel::probe::{Feature, Outcome};
use nix::errno::Errno;

use super::*;

fn check(name: &'static str, present: bool, required: bool) -> Check {
    Check {
        name,
        present,
        required,
        detail: String::new(),
        needed_for: "this test",
        remedy: if present {
            String::new()
        } else {
            "do it".into()
        },
    }
}

fn diagnosis(checks: Vec<Check>) -> Diagnosis {
    Diagnosis {
        ok: checks.iter().all(|check| check.present || !check.required),
        version: "0.1.0",
        kernel: "6.1.0".into(),
        checks,
    }
}

#[test]
fn what_is_missing_is_told_with_its_need_and_its_remedy() {
    let text = diagnosis(vec![
        check("Landlock", false, true),
        check("clone3", true, true),
    ])
    .text();

    assert_eq!(
        text,
        "holdfast 0.1.0 on Linux 6.1.0\n\
         \n\
         MISSING  Landlock\n         needed for this test\n         fix: do it\n\
         ok       clone3\n\
         \n\
         1 required, listed as MISSING: no sandbox can start here.\n"
    );
}

#[test]
fn what_is_only_better_to_have_fails_nothing() {
    let diagnosis = diagnosis(vec![
        check("a", true, true),
        check("SYNC_WAKE_UP", false, false),
    ]);

    assert!(diagnosis.ok);
    assert!(diagnosis.text().contains("absent   SYNC_WAKE_UP"));
}

#[test]
fn the_setting_that_forbids_user_namespaces_is_named() {
    let advice_for =
        |host: &Host, errno| features::advice(Feature::UserNamespace, Outcome::Fails(errno), host);
    let none = Host {
        max_user_namespaces: Some(0),
        ..Host::default()
    };
    let debian = Host {
        unprivileged_userns_clone: Some(0),
        ..Host::default()
    };
    let ubuntu = Host {
        apparmor_restrict_userns: Some(1),
        ..Host::default()
    };
    let container = Host {
        filtered: true,
        ..Host::default()
    };

    assert!(advice_for(&none, Errno::ENOSPC).contains("user.max_user_namespaces"));
    assert!(advice_for(&debian, Errno::EPERM).contains("kernel.unprivileged_userns_clone=1"));
    assert!(advice_for(&ubuntu, Errno::EACCES).contains("apparmor_restrict_unprivileged_userns"));
    assert!(advice_for(&container, Errno::EPERM).contains("seccomp"));
}

#[test]
fn in_a_sandbox_of_ours_nobody_is_sent_to_settings_of_the_host() {
    let advice =
        |host: &Host| features::advice(Feature::UserNamespace, Outcome::Fails(Errno::EPERM), host);
    let within = Host {
        max_user_namespaces: Some(0),
        filtered: true,
        resolvers: vec![[198, 18, 0, 1].into()],
        ..Host::default()
    };
    let container = Host {
        resolvers: vec![[10, 0, 0, 1].into()],
        ..within.clone()
    };

    assert!(advice(&within).contains("a sandbox of Holdfast"));
    assert!(advice(&container).contains("user.max_user_namespaces"));
}

#[test]
fn every_missing_feature_has_a_remedy_and_every_present_one_has_none() {
    let findings = Findings::take();

    let diagnosis = Diagnosis::of(&findings, &Host::read());

    for check in &diagnosis.checks {
        assert_eq!(check.remedy.is_empty(), check.present, "{}", check.name);
        assert!(!check.needed_for.is_empty(), "{}", check.name);
    }
    for feature in Feature::ALL {
        for errno in [Errno::EPERM, Errno::ENOSYS, Errno::EINVAL, Errno::ENOSPC] {
            let advice = features::advice(feature, Outcome::Fails(errno), &Host::default());
            assert!(!advice.is_empty(), "{feature:?} {errno}");
        }
    }
}

/// A limit says nothing of the feature that was to be tried under it.
#[test]
fn where_no_more_files_can_be_opened_the_limit_is_named() {
    let told = |errno| {
        let feature = Feature::UserNamespace;
        features::advice(feature, Outcome::Fails(errno), &Host::default())
    };

    assert!(told(Errno::EMFILE).contains("`ulimit -n`"));
    assert!(told(Errno::ENFILE).contains("fs.file-max"));
}
