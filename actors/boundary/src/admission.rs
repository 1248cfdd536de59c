//! Whether this process can bear another session, asked before anything is opened for it.

use std::sync::Arc;

use holdfast_kernel::descriptors::{Ledger, Promise, Short};
use holdfast_wire::{problem, v1};
use tonic::Status;

use crate::tree::MOST_SESSIONS;

/// Promises the descriptors of a session until it runs, or says why it cannot.
pub(crate) fn session(ledger: &Arc<Ledger>) -> Result<Promise, Status> {
    ledger
        .promise(FOR_A_SESSION, 0)
        .map_err(|short| refused(&short))
}

fn refused(short: &Short) -> Status {
    let message = format!("start a session in the boundary: {short}");
    let short = v1::Shortage {
        process: PROCESS.to_owned(),
        class: "session".to_owned(),
        needed: short.needed,
        free: short.free,
        limit: Some(short.limit),
    };
    problem::exhausted(message, "DescriptorPressure", &short, RETRY_MS)
}

/// There are as many sessions as there may be; `why` says which ones.
pub(crate) fn too_many(why: String) -> Status {
    let short = v1::Shortage {
        process: PROCESS.to_owned(),
        class: "sessions".to_owned(),
        needed: 1,
        free: 0,
        limit: u64::try_from(MOST_SESSIONS).ok(),
    };
    problem::exhausted(why, "TooManySessions", &short, RETRY_MS)
}

/// Whose the want is.
pub(crate) const PROCESS: &str = "boundary";

/// The file that says what to do, and both ends of three pipes. Three of them stay, and the others are closed before the broker,
/// on the same thread, looks at its next caller: so nothing is kept for it besides.
const FOR_A_SESSION: u64 = 7;

/// Most sessions are short.
const RETRY_MS: u64 = 250;

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn a_refusal_says_what_is_needed_what_is_free_and_when_to_come_again() {
        let short = Short {
            needed: 7,
            free: 2,
            limit: 64,
        };

        let status = refused(&short);

        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("2 of 64"));
        let problem = problem::of(&status).expect("a problem");
        assert_eq!(problem.reason, "DescriptorPressure");
        assert_eq!(problem.details["free"], "2");
        assert!(problem.retry_after_ms > 0);
    }

    #[test]
    fn so_does_one_for_want_of_room() {
        let problem = problem::of(&too_many("they all run".to_owned())).expect("a problem");

        let told =
            ["process", "class", "needed", "free", "limit"].map(|key| &*problem.details[key]);
        assert_eq!(told, ["boundary", "sessions", "1", "0", "4096"]);
        assert_eq!(problem.reason, "TooManySessions");
        assert!(problem.retry_after_ms > 0);
    }
}
