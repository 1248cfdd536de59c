//! Takes resources away from a process that runs.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Sets the soft limit of descriptors of a process, as its owner would.
pub fn descriptors(pid: i32, most: u64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let id = |name: &str| -> u32 {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.expect("an id").parse().expect("a number")
    };
    let done = Command::new("prlimit")
        .uid(id("Uid:"))
        .gid(id("Gid:"))
        .args(["--pid", &pid.to_string(), &format!("--nofile={most}:")])
        .status();
    assert!(done.expect("prlimit").success());
}
