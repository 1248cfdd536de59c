//! The C program with every attempt to get out, compiled once per test process.

use crate::artefacts::{base, open_to_all};
use crate::skip::skip;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The static `probe`, or a counted skip where there is no C compiler.
pub fn probe() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let directory = base().join("probe");
            fs::create_dir_all(&directory).expect("create the directory of the probe");
            open_to_all(&directory);
            let program = directory.join("probe");
            if compile(&program) {
                return Some(program);
            }
            skip("probe", "no C compiler, or no static libc");
            None
        })
        .as_deref()
}

/// The same attempt outside, for comparison: what it answers is what the kernel and the servers do without us.
pub fn outside(words: &str) -> BTreeMap<String, String> {
    let probe = probe().expect("the test asked for the probe before");
    let done = Command::new(probe)
        .args(words.split(' '))
        .output()
        .expect("run the probe");
    answers(&done.stdout)
}

/// What the probe printed, by name.
pub fn answers(output: &[u8]) -> BTreeMap<String, String> {
    String::from_utf8_lossy(output)
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Whether there is a compiler with a static C library. A probe that does not compile is a fault of its own.
fn compile(program: &Path) -> bool {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("probe");
    let entries = fs::read_dir(&source).expect("the probe's source");
    let files = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|end| end == "c"));
    let Some(built) = cc(program).args(files).output().ok() else {
        return false;
    };
    if built.status.success() {
        open_to_all(program);
        return true;
    }
    let least = program.with_extension("c");
    fs::write(&least, "int main(void) { return 0; }\n").expect("write the least program");
    let able = cc(program)
        .arg(&least)
        .status()
        .is_ok_and(|status| status.success());
    let told = String::from_utf8_lossy(&built.stderr);
    assert!(!able, "the probe does not compile: {told}");
    false
}

fn cc(program: &Path) -> Command {
    let mut command = Command::new("cc");
    command
        .args(["-O1", "-static", "-pthread", "-o"])
        .arg(program);
    command
}
