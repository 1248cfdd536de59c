//! `list` and `run`: what there is, and what came of it.

mod failure;
mod surroundings;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use holdfast_clock::Seed;
use holdfast_kernel::signals::Signals;
use nix::libc;
use parking_lot::Mutex;

use crate::document::span;
use crate::report::{self, Document, Live};
use crate::run::{Order, Report, Target, run};
use crate::scenario::{Fault, Scenario};
use crate::schedule::schedule;
use failure::Failure;
use surroundings::Surroundings;

/// What `run` is given.
#[derive(Args)]
#[command(group = ArgGroup::new("target").required(true).args(["sandbox", "own"]))]
pub struct Run {
    /// Scenarios by name (see `list`) or by the path of a file.
    #[arg(required = true, value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Attack this sandbox of the gateway at `HOLDFAST_GATEWAY`; only with faults that heal.
    #[arg(long, value_name = "NAME")]
    sandbox: Option<String>,
    /// Attack a sandbox made for it, on a gateway started for it.
    #[arg(long = "self")]
    own: bool,
    /// Where chance starts; by default nobody can foretell it, and it is printed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How long faults are made, instead of what the scenario says.
    #[arg(long, value_name = "D", value_parser = duration)]
    duration: Option<Duration>,
    /// How the result is printed.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Write a page with a picture for each scenario into this directory, and with --self the logs beside it.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// A server that the sandbox may reach and that echoes a line, for a sandbox of your own.
    #[arg(long, value_name = "HOST:PORT", value_parser = server)]
    connect: Option<(String, u16)>,
    /// Allow faults that every process of this machine feels: enfile, clock-jump.
    #[arg(long)]
    whole_machine: bool,
    /// Say nothing until the result.
    #[arg(short, long)]
    quiet: bool,
}

/// What `list` is given.
#[derive(Args)]
pub struct List {
    /// How it is printed.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// How results are printed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON document.
    Json,
}

/// Tells what is wrong with these arguments, or prints the help that they ask for.
pub fn misused(error: &clap::Error, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let _nobody_reads = error.print();
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    let failure = Failure::Usage(error.render().to_string());
    if wants_json(arguments) {
        failure.show();
    }
    ExitCode::from(failure.code())
}

/// Whether a document is asked for, as far as that can be seen in arguments that are wrong.
fn wants_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let mut before = OsString::new();
    for argument in arguments {
        let whole = ["-ojson", "-o=json", "--output=json"].map(OsString::from);
        let split = argument == "json" && (before == "-o" || before == "--output");
        if split || whole.contains(&argument) {
            return true;
        }
        before = argument;
    }
    false
}

/// Prints the scenarios that come with the program.
pub fn list(given: &List) -> ExitCode {
    let mut out = io::stdout().lock();
    let mut rows = Vec::new();
    for (name, text) in Scenario::built_in() {
        match Scenario::parse(name, text) {
            Ok(scenario) => rows.push(scenario),
            Err(problem) => return Failure::Impossible(problem.to_string()).tell(given.output),
        }
    }
    let written = if given.output == Format::Json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| serde_json::json!({"name": row.name, "description": row.description, "durationMs": u64::try_from(row.duration.as_millis()).unwrap_or(u64::MAX)}))
            .collect();
        writeln!(out, "{}", serde_json::Value::from(rows))
    } else {
        rows.iter().try_for_each(|row| {
            let long = row.duration.as_secs();
            writeln!(out, "{:<14} {long:>5} s  {}", row.name, row.description)
        })
    };
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::from(125),
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}

/// Runs the sieges one after another. 0 when every check held, 1 when one did not, 2 for a wrong order, 125 when it could not be done
/// or its report not be written.
pub fn besiege(given: &Run) -> ExitCode {
    let mut reports = Vec::new();
    match sieges(given, &mut reports) {
        Err(failure) if reports.is_empty() => failure.tell(given.output),
        ended => print(given, &reports, ended.err().as_ref()),
    }
}

