//! Why a request is not granted: a code and a sentence for people, a reason for programs.

use std::collections::HashMap;
use std::error::Error;
use std::io;

use holdfast_kernel::descriptors::{self, Short};
use holdfast_policy::Invalid;
use holdfast_wire::name::Misnamed;
use holdfast_wire::problem;
use holdfast_wire::v1::{Problem, Shortage};
use tonic::{Code, Status};

use crate::registry::Unkept;

/// A request that is not granted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(
        "find sandbox {0}: there is none of that name; `holdfast list` names those that are there"
    )]
    NoSuchSandbox(String),
    #[error("find sandbox {0}: the one that was meant is deleted, and another has its name")]
    Replaced(String),
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
        "put revision {number} of the policy of {name} in force: {why}; it is kept and wanted, and `holdfast status {name}` says which is in force (policy.desired, policy.enforced)"
    )]
    NotInForce {
        name: String,
        number: u64,
        why: String,
    },
    #[error("reach the keeper of {name}: {short}")]
    Exhausted { name: String, short: Short },
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
    #[error("reach sandbox {name}: {why}")]
    Unobserved { name: String, why: String },
    #[error(
        "hear from sandbox {name}: {why}; whether it was done is unknown, and `holdfast status {name}` shows how it stands"
    )]
    OutcomeUnknown { name: String, why: String },
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
            Self::NoSuchSandbox(_) | Self::Replaced(_) => (Code::NotFound, "NoSuchSandbox"),
            Self::NameTaken(_) => (Code::AlreadyExists, "NameTaken"),
            Self::InvalidName { .. } => (Code::InvalidArgument, "InvalidName"),
            Self::PolicyInvalid(_) => (Code::InvalidArgument, "PolicyInvalid"),
            Self::InvalidArgument { .. } => (Code::InvalidArgument, "InvalidArgument"),
            Self::TooManySandboxes { .. } => (Code::ResourceExhausted, "TooManySandboxes"),
            Self::NotRunning { .. } => (Code::FailedPrecondition, "NotRunning"),
            Self::StillRunning(_) => (Code::FailedPrecondition, "StillRunning"),
            Self::NotReady { .. } => (Code::Unavailable, "NotReady"),
            Self::KeeperLost { .. } => (Code::Unavailable, "KeeperLost"),
            Self::NotInForce { .. } => (Code::Unavailable, "PolicyPending"),
            Self::Exhausted { .. } => (Code::ResourceExhausted, "DescriptorPressure"),
            Self::NoSuchRevision { .. } => (Code::NotFound, "NoSuchRevision"),
            Self::NoSuchDecision(_) => (Code::NotFound, "NoSuchDecision"),
            Self::Deleting(_) => (Code::FailedPrecondition, "Deleting"),
            Self::Busy(_) => (Code::Unavailable, "Busy"),
            Self::Unobserved { .. } => (Code::Unavailable, "Unobserved"),
            Self::OutcomeUnknown { .. } => (Code::Unknown, "OutcomeUnknown"),
            Self::Registry { .. } => (Code::Unavailable, "RegistryUnavailable"),
            Self::Fenced { .. } => (Code::FailedPrecondition, "Fenced"),
            Self::Host { .. } => (Code::Internal, "Internal"),
        }
    }

    /// What there is too little of.
    fn shortage(&self) -> Option<Shortage> {
        let of = |class: &str, needed, free, limit| Shortage {
            process: "gateway".to_owned(),
            class: class.to_owned(),
            needed,
            free,
            limit,
        };
        if let Self::Exhausted { short, .. } = self {
            return Some(of("session", short.needed, short.free, Some(short.limit)));
        }
        if let Self::TooManySandboxes { most, .. } = self {
            return Some(of("sandboxes", 1, 0, u64::try_from(*most).ok()));
        }
        None
    }

    /// How long to wait before trying again; 0 when that is of no use.
    fn retry_after_ms(&self) -> u64 {
        match self {
            Self::NotReady { .. }
            | Self::KeeperLost { .. }
            | Self::Exhausted { .. }
            | Self::Busy(_) => SOON_MS,
            Self::Registry { .. } | Self::Unobserved { .. } => LATER_MS,
            Self::NoSuchSandbox(_)
            | Self::Replaced(_)
            | Self::NameTaken(_)
            | Self::InvalidName { .. }
            | Self::PolicyInvalid(_)
            | Self::InvalidArgument { .. }
            | Self::TooManySandboxes { .. }
            | Self::NotRunning { .. }
            | Self::StillRunning(_)
            | Self::NotInForce { .. }
            | Self::NoSuchRevision { .. }
            | Self::NoSuchDecision(_)
            | Self::Deleting(_)
            | Self::OutcomeUnknown { .. }
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
        details.extend(refused.shortage().iter().flat_map(problem::particulars));
        let told = Problem {
            reason: reason.to_owned(),
            details,
            retry_after_ms: refused.retry_after_ms(),
        };
        problem::status(code, refused.to_string(), &told)
    }
}

