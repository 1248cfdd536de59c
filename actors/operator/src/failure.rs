//! Why a command did not do what it was asked for: one sentence for people, one document for programs, one exit code.

use std::collections::HashMap;
use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use holdfast_wire::v1;
use holdfast_wire::words::unnumbered;
use serde_json::{Value, json};

use crate::output::harmless;
use crate::shortage;

/// A command that ended without its result.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    /// Particulars for people, before the message.
    lines: Vec<String>,
    message: String,
    hint: Option<String>,
    details: Value,
    told: Option<Box<Told>>,
}

/// How somebody else called the failure.
#[derive(Debug)]
struct Told {
    code: &'static str,
    reason: String,
    retry_after_ms: Option<u64>,
}

/// What sort of failure it is. It decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The command line is wrong.
    Usage,
    /// A policy is wrong in itself.
    PolicyInvalid,
    /// A file that was named is not there or cannot be read.
    Unreadable,
    /// A file that was named may not be reached or read by this user.
    Barred,
    /// This host cannot do what was asked.
    HostUnsupported,
    /// The program was not found.
    ProgramNotFound,
    /// The program was found and cannot be executed.
    ProgramNotExecutable,
    /// The time limit passed.
    TimedOut,
    /// A signal ended us before there was anything to forward it to.
    Interrupted(i32),
    /// Our input could not be read to its end.
    InputFailed,
    /// A result could not be written.
    OutputFailed,
    /// Whoever read our output has gone.
    OutputClosed,
    /// No gateway answers.
    Unreachable,
    /// The gateway is of another version.
    Unsupported,
    /// The gateway said no.
    Refused,
    /// A sandbox did not come to where it was awaited.
    NotReached,
    /// How the program ended is not known.
    OutcomeUnknown,
    /// A copy failed on its way.
    CopyFailed,
    /// Something of our own failed.
    Internal,
}

impl Failure {
    /// A failure with one sentence about it: lower case, a bare verb phrase.
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            lines: Vec::new(),
            message: unnumbered(&message.into()),
            hint: None,
            details: json!({}),
            told: None,
        }
    }

    /// A failure whose sentence is `message` and the whole chain of its cause, with what helps where this process was short of something.
    pub(crate) fn caused(
        kind: Kind,
        message: impl Into<String>,
        cause: &(dyn Error + 'static),
    ) -> Self {
        let denied = (kind == Kind::Unreadable && is_denied(cause)).then_some(Kind::Barred);
        let message = format!("{}: {}", message.into(), chain(cause));
        let failure = Self::new(denied.unwrap_or(kind), message);
        Self {
            hint: shortage::remedy(cause),
            ..failure
        }
    }

    /// The same with what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same with particulars for people, a line each.
    pub(crate) fn lines(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        let lines = lines.into_iter().map(|line| unnumbered(&line));
        self.lines.extend(lines);
        self
    }

    /// The same with particulars for programs.
    pub(crate) fn details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    /// A result that could not be written.
    pub(crate) fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::new(Kind::OutputClosed, "write to stdout: nobody reads it")
        } else {
            Self::caused(Kind::OutputFailed, "write to stdout", error)
        }
    }

    /// The same, after something that stands all the same.
    pub(crate) fn although(mut self, what: &str) -> Self {
        self.message = format!("{}; {what}", self.message);
        self
    }

    /// A signal ended us.
    pub(crate) fn interrupted(signal: i32) -> Self {
        let name =
            nix::sys::signal::Signal::try_from(signal).map_or("a signal", |name| name.as_str());
        Self::new(Kind::Interrupted(signal), format!("ended by {name}"))
    }

    /// The same under the names that whoever refused gave it.
    pub(crate) fn told(
        mut self,
        code: &'static str,
        reason: &str,
        retry_after_ms: Option<u64>,
    ) -> Self {
        self.told = Some(Box::new(Told {
            code,
            reason: reason.to_owned(),
            retry_after_ms,
        }));
        self
    }

    /// Its sentence.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it.
    pub(crate) fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Its particulars and its sentence.
    pub(crate) fn sentence(&self) -> String {
        let mut lines = self.lines.clone();
        lines.push(self.message.trim_end().to_owned());
        lines.join("\n")
    }

    /// The same for another process: the reason in one word, and the sentence and the hint among the details.
    pub(crate) fn problem(&self) -> v1::Problem {
        let (_, reason) = self.kind.names();
        let reason = self.told.as_ref().map_or(reason, |told| &told.reason);
        let mut details = HashMap::from([("message".to_owned(), self.sentence())]);
        details.extend(self.hint.clone().map(|hint| ("hint".to_owned(), hint)));
        v1::Problem {
            reason: reason.to_owned(),
            details,
            retry_after_ms: 0,
        }
    }

    /// What kind it is.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Tells people on stderr and, where a document was asked for, programs on stdout. Answers the exit code.
    ///
    /// `quiet` leaves the hint out.
    pub(crate) fn tell(&self, document: bool, quiet: bool) -> ExitCode {
        if self.kind != Kind::OutputClosed {
            // When stderr is gone too, the exit code is all that is left.
            let _unheard = io::stderr().write_all(self.text(quiet).as_bytes());
            if document && self.kind != Kind::OutputFailed {
                let _unheard = writeln!(io::stdout(), "{}", self.document());
            }
        }
        ExitCode::from(self.kind.exit())
    }

    fn text(&self, quiet: bool) -> String {
        // The parser of the command line words its own.
        let is_parsers = self.kind == Kind::Usage && self.message.starts_with("error:");
        let prefix = if is_parsers { "" } else { "holdfast: " };
        let message = self.message.trim_end();
        // Only the parser's has line ends of its own.
        let message: Vec<_> = if is_parsers {
            message.split('\n').map(harmless).collect()
        } else {
            vec![harmless(message)]
        };
        let mut text = String::new();
        for line in &self.lines {
            let _infallible = writeln!(text, "{}", harmless(line));
        }
        let _infallible = writeln!(text, "{prefix}{}", message.join("\n"));
        let advice = self.hint.clone().or_else(|| self.again());
        if let Some(hint) = advice.filter(|_| !quiet) {
            let _infallible = writeln!(text, "  hint: {}", harmless(&hint));
        }
        text
    }

    /// When to try again, where whoever refused said so. A document has it in a field of its own.
    fn again(&self) -> Option<String> {
        let pause = Duration::from_millis(self.told.as_ref()?.retry_after_ms?);
        Some(format!("try again in {} s", pause.as_secs_f64()))
    }

    /// `{"error":{"code","message","reason","details","retryAfterMs"}}`
    pub(crate) fn document(&self) -> Value {
        let (code, reason, retry) = match &self.told {
            Some(told) => (told.code, told.reason.as_str(), told.retry_after_ms),
            None => (self.kind.names().0, self.kind.names().1, None),
        };
        let mut details = self.details.clone();
        if let (Some(hint), Some(details)) = (&self.hint, details.as_object_mut()) {
            details.insert("hint".into(), hint.as_str().into());
        }
        json!({"error": {
            "code": code,
            "message": self.message.trim_end(),
            "reason": reason,
            "details": details,
            "retryAfterMs": retry,
        }})
    }
}

