//! A root directory with as many entries as wanted, and what our program inside needs to run.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A root in a directory that somebody else removes.
pub(crate) struct Root(PathBuf);

impl Root {
    /// With so many entries beside what is needed.
    pub(crate) fn make(at: &Path, entries: u64, inside: &Path) -> Result<Self, String> {
        let failed = |error: io::Error| format!("make a root in {}: {error}", at.display());
        fs::create_dir_all(at).map_err(failed)?;
        for number in 0..entries {
            fs::create_dir_all(at.join(format!("entry-{number:05}"))).map_err(failed)?;
        }
        copy(inside, &at.join("holdfast-chaos-inside")).map_err(failed)?;
        for library in libraries() {
            let relative = library.strip_prefix("/").unwrap_or(&library);
            copy(&library, &at.join(relative)).map_err(failed)?;
            // Where programs look for their loader, whatever the host's links are.
            if let Some(name) = library
                .file_name()
                .filter(|name| name.to_string_lossy().starts_with("ld-"))
            {
                copy(&library, &at.join("lib64").join(name)).map_err(failed)?;
            }
        }
        fs::create_dir_all(at.join("tmp")).map_err(failed)?;
        Ok(Self(at.to_owned()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::copy(from, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))
}

/// What this very process was linked with; the program inside needs no more.
fn libraries() -> Vec<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut found: Vec<PathBuf> = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .filter(|path| path.starts_with('/') && path.contains(".so"))
        .map(PathBuf::from)
        .collect();
    found.sort();
    found.dedup();
    found
}
