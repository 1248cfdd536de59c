//! `holdfast-chaos`: attacks what is built here and says what broke.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use holdfast_chaos::command;
use holdfast_chaos::storm::{Fact, storm};
use holdfast_clock::Seed;
use holdfast_supervision::draw;

/// Attack what is built here and say what broke.
#[derive(Parser)]
#[command(name = "holdfast-chaos", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The scenarios that come with the program.
    List(command::List),
    /// Attack a sandbox as a scenario says, and judge what was seen.
    Run(command::Run),
    /// Simulate supervision trees in which everything fails that can.
    Storm {
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many seeds, one after the other.
        #[arg(long, default_value_t = 1000)]
        seeds: u64,
        /// Print the tree and the whole history of each seed.
        #[arg(long)]
        history: bool,
    },
}

fn main() -> ExitCode {
    // A panic is a fault of ours; what was broken has been mended by then.
    std::panic::catch_unwind(|| match Arguments::try_parse() {
        Ok(arguments) => act(arguments.command),
        Err(error) => command::misused(&error, std::env::args_os()),
    })
    .unwrap_or(ExitCode::from(125))
}

fn act(command: Command) -> ExitCode {
    match command {
        Command::List(given) => command::list(&given),
        Command::Run(given) => command::besiege(&given),
        Command::Storm {
            seed,
            seeds,
            history,
        } => {
            let seeds = seed..seed.saturating_add(seeds);
            match storms(&mut io::stdout().lock(), seeds, history) {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => ExitCode::FAILURE,
                // Nobody reads any more.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
                Err(_) => ExitCode::from(125),
            }
        }
    }
}

/// A line for each violation and a summary; true when there was none.
fn storms(out: &mut impl Write, seeds: std::ops::Range<u64>, history: bool) -> io::Result<bool> {
    let (mut run, mut broken, mut starts, mut falls) = (0u64, 0u64, 0u64, 0u64);
    for seed in seeds {
        let storm = storm(Seed::new(seed));
        run += 1;
        broken += u64::from(!storm.violations.is_empty());
        for entry in storm.history.entries() {
            match entry.fact {
                Fact::Start { .. } => starts += 1,
                Fact::Ended { .. } => falls += 1,
                Fact::Up { .. }
                | Fact::Stop { .. }
                | Fact::Kill { .. }
                | Fact::Told(_)
                | Fact::Wanted { .. }
                | Fact::Refused { .. }
                | Fact::ShutdownRequested
                | Fact::Finished(_)
                | Fact::Calm { .. }
                | Fact::TimeIsUp => {}
            }
        }
        if history {
            writeln!(out, "{}", draw(&storm.spec))?;
            for entry in storm.history.entries() {
                writeln!(out, "{entry}")?;
            }
        }
        for violation in &storm.violations {
            writeln!(out, "seed {seed}: {violation}")?;
        }
    }
    writeln!(
        out,
        "{run} storms, {starts} starts, {falls} ends, {broken} broken"
    )?;
    Ok(broken == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storms_say_what_they_ran_and_show_their_history_when_asked() {
        let run = |history| {
            let mut out = Vec::new();
            let sound = storms(&mut out, 1..4, history).expect("memory can be written to");
            assert!(sound);
            String::from_utf8(out).expect("it is text")
        };
        let summary = run(false);
        assert!(summary.starts_with("3 storms, ") && summary.ends_with(", 0 broken\n"));
        assert!(run(true).contains("Start { path: root/"));
    }
}
