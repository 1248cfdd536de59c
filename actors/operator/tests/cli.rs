//! The command line as scripts meet it: exit codes, streams, documents, closed pipes.

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn holdfast(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    holdfast(arguments).output().expect("holdfast starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("is text")
}

#[test]
fn help_and_version_are_results() {
    for arguments in [
        ["--help"].as_slice(),
        &["run", "--help"],
        &["policy", "check", "-h"],
        &["--version"],
        &["version"],
    ] {
        let output = output(arguments);

        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(!output.stdout.is_empty(), "{arguments:?}");
        assert!(output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn wrong_usage_is_2_and_leaves_stdout_empty() {
    for arguments in [
        [].as_slice(),
        &["nosuch"],
        &["run"],
        &["run", "true"],
        &["run", "--nosuch", "--", "true"],
        &["run", "--timeout", "30", "--", "true"],
        &["run", "--name", "Q", "--", "true"],
        &["run", "--env", "NOSUCH_VARIABLE", "--", "true"],
        &["run", "--env", "=x", "--", "true"],
        &["policy", "check"],
        &["doctor", "-o", "yaml"],
        &["completions", "nosuch"],
    ] {
        let output = output(arguments);

        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn where_a_command_is_missing_its_help_stands_in_lines() {
    for (arguments, usage) in [
        ([].as_slice(), "Usage: holdfast [OPTIONS] <COMMAND>"),
        (&["policy"], "Usage: holdfast policy [OPTIONS] <COMMAND>"),
    ] {
        let output = output(arguments);

        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.lines().any(|line| line == usage), "{said}");
        assert!(
            said.starts_with("error: a command is missing\n\n"),
            "{said}"
        );
        assert!(!said.contains("\\n"), "{said}");
    }
    for hidden in [["-q"], ["keeprr"]] {
        let said = text(&output(&hidden).stderr);
        assert!(said.starts_with("error:"), "{said}");
        assert!(!said.contains("keeper"), "{said}");
    }
    let output = output(&["policy", "-ojson"]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("is one document");
    assert_eq!(document["error"]["reason"], "Usage");
}

#[test]
fn a_run_without_a_program_says_where_it_stands() {
    for arguments in [["run"].as_slice(), &["run", "ls"]] {
        let said = text(&output(arguments).stderr);

        assert!(said.contains("holdfast run [OPTION]… -- CMD"), "{said}");
    }
}

#[test]
fn a_program_without_a_name_is_not_found_and_told_as_that() {
    let output = output(&["run", "--", ""]);

    assert_eq!(output.status.code(), Some(127));
    let said = text(&output.stderr);
    assert!(
        said.starts_with("holdfast: find the program: its name is empty\n  hint: "),
        "{said}"
    );
}

#[test]
fn a_slip_of_the_hand_is_answered_with_the_right_word() {
    let flag = text(&output(&["run", "--timeut", "3s", "--", "true"]).stderr);
    let command = text(&output(&["doctr"]).stderr);

    assert!(flag.contains("'--timeout'"), "{flag}");
    assert!(command.contains("'doctor'"), "{command}");
}

#[test]
fn every_failure_with_a_document_is_one_document() {
    for (arguments, code) in [
        (["doctor", "--nosuch", "-o", "json"].as_slice(), 2),
        (&["version", "-ojson", "x"], 2),
        (&["policy", "check", "/nosuch.yaml", "-o", "json"], 125),
        (&["policy", "check", "--output=json"], 2),
        (&["policy", "check", "/nosuch.yaml", "-qojson"], 125),
        (&["policy", "check", "/nosuch.yaml", "-qo", "json"], 125),
        (
            &[
                "policy",
                "explain",
                "--policy",
                "/nosuch.yaml",
                "--host",
                "h",
                "--port",
                "1",
                "-o",
                "json",
            ],
            125,
        ),
    ] {
        let output = output(arguments);

        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let document: Value = serde_json::from_slice(&output.stdout).expect("is one document");
        let error = document["error"].as_object().expect("is an error");
        for field in ["code", "message", "reason", "details", "retryAfterMs"] {
            assert!(error.contains_key(field), "{arguments:?} lacks {field}");
        }
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn every_result_with_a_document_is_one_document() {
    for arguments in [["version", "-o", "json"], ["doctor", "-o", "json"]] {
        let output = output(&arguments);

        let document: Value = serde_json::from_slice(&output.stdout).expect("is one document");
        assert!(document.is_object());
        assert!(output.stderr.is_empty());
    }
}

#[test]
fn a_closed_pipe_ends_us_silently() {
    for arguments in [
        ["--help"].as_slice(),
        &["completions", "bash"],
        &["doctor"],
        &["doctor", "-o", "json"],
        &["policy", "check", "/nosuch.yaml", "-o", "json"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = holdfast(arguments);
        let output = command.stdout(writer).output().expect("holdfast starts");

        let said = text(&output.stderr);
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
        if !arguments.contains(&"/nosuch.yaml") {
            assert_eq!(output.status.code(), Some(141), "{arguments:?}");
            assert_eq!(said, "", "{arguments:?}");
        }
    }
}

#[test]
fn a_full_disk_is_a_failure_with_its_reason() {
    for arguments in [["--help"].as_slice(), &["doctor"], &["completions", "zsh"]] {
        let full = File::options().write(true).open("/dev/full");
        let mut command = holdfast(arguments);
        let output = command.stdout(full.expect("opens")).output();

        let output = output.expect("holdfast starts");
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(text(&output.stderr).contains("No space left on device"));
    }
}

#[test]
fn nothing_but_a_terminal_gets_colours() {
    for arguments in [["--help"].as_slice(), &["doctor"], &["run", "--nosuch"]] {
        let output = output(arguments);

        assert!(!output.stdout.contains(&0x1b), "{arguments:?}");
        assert!(!output.stderr.contains(&0x1b), "{arguments:?}");
    }
    let mut forced = holdfast(&["--help"]);
    let forced = forced.env("CLICOLOR_FORCE", "1").output();
    let forced = forced.expect("holdfast starts");
    assert!(!forced.stdout.contains(&0x1b), "{forced:?}");
}

#[test]
fn a_closed_stderr_changes_no_exit_code() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);

    let mut command = holdfast(&["nosuch"]);
    let status = command.stderr(writer).status().expect("holdfast starts");

    assert_eq!(status.code(), Some(2));
}

#[test]
fn completions_are_scripts_that_know_our_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = output(&["completions", shell]);

        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = text(&output.stdout);
        assert!(
            script.contains("holdfast") && script.contains("doctor"),
            "{shell}"
        );
        for known in ["quiet", "on-link-loss", "explain", "help", "version"] {
            assert!(script.contains(known), "{shell}: {known}");
        }
        for hidden in [
            "own-session",
            "keeper:",
            "__keeper",
            "'keeper'",
            "\"keeper\"",
        ] {
            assert!(!script.contains(hidden), "{shell}: {hidden}");
        }
    }
}

#[test]
fn the_bash_completions_are_good_bash() {
    let mut script = Vec::new();
    let mut child = holdfast(&["completions", "bash"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("holdfast starts");
    let mut stdout = child.stdout.take().expect("is a pipe");
    stdout.read_to_end(&mut script).expect("reads");
    assert!(child.wait().expect("ends").success());

    let status = Command::new("bash")
        .arg("-n")
        .arg("-c")
        .arg(text(&script))
        .status();

    assert!(status.expect("bash starts").success());
}

#[test]
fn commands_that_are_not_built_yet_are_not_there() {
    for command in ["top", "siege", "up"] {
        let output = output(&[command]);

        assert_eq!(output.status.code(), Some(2), "{command}");
        assert!(
            text(&output.stderr).contains("unrecognized subcommand"),
            "{command}"
        );
    }
}
