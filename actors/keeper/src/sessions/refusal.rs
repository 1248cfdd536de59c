//! Why something is not done, as clients are told it: a code, a sentence and a reason for programs.

use std::collections::HashMap;
use std::error::Error as _;

use super::advice::advice;
use super::book::BOUNDARY_LOST;
use super::lack::{DESCRIPTORS, Lack};
use super::withdrawal::ANSWER;
use crate::health::{Process, Want};
use crate::link::DIED;
use crate::pressure::{Class, Exhausted, FOR_A_SESSION};
use holdfast_actor::Fault;
use holdfast_kernel::descriptors;
use holdfast_wire::problem;
use holdfast_wire::v1;
use tonic::{Code, Status};

/// A program that could not be started. Not found and not executable are the program's; every other step is ours, and want
/// is nobody's.
pub(crate) fn not_started(program: &[u8], refused: &v1::NotStarted) -> Status {
    let lack = Lack::of(refused.errno);
    let (code, reason) = match (refused.step.as_str(), refused.errno) {
        (_, _) if let Some(lack) = lack => (Code::ResourceExhausted, lack.reason),
        ("find" | "execute", libc::ENOENT) => (Code::NotFound, "ProgramNotFound"),
        ("find" | "execute", libc::E2BIG) => (Code::InvalidArgument, "ArgumentsTooLong"),
        ("find" | "execute", _) => (Code::PermissionDenied, "ProgramNotExecutable"),
        (DIRECTORY, libc::ENOENT | libc::ENOTDIR) => (Code::NotFound, "DirectoryNotFound"),
        (DIRECTORY, _) => (Code::PermissionDenied, "DirectoryNotReachable"),
        (IN_TIME, _) => (Code::DeadlineExceeded, "Timeout"),
        (_, _) => (Code::Internal, "NotStarted"),
    };
    let program = match String::from_utf8_lossy(program) {
        nameless if nameless.is_empty() => "''".into(),
        program => program,
    };
    let short = refused.shortage.as_deref().filter(|_| lack.is_some());
    let mut details = HashMap::from([
        ("step".to_owned(), refused.step.clone()),
        ("errno".to_owned(), refused.errno.to_string()),
    ]);
    details.extend(short.into_iter().flat_map(problem::particulars));
    let hint = lack.map(|lack| lack.remedy);
    let hint = hint.or_else(|| advice(&refused.step, refused.errno, &refused.message));
    details.extend(hint.map(|hint| ("hint".to_owned(), hint.to_owned())));
    let problem = v1::Problem {
        reason: reason.to_owned(),
        details,
        retry_after_ms: lack.map_or(0, |_| RETRY_MS),
    };
    let message = if refused.step == DIRECTORY {
        // It names the directory, and the program has nothing to do with it.
        format!("{} {}", refused.step, refused.message)
    } else {
        let told = short.map(|short| format!("; {}", sentence(short)));
        let told = told.unwrap_or_default();
        format!("{} {program}: {}{told}", refused.step, refused.message)
    };
    problem::status(code, message, &problem)
}

/// What there was too little of, for people.
fn sentence(short: &v1::Shortage) -> String {
    let of = match short.class.as_str() {
        "session" => "descriptors",
        "memory" => "bytes of memory",
        class => class,
    };
    format!(
        "{} {of} needed, {} free under a limit of {}",
        short.needed,
        short.free,
        problem::limit(short)
    )
}

/// This process has no descriptors for it; none was opened.
pub(crate) fn exhausted(what: &str, exhausted: &Exhausted) -> Status {
    let short = v1::Shortage {
        limit: Some(exhausted.limit),
        free: exhausted.free,
        ..short(exhausted.class.as_str(), exhausted.needed)
    };
    let retry = u64::try_from(exhausted.retry.as_millis()).unwrap_or(RETRY_MS);
    problem::exhausted(format!("{what}: {exhausted}"), DESCRIPTORS, &short, retry)
}

/// What this process has none of any more.
fn short(class: &str, needed: u64) -> v1::Shortage {
    v1::Shortage {
        process: "keeper".to_owned(),
        class: class.to_owned(),
        needed,
        ..v1::Shortage::default()
    }
}

/// Whether the sandbox is at fault rather than what was asked for: then its health has to be looked at.
pub(crate) fn is_ours(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::ResourceExhausted
            | Code::Unavailable
            | Code::Internal
            | Code::Unknown
            | Code::DeadlineExceeded
    )
}

