//! `holdfast doctor` on this host, and on one that forbids things.

use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

const HOLDFAST: &str = env!("CARGO_BIN_EXE_holdfast");

fn doctor(arguments: &[&str]) -> Output {
    let mut command = Command::new(HOLDFAST);
    let output = command.arg("doctor").args(arguments).output();
    output.expect("holdfast starts")
}

/// The doctor in a world of which `forbid` has taken something away.
fn doctor_where(forbid: &str, arguments: &str) -> Output {
    let script = format!("{forbid} && exec {HOLDFAST} doctor {arguments}");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    command.output().expect("unshare starts")
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("is one document")
}

fn check<'a>(document: &'a Value, name: &str) -> &'a Value {
    let checks = document["checks"].as_array().expect("is a list");
    let found = checks.iter().find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("no check is called {name}"))
}

#[test]
fn text_and_document_say_the_same() {
    let document = document(&doctor(&["-o", "json"]));
    let output = doctor(&[]);
    let text = String::from_utf8(output.stdout).expect("is text");

    let checks = document["checks"].as_array().expect("is a list");
    assert!(checks.len() > 20);
    for check in checks {
        let mark = match (check["present"].as_bool(), check["required"].as_bool()) {
            (Some(true), _) => "ok     ",
            (Some(false), Some(true)) => "MISSING",
            (Some(false), _) => "absent ",
            other => panic!("{other:?} is no state"),
        };
        let name = check["name"].as_str().expect("is text");
        let told = text
            .lines()
            .any(|line| line.starts_with(&format!("{mark}  {name}")));
        assert!(told, "{mark} {name} is not in\n{text}");
    }
    let expected = if document["ok"] == true { 0 } else { 125 };
    assert_eq!(output.status.code(), Some(expected));
}

#[test]
fn a_host_without_user_namespaces_is_told_so_by_the_name_of_its_setting() {
    let forbid = "echo 0 > /proc/sys/user/max_user_namespaces";

    let output = doctor_where(forbid, "-o json");
    let text = doctor_where(forbid, "");

    assert_eq!(output.status.code(), Some(125));
    let document = document(&output);
    assert_eq!(document["ok"], false);
    let missing = check(&document, "user namespace");
    assert_eq!(missing["present"], false);
    assert_eq!(missing["required"], true);
    let detail = missing["detail"].as_str().expect("is text");
    assert!(detail.starts_with("ENOSPC"), "{detail}");
    let remedy = missing["remedy"].as_str().expect("is text");
    assert!(remedy.contains("user.max_user_namespaces"), "{remedy}");
    // What rests on it is not blamed for it.
    let rests = check(&document, "network namespace");
    assert!(
        rests["detail"]
            .as_str()
            .is_some_and(|detail| detail.starts_with("not tried"))
    );
    assert_eq!(text.status.code(), Some(125));
    let text = String::from_utf8(text.stdout).expect("is text");
    assert!(text.contains("MISSING  user namespace"), "{text}");
    assert!(text.contains("no sandbox can start here"), "{text}");
}

#[test]
fn a_host_without_network_namespaces_misses_just_what_rests_on_them() {
    let document = document(&doctor_where(
        "echo 0 > /proc/sys/user/max_net_namespaces",
        "-o json",
    ));

    assert_eq!(check(&document, "user namespace")["present"], true);
    assert_eq!(check(&document, "network namespace")["present"], false);
    assert_eq!(check(&document, "capture of IPv4")["present"], false);
    assert_eq!(check(&document, "private /proc")["present"], true);
}

#[test]
fn a_masked_proc_is_found_out_by_trying() {
    // As container engines do: something is mounted over a part of /proc, so the kernel grants no new one.
    let mask = "mount -t tmpfs none /proc/sys/fs";

    let document = document(&doctor_where(mask, "-o json"));

    let proc = check(&document, "private /proc");
    assert_eq!(proc["present"], false);
    let remedy = proc["remedy"].as_str().expect("is text");
    assert!(remedy.contains("unmasked"), "{remedy}");
}

#[test]
fn resolvers_and_limits_are_seen() {
    let mask = "mount --bind /dev/null /etc/resolv.conf && ulimit -n 100";

    let document = document(&doctor_where(mask, "-o json"));

    assert_eq!(check(&document, "upstream resolvers")["present"], false);
    let files = check(&document, "open files");
    assert_eq!(files["present"], false);
    assert_eq!(files["detail"], "hard limit 100");
}

#[test]
fn the_doctor_is_quick() {
    #[expect(clippy::disallowed_methods, reason = "a stopwatch")]
    let now = std::time::Instant::now;
    let took = |()| {
        let began = now();
        doctor(&[]);
        began.elapsed()
    };

    // The best of some: a busy machine makes anything slow once.
    let best = [(); 5].map(took).into_iter().min();

    assert!(best < Some(Duration::from_millis(100)), "{best:?}");
}
