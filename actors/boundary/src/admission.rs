//! Whether this process can bear another session, asked before anything is opened for it.

use std::sync::Arc;

use holdfast_kernel::descriptors::{Ledger, Promise, Short};
use holdfast_wire::{problem, v1};
use tonic::{Code, Status};

/// Promises the descriptors of a session until it runs, or says why it cannot.
pub(crate) fn session(ledger: &Arc<Ledger>) -> Result<Promise, Status> {
    ledger
        .promise(FOR_A_SESSION, 0)
        .map_err(|short| refused(&short))
}

fn refused(short: &Short) -> Status {
    let Short {
        needed,
        free,
        limit,
    } = *short;
    let details = [
        ("process", "boundary".to_owned()),
        ("class", "session".to_owned()),
        ("needed", needed.to_string()),
        ("free", free.to_string()),
        ("limit", limit.to_string()),
    ];
    let problem = v1::Problem {
        reason: "DescriptorPressure".to_owned(),
        details: details
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
        retry_after_ms: RETRY_MS,
    };
    let message = format!("start a session in the boundary: {short}");
    problem::status(Code::ResourceExhausted, message, &problem)
}

/// The file that says what to do, and both ends of three pipes. Three of them stay, and the others are closed before the broker,
/// on the same thread, looks at its next caller: so nothing is kept for it besides.
const FOR_A_SESSION: u64 = 7;

/// Most sessions are short.
const RETRY_MS: u64 = 250;

#[cfg(test)]
mod tests {
    use super::*;

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
}