/// What has come to its end is in `reports`, also when the rest does not.
fn sieges(given: &Run, reports: &mut Vec<Report>) -> Result<(), Failure> {
    let surroundings = Surroundings::look();
    let seed = given.seed.map_or_else(Seed::fresh, Seed::new);
    let scenarios: Result<Vec<_>, _> = given.scenarios.iter().map(|name| scenario(name)).collect();
    let inside = surroundings
        .beside("holdfast-chaos-inside")
        .ok_or_else(|| {
            Failure::Impossible(
                "find holdfast-chaos-inside: it has to stand beside holdfast-chaos".into(),
            )
        })?;
    let scenarios = scenarios?;
    if given.sandbox.is_some() {
        scenarios.iter().try_for_each(bears_a_guest)?;
    }
    scenarios
        .iter()
        .try_for_each(|scenario| finds_time(scenario, given.duration, seed))?;
    if let Some(directory) = &given.report {
        report::try_directory(directory).map_err(Failure::Unwritten)?;
    }
    for scenario in scenarios {
        let order = Order {
            duration: given.duration.unwrap_or(scenario.duration),
            target: target(given, &scenario, &surroundings)?,
            whole_machine: given.whole_machine,
            inside: inside.clone(),
            logs: given
                .report
                .as_ref()
                .map(|report| report.join(format!("{}-{}-logs", scenario.name, seed.number()))),
            scenario,
            seed,
        };
        announce(given, &order);
        let report = one(given, &order)?;
        let written = match &given.report {
            Some(directory) => report::write_page(directory, &report),
            None => Ok(()),
        };
        reports.push(report);
        written.map_err(Failure::Unwritten)?;
    }
    Ok(())
}

/// Refuses what makes sandboxes beside the one that is attacked: in a gateway that is somebody else's they would stay.
fn bears_a_guest(scenario: &Scenario) -> Result<(), Failure> {
    let makes = !scenario.roots.is_empty() || scenario.load.lives > 0;
    if makes || scenario.nofile.is_some() {
        let what = if makes {
            "makes sandboxes of its own"
        } else {
            "starts a gateway of its own"
        };
        let message = format!("{} {what}: run it with --self", scenario.name);
        return Err(Failure::Usage(message));
    }
    Ok(())
}

/// Refuses a siege whose time, as the command line has it, is too short for each of its faults.
fn finds_time(scenario: &Scenario, duration: Option<Duration>, seed: Seed) -> Result<(), Failure> {
    let duration = duration.unwrap_or(scenario.duration);
    if !scenario.faults.is_empty() && schedule(scenario, seed, duration).is_empty() {
        let message = format!(
            "no fault of {} is made and undone within {duration:?} with seed {}: give a longer --duration, or another --seed",
            scenario.name,
            seed.number()
        );
        return Err(Failure::Usage(message));
    }
    Ok(())
}

fn scenario(name: &str) -> Result<Scenario, Failure> {
    if let Some((_, text)) = Scenario::built_in().find(|(known, _)| *known == name) {
        return Scenario::parse(name, text)
            .map_err(|problem| Failure::Impossible(problem.to_string()));
    }
    let text = std::fs::read_to_string(name).map_err(|error| {
        let known: Vec<&str> = Scenario::built_in().map(|(known, _)| known).collect();
        let near = crate::document::nearest(name, known.iter().copied());
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known are {}", known.join(", ")),
        };
        Failure::Usage(format!("read scenario {name}: {error}; {hint}"))
    })?;
    Scenario::parse(name, &text).map_err(|problem| Failure::Usage(problem.to_string()))
}

fn target(
    given: &Run,
    scenario: &Scenario,
    surroundings: &Surroundings,
) -> Result<Target, Failure> {
    if let Some(sandbox) = &given.sandbox {
        return Ok(Target::Other {
            socket: surroundings.socket().map_err(Failure::Usage)?,
            sandbox: sandbox.clone(),
            server: given.connect.clone(),
        });
    }
    let holdfast = surroundings
        .holdfast()
        .ok_or_else(|| Failure::Impossible("find holdfast: set HOLDFAST_BIN to its path".into()))?;
    let home = tempfile::Builder::new()
        .prefix("holdfast-chaos-")
        .tempdir_in("/tmp");
    let home =
        home.map_err(|error| Failure::Impossible(format!("create a private directory: {error}")))?;
    let fills = scenario
        .faults
        .iter()
        .any(|breakage| breakage.fault == Fault::DiskFull);
    let small_disk = fills && surroundings::small_disk(&home.path().join("s"));
    Ok(Target::Own {
        holdfast,
        home: Arc::new(Mutex::new(Some(home))),
        small_disk,
    })
}

