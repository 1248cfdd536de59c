//! `holdfast run`: one sandbox in the foreground; exits with its program's status.

use std::process::ExitCode;

use holdfast_observability::{Journal, Level};

use crate::cli;
use crate::config::Config;
use crate::failure::{Failure, Kind};
use request::Request;

mod environment;
mod foreground;
mod input;
mod printer;
mod request;
mod session;
mod signals;
mod terminal;

/// Runs one program in a sandbox.
///
/// Up to the fork of the boundary this process has one thread and no runtime.
pub(crate) fn run(arguments: cli::Run, config: &Config, quiet: bool) -> Result<ExitCode, Failure> {
    let usual = if quiet {
        Level::Error
    } else {
        Level::default()
    };
    let level = arguments.log_level.unwrap_or(usual);
    let format = arguments.log_format;
    let request = Request::assemble(arguments, config)?;
    let _journal = Journal::start(level, format);
    let _request = request;
    Err(Failure::new(
        Kind::Internal,
        "start the sandbox: it has no boundary yet",
    ))
}
