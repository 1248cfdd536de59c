//! What the process was given: arguments and environment, read once, here.

use std::ffi::{OsStr, OsString};

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
    pub(crate) fn read() -> Self {
        Self {
            arguments: std::env::args_os().collect(),
            environment: std::env::vars_os().collect(),
        }
    }

    /// One variable of the environment, if it is set and not empty.
    pub(crate) fn variable(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        let name = name.as_ref();
        let found = self.environment.iter().find(|(known, _)| known == name)?;
        Some(found.1.as_os_str()).filter(|value| !value.is_empty())
    }
}
