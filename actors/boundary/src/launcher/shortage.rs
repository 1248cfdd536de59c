//! What there was too little of when a session could not be started. It is looked for only then.

use holdfast_kernel::descriptors;
use holdfast_wire::v1;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::child::EXECUTE;
use crate::admission;
use crate::fence::Limits;

/// The same refusal with the shortage that its errno tells of, under the policy's `limits`. Whatever was opened for the session is
/// closed by now.
pub(super) fn explained(refused: v1::NotStarted, limits: &Limits) -> v1::NotStarted {
    // A program is bound by them as soon as it becomes one.
    let bound = (refused.step == EXECUTE).then_some(limits);
    let shortage = of("launcher", refused.errno, bound);
    v1::NotStarted {
        shortage: shortage.map(Box::new),
        ..refused
    }
}

/// The same of what failed in the boundary itself, before or after the launcher was asked.
pub(crate) fn of_boundary(refused: v1::NotStarted) -> v1::NotStarted {
    let shortage = of(admission::PROCESS, refused.errno, None);
    v1::NotStarted {
        shortage: shortage.map(Box::new),
        ..refused
    }
}

fn of(process: &str, errno: i32, bound: Option<&Limits>) -> Option<v1::Shortage> {
    let used_up = |class, needed, limit| used_up(process, class, needed, limit);
    match errno {
        // What is on its way between processes counts against the limit as well.
        libc::EMFILE | libc::ETOOMANYREFS => Some(v1::Shortage {
            free: descriptors::observe().map_or(0, descriptors::Sample::free),
            ..used_up(SESSION, FOR_A_SESSION, soft(Resource::RLIMIT_NOFILE))
        }),
        libc::ENFILE => Some(used_up(SESSION, FOR_A_SESSION, None)),
        libc::EAGAIN => {
            let limit = bound.and_then(|limits| limits.processes);
            let limit = limit.or_else(|| soft(Resource::RLIMIT_NPROC));
            Some(used_up("processes", 1, limit))
        }
        libc::ENOMEM | libc::ENOBUFS => {
            let limit = bound.and_then(|limits| limits.memory);
            let limit = limit.or_else(|| soft(Resource::RLIMIT_DATA));
            Some(used_up("memory", PAGE, limit))
        }
        _ => None,
    }
}

fn used_up(process: &str, class: &str, needed: u64, limit: Option<u64>) -> v1::Shortage {
    v1::Shortage {
        process: process.to_owned(),
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

/// In the launcher: what to do, three ends of pipes, both ends of the one for the report, and the child. In the boundary as many.
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
        let policys = used_up("launcher", "processes", 1, Some(20));
        assert_eq!(told, Some(Box::new(policys)));
        let told = explained(refused("fork"), &limits).shortage;
        let own = soft(Resource::RLIMIT_NPROC);
        let own = used_up("launcher", "processes", 1, own);
        assert_eq!(told, Some(Box::new(own)), "the launcher's own");
    }

    /// EX-23: what the boundary cannot open for a session says so, as what the launcher cannot.
    #[test]
    fn whose_shortage_it_is_and_of_what_is_said() {
        let refused = |errno| v1::NotStarted {
            errno,
            ..v1::NotStarted::default()
        };
        let told = |errno| of_boundary(refused(errno)).shortage;

        let descriptors = told(libc::EMFILE).expect("of descriptors");
        assert_eq!(
            (&*descriptors.process, &*descriptors.class),
            ("boundary", SESSION)
        );
        assert_eq!(descriptors.needed, FOR_A_SESSION);
        assert!(
            descriptors
                .limit
                .is_some_and(|limit| descriptors.free < limit)
        );
        let hosts = told(libc::ENFILE).expect("of the host's");
        assert_eq!((hosts.free, hosts.limit), (0, None));
        assert_eq!(told(libc::ENOMEM).expect("of memory").class, "memory");
        assert_eq!(told(libc::EINVAL), None);
    }
}
