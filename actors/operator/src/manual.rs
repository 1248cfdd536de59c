//! `holdfast man DIR`

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::cli::Cli;
use crate::failure::{Failure, Kind};

/// Writes a manual page for each command.
pub(crate) fn manual(directory: &Path) -> Result<ExitCode, Failure> {
    let written = fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
    written.map_err(|error| {
        let message = format!("write manual pages to {}", directory.display());
        Failure::caused(Kind::OutputFailed, message, &error)
    })?;
    Ok(ExitCode::SUCCESS)
}
