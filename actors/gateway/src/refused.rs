//! Why a request is not granted: a code and a sentence for people, a reason for programs.

use std::collections::HashMap;

use holdfast_policy::Invalid;
use holdfast_wire::name::Misnamed;
use holdfast_wire::problem;
use holdfast_wire::v1::Problem;
use tonic::{Code, Status};

use crate::registry::Unkept;

/// A request that is not granted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(
        "find sandbox {0}: there is none of that name; `holdfast list` names those that are there"
    )]
    NoSuchSandbox(String),
    #[error("create {0}: a sandbox of that name exists; `holdfast delete {0}` removes it")]
    NameTaken(String),
    #[error("name a sandbox {name:?}: {why}")]
    InvalidName { name: String, why: Misnamed },
    #[error("{0}")]
    PolicyInvalid(Invalid),
    #[error("{what}: {field} {why}")]
    InvalidArgument {
        what: &'static str,
        field: &'static str,
        why: &'static str,
    },
    #[error("create {name}: this gateway has all {most} sandboxes it may have; delete one first")]
    TooManySandboxes { name: String, most: usize },
    #[error(
        "reach sandbox {name}: it does not run ({phase}: {message}); `holdfast start {name}` starts it"
    )]
    NotRunning {
        name: String,
        phase: &'static str,
        message: String,
    },
    #[error("delete {0}: it runs; stop it first (`holdfast stop {0}`) or say --force")]
    StillRunning(String),
    #[error("reach sandbox {name}: it is not ready yet ({message})")]
    NotReady { name: String, message: String },
    #[error("reach the keeper of {name}: {why}")]
    KeeperLost { name: String, why: String },
    #[error(
        "find revision {revision} of the policy of {name}: there is none, or it is too old to be kept"
    )]
    NoSuchRevision { name: String, revision: u64 },
    #[error(
        "find decision {0}: no audit record of a sandbox here has it; old records are removed after a while"
    )]
    NoSuchDecision(String),
    #[error("reach sandbox {0}: it is being deleted")]
    Deleting(String),
    #[error("reach sandbox {0}: it has too much to do; try again")]
    Busy(String),
    #[error("{what}: {why}")]
    Registry { what: &'static str, why: Unkept },
    #[error("speak as keeper of {id}: {why}")]
    Fenced { id: String, why: &'static str },
    #[error("{what}: {why}")]
    Host { what: String, why: String },
}

impl Refused {
    fn names(&self) -> (Code, &'static str) {
        match self {
            Self::NoSuchSandbox(_) => (Code::NotFound, "NoSuchSandbox"),
            Self::NameTaken(_) => (Code::AlreadyExists, "NameTaken"),
            Self::InvalidName { .. } => (Code::InvalidArgument, "InvalidName"),
            Self::PolicyInvalid(_) => (Code::InvalidArgument, "PolicyInvalid"),
            Self::InvalidArgument { .. } => (Code::InvalidArgument, "InvalidArgument"),
            Self::TooManySandboxes { .. } => (Code::ResourceExhausted, "TooManySandboxes"),
            Self::NotRunning { .. } => (Code::FailedPrecondition, "NotRunning"),
            Self::StillRunning(_) => (Code::FailedPrecondition, "StillRunning"),
            Self::NotReady { .. } => (Code::Unavailable, "NotReady"),
            Self::KeeperLost { .. } => (Code::Unavailable, "KeeperLost"),
            Self::NoSuchRevision { .. } => (Code::NotFound, "NoSuchRevision"),
            Self::NoSuchDecision(_) => (Code::NotFound, "NoSuchDecision"),
            Self::Deleting(_) => (Code::FailedPrecondition, "Deleting"),
            Self::Busy(_) => (Code::Unavailable, "Busy"),
            Self::Registry { .. } => (Code::Unavailable, "RegistryUnavailable"),
            Self::Fenced { .. } => (Code::FailedPrecondition, "Fenced"),
            Self::Host { .. } => (Code::Internal, "Internal"),
        }
    }

    /// How long to wait before trying again; 0 when that is of no use.
    fn retry_after_ms(&self) -> u64 {
        match self {
            Self::NotReady { .. } | Self::KeeperLost { .. } | Self::Busy(_) => SOON_MS,
            Self::Registry { .. } => LATER_MS,
            Self::NoSuchSandbox(_)
            | Self::NameTaken(_)
            | Self::InvalidName { .. }
            | Self::PolicyInvalid(_)
            | Self::InvalidArgument { .. }
            | Self::TooManySandboxes { .. }
            | Self::NotRunning { .. }
            | Self::StillRunning(_)
            | Self::NoSuchRevision { .. }
            | Self::NoSuchDecision(_)
            | Self::Deleting(_)
            | Self::Fenced { .. }
            | Self::Host { .. } => 0,
        }
    }
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        let (code, reason) = refused.names();
        let mut details = HashMap::new();
        if let Refused::PolicyInvalid(invalid) = &refused {
            let problems = serde_json::to_string(&invalid.problems).unwrap_or_default();
            details.insert("problems".to_owned(), problems);
        }
        let told = Problem {
            reason: reason.to_owned(),
            details,
            retry_after_ms: refused.retry_after_ms(),
        };
        problem::status(code, refused.to_string(), &told)
    }
}

const SOON_MS: u64 = 500;
const LATER_MS: u64 = 5_000;
