//! The command line: reads the environment once, and hands over to a command.

use std::process::ExitCode;

use config::Config;

mod cli;
mod completions;
mod config;
mod doctor;
mod failure;
mod output;
mod policy;
mod run;
mod version;

fn main() -> ExitCode {
    let config = Config::read();
    let (outcome, quiet) = match cli::parse(&config.arguments) {
        Ok(Some(cli)) => {
            let quiet = cli.quiet;
            (cli::dispatch(cli, &config), quiet)
        }
        Ok(None) => (Ok(ExitCode::SUCCESS), false),
        Err(failure) => (Err(failure), false),
    };
    outcome.unwrap_or_else(|failure| failure.tell(cli::wants_json(&config.arguments), quiet))
}
