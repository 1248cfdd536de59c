//! The command line: what can be written, and what is said when it is wrong.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{
    ArgGroup, Args, ColorChoice, CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    ValueEnum,
};
use clap_complete::Shell;
use holdfast_observability as observability;

use crate::config::Config;
use crate::failure::{Failure, Kind};
use crate::output::{self, Format};
use crate::{completions, doctor, gateway, keeper, manual, policy, run, sandbox, version};

pub(crate) mod sandboxes;
mod values;

/// Runs long-lived agents in a truthful, self-healing sandbox.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// Say nothing on stderr but errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Leave the terminal's session first; for a gateway that is started in the background
    #[arg(long, hide = true)]
    pub(crate) own_session: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one program in a sandbox, in the foreground; exits with its status
    Run(Run),
    /// Serve this host's sandboxes: registry, API, health
    Gateway(gateway::Arguments),
    /// Keep one sandbox: started by the gateway, with a directory that it has prepared
    #[command(hide = true)]
    Keeper {
        /// Where the sandbox's spec and sockets are
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Create a sandbox that lasts
    Create(sandboxes::Create),
    /// List sandboxes
    List(sandboxes::List),
    /// Say how a sandbox stands
    Status(sandboxes::Status),
    /// Wait until a sandbox is where it should be
    Wait(sandboxes::Wait),
    /// Run a program in a sandbox; exits with its status
    Exec(sandboxes::Exec),
    /// Go on reading a session, and writing to it
    Attach(sandboxes::Attach),
    /// List the sessions of a sandbox
    Sessions(sandboxes::Named),
    /// Send a signal to a session
    Kill(sandboxes::Kill),
    /// End a sandbox's processes; the sandbox can be started again
    Stop(sandboxes::Stop),
    /// Start a sandbox that is stopped
    Start(sandboxes::Name),
    /// Stop a sandbox and start it again
    Restart(sandboxes::Stop),
    /// Remove a sandbox and all that it left
    Delete(sandboxes::Delete),
    /// Print what a sandbox's processes have logged
    Logs(sandboxes::Logs),
    /// Draw the supervision trees of a sandbox
    Tree(sandboxes::Named),
    /// Check policies, ask what they say, and put them in force
    Policy {
        #[command(subcommand)]
        command: Policy,
    },
    /// Print one verdict in full
    Why(sandboxes::Why),
    /// Copy files into a sandbox or out of it
    Cp(sandboxes::Copy),
    /// Carry connections to a port of a sandbox's own loopback
    Forward(sandboxes::Forward),
    /// Tell what this host can enforce, and how to fix what it cannot
    Doctor(Output),
    /// Print what a shell needs to complete this command line
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write manual pages into a directory
    Man {
        /// The directory
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Say which version this is
    Version(Output),
}

/// How the result looks.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Output {
    /// Print the result as text or as one JSON document
    #[arg(short, long = "output", value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// What the program may do; without it: system directories read-only, the working directory and a private /tmp
    /// read-write, no network
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Name of the sandbox, in audit records
    #[arg(long, value_name = "N", value_parser = values::name)]
    pub(crate) name: Option<String>,
    /// Start the view from this directory instead of the host's root
    #[arg(long, value_name = "DIR")]
    pub(crate) rootfs: Option<PathBuf>,
    /// Working directory of the program; the caller's if not given
    #[arg(long, value_name = "D")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set a variable of the program's environment, or pass the caller's value of K
    #[arg(long, value_name = "K=V|K")]
    pub(crate) env: Vec<OsString>,
    /// Give the program a terminal, even when ours is none
    #[arg(short = 't', long = "terminal")]
    pub(crate) terminal: bool,
    /// End the program and all that it started after this long: 500ms, 30s, 5m, 2h
    #[arg(long, value_name = "D", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) timeout: Option<Duration>,
    /// What happens to the program while its keeper is away; the policy's word if not given
    #[arg(long, value_name = "WHAT")]
    pub(crate) on_link_loss: Option<OnLinkLoss>,
    /// Append one JSON line per verdict to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) audit: Option<PathBuf>,
    /// Log to stderr from this level on: off, error, warn, info, debug, trace; warn if not given
    #[arg(long, value_name = "LEVEL", conflicts_with = "quiet")]
    pub(crate) log_level: Option<observability::Level>,
    /// Log as text or json
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: observability::Format,
    /// The program and its arguments, passed as they are; no shell
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLinkLoss {
    /// The program goes on computing
    Continue,
    /// The program is stopped until the keeper is back
    Freeze,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Policy {
    /// Report every problem of each file, or its rules in full
    Check {
        /// Policy files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// Print the policy of a sandbox
    Get(sandboxes::GetPolicy),
    /// Put a policy in force in a sandbox
    Set(sandboxes::SetPolicy),
    /// Compare a sandbox's policy with a file
    Diff(sandboxes::DiffPolicy),
    /// Say what a policy says about one connection, and why
    Explain(Explain),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("asked").required(true).args(["name", "policy"])))]
pub(crate) struct Explain {
    /// The sandbox whose policy is asked
    #[arg(value_name = "NAME", value_parser = values::name)]
    pub(crate) name: Option<String>,
    /// The policy to ask
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Name or address to connect to
    #[arg(long, value_name = "H")]
    pub(crate) host: String,
    /// Port to connect to
    #[arg(long, value_name = "P", value_parser = values::port, allow_negative_numbers = true)]
    pub(crate) port: u16,
    /// Executable that connects; without it only rules that name no binaries apply
    #[arg(long, value_name = "B")]
    pub(crate) binary: Option<String>,
    /// Method of the request
    #[arg(long, value_name = "M")]
    pub(crate) method: Option<String>,
    /// Path of the request
    #[arg(long, value_name = "P")]
    pub(crate) path: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Reads the arguments, the program's own name first. `None`: they asked for help or the version, which is told.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Option<Cli>, Failure> {
    // Whatever the environment says: what is no terminal gets no colours.
    let colours = if io::stdout().is_terminal() {
        ColorChoice::Auto
    } else {
        ColorChoice::Never
    };
    let parsed = Cli::command()
        .color(colours)
        .try_get_matches_from(arguments)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    match parsed {
        Ok(cli) => Ok(Some(cli)),
        Err(error) if error.use_stderr() => Err(usage(&shown(error), arguments)),
        Err(asked) => {
            let printed = output::out().and_then(|mut out| {
                asked.print()?;
                out.flush()
            });
            printed.map_err(|error| Failure::output(&error))?;
            Ok(None)
        }
    }
}

/// Hands over to the command.
pub(crate) fn dispatch(cli: Cli, config: &Config) -> Result<ExitCode, Failure> {
    if cli.own_session {
        // One that leads a group already has left.
        let _left = nix::unistd::setsid();
    }
    match cli.command {
        Command::Run(arguments) => run::run(arguments, config, cli.quiet),
        Command::Gateway(arguments) => gateway::gateway(arguments, config, cli.quiet),
        Command::Keeper { directory } => keeper::keeper(&directory),
        Command::Create(arguments) => sandbox::create::create(arguments, config, cli.quiet),
        Command::List(arguments) => sandbox::list::list(&arguments, config),
        Command::Status(arguments) => sandbox::status::status(&arguments, config),
        Command::Wait(arguments) => sandbox::wait::wait(&arguments, config),
        Command::Exec(arguments) => sandbox::exec::exec(&arguments, config, cli.quiet),
        Command::Attach(arguments) => sandbox::attach::attach(&arguments, config, cli.quiet),
        Command::Sessions(arguments) => sandbox::sessions::sessions(&arguments, config),
        Command::Kill(arguments) => sandbox::sessions::kill(&arguments, config),
        Command::Stop(arguments) => sandbox::life::stop(&arguments, config),
        Command::Start(arguments) => sandbox::life::start(&arguments, config),
        Command::Restart(arguments) => sandbox::life::restart(&arguments, config),
        Command::Delete(arguments) => sandbox::life::delete(&arguments, config),
        Command::Logs(arguments) => sandbox::logs::logs(&arguments, config),
        Command::Tree(arguments) => sandbox::tree::tree(&arguments, config),
        Command::Policy { command } => match command {
            Policy::Check { files, output } => {
                policy::check(&files, output.output, config, cli.quiet)
            }
            Policy::Get(arguments) => policy::remote::get(&arguments, config),
            Policy::Set(arguments) => policy::remote::set(&arguments, config, cli.quiet),
            Policy::Diff(arguments) => policy::remote::diff(&arguments, config),
            Policy::Explain(question) => policy::explain(&question, config),
        },
        Command::Why(arguments) => sandbox::why::why(&arguments, config),
        Command::Cp(arguments) => sandbox::copy::copy(&arguments, config),
        Command::Forward(arguments) => sandbox::forward::forward(&arguments, config, cli.quiet),
        Command::Man { directory } => manual::manual(&directory),
        Command::Doctor(output) => doctor::doctor(output.output),
        Command::Completions { shell } => completions::completions(shell),
        Command::Version(output) => version::version(output.output),
    }
}

/// Whether a JSON document was asked for; needed where the arguments as a whole make no sense.
pub(crate) fn wants_json(arguments: &[OsString]) -> bool {
    let ours = arguments.iter().take_while(|argument| *argument != "--");
    let ours: Vec<&[u8]> = ours.map(|argument| argument.as_bytes()).collect();
    let following = ours.iter().skip(1).map(Some).chain([None]);
    ours.iter().zip(following).any(|(argument, next)| {
        let value = match argument.strip_prefix(b"--output".as_slice()) {
            Some(rest) => Some(rest),
            None => output_of_cluster(argument),
        };
        match value {
            Some(b"") => next.is_some_and(|next| *next == b"json"),
            Some(value) => value.strip_prefix(b"=").unwrap_or(value) == b"json",
            None => false,
        }
    })
}

/// What follows the `o` of `-o`, `-qo`, `-qojson`: the flags before it take no value.
fn output_of_cluster(argument: &[u8]) -> Option<&[u8]> {
    let cluster = argument.strip_prefix(b"-")?;
    let at = cluster.iter().position(|letter| *letter == b'o')?;
    let (flags, output) = cluster.split_at(at);
    let are_flags = flags.iter().all(|flag| FLAGS.contains(flag));
    are_flags.then(|| &output[1..])
}

/// The letters that take no value: quiet, terminal, input, follow, help, version.
const FLAGS: &[u8] = b"qtifhV";

/// The same without the commands that nobody is to be offered.
fn shown(mut error: clap::Error) -> clap::Error {
    let hidden: Vec<String> = Cli::command()
        .get_subcommands()
        .filter(|command| command.is_hide_set())
        .map(|command| command.get_name().to_owned())
        .collect();
    for kind in [
        ContextKind::ValidSubcommand,
        ContextKind::SuggestedSubcommand,
    ] {
        if let Some(ContextValue::Strings(named)) = error.get(kind) {
            let named = named.iter().filter(|name| !hidden.contains(name)).cloned();
            let named: Vec<String> = named.collect();
            if named.is_empty() {
                error.remove(kind);
            } else {
                error.insert(kind, ContextValue::Strings(named));
            }
        }
    }
    // Without anything to suggest it would be a blank line.
    if let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested)
        && tips.is_empty()
    {
        error.remove(ContextKind::Suggested);
    }
    error
}

fn usage(error: &clap::Error, arguments: &[OsString]) -> Failure {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let message = format!("error: a command is missing\n\n{}", error.render());
        return Failure::new(Kind::Usage, message);
    }
    let failure = Failure::new(Kind::Usage, error.render().to_string());
    let running = arguments.get(1).map(OsString::as_os_str) == Some(OsStr::new("run"));
    let incomplete = matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument | ErrorKind::UnknownArgument
    );
    let separated = arguments.iter().any(|argument| argument == "--");
    if running && incomplete && !separated {
        return failure.hint("the program stands after `--`: holdfast run [OPTION]… -- CMD [ARG]…");
    }
    failure
}

#[cfg(test)]
mod tests;
