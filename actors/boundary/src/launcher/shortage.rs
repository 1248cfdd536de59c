//! What there was too little of when a session could not be started. It is looked for only then.

use holdfast_kernel::descriptors;
use holdfast_wire::v1;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::child::EXECUTE;
use crate::fence::Limits;

/// The same refusal with the shortage that its errno tells of, under the policy's `limits`. Whatever was opened for the session is
/// closed by now.
pub(super) fn explained(refused: v1::NotStarted, limits: &Limits) -> v1::NotStarted {
    let bound = |limit, resource| match limit {
        // A program is bound by it as soon as it becomes one.
        bound @ Some(_) if refused.step == EXECUTE => bound,
        Some(_) | None => soft(resource),
    };
    let shortage = match refused.errno {
        libc::EMFILE => Some(of_descriptors()),
        libc::ENFILE => Some(used_up(SESSION, FOR_A_SESSION, None)),
        libc::EAGAIN => {
            let limit = bound(limits.processes, Resource::RLIMIT_NPROC);
            Some(used_up("processes", 1, limit))
        }
        libc::ENOMEM | libc::ENOBUFS => {
            let limit = bound(limits.memory, Resource::RLIMIT_DATA);
            Some(used_up("memory", PAGE, limit))
        }
        _ => None,
    };
    v1::NotStarted {
        shortage,
        ..refused
    }
}

fn of_descriptors() -> v1::Shortage {
    let limit = soft(Resource::RLIMIT_NOFILE);
    let free = descriptors::observe().map_or(0, |seen| seen.limit.saturating_sub(seen.used));
    v1::Shortage {
        free,
        ..used_up(SESSION, FOR_A_SESSION, limit)
    }
}

fn used_up(class: &str, needed: u64, limit: Option<u64>) -> v1::Shortage {
    v1::Shortage {
        class: class.to_owned(),
        needed,
        free: 0,
        limit,
    }
}

fn soft(resource: Resource) -> Option<u64> {
    let (soft, _) = getrlimit(resource).ok()?;
    (soft != RLIM_INFINITY).then_some(soft)
}

/// The class of descriptors, as keeper and boundary call it.
const SESSION: &str = "session";

/// What to do, three ends of pipes, both ends of the one for the report, and the child.
const FOR_A_SESSION: u64 = 7;

/// The least memory that can be asked for.
const PAGE: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_is_bound_by_is_the_policys_limit() {
        let limits = Limits {
            descriptors: 1024,
            descriptors_hard: 4096,
            processes: Some(20),
            memory: None,
        };
        let refused = |step: &str| v1::NotStarted {
            step: step.to_owned(),
            errno: libc::EAGAIN,
            ..v1::NotStarted::default()
        };

        let told = explained(refused(EXECUTE), &limits).shortage;
        assert_eq!(told, Some(used_up("processes", 1, Some(20))));
        let told = explained(refused("fork"), &limits).shortage;
        let own = used_up("processes", 1, soft(Resource::RLIMIT_NPROC));
        assert_eq!(told, Some(own), "the launcher's own");
    }
}
