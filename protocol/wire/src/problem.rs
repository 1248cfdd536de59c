//! What went wrong, in a form that programs can read: every error of a service carries one as its details.

use prost::Message;
use tonic::{Code, Status};

use crate::v1::{Problem, Shortage};
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

/// A refusal for want of something: whose, of what, how many are needed and free, and when it is worth while to try again (0:
/// never by itself).
pub fn exhausted(
    message: impl Into<String>,
    reason: &str,
    short: &Shortage,
    retry_after_ms: u64,
) -> Status {
    let problem = Problem {
        reason: reason.to_owned(),
        details: particulars(short).into_iter().collect(),
        retry_after_ms,
    };
    status(Code::ResourceExhausted, message, &problem)
}

/// What there is too little of, as the details of a problem.
pub fn particulars(short: &Shortage) -> [(String, String); 5] {
    let process = match short.process.as_str() {
        "" => "launcher",
        process => process,
    };
    [
        ("process", process.to_owned()),
        ("class", short.class.clone()),
        ("needed", short.needed.to_string()),
        ("free", short.free.to_string()),
        ("limit", limit(short)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
}

/// How many there may be. Without a limit of the process's own, it was one of the host or of a control group.
pub fn limit(short: &Shortage) -> String {
    short
        .limit
        .map_or_else(|| "the host".to_owned(), |limit| limit.to_string())
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

    #[test]
    fn a_refusal_for_want_of_something_says_whose_of_what_how_many_and_when_to_come_again() {
        let mut short = Shortage {
            process: "keeper".to_owned(),
            class: "session".to_owned(),
            needed: 2,
            free: 1,
            limit: Some(64),
        };
        let told = |short: &Shortage| {
            let error = exhausted("no", "DescriptorPressure", short, 500);
            assert_eq!(error.code(), Code::ResourceExhausted);
            let problem = of(&error).expect("a problem");
            assert_eq!(problem.retry_after_ms, 500);
            ["process", "class", "needed", "free", "limit"].map(|key| problem.details[key].clone())
        };

        assert_eq!(told(&short), ["keeper", "session", "2", "1", "64"]);
        (short.process, short.limit) = (String::new(), None);
        assert_eq!(told(&short), ["launcher", "session", "2", "1", "the host"]);
    }
}
