//! What the gateway refused, in our own words: its sentence, its reason, and when to try again.

use std::error::Error;

use holdfast_wire::problem;
use serde_json::{Map, Value};
use tonic::{Code, ConnectError, Status};

use crate::failure::{Failure, Kind};

/// An error of the gateway as a failure of this command.
pub(crate) fn refused(status: &Status) -> Failure {
    let code = code(status.code());
    let Some(problem) = problem::of(status) else {
        let (reason, message) = if is_lost(status) {
            let message = format!("the gateway went away: {}", cause(status));
            ("GatewayLost", message)
        } else if status.code() == Code::Unimplemented {
            let message = "the gateway does not know this request";
            ("Unimplemented", message.to_owned())
        } else {
            ("Refused", cause(status))
        };
        return Failure::new(Kind::Refused, message).told(code, reason, None);
    };
    let kind = match problem.reason.as_str() {
        "ProgramNotFound" => Kind::ProgramNotFound,
        "ProgramNotExecutable" => Kind::ProgramNotExecutable,
        "PolicyInvalid" => Kind::PolicyInvalid,
        "Timeout" | "TimedOut" => Kind::TimedOut,
        _ => Kind::Refused,
    };
    let retry = Some(problem.retry_after_ms).filter(|after| *after > 0);
    let mut details = Map::new();
    let mut hint = None;
    for (name, value) in problem.details {
        if name == "hint" {
            hint = Some(value);
        } else {
            details.insert(name, value.into());
        }
    }
    let failure = Failure::new(kind, status.message())
        .details(Value::Object(details))
        .told(code, &problem.reason, retry);
    match hint.or_else(|| usual_hint(&problem.reason).map(str::to_owned)) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Why a request that changes something was not answered as wished. A gateway that went away may have carried it out before it
/// did; `look` says where that is seen.
pub(crate) fn unanswered(status: &Status, look: impl Into<String>) -> Failure {
    let refused = refused(status);
    if is_lost(status) && !is_unheard(status) {
        undecided(&refused, look)
    } else {
        refused
    }
}

/// The failure of what may have been carried out all the same; `look` says where that is seen.
pub(crate) fn undecided(failure: &Failure, look: impl Into<String>) -> Failure {
    let message = format!("the outcome is unknown: {}", failure.message());
    Failure::new(Kind::OutcomeUnknown, message).hint(look)
}

/// Whether there was no connection over which the request could have gone.
fn is_unheard(status: &Status) -> bool {
    let mut causes = std::iter::successors(Error::source(status), |&error| error.source());
    causes.any(<dyn Error>::is::<ConnectError>)
}

/// Whether it is the connection that says so: what carries a problem was said by a gateway that is there.
pub(crate) fn is_lost(status: &Status) -> bool {
    let lost = [Code::Unavailable, Code::Unknown, Code::Cancelled];
    lost.contains(&status.code()) && problem::of(status).is_none()
}

/// What an error without a problem says: at its root where it has causes, in one line.
pub(super) fn cause(status: &Status) -> String {
    let root = Error::source(status).map(super::deepest);
    let text = root.unwrap_or_else(|| status.message().to_owned());
    text.lines().next().unwrap_or_default().to_owned()
}

fn usual_hint(reason: &str) -> Option<&'static str> {
    match reason {
        "NoSuchSession" => Some("`holdfast sessions NAME` shows what there is"),
        "ProgramNotFound" => {
            Some("it has to be in the sandbox's view (filesystem_policy) and on its PATH")
        }
        "ProgramNotExecutable" => {
            Some("it must be executable for the sandbox's user, and its path in the view")
        }
        _ => None,
    }
}

/// The canonical name of a code.
fn code(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    use holdfast_wire::v1::Problem;

    fn exit(status: &Status) -> u8 {
        refused(status).kind().exit()
    }

    /// CL-07, EX-10: what is missing, what cannot run and what is ours are told apart.
    #[test]
    fn each_refusal_has_its_exit_code() {
        let told = |reason| problem::plain(Code::NotFound, "x", reason);

        assert_eq!(exit(&told("ProgramNotFound")), 127);
        assert_eq!(exit(&told("ProgramNotExecutable")), 126);
        assert_eq!(exit(&told("NoSuchSandbox")), 125);
        assert_eq!(exit(&told("PolicyInvalid")), 2);
        assert_eq!(exit(&Status::unavailable("transport error")), 125);
    }

    #[test]
    fn what_may_have_been_carried_out_is_unknown_and_what_was_never_sent_is_not() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let kind = |status: &Status| unanswered(status, "look").kind();

        let cut = Status::from_error(Box::new(broken()));
        let unheard = Status::from_error(Box::new(ConnectError(Box::new(broken()))));
        let told = problem::plain(Code::Unavailable, "x", "KeeperSilent");

        assert_eq!(kind(&cut), Kind::OutcomeUnknown);
        assert_eq!(
            unanswered(&cut, "look").document()["error"]["reason"],
            "OutcomeUnknown"
        );
        assert_eq!(kind(&unheard), Kind::Refused);
        assert_eq!(kind(&told), Kind::Refused);
    }

    #[test]
    fn the_document_repeats_what_the_gateway_said() {
        let problem = Problem {
            reason: "DescriptorPressure".into(),
            details: [("free".to_owned(), "2".to_owned())].into(),
            retry_after_ms: 250,
        };
        let status = problem::status(Code::ResourceExhausted, "start a session", &problem);

        let document = refused(&status).document();

        assert_eq!(document["error"]["code"], "RESOURCE_EXHAUSTED");
        assert_eq!(document["error"]["reason"], "DescriptorPressure");
        assert_eq!(document["error"]["details"]["free"], "2");
        assert_eq!(document["error"]["retryAfterMs"], 250);
    }
}