/// This process ran out of something while it opened what was needed.
pub(crate) fn starved(what: &str, fault: &Fault) -> Status {
    let seen = descriptors::observe().ok();
    let short = v1::Shortage {
        limit: seen.map(|seen| seen.limit),
        free: seen.map_or(0, descriptors::Sample::free),
        ..short(Class::Session.as_str(), FOR_A_SESSION)
    };
    problem::exhausted(format!("{what}: {fault}"), DESCRIPTORS, &short, RETRY_MS)
}

/// What was short, for the health of the sandbox.
pub(crate) fn want(status: &Status) -> Want {
    let Some(problem) = problem::of(status) else {
        return Want::Nothing;
    };
    let message = status.message().to_owned();
    match problem.reason.as_str() {
        DESCRIPTORS => {
            let keepers = problem.details.get("process").map(String::as_str) == Some("keeper");
            let process = if keepers {
                Process::Keeper
            } else {
                Process::Boundary
            };
            Want::Descriptors { process, message }
        }
        "ProcessPressure" => Want::Other {
            reason: "ProcessPressure",
            message,
        },
        "MemoryPressure" => Want::Other {
            reason: "MemoryPressure",
            message,
        },
        "TooManySessions" => Want::Other {
            reason: "TooManySessions",
            message,
        },
        _ => Want::Nothing,
    }
}

/// There are as many sessions as there may be.
pub(crate) fn too_many(most: usize) -> Status {
    let message = format!("start a session: {most} run already; end one, or wait until one ends");
    full("sessions", message, "TooManySessions", most)
}

/// As many clients as may come at once have just come to this session.
pub(crate) fn too_many_clients(session: u64, most: usize) -> Status {
    let message = format!("attach to session {session}: {most} clients have just come; try again");
    full("clients", message, "TooManyClients", most)
}

/// There are as many of a class as there may be.
fn full(class: &str, message: String, reason: &str, most: usize) -> Status {
    let short = v1::Shortage {
        limit: u64::try_from(most).ok(),
        ..short(class, 1)
    };
    problem::exhausted(message, reason, &short, RETRY_MS)
}

/// Nobody knows this session.
pub(crate) fn no_such(session: u64) -> Status {
    let message = format!(
        "find session {session}: there is none, or it is forgotten; `holdfast sessions` lists those that are known"
    );
    problem::plain(Code::NotFound, message, "NoSuchSession")
}

/// The session is over.
pub(crate) fn not_running(session: u64) -> Status {
    let message = format!("reach session {session}: it has ended");
    problem::plain(Code::FailedPrecondition, message, "NotRunning")
}

/// The sandbox is being stopped.
pub(crate) fn stopping() -> Status {
    problem::plain(
        Code::FailedPrecondition,
        "start a session: the sandbox is being stopped",
        "Stopping",
    )
}

/// What carried the session's bytes here has been restarted; the session goes on.
pub(crate) fn cut(session: u64) -> Status {
    let problem = v1::Problem {
        reason: "SessionCut".to_owned(),
        details: HashMap::from([
            ("session".to_owned(), session.to_string()),
            (
                "hint".to_owned(),
                "the session goes on: attach again".to_owned(),
            ),
        ]),
        retry_after_ms: RETRY_MS,
    };
    let message = format!("carry session {session}: its keeper was interrupted");
    problem::status(Code::Unavailable, message, &problem)
}

/// The boundary has ended, and everything inside.
pub(crate) fn died() -> Status {
    problem::plain(Code::FailedPrecondition, DIED, BOUNDARY_LOST)
}

/// Another keeper has the boundary, and its sessions. As when this one had died: whoever wants them comes again.
pub(crate) fn taken_over() -> Status {
    let problem = v1::Problem {
        reason: "KeeperLost".to_owned(),
        retry_after_ms: RETRY_MS,
        ..v1::Problem::default()
    };
    let message = "ask the boundary: another keeper has taken it over";
    problem::status(Code::Unavailable, message, &problem)
}

/// Whether the boundary could not be asked.
pub(crate) fn is_cut_off(status: &Status) -> bool {
    problem::of(status).is_some_and(|told| told.reason == "LinkLost")
}