impl Refused {
    /// Why the keeper of `name` was not reached: what `error` says at its root, or that this process has no descriptor
    /// for the way.
    pub(crate) fn unreached(name: &str, error: &(dyn Error + 'static)) -> Self {
        let name = name.to_owned();
        if !is_starved(error) {
            let why = root(error);
            return Self::KeeperLost { name, why };
        }
        Self::starved(name)
    }

    /// This process has no descriptor for the way to the keeper of `name`.
    pub(crate) fn starved(name: String) -> Self {
        let (limit, used) = descriptors::observe().map_or((0, 0), |seen| (seen.limit, seen.used));
        let free = limit.saturating_sub(used);
        let needed = 1;
        let short = Short {
            needed,
            free,
            limit,
        };
        Self::Exhausted { name, short }
    }
}

/// Whether there is no keeper at the end of the way: the last one has gone, and the next one does not serve yet.
pub(crate) fn is_nobody_there(error: &(dyn Error + 'static)) -> bool {
    behind(error, |errno| {
        matches!(errno, libc::ENOENT | libc::ECONNREFUSED)
    })
}

/// Whether a want of descriptors, of this process or of the host, is what is behind `error`.
fn is_starved(error: &(dyn Error + 'static)) -> bool {
    behind(error, |errno| matches!(errno, libc::EMFILE | libc::ENFILE))
}

/// Whether the kernel's word behind `error` is one of these.
fn behind(error: &(dyn Error + 'static), is: impl Fn(i32) -> bool) -> bool {
    let known = |error: &(dyn Error + 'static)| error.downcast_ref::<io::Error>()?.raw_os_error();
    causes(error).filter_map(known).any(is)
}

/// What the innermost error says, where the news is.
fn root(error: &(dyn Error + 'static)) -> String {
    let innermost = causes(error).last().unwrap_or(error);
    match innermost.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => innermost.to_string(),
    }
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

const SOON_MS: u64 = 500;
const LATER_MS: u64 = 5_000;

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::transport::Endpoint;
    use tower::service_fn;

    /// The error of a keeper that is not reached because of `errno`.
    async fn unreached(errno: i32) -> tonic::transport::Error {
        let connector = service_fn(move |_| async move {
            Err::<hyper_util::rt::TokioIo<tokio::net::UnixStream>, _>(io::Error::from_raw_os_error(
                errno,
            ))
        });
        let endpoint = Endpoint::from_static("http://keeper");
        let reached = endpoint.connect_with_connector(connector).await;
        reached.expect_err("there is none")
    }

    #[tokio::test]
    async fn a_gateway_without_descriptors_blames_itself_and_not_the_keeper() {
        for (errno, expected) in [
            (libc::EMFILE, Code::ResourceExhausted),
            (libc::ENFILE, Code::ResourceExhausted),
            (libc::ECONNREFUSED, Code::Unavailable),
        ] {
            let error = unreached(errno).await;

            let status = Status::from(Refused::unreached("qa", &error));

            assert_eq!(status.code(), expected, "{errno}");
            assert!(!status.message().contains("transport"), "{status}");
            assert_eq!(is_nobody_there(&error), errno == libc::ECONNREFUSED);
            let problem = problem::of(&status).expect("a reason for programs");
            let told = |key: &str| problem.details.get(key).map(String::as_str);
            if expected == Code::ResourceExhausted {
                assert_eq!(problem.reason, "DescriptorPressure");
                assert_eq!(
                    (told("process"), told("needed")),
                    (Some("gateway"), Some("1"))
                );
                assert!(told("free").is_some() && told("limit").is_some());
                assert!(problem.retry_after_ms > 0);
            }
        }
    }

    #[test]
    fn a_gateway_that_is_full_says_how_many_sandboxes_it_may_have() {
        let (name, most) = ("qa".to_owned(), 7);

        let full = Status::from(Refused::TooManySandboxes { name, most });

        let details = problem::of(&full).expect("a problem").details;
        let told = ["process", "class", "needed", "free", "limit"].map(|key| &*details[key]);
        assert_eq!(told, ["gateway", "sandboxes", "1", "0", "7"]);
    }
}
