//! The real program, as scripts see it, where no gateway is needed for that.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A directory with a scenario, and the program beside it.
struct Room {
    directory: TempDir,
}

impl Room {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        Self { directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A scenario that says this beside what is required.
    fn scenario(&self, text: &str) -> PathBuf {
        let path = self.path().join("mine.yaml");
        let text = format!("name: mine\ndescription: d\nduration: 4s\n{text}");
        fs::write(&path, text).expect("written");
        path
    }

    /// Runs the scenario with these arguments; nobody listens at its gateway.
    fn run(&self, scenario: &Path, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast-chaos"));
        command
            .env_clear()
            .env("HOLDFAST_RUNTIME_DIR", self.path())
            .arg("run")
            .arg(scenario)
            .args(arguments);
        command.output().expect("it runs")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it is text")
}

/// In a gateway that is somebody else's they would stay.
#[test]
fn what_makes_sandboxes_of_its_own_is_refused_for_a_sandbox_that_is_there() {
    let room = Room::new();
    for own in ["load: {lives: 2}\n", "roots: [0]\n", "nofile: 256\n"] {
        let output = room.run(&room.scenario(own), &["--sandbox", "qa"]);

        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{own}: {said}");
        assert!(said.contains("of its own: run it with --self"), "{said}");
    }
}

/// An attack whose report is lost is made for nothing.
#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_attack() {
    let room = Room::new();
    let file = room.path().join("file");
    fs::write(&file, "").expect("written");
    for report in [file.to_str().expect("it is text"), "/proc/nope"] {
        let arguments = ["--sandbox", "qa", "--report", report, "-o", "json"];
        let output = room.run(&room.scenario(""), &arguments);

        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{said}");
        let expected = format!("holdfast-chaos: write a report into {report}: ");
        assert!(said.starts_with(&expected), "{said}");
        assert!(text(&output.stdout).contains("\"reason\":\"OutputFailed\""));
    }
}

/// As every document of a failure has it, also where the arguments themselves are wrong.
#[test]
fn a_failure_is_one_document_with_a_canonical_code() {
    let room = Room::new();
    let (sound, wrong) = (room.scenario(""), room.path().join("absent.yaml"));
    let cases: [(&Path, &[&str], i32, &str); 5] = [
        (&sound, &["-o", "json"], 2, "INVALID_ARGUMENT"),
        (
            &sound,
            &["-ojson", "--self", "--sandbox", "qa"],
            2,
            "INVALID_ARGUMENT",
        ),
        (
            &sound,
            &["--output=json", "--sandbox", "qa", "--seed", "x"],
            2,
            "INVALID_ARGUMENT",
        ),
        (
            &wrong,
            &["--sandbox", "qa", "-o", "json"],
            2,
            "INVALID_ARGUMENT",
        ),
        (
            &sound,
            &["--sandbox", "qa", "-o", "json"],
            125,
            "UNAVAILABLE",
        ),
    ];
    for (scenario, arguments, status, code) in cases {
        let output = room.run(scenario, arguments);

        let document = text(&output.stdout);
        let document: serde_json::Value =
            serde_json::from_str(&document).unwrap_or_else(|error| panic!("{error}: {document}"));
        let error = &document["error"];
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert_eq!(error["code"], code, "{arguments:?}");
        assert_eq!(error["retryAfterMs"], serde_json::Value::Null);
        assert!(error["reason"].is_string() && error["details"].is_object());
        let message = error["message"].as_str().expect("a sentence");
        assert!(text(&output.stderr).contains(message), "{message}");
    }
}

/// It would pass every check, and nothing would have been tried.
#[test]
fn a_time_in_which_nothing_can_be_made_is_refused() {
    let room = Room::new();
    let scenario =
        room.scenario("faults:\n  - {fault: stop, process: keeper, for: 2s, at: [1s]}\n");
    for (duration, why) in [("0s", "500ms, 30s or 5m"), ("2s", "a longer --duration")] {
        let output = room.run(&scenario, &["--sandbox", "qa", "--duration", duration]);

        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    }
}
