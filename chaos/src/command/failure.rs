//! Why nothing came of an order, or not all of it: for people, for programs, and as an exit code.

use std::io::{self, Write as _};
use std::process::ExitCode;

use holdfast_wire::words::unnumbered;
use serde_json::{Value, json};

use super::Format;

/// Why.
pub(super) enum Failure {
    /// The order is wrong.
    Usage(String),
    /// It cannot be done here or now.
    Impossible(String),
    /// It was done, or would have been, and its report cannot be written.
    Unwritten(String),
    /// A signal ended us.
    Interrupted(i32),
}

impl Failure {
    /// Tells people on stderr and, where a document was asked for, programs on stdout. Answers the exit code.
    pub(super) fn tell(&self, format: Format) -> ExitCode {
        if format == Format::Json {
            self.show();
        }
        self.say();
        ExitCode::from(self.code())
    }

    /// Tells programs.
    pub(super) fn show(&self) {
        let _nobody_reads = writeln!(io::stdout(), "{}", json!({"error": self.document()}));
    }

    /// Tells people.
    pub(super) fn say(&self) {
        let _nobody_reads = writeln!(io::stderr(), "holdfast-chaos: {}", self.message());
    }

    /// What scripts see.
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Impossible(_) | Self::Unwritten(_) => 125,
            Self::Interrupted(signal) => u8::try_from(128 + signal).unwrap_or(125),
        }
    }

    /// `{"code","message","reason","details","retryAfterMs"}`, with the canonical code as gRPC has them.
    pub(super) fn document(&self) -> Value {
        let (code, reason) = match self {
            Self::Usage(_) => ("INVALID_ARGUMENT", "Usage"),
            Self::Impossible(_) => ("UNAVAILABLE", "Impossible"),
            Self::Unwritten(_) => ("DATA_LOSS", "OutputFailed"),
            Self::Interrupted(_) => ("CANCELLED", "Interrupted"),
        };
        json!({
            "code": code,
            "message": self.message().trim_end(),
            "reason": reason,
            "details": {},
            "retryAfterMs": null,
        })
    }

    fn message(&self) -> String {
        match self {
            Self::Usage(message) | Self::Impossible(message) | Self::Unwritten(message) => {
                unnumbered(message)
            }
            Self::Interrupted(_) => "interrupted; everything is undone".to_owned(),
        }
    }
}
