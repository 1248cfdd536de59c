//! Results, on stdout and nowhere else.

use std::io::{self, Write as _};

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::{Failure, Kind};

/// How a result looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
}

/// Prints a result for people.
pub(crate) fn text(result: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(result.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}

/// Prints a result as one JSON document on one line.
pub(crate) fn document(result: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(result)
        .map_err(|error| Failure::caused(Kind::Internal, "write the result as JSON", &error))?;
    text(&format!("{line}\n"))
}
