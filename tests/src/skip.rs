//! Saying aloud what was not tested.

use crate::area::Area;
use crate::run::Run;
use serde_json::Value;
use std::io::Write as _;
use std::path::PathBuf;

/// Where real programs are looked for: the directories that the sandbox sees as well.
const SYSTEM: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"];

/// One line that reaches the terminal even when the test passes, so that a skip is seen and can be counted.
pub fn skip(what: &str, why: &str) {
    let line = format!("skipped: {what}: {why}\n");
    drop(std::io::stderr().write_all(line.as_bytes()));
}

/// The path of a program of the system, or a counted skip.
pub fn program(name: &str) -> Option<PathBuf> {
    let found = SYSTEM
        .iter()
        .map(|dir| PathBuf::from(dir).join(name))
        .find(|path| path.is_file());
    if found.is_none() {
        skip(name, "not on this machine");
    }
    found
}

/// Whether this host leads connections that nobody listens for to a listener, as `doctor` finds; if not, a counted skip.
pub fn captures_every_port(area: &Area) -> bool {
    let done = Run::plain(area, ["doctor", "-o", "json"]).finish();
    let found = serde_json::from_slice::<Value>(&done.stdout).expect("a document");
    let checks = found["checks"].as_array().expect("a list");
    let check = checks
        .iter()
        .find(|it| it["name"] == "capture of every port");
    let present = check.expect("it is looked for")["present"] == true;
    if !present {
        skip(
            "capture of every port",
            "the kernel has not all of nf_tables",
        );
    }
    present
}