impl Kind {
    /// The exit code that scripts see.
    pub(crate) fn exit(self) -> u8 {
        match self {
            Self::Usage | Self::PolicyInvalid => 2,
            Self::Unreadable
            | Self::Barred
            | Self::HostUnsupported
            | Self::InputFailed
            | Self::OutputFailed
            | Self::Unreachable
            | Self::Unsupported
            | Self::Refused
            | Self::NotReached
            | Self::OutcomeUnknown
            | Self::CopyFailed
            | Self::Internal => 125,
            Self::ProgramNotExecutable => 126,
            Self::ProgramNotFound => 127,
            Self::TimedOut => 124,
            Self::Interrupted(signal) => by_signal(signal),
            Self::OutputClosed => by_signal(SIGPIPE),
        }
    }

    /// The canonical code (as gRPC has them) and the reason.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Usage => ("INVALID_ARGUMENT", "Usage"),
            Self::PolicyInvalid => ("INVALID_ARGUMENT", "PolicyInvalid"),
            Self::Unreadable => ("NOT_FOUND", "Unreadable"),
            Self::Barred => ("PERMISSION_DENIED", "Unreadable"),
            Self::HostUnsupported => ("FAILED_PRECONDITION", "HostUnsupported"),
            Self::ProgramNotFound => ("NOT_FOUND", "ProgramNotFound"),
            Self::ProgramNotExecutable => ("PERMISSION_DENIED", "ProgramNotExecutable"),
            Self::TimedOut => ("DEADLINE_EXCEEDED", "TimedOut"),
            Self::Interrupted(_) => ("CANCELLED", "Interrupted"),
            Self::InputFailed => ("DATA_LOSS", "InputFailed"),
            Self::OutputFailed => ("DATA_LOSS", "OutputFailed"),
            Self::OutputClosed => ("CANCELLED", "OutputClosed"),
            Self::Unreachable => ("UNAVAILABLE", "GatewayUnreachable"),
            Self::Unsupported => ("FAILED_PRECONDITION", "VersionUnsupported"),
            Self::Refused => ("UNKNOWN", "Refused"),
            Self::NotReached => ("FAILED_PRECONDITION", "NotReached"),
            Self::OutcomeUnknown => ("UNKNOWN", "OutcomeUnknown"),
            Self::CopyFailed => ("ABORTED", "CopyFailed"),
            Self::Internal => ("INTERNAL", "Internal"),
        }
    }
}

