//! The binaries under test, where every caller can execute them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Below it all directories of the tests live. Not `/tmp`: the sandbox has one of its own.
const HOME: &str = "/var/tmp";
const PREFIX: &str = "holdfast-tests-";

/// The real binary, built from this source.
pub fn holdfast() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| share(&built("holdfast", &PARTS), "holdfast"))
}

/// What attacks sandboxes, with its program for the inside beside it.
pub fn chaos() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| {
        let built = built("holdfast-chaos", &["chaos", "Cargo.lock"]);
        let inside = "holdfast-chaos-inside";
        share(&built.with_file_name(inside), inside);
        share(&built, "holdfast-chaos")
    })
}

/// A directory of this test process that everyone may enter; what dead test processes left is removed first.
pub fn base() -> &'static Path {
    static BASE: OnceLock<PathBuf> = OnceLock::new();
    BASE.get_or_init(|| {
        sweep();
        let base = Path::new(HOME).join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir_all(&base).expect("create the base directory");
        open_to_all(&base);
        base
    })
}

/// Lets everyone read and, for a directory or a program, enter or execute.
pub fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("change the mode");
}

/// Copies a program to where an ordinary user can execute it.
pub fn share(program: &Path, name: &str) -> PathBuf {
    let copy = base().join(name);
    fs::copy(program, &copy).expect("copy the program");
    open_to_all(&copy);
    copy
}

/// `target/PROFILE/NAME`, found from the test's own place in `target/PROFILE/deps`, and built if it is missing or older than the `parts`
/// of the source.
fn built(name: &str, parts: &[&str]) -> PathBuf {
    let me = std::env::current_exe().expect("know the test's own path");
    let directory = me.parent().expect("the test lies in a directory");
    let profile = if directory.ends_with("deps") {
        directory
            .parent()
            .expect("deps lies in the profile's directory")
    } else {
        directory
    };
    let binary = profile.join(name);
    if let Some(cargo) = cargo()
        && age(&binary) < newest(&workspace(), parts)
    {
        build(&cargo, name, profile.ends_with("release"));
    }
    assert!(
        binary.is_file(),
        "{} is missing: cargo build -p {name}",
        binary.display()
    );
    binary
}

/// Cargo says where it is when it runs a test; otherwise the binary is taken as it lies there.
#[expect(
    clippy::disallowed_methods,
    reason = "cargo tells its tests only by the environment"
)]
fn cargo() -> Option<std::ffi::OsString> {
    std::env::var_os("CARGO")
}

fn build(cargo: &std::ffi::OsStr, name: &str, release: bool) {
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--package", name])
        .current_dir(workspace());
    if release {
        command.arg("--release");
    }
    assert!(
        command.status().expect("run cargo").success(),
        "cargo build -p {name} failed"
    );
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn age(file: &Path) -> SystemTime {
    fs::metadata(file)
        .and_then(|known| known.modified())
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// What `holdfast` is made of.
const PARTS: [&str; 5] = [
    "protocol",
    "observability",
    "runtime",
    "actors",
    "Cargo.lock",
];

/// The last change of any of the `parts`.
fn newest(workspace: &Path, parts: &[&str]) -> SystemTime {
    let changes = parts.iter().map(|part| newest_below(&workspace.join(part)));
    changes.max().unwrap_or(SystemTime::UNIX_EPOCH)
}

fn newest_below(path: &Path) -> SystemTime {
    let Ok(entries) = fs::read_dir(path) else {
        return age(path);
    };
    entries
        .flatten()
        .map(|entry| newest_below(&entry.path()))
        .max()
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Removes the directories of test processes that are gone. libtest has no end to hang this on.
fn sweep() {
    let Ok(entries) = fs::read_dir(HOME) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else {
            continue;
        };
        if !Path::new("/proc").join(pid).exists() {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}
