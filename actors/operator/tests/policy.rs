//! `holdfast policy`, and what `run` says about a policy, as people and scripts meet them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A directory with policy files in it.
struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).expect("writes");
        path
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(arguments).current_dir(self.0.path());
        command
    }

    fn holdfast(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output();
        output.expect("holdfast starts")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("is text")
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("is one document")
}

const GOOD: &str = "\
version: 1
network_policies:
  origin:
    endpoints:
      - {host: origin.test, port: 443}
    binaries: [{path: /bin/sh}]
resolver: {hosts: {origin.test: [127.0.0.1]}}
";

const BAD: &str = "\
version: 1
network_polices: {}
filesystem_policy: {read_only: /usr}
";

#[test]
fn a_good_policy_is_told_with_its_hash_and_its_rules_in_full() {
    let desk = Desk::new();
    desk.file("good.yaml", GOOD);

    let output = desk.holdfast(&["policy", "check", "good.yaml"]);

    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stdout);
    assert!(said.starts_with("good.yaml: ok sha256:"), "{said}");
    assert!(said.contains("enforcement: enforce"), "{said}");
    assert!(output.stderr.is_empty());
}

#[test]
fn every_problem_is_told_with_its_place_and_what_to_write() {
    let desk = Desk::new();
    desk.file("bad.yaml", BAD);

    let output = desk.holdfast(&["policy", "check", "bad.yaml"]);

    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let said = text(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines[0].starts_with("bad.yaml:2:1: network_polices: "),
        "{said}"
    );
    assert!(
        lines[0].contains("did you mean `network_policies`?"),
        "{said}"
    );
    assert!(
        lines[1].starts_with("bad.yaml:3:32: filesystem_policy.read_only: "),
        "{said}"
    );
}

#[test]
fn the_document_of_a_bad_policy_has_each_problem_in_parts() {
    let desk = Desk::new();
    desk.file("bad.yaml", BAD);
    desk.file("good.yaml", GOOD);

    let output = desk.holdfast(&["policy", "check", "bad.yaml", "good.yaml", "-o", "json"]);

    assert_eq!(output.status.code(), Some(2));
    let error = &document(&output)["error"];
    assert_eq!(error["reason"], "PolicyInvalid");
    let files = error["details"]["files"].as_array().expect("is a list");
    assert_eq!(files[0]["valid"], false);
    assert_eq!(files[1]["valid"], true);
    let problem = &files[0]["problems"][0];
    assert_eq!(
        (&problem["line"], &problem["column"]),
        (&2.into(), &1.into())
    );
    assert_eq!(problem["path"], "network_polices");
    assert_eq!(problem["suggestion"], "did you mean `network_policies`?");
}

#[test]
fn the_hash_is_about_the_meaning_and_not_about_the_spelling() {
    let desk = Desk::new();
    desk.file("a.yaml", GOOD);
    desk.file(
        "b.yaml",
        &format!("# the same\n{GOOD}on_link_loss: continue\n"),
    );

    let output = desk.holdfast(&["policy", "check", "a.yaml", "b.yaml", "-o", "json"]);

    let files = document(&output)["files"].clone();
    assert_eq!(files[0]["hash"], files[1]["hash"]);
}

#[test]
fn what_cannot_be_read_is_named_and_is_125() {
    let desk = Desk::new();
    desk.file("file", "");
    let place = desk.0.path();
    std::os::unix::fs::symlink("loop", place.join("loop")).expect("links");
    let _socket = std::os::unix::net::UnixListener::bind(place.join("socket")).expect("binds");
    let long = "x".repeat(300);

    for (file, reason, remedy) in [
        ("nosuch.yaml", "No such file or directory", "check the path"),
        (".", "Is a directory", "name a file in it"),
        (
            "file/x",
            "Not a directory",
            "a part of it before the last `/`",
        ),
        ("loop", "Too many levels of symbolic links", "in a circle"),
        (
            "socket",
            "No such device or address",
            "name a file that holds",
        ),
        (&long, "File name too long", "255 bytes at most"),
        (
            "/proc/self/mem",
            "Input/output error",
            "name a file that holds",
        ),
    ] {
        for arguments in [
            ["policy", "check", file].as_slice(),
            &["run", "--policy", file, "--", "touch", "started"],
            &[
                "policy", "explain", "--policy", file, "--host", "h.test", "--port", "1",
            ],
        ] {
            let output = desk.holdfast(arguments);

            assert_eq!(output.status.code(), Some(125), "{arguments:?}");
            let said = text(&output.stderr);
            assert!(said.contains(file) && said.contains(reason), "{said}");
            assert!(said.contains(remedy), "{arguments:?}: {said}");
        }
    }
    assert!(!desk.0.path().join("started").exists());
}

#[test]
fn a_policy_is_read_from_our_input_where_it_is_named_so() {
    let desk = Desk::new();
    desk.file("a.yaml", GOOD);
    let good = fs::File::open(desk.0.path().join("a.yaml")).expect("opens");

    let mut check = desk.command(&["policy", "check", "-"]);
    let output = check.stdin(good).output().expect("holdfast starts");

    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).starts_with("-: ok sha256:"));
}

#[test]
fn what_is_not_text_is_wrong_in_itself_and_told_with_its_place() {
    let desk = Desk::new();
    fs::write(desk.0.path().join("binary.yaml"), b"version: \xff").expect("writes");

    for arguments in [
        ["policy", "check", "binary.yaml"].as_slice(),
        &["run", "--policy", "binary.yaml", "--", "touch", "started"],
    ] {
        let output = desk.holdfast(arguments);

        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = text(&output.stderr);
        let place = "binary.yaml:1:10: byte 9 (0xff) is not UTF-8";
        assert!(said.contains(place), "{said}");
    }
    assert!(!desk.0.path().join("started").exists());
}

