//! What the process was given: arguments and environment, read once, here.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

/// What the process was given.
#[derive(Debug, Clone, Default)]
pub(crate) struct Config {
    /// The arguments, the program's own name first.
    pub(crate) arguments: Vec<OsString>,
    /// The environment.
    pub(crate) environment: Vec<(OsString, OsString)>,
}

impl Config {
    /// Reads everything.
    ///
    /// The gateway and its keepers stand elsewhere: what a directory is relative to is settled here, for all of them.
    pub(crate) fn read() -> Self {
        let mut environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        if let Ok(here) = std::env::current_dir() {
            root(&mut environment, &here);
        }
        Self {
            arguments: std::env::args_os().collect(),
            environment,
        }
    }

    /// One variable of the environment, if it is set and not empty.
    pub(crate) fn variable(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        let name = name.as_ref();
        let found = self.environment.iter().find(|(known, _)| known == name)?;
        Some(found.1.as_os_str()).filter(|value| !value.is_empty())
    }

    /// Where the gateway keeps what outlives it: `HOLDFAST_STATE_DIR`, or as FHS and XDG have it.
    pub(crate) fn state_directory(&self) -> PathBuf {
        if let Some(given) = self.variable("HOLDFAST_STATE_DIR") {
            return given.into();
        }
        if geteuid().is_root() {
            return "/var/lib/holdfast".into();
        }
        let home = || Some(PathBuf::from(self.variable("HOME")?).join(".local/state"));
        let base = self.absolute("XDG_STATE_HOME").or_else(home);
        base.unwrap_or_else(|| "/".into()).join("holdfast")
    }

    /// Where the gateway's sockets are: `HOLDFAST_RUNTIME_DIR`, or as FHS and XDG have it.
    pub(crate) fn runtime_directory(&self) -> PathBuf {
        if let Some(given) = self.variable("HOLDFAST_RUNTIME_DIR") {
            return given.into();
        }
        if geteuid().is_root() {
            return "/run/holdfast".into();
        }
        // Without a login session nobody has made a directory for this user; the gateway takes only one that is its own.
        self.absolute("XDG_RUNTIME_DIR").map_or_else(
            || format!("/tmp/holdfast-{}", geteuid()).into(),
            |base| base.join("holdfast"),
        )
    }

    /// A variable that names a directory; XDG has relative ones ignored.
    fn absolute(&self, name: &str) -> Option<PathBuf> {
        let path = PathBuf::from(self.variable(name)?);
        path.is_absolute().then_some(path)
    }
}

/// Makes the directories that are given relative to `here` absolute.
fn root(environment: &mut [(OsString, OsString)], here: &Path) {
    for (name, value) in environment {
        if OURS.iter().any(|ours| name == ours) && !value.is_empty() {
            // One that is absolute stays as it is.
            *value = here.join(&*value).into_os_string();
        }
    }
}

/// Variables that name a directory of ours.
const OURS: [&str; 2] = ["HOLDFAST_STATE_DIR", "HOLDFAST_RUNTIME_DIR"];

#[cfg(test)]
mod tests {
    use super::*;

    fn given(variables: &[(&str, &str)]) -> Config {
        let own = |(name, value): &(&str, &str)| (name.into(), value.into());
        Config {
            arguments: Vec::new(),
            environment: variables.iter().map(own).collect(),
        }
    }

    #[test]
    fn a_directory_that_is_given_wins() {
        let config = given(&[
            ("HOLDFAST_STATE_DIR", "/s"),
            ("HOLDFAST_RUNTIME_DIR", "/r"),
            ("XDG_RUNTIME_DIR", "/run/user/1"),
        ]);

        assert_eq!(config.state_directory(), PathBuf::from("/s"));
        assert_eq!(config.runtime_directory(), PathBuf::from("/r"));
    }

    #[test]
    fn without_one_there_is_still_a_place() {
        let config = given(&[("XDG_RUNTIME_DIR", "relative"), ("HOLDFAST_STATE_DIR", "")]);

        assert!(config.state_directory().is_absolute());
        assert!(config.runtime_directory().is_absolute());
    }

    #[test]
    fn a_relative_directory_is_one_of_the_callers() {
        let mut config = given(&[
            ("HOLDFAST_STATE_DIR", "s/t"),
            ("HOLDFAST_RUNTIME_DIR", "/r"),
            ("OTHER", "o"),
        ]);

        root(&mut config.environment, Path::new("/here"));

        assert_eq!(config.state_directory(), PathBuf::from("/here/s/t"));
        assert_eq!(config.runtime_directory(), PathBuf::from("/r"));
        assert_eq!(config.variable("OTHER"), Some(OsStr::new("o")));
    }
}
