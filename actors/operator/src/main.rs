//! The command line: reads the environment once, and hands over to a command.

use std::process::ExitCode;

use config::Config;
use holdfast_kernel::signals;

mod cli;
mod client;
mod completions;
mod config;
mod doctor;
mod failure;
mod gateway;
mod ground;
mod keeper;
mod manual;
mod output;
mod policy;
mod run;
mod sandbox;
mod session;
mod shortage;
mod table;
mod threads;
mod times;
mod version;

fn main() -> ExitCode {
    signals::outlive_file_limits();
    signals::keep_statuses();
    // A panic is a fault of ours, whatever a panic's usual status is; its message has been written by then.
    std::panic::catch_unwind(command).unwrap_or(ExitCode::from(125))
}

fn command() -> ExitCode {
    let config = Config::read();
    let mut document = cli::wants_json(&config.arguments);
    let (outcome, quiet) = match threads::standing().and_then(|()| cli::parse(&config.arguments)) {
        Ok(Some(cli)) => {
            let quiet = cli.quiet;
            // Whoever started it in the background reads its stdout.
            document |= cli.own_session;
            (cli::dispatch(cli, &config), quiet)
        }
        Ok(None) => (Ok(ExitCode::SUCCESS), false),
        Err(failure) => (Err(failure), false),
    };
    outcome.unwrap_or_else(|failure| failure.tell(document, quiet))
}