/// The boundary could not be asked, or did not want to. How a connection broke is nothing that anybody could use.
pub(crate) fn link(status: &Status) -> Status {
    match problem::of(status) {
        Some(told) if told.reason == "Fenced" => return taken_over(),
        Some(_) => return status.clone(),
        None => {}
    }
    let (code, reason) = match status.code() {
        Code::NotFound => (Code::NotFound, "NoSuchSession"),
        Code::ResourceExhausted => (Code::ResourceExhausted, DESCRIPTORS),
        Code::FailedPrecondition => (Code::FailedPrecondition, "NotReady"),
        Code::InvalidArgument => (Code::InvalidArgument, "Usage"),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => (Code::Unavailable, "LinkLost"),
    };
    problem::plain(
        code,
        match status.source() {
            Some(_broken) => "ask the boundary: the connection to it broke".to_owned(),
            None => format!("ask the boundary: {}", status.message()),
        },
        reason,
    )
}

/// The boundary says nothing; what was asked of it has come to this.
pub(crate) fn silent(what: &str, outcome: &str) -> Status {
    let waited = ANSWER.as_secs();
    let hint = "it is stopped, or the host is very busy: see `holdfast status` for LinkLost or LauncherSilent, and let \
                `pids.boundary` and its child go on with `kill -CONT`";
    let problem = v1::Problem {
        reason: "LinkLost".to_owned(),
        details: HashMap::from([("hint".to_owned(), hint.to_owned())]),
        retry_after_ms: SILENT_RETRY_MS,
    };
    let again = SILENT_RETRY_MS / 1000;
    let message = format!(
        "{what}: the boundary has not answered for {waited} s; {outcome}; try again in {again} s, or when the sandbox is Ready"
    );
    problem::status(Code::Unavailable, message, &problem)
}

/// The time of a session was up before it began; that has come to this.
pub(crate) fn overdue(outcome: &str) -> Status {
    let message = format!(
        "start a session: its time was up before the boundary answered; {outcome}; `holdfast status` says what holds it up"
    );
    problem::plain(Code::DeadlineExceeded, message, "Timeout")
}

/// A request that says nothing, or nothing that can be done.
pub(crate) fn usage(message: &str) -> Status {
    problem::plain(Code::InvalidArgument, message, "Usage")
}

/// The step before the program is looked for.
const DIRECTORY: &str = "enter its directory";

/// The launcher's, when the time was up before it could begin.
const IN_TIME: &str = "begin in time";

/// When it is worth while to try again.
const RETRY_MS: u64 = 500;

