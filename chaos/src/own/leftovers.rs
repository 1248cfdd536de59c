//! What is still there that should be gone: children of ours, mounts, directories of sandboxes.

use std::fs;
use std::path::Path;

use crate::faults::victim::children;

/// The children of this process.
pub(super) fn ours() -> Vec<u32> {
    children(std::process::id())
}

/// A sentence for each thing that is left.
pub(super) fn look(home: &Path, state: &Path, runtime: &Path, ids: &[String]) -> Vec<String> {
    let mut left: Vec<String> = ours()
        .into_iter()
        .map(|pid| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            format!("process {pid} ({})", line.replace('\0', " ").trim())
        })
        .collect();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    left.extend(mounts.lines().filter_map(|line| {
        let at = line.split(' ').nth(4)?;
        // The state directory may have a file system of its own, made by us.
        (Path::new(at).starts_with(home) && Path::new(at) != state)
            .then(|| format!("a mount at {at}"))
    }));
    for id in ids {
        for directory in [state, runtime] {
            let of_it = directory.join("sandboxes").join(id);
            if of_it.exists() {
                left.push(format!("the directory {}", of_it.display()));
            }
        }
    }
    for name in ["gateway.sock", "gateway.pid"] {
        if runtime.join(name).exists() {
            left.push(format!("the file {}", runtime.join(name).display()));
        }
    }
    left
}
