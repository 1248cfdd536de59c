//! Who runs Holdfast.

use crate::skip::skip;
use std::fmt;
use std::sync::Once;

/// A user without a name, a group or a home: nothing on the machine was prepared for it.
const STRANGER: u32 = 54321;

/// Someone who runs Holdfast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The user who runs the tests; root or not.
    Myself,
    /// An ordinary user that root becomes for the run.
    Stranger,
}

impl Caller {
    /// The user id that Holdfast runs with.
    pub fn uid(self) -> u32 {
        match self {
            Self::Myself => nix::unistd::geteuid().as_raw(),
            Self::Stranger => STRANGER,
        }
    }

    /// Whether Holdfast runs with root's id.
    pub fn is_root(self) -> bool {
        self.uid() == 0
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uid {}", self.uid())
    }
}

/// Everyone who has to be served: root and an ordinary user when the tests run as root, otherwise only the user that runs them.
pub fn callers() -> Vec<Caller> {
    static SAID: Once = Once::new();
    if Caller::Myself.is_root() {
        return vec![Caller::Myself, Caller::Stranger];
    }
    SAID.call_once(|| skip("root as the caller", "the tests run as an ordinary user"));
    vec![Caller::Myself]
}

/// The ordinary user: the stranger when the tests run as root, otherwise the user that runs them.
pub fn ordinary() -> Caller {
    if Caller::Myself.is_root() {
        Caller::Stranger
    } else {
        Caller::Myself
    }
}
