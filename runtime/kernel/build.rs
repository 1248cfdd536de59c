//! Builds the canary: a program without a library, which the kernel crate carries with it.
#![expect(
    clippy::disallowed_methods,
    reason = "what cargo tells a build script stands in its environment"
)]

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=canary");
    let variable = |name: &str| env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}"));
    let program = PathBuf::from(variable("OUT_DIR")).join("canary");
    let known = ["x86_64", "aarch64"].map(OsString::from);
    if !known.contains(&variable("CARGO_CFG_TARGET_ARCH")) {
        // An empty program cannot be executed, and the canary says so.
        std::fs::write(&program, []).expect("write to OUT_DIR");
        return;
    }
    let mut rustc = Command::new(variable("RUSTC"));
    rustc
        .args(["canary/main.rs", "--edition=2024", "--crate-type=bin"])
        .arg("--target")
        .arg(variable("TARGET"))
        .arg("-o")
        .arg(&program)
        .args(OPTIONS.iter().flat_map(|option| ["-C", *option]));
    let status = rustc.status().expect("start rustc");
    assert!(status.success(), "build the canary: {rustc:?}");
}

/// Small, static, and nothing in it that this program does not need.
const OPTIONS: [&str; 14] = [
    "opt-level=s",
    "panic=abort",
    "lto=fat",
    "codegen-units=1",
    "strip=symbols",
    "debuginfo=0",
    "relocation-model=static",
    "target-feature=+crt-static",
    "link-arg=-nostartfiles",
    "link-arg=-nostdlib",
    "link-arg=-static",
    "link-arg=-no-pie",
    "link-arg=-Wl,--build-id=none,-z,noseparate-code,-z,norelro,--gc-sections",
    "force-unwind-tables=no",
];
