//! What the process finds around it: its environment, its neighbours, its rights. Read here and nowhere else.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;

pub(super) struct Surroundings {
    environment: Vec<(OsString, OsString)>,
    program: PathBuf,
}

impl Surroundings {
    pub(super) fn look() -> Self {
        Self {
            environment: std::env::vars_os().collect(),
            program: std::env::current_exe().unwrap_or_default(),
        }
    }

    fn variable(&self, name: &str) -> Option<&OsStr> {
        let (_, value) = self.environment.iter().find(|(known, _)| known == name)?;
        Some(value.as_os_str()).filter(|value| !value.is_empty())
    }

    /// A program in the directory of this one.
    pub(super) fn beside(&self, name: &str) -> Option<PathBuf> {
        let path = self.program.with_file_name(name);
        path.is_file().then_some(path)
    }

    /// `HOLDFAST_BIN`, else beside this program, else in `PATH`.
    pub(super) fn holdfast(&self) -> Option<PathBuf> {
        if let Some(given) = self.variable("HOLDFAST_BIN") {
            return Some(given.into());
        }
        self.beside("holdfast").or_else(|| {
            let path = self.variable("PATH")?;
            std::env::split_paths(path)
                .map(|directory| directory.join("holdfast"))
                .find(|path| path.is_file())
        })
    }

    /// The gateway's socket: `HOLDFAST_GATEWAY`, else the usual one.
    pub(super) fn socket(&self) -> Result<PathBuf, String> {
        if let Some(given) = self.variable("HOLDFAST_GATEWAY") {
            let path = given.to_str().and_then(|text| text.strip_prefix("unix:"));
            return path.map(PathBuf::from).ok_or_else(|| {
                format!(
                    "read HOLDFAST_GATEWAY={}: write unix:/ABSOLUTE/PATH",
                    given.display()
                )
            });
        }
        Ok(self.runtime_directory().join("gateway.sock"))
    }

    fn runtime_directory(&self) -> PathBuf {
        if let Some(given) = self.variable("HOLDFAST_RUNTIME_DIR") {
            return given.into();
        }
        if geteuid().is_root() {
            return "/run/holdfast".into();
        }
        self.variable("XDG_RUNTIME_DIR").map_or_else(
            || format!("/tmp/holdfast-{}", geteuid()).into(),
            |base| Path::new(base).join("holdfast"),
        )
    }
}

/// Gives this directory a small file system of its own, in a mount namespace that only we and our children have. False where that cannot be had.
pub(super) fn small_disk(directory: &Path) -> bool {
    let make = || -> nix::Result<()> {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let nothing: Option<&str> = None;
        mount(
            nothing,
            "/",
            nothing,
            MsFlags::MS_REC | MsFlags::MS_PRIVATE,
            nothing,
        )?;
        mount(
            Some("tmpfs"),
            directory,
            Some("tmpfs"),
            MsFlags::empty(),
            Some("size=16m,mode=0700"),
        )
    };
    fs::create_dir_all(directory).is_ok() && make().is_ok()
}