/// The same for a boundary that has been silent for long.
const SILENT_RETRY_MS: u64 = 5000;

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(step: &str, errno: i32) -> (Code, String) {
        let refused = v1::NotStarted {
            session: 0,
            step: step.to_owned(),
            errno,
            message: "no".to_owned(),
            shortage: None,
        };
        let status = not_started(b"prog", &refused);
        let problem = problem::of(&status).expect("a problem");
        (status.code(), problem.reason)
    }

    /// EX-10: each of them is told apart.
    #[test]
    fn a_program_that_is_not_there_is_no_program_that_cannot_run_and_neither_is_our_failure() {
        assert_eq!(
            reason("find", libc::ENOENT),
            (Code::NotFound, "ProgramNotFound".into())
        );
        assert_eq!(
            reason("execute", libc::EACCES),
            (Code::PermissionDenied, "ProgramNotExecutable".into())
        );
        assert_eq!(
            reason("execute", libc::ENOEXEC),
            (Code::PermissionDenied, "ProgramNotExecutable".into())
        );
        assert_eq!(
            reason("enter its directory", libc::ENOENT),
            (Code::NotFound, "DirectoryNotFound".into())
        );
        assert_eq!(
            reason("reset signals", libc::EINVAL),
            (Code::Internal, "NotStarted".into())
        );
    }

    #[test]
    fn the_health_hears_what_was_short_and_where() {
        let of_boundary = v1::Problem {
            reason: "DescriptorPressure".to_owned(),
            details: HashMap::from([("process".to_owned(), "boundary".to_owned())]),
            retry_after_ms: 250,
        };
        let message = "reserve 7 descriptors: 5 of 112 are free".to_owned();
        let boundary = problem::status(Code::ResourceExhausted, message.clone(), &of_boundary);
        let keeper = starved("start a session", &Fault::exhausted("socketpair: EMFILE"));
        let many = too_many(7);

        let process = Process::Boundary;
        assert_eq!(
            want(&link(&boundary)),
            Want::Descriptors { process, message }
        );
        assert!(matches!(
            want(&keeper),
            Want::Descriptors {
                process: Process::Keeper,
                ..
            }
        ));
        assert!(matches!(
            want(&many),
            Want::Other {
                reason: "TooManySessions",
                ..
            }
        ));
        assert_eq!(want(&link(&Status::unavailable("gone"))), Want::Nothing);
    }

    /// EX-23: what the launcher has too little of, as for keeper and boundary.
    #[test]
    fn a_shortage_of_the_launchers_says_what_is_needed_and_what_is_free() {
        let mut refused = v1::NotStarted {
            session: 0,
            step: "fork".to_owned(),
            errno: libc::EAGAIN,
            message: "clone: no".to_owned(),
            shortage: Some(Box::new(v1::Shortage {
                class: "processes".to_owned(),
                needed: 1,
                free: 0,
                limit: Some(20),
                process: "launcher".to_owned(),
            })),
        };

        let status = not_started(b"prog", &refused);

        let expected = "fork prog: clone: no; 1 processes needed, 0 free under a limit of 20";
        assert_eq!(status.message(), expected);
        let details = problem::of(&status).expect("a problem").details;
        let told = ["process", "class", "needed", "free", "limit"].map(|key| &*details[key]);
        assert_eq!(told, ["launcher", "processes", "1", "0", "20"]);
        refused.errno = libc::EINVAL;
        assert!(!not_started(b"prog", &refused).message().contains("limit"));
    }

    /// EX-23: whatever the keeper has too little of, what is needed and what is free are said.
    #[test]
    fn a_shortage_of_the_keepers_says_what_is_needed_and_what_is_free() {
        let told = |status: &Status| {
            let problem = problem::of(status).expect("a problem");
            assert!(problem.retry_after_ms > 0);
            ["process", "class", "needed", "free", "limit"].map(|key| problem.details[key].clone())
        };

        let opened = Fault::exhausted("socketpair: EMFILE");
        let [process, class, needed, free, limit] = told(&starved("start a session", &opened));
        assert_eq!([process, class, needed], ["keeper", "session", "2"]);
        let [free, limit] = [free, limit].map(|number| number.parse::<u64>().expect("a number"));
        assert!(free < limit);
        let of_sessions = ["keeper", "sessions", "1", "0", "7"];
        assert_eq!(told(&too_many(7)), of_sessions);
        let of_clients = ["keeper", "clients", "1", "0", "64"];
        assert_eq!(told(&too_many_clients(3, 64)), of_clients);
    }

    #[test]
    fn a_link_that_broke_is_told_without_its_protocol() {
        let broken: Box<dyn std::error::Error + Send + Sync> = "h2 protocol error".into();

        let told = link(&Status::from_error(broken));

        assert_eq!(
            told.message(),
            "ask the boundary: the connection to it broke"
        );
        assert!(is_cut_off(&told) && !is_cut_off(&died()));
    }

    /// EX-23: a program that is there and may be executed is not at fault when the host has no room for it.
    #[test]
    fn want_is_told_as_want_at_whichever_step_it_shows() {
        for step in ["fork", "find", "execute", DIRECTORY] {
            for (errno, expected) in [
                (libc::EAGAIN, "ProcessPressure"),
                (libc::ENOMEM, "MemoryPressure"),
                (libc::ENFILE, "DescriptorPressure"),
                (libc::ETOOMANYREFS, "DescriptorPressure"),
            ] {
                let told = reason(step, errno);
                assert_eq!(told, (Code::ResourceExhausted, expected.into()), "{step}");
            }
        }

        let refused = v1::NotStarted {
            step: "execute".to_owned(),
            errno: libc::EAGAIN,
            ..v1::NotStarted::default()
        };
        let problem = problem::of(&not_started(b"prog", &refused)).expect("a problem");
        assert!(problem.details["hint"].contains("process.limits.nproc"));
        assert!(problem.retry_after_ms > 0);
    }

    /// EX-23: what is short is named, with a time to try again.
    #[test]
    fn a_shortage_is_named_and_says_when_to_try_again() {
        assert_eq!(
            reason("prepare its descriptors", libc::EMFILE),
            (Code::ResourceExhausted, "DescriptorPressure".into())
        );
        assert_eq!(
            reason("fork", libc::EAGAIN),
            (Code::ResourceExhausted, "ProcessPressure".into())
        );

        let status = exhausted(
            "start a session",
            &Exhausted {
                class: Class::Session,
                needed: 3,
                free: 4,
                limit: 1024,
                retry: std::time::Duration::from_millis(250),
            },
        );
        let problem = problem::of(&status).expect("a problem");
        assert!(status.message().contains("4 of 1024 are free"));
        assert_eq!(problem.details["free"], "4");
        assert!(problem.retry_after_ms > 0);
    }
}
