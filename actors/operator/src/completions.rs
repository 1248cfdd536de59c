//! `holdfast completions SHELL`

use std::process::ExitCode;

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::Failure;
use crate::output;

/// Prints what a shell needs to complete our command line.
pub(crate) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut offered(), "holdfast", &mut script);
    output::text(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// The command line without what is hidden: the scripts would offer that, too.
fn offered() -> Command {
    let whole = Cli::command();
    let arguments = whole.get_arguments().filter(|it| !it.is_hide_set());
    let commands = whole.get_subcommands().filter(|it| !it.is_hide_set());
    Command::new("holdfast")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .args(arguments.cloned())
        .subcommands(commands.cloned())
}