#[test]
fn an_endless_file_is_refused_by_its_length_without_a_place() {
    let desk = Desk::new();

    let output = desk.holdfast(&["policy", "check", "/dev/zero"]);

    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.contains("/dev/zero: policy is longer than 1048576 bytes"),
        "{said}"
    );
}

#[test]
fn a_run_with_a_bad_policy_starts_nothing_and_says_why() {
    let desk = Desk::new();
    desk.file("bad.yaml", BAD);

    let output = desk.holdfast(&["run", "--policy", "bad.yaml", "--", "touch", "started"]);

    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let said = text(&output.stderr);
    assert!(said.contains("bad.yaml:2:1:"), "{said}");
    assert!(
        said.ends_with("holdfast: policy bad.yaml has 2 problems\n"),
        "{said}"
    );
    assert!(!desk.0.path().join("started").exists());
}

#[test]
fn an_explanation_says_which_rule_allows() {
    let desk = Desk::new();
    desk.file("p.yaml", GOOD);
    let question = [
        "policy",
        "explain",
        "--policy",
        "p.yaml",
        "--host",
        "Origin.Test.",
    ];

    let output =
        desk.holdfast(&[&question[..], &["--port", "443", "--binary", "/bin/sh"]].concat());

    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("allowed by rule `origin`"));
}

#[test]
fn an_explanation_of_a_refusal_has_reason_nearest_rule_and_hint() {
    let desk = Desk::new();
    desk.file("p.yaml", GOOD);
    let question = [
        "policy",
        "explain",
        "--policy",
        "p.yaml",
        "--host",
        "origin.test",
        "-o",
        "json",
    ];

    let port = desk.holdfast(&[&question[..], &["--port", "80", "--binary", "/bin/sh"]].concat());
    let nobody = desk.holdfast(&[&question[..], &["--port", "443"]].concat());

    let port = document(&port);
    assert_eq!(port["verdict"], "denied");
    assert_eq!(port["reason"], "port_not_allowed");
    assert_eq!(port["nearest"], "origin");
    assert!(
        port["hint"]
            .as_str()
            .is_some_and(|hint| hint.contains("80"))
    );
    let nobody = document(&nobody);
    assert_eq!(nobody["reason"], "identity_unobservable");
    let note = nobody["notes"][0].as_str().expect("has a note");
    assert!(note.contains("--binary"), "{note}");
}

#[test]
fn an_address_that_may_stand_for_a_name_is_told_as_such() {
    let desk = Desk::new();
    desk.file("p.yaml", GOOD);

    for (host, noted) in [
        ("198.18.77.77", true),
        ("fd48:6f6c:6466:6173::7", true),
        ("198.20.77.77", false),
    ] {
        let output = desk.holdfast(&[
            "policy", "explain", "--policy", "p.yaml", "--host", host, "--port", "443", "-o",
            "json",
        ]);

        let answer = document(&output);
        assert_eq!(answer["reason"], "host_not_allowed", "{answer}");
        let note = answer["notes"][0].as_str().unwrap_or_default();
        assert_eq!(note.contains("stands for a name"), noted, "{answer}");
    }
}

#[test]
fn a_question_without_sense_is_wrong_usage() {
    let desk = Desk::new();
    desk.file("p.yaml", GOOD);

    for (host, binary) in [
        ("https://origin.test", "/bin/sh"),
        ("127.1", "/bin/sh"),
        ("origin.test", "sh"),
    ] {
        let output = desk.holdfast(&[
            "policy", "explain", "--policy", "p.yaml", "--host", host, "--port", "443", "--binary",
            binary,
        ]);

        assert_eq!(output.status.code(), Some(2), "{host} {binary}");
        assert!(text(&output.stderr).contains("hint:"), "{host} {binary}");
    }
}

#[test]
fn a_binary_is_judged_by_the_file_that_its_path_leads_to() {
    let desk = Desk::new();
    let program = desk.file("program-1.2", "");
    let link = desk.0.path().join("program");
    std::os::unix::fs::symlink(&program, &link).expect("links");
    let path = |path: &PathBuf| path.to_str().expect("is text").to_owned();
    desk.file("p.yaml", &GOOD.replace("/bin/sh", &path(&link)));

    // The kernel will report the file, the policy names the link.
    let output = desk.holdfast(&[
        "policy",
        "explain",
        "--policy",
        "p.yaml",
        "--host",
        "origin.test",
        "--port",
        "443",
        "--binary",
        &path(&program.canonicalize().expect("is there")),
        "-o",
        "json",
    ]);

    assert_eq!(document(&output)["verdict"], "allowed");
}

#[test]
fn a_rule_for_a_script_of_this_host_is_warned_of() {
    let desk = Desk::new();
    let script = desk.file("script", "#!/bin/sh\n");
    let script = script.to_str().expect("is text");
    desk.file("p.yaml", &GOOD.replace("/bin/sh", script));
    desk.file("good.yaml", GOOD);

    let told = desk.holdfast(&["policy", "check", "p.yaml"]);
    let document = document(&desk.holdfast(&["policy", "check", "p.yaml", "-qojson"]));
    let good = desk.holdfast(&["policy", "check", "good.yaml"]);

    assert_eq!(told.status.code(), Some(0));
    let said = text(&told.stderr);
    let warning =
        format!("holdfast: warning: p.yaml: rule `origin` names {script}, which is a script");
    assert!(said.starts_with(&warning), "{said}");
    let warnings = document["files"][0]["warnings"].as_array();
    assert_eq!(warnings.map(Vec::len), Some(1), "{document}");
    assert_eq!(text(&good.stderr), "");
}
