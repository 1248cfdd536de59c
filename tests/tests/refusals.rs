//! System calls that a host or the profile of a container refuses: what is missing is said, and never passed over. (Promise 9.)

use holdfast_tests::{Area, Host, Policy, Run, everyone, probe};
use serde_json::Value;
use std::fs;

/// The words before a program that make `calls` (numbers and what they answer) fail for it.
fn without(calls: &str) -> Option<[&str; 3]> {
    let probe = probe::probe()?.to_str().expect("text");
    Some([probe, "deny", calls])
}

/// What the keeper of the only sandbox has logged.
fn keeper_log(area: &Area) -> String {
    let sandboxes = fs::read_dir(area.state().join("sandboxes")).expect("there is one");
    let places = sandboxes.map(|entry| entry.expect("readable").path());
    let logs = places.map(|place| fs::read_to_string(place.join("keeper.log")));
    logs.filter_map(Result::ok).collect()
}

/// What `doctor` finds.
fn doctor(area: &Area, without: [&str; 3], code: i32) -> Vec<Value> {
    let done = Run::plain(area, ["doctor", "-o", "json"])
        .under(without)
        .finish();
    let found = serde_json::from_slice::<Value>(&done.exited(code).stdout).expect("a document");
    found["checks"].as_array().expect("a list").clone()
}

fn is_missing(check: &Value) -> bool {
    check["present"] == false && check["required"] == true
}

#[test]
fn a_missing_landlock_is_said_or_refused() {
    for calls in [NOT_BOOTED, NOT_BUILT] {
        let Some(without) = without(calls) else {
            return;
        };
        for area in everyone() {
            let done = Run::plain(&area, ["run"])
                .under(without)
                .command(["/bin/echo", "ran"])
                .finish();
            assert_eq!(done.exited(0).text(), "ran\n", "{done}");
            assert!(done.stderr.contains(ALONE), "{done}");
            assert_eq!(done.stderr.lines().count(), 1, "{done}");

            let demanded = Policy::offline().with("landlock: {compatibility: hard_requirement}");
            let done = Run::new(&area, &demanded)
                .under(without)
                .command(["/bin/echo", "ran"])
                .finish();
            assert_eq!(done.exited(125).text(), "", "{done}");
            assert!(done.stderr.contains("Landlock"), "{done}");
        }
    }
}

#[test]
fn the_log_of_a_lasting_sandbox_says_that_landlock_is_missing() {
    let Some(without) = without(NOT_BOOTED) else {
        return;
    };
    for area in everyone() {
        let host = Host::new(&area);

        host.say("create qa --wait")
            .under(without)
            .finish()
            .exited(0);

        assert!(keeper_log(&area).contains(ALONE));
    }
}

#[test]
fn a_rule_with_binaries_is_refused_where_nobody_can_be_observed() {
    let rule = "network_policies: {r: {endpoints: [{host: a.test, port: 80}]";
    for (name, calls) in [
        ("pidfd_open", "434:38"),
        ("pidfd_getfd", "438:1"),
        ("process_vm_readv", "310:1"),
    ] {
        let Some(without) = without(calls) else {
            return;
        };
        for area in everyone() {
            let done = |more: &str| {
                Run::with_text(&area, &format!("version: 1\n{rule}{more}}}}}\n"))
                    .under(without)
                    .command(["/bin/echo", "ran"])
                    .finish()
            };

            let choosy = done(", binaries: [{path: /bin/a}]");
            assert_eq!(choosy.exited(125).text(), "", "{choosy}");
            for word in ["network_policies.r", "binaries", name] {
                assert!(choosy.stderr.contains(word), "{word}: {choosy}");
            }
            assert_eq!(done("").exited(0).text(), "ran\n");
        }
    }
}

#[test]
fn a_revision_with_binaries_is_refused_where_nobody_can_be_observed() {
    let Some(without) = without("438:1") else {
        return;
    };
    for area in everyone() {
        let host = Host::new(&area);
        let policy = |name: &str, more: &str| {
            let rule = "network_policies: {r: {endpoints: [{host: a.test, port: 80}]";
            let text = format!("version: 1\n{rule}{more}}}}}\n");
            let file = area.file(&area.work().join(name), text);
            file.display().to_string()
        };
        let plain = policy("plain.yaml", "");
        let choosy = policy("choosy.yaml", ", binaries: [{path: /bin/a}]");
        // It is not waited for: its canary cannot be observed either.
        host.say(&format!("create qa --policy {plain}"))
            .under(without)
            .finish()
            .exited(0);

        let refused = host.said(&format!("policy set qa {choosy} --wait"));

        refused.exited(125);
        for word in ["network_policies.r", "binaries", "pidfd_getfd"] {
            assert!(refused.stderr.contains(word), "{word}: {refused}");
        }
        host.done(&format!("policy set qa {plain} --wait"));
    }
}

/// Whatever `run` cannot do without, `doctor` says so.
#[test]
fn doctor_names_each_call_without_which_nothing_starts() {
    for (name, number) in [
        ("open_tree", 428),
        ("move_mount", 429),
        ("mount_setattr", 442),
        ("openat2", 437),
        ("pivot_root", 155),
        ("umount2", 166),
        ("memfd_create", 319),
        ("close_range", 436),
        ("signalfd4", 289),
        ("landlock_add_rule", 445),
        ("landlock_restrict_self", 446),
    ] {
        for errno in [1, 38] {
            let calls = format!("{number}:{errno}");
            let Some(without) = without(&calls) else {
                return;
            };
            for area in everyone() {
                let checks = doctor(&area, without, 125);
                let mut missing = checks.iter().filter(|check| is_missing(check));
                let named = missing.any(|check| check.to_string().contains(name));
                assert!(named, "{name}: {checks:?}");
            }
        }
    }
}

/// Whatever `run` does without, `doctor` does not call it missing.
#[test]
fn doctor_requires_nothing_without_which_a_sandbox_starts() {
    for (name, calls) in [
        ("Landlock", NOT_BOOTED),
        ("clone3", "435:38"),
        ("pidfd_open", "434:38"),
        ("pidfd_getfd", "438:1"),
        ("process_vm_readv", "310:1"),
        ("", "272:1"),
    ] {
        let Some(without) = without(calls) else {
            return;
        };
        for area in everyone() {
            let done = Run::plain(&area, ["run"])
                .under(without)
                .command(["/bin/echo", "ran"])
                .finish();
            assert_eq!(done.exited(0).text(), "ran\n", "{done}");

            let checks = doctor(&area, without, 0);
            assert!(!checks.iter().any(is_missing), "{name}: {checks:?}");
            let absent = checks.iter().find(|check| check["name"] == name);
            assert!(
                absent.is_none_or(|check| check["present"] == false),
                "{checks:?}"
            );
            assert_eq!(absent.is_none(), name.is_empty(), "{checks:?}");
        }
    }
}

/// The three calls of Landlock, where the list `lsm=` leaves it out and where the kernel does not have it.
const NOT_BOOTED: &str = "444:95,445:95,446:95";
const NOT_BUILT: &str = "444:38,445:38,446:38";

const ALONE: &str = "no Landlock: the mount view alone guards the files";
