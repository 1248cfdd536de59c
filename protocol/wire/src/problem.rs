//! What went wrong, in a form that programs can read: every error of a service carries one as its details.

use prost::Message;
use tonic::{Code, Status};

use crate::v1::Problem;
use crate::words::unnumbered;

/// An error of a service: its code, a sentence for people, and the problem for programs.
pub fn status(code: Code, message: impl Into<String>, problem: &Problem) -> Status {
    let message = unnumbered(&message.into());
    Status::with_details(code, message, problem.encode_to_vec().into())
}

/// The same without particulars: `reason` is one CamelCase word.
pub fn plain(code: Code, message: impl Into<String>, reason: &str) -> Status {
    let problem = Problem {
        reason: reason.to_owned(),
        ..Problem::default()
    };
    status(code, message, &problem)
}

/// The detail of a session that may have begun although it was not told: whoever had been asked fell before he answered.
pub const BEGUN: &str = "begun";

/// The problem that an error carries; `None` for an error that no service of ours made.
pub fn of(status: &Status) -> Option<Problem> {
    Problem::decode(status.details())
        .ok()
        .filter(|problem| !problem.reason.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_travels_with_its_error() {
        let error = plain(Code::NotFound, "no sandbox qa", "NoSuchSandbox");

        assert_eq!(
            of(&error).map(|problem| problem.reason),
            Some("NoSuchSandbox".into())
        );
        assert_eq!(of(&Status::unavailable("transport error")), None);
    }
}