/// Says what will be done to whom before anything is.
fn announce(given: &Run, order: &Order) {
    if given.quiet {
        return;
    }
    let mut out = io::stderr().lock();
    let whom = match &order.target {
        Target::Own { .. } => "a sandbox of its own".to_owned(),
        Target::Other {
            sandbox, socket, ..
        } => format!("the sandbox {sandbox} at {}", socket.display()),
    };
    let _nobody_looks = writeln!(
        out,
        "{} on {whom}, seed {}, for {} s:",
        order.scenario.name,
        order.seed.number(),
        order.duration.as_secs()
    );
    for breakage in &order.scenario.faults {
        let _nobody_looks = writeln!(out, "  {}", breakage.fault);
    }
    let load = order.scenario.load;
    let _nobody_looks = writeln!(
        out,
        "  load: {} execs a second, {} connections held, {} made a second, {} sandboxes that come and go",
        load.execs, load.connections, load.flood, load.lives
    );
}

fn one(given: &Run, order: &Order) -> Result<Report, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::Impossible(format!("start the runtime: {error}")))?;
    let outcome = runtime.block_on(async {
        let live = Live {
            scenario: order.scenario.name.clone(),
            seed: order.seed,
            duration: order.duration,
            quiet: given.quiet,
        };
        let (sender, started) = tokio::sync::oneshot::channel();
        let siege = run(order, |journal, plan| {
            let _nobody_draws = sender.send((journal.clone(), plan.to_vec()));
        });
        let drawing = async {
            match started.await {
                Ok((journal, plan)) => live.draw(&journal, &plan).await,
                Err(_never_started) => std::future::pending().await,
            }
        };
        tokio::select! {
            report = siege => report.map_err(Failure::Impossible),
            () = drawing => Err(Failure::Impossible("show the siege".into())),
            number = interrupted() => Err(Failure::Interrupted(number)),
        }
    });
    // What still runs is ours and is dropped with it: everything is undone here, however it ended.
    runtime.shutdown_timeout(Duration::from_secs(5));
    outcome
}

/// The first signal that asks us to end.
async fn interrupted() -> i32 {
    match Signals::listen(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]) {
        Ok(mut ends) => ends.next().await,
        // Then they do what they always do.
        Err(_deaf) => std::future::pending().await,
    }
}

/// Prints what came to its end, then why the rest did not.
fn print(given: &Run, reports: &[Report], failure: Option<&Failure>) -> ExitCode {
    let mut out = io::stdout().lock();
    let written = if given.output == Format::Json {
        serde_json::to_string(&Document::of(reports, failure.map(Failure::document)))
            .map_err(io::Error::from)
            .and_then(|text| writeln!(out, "{text}"))
    } else {
        reports
            .iter()
            .try_for_each(|report| out.write_all(report::table(report).as_bytes()))
    };
    if let Some(failure) = failure {
        failure.say();
    }
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::from(125),
        Ok(()) | Err(_) => ExitCode::from(code(reports.iter().all(Report::passed), failure)),
    }
}

/// A check that did not hold outweighs a report that was not written, and a signal both.
fn code(passed: bool, failure: Option<&Failure>) -> u8 {
    match failure {
        Some(failure) if passed || matches!(failure, Failure::Interrupted(_)) => failure.code(),
        None if passed => 0,
        Some(_) | None => 1,
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    span(text)
        .filter(|span| !span.is_zero())
        .ok_or_else(|| "write 500ms, 30s or 5m".to_owned())
}

fn server(text: &str) -> Result<(String, u16), String> {
    text.rsplit_once(':')
        .and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)))
        .ok_or_else(|| "write HOST:PORT".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_told_although_its_report_cannot_be_written() {
        let unwritten = Failure::Unwritten("write r: no room".into());
        let document = Document::of(&[], Some(unwritten.document()));
        let document = serde_json::to_value(document).expect("it is JSON");

        assert_eq!(document["error"]["code"], "DATA_LOSS");
        assert_eq!(document["sieges"], serde_json::json!([]));
        assert_eq!(code(true, Some(&unwritten)), 125);
        assert_eq!(code(false, Some(&unwritten)), 1);
        assert_eq!(code(false, Some(&Failure::Interrupted(2))), 130);
        assert_eq!((code(true, None), code(false, None)), (0, 1));
    }
}