/// What to do about a directory of ours that the system does not let us write to; `None`: nothing that helps in general.
pub(crate) fn remedy(cause: &(dyn Error + 'static), directory: &Path) -> Option<String> {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let mut causes = std::iter::successors(Some(cause), |&error| error.source());
    let kind = causes.find_map(|error| Some(error.downcast_ref::<io::Error>()?.kind()))?;
    let directory = directory.display();
    let elsewhere = "HOLDFAST_STATE_DIR and HOLDFAST_RUNTIME_DIR name others";
    if matches!(kind, StorageFull | QuotaExceeded) {
        Some(format!(
            "make room in the file system of {directory} (`df -h {directory}`, `df -i` for the number of files); {elsewhere}"
        ))
    } else if matches!(kind, ReadOnlyFilesystem | PermissionDenied) {
        Some(format!(
            "{directory} has to be one that you can write to; {elsewhere}"
        ))
    } else {
        None
    }
}

/// `128+N`, the code of one whom signal N ended.
pub(crate) fn by_signal(signal: i32) -> u8 {
    u8::try_from(signal).map_or(u8::MAX, |number| number.saturating_add(128))
}

/// Whether it is for want of a permission.
fn is_denied(cause: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(cause), |&error| error.source());
    let kind = causes.find_map(|error| Some(error.downcast_ref::<io::Error>()?.kind()));
    kind == Some(io::ErrorKind::PermissionDenied)
}

/// An error and its causes in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _infallible = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

const SIGPIPE: i32 = 13;

#[cfg(test)]
mod tests {
    use super::*;

    /// However an error of the system came into a sentence.
    #[test]
    fn no_sentence_has_the_number_of_an_errno() {
        let missing = io::Error::from_raw_os_error(2);

        let told = Failure::new(Kind::Internal, format!("execute x: {missing}"));
        let caused = Failure::caused(Kind::Internal, "open x", &missing);
        let particular = Failure::new(Kind::Internal, "y").lines([format!("read x: {missing}")]);

        for failure in [told, caused, particular] {
            let text = failure.text(false);
            assert!(text.contains("x: No such file or directory\n"), "{text}");
        }
    }

    #[test]
    fn a_directory_without_room_and_one_that_is_not_ours_have_a_remedy() {
        let advice = |kind: io::ErrorKind| remedy(&io::Error::from(kind), Path::new("/s"));

        let full = advice(io::ErrorKind::StorageFull).expect("is told");
        assert!(
            full.contains("make room in the file system of /s"),
            "{full}"
        );
        let barred = advice(io::ErrorKind::ReadOnlyFilesystem).expect("is told");
        assert!(barred.starts_with("/s has to be"), "{barred}");
        assert_eq!(advice(io::ErrorKind::NotFound), None);
    }

    #[test]
    fn the_document_has_the_five_fields_of_the_contract() {
        let failure = Failure::new(Kind::HostUnsupported, "make a user namespace")
            .hint("raise user.max_user_namespaces");

        let document = failure.document();

        assert_eq!(
            document,
            json!({"error": {
                "code": "FAILED_PRECONDITION",
                "message": "make a user namespace",
                "reason": "HostUnsupported",
                "details": {"hint": "raise user.max_user_namespaces"},
                "retryAfterMs": null,
            }})
        );
    }

    #[test]
    fn the_text_is_one_sentence_with_its_causes_and_a_hint() {
        let cause = io::Error::other("disk on fire");

        let failure =
            Failure::caused(Kind::Internal, "open audit file /x", &cause).hint("call 112");

        assert_eq!(
            failure.text(false),
            "holdfast: open audit file /x: disk on fire\n  hint: call 112\n"
        );
        assert_eq!(
            failure.text(true),
            "holdfast: open audit file /x: disk on fire\n"
        );
    }

    #[test]
    fn a_refusal_without_a_hint_says_when_to_try_again() {
        let refused = |retry| {
            let failure = Failure::new(Kind::Refused, "start a session: no room");
            failure.told("RESOURCE_EXHAUSTED", "DescriptorPressure", retry)
        };

        assert_eq!(
            refused(Some(250)).text(false),
            "holdfast: start a session: no room\n  hint: try again in 0.25 s\n"
        );
        for silent in [refused(Some(250)).text(true), refused(None).text(false)] {
            assert_eq!(silent, "holdfast: start a session: no room\n");
        }
        let advised = refused(Some(1000)).hint("end one").text(false);
        assert!(advised.ends_with("  hint: end one\n"), "{advised}");
    }

    #[test]
    fn a_closed_pipe_is_an_end_by_sigpipe_and_a_full_disk_is_our_failure() {
        let closed = Failure::output(&io::ErrorKind::BrokenPipe.into());
        let full = Failure::output(&io::ErrorKind::StorageFull.into());

        assert_eq!(closed.kind.exit(), 141);
        assert_eq!(full.kind.exit(), 125);
    }
}
