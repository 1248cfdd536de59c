//! What can be written about sandboxes that last.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{OnLinkLoss, Output, values};

/// A sandbox.
#[derive(Debug, Args)]
pub(crate) struct Name {
    /// The sandbox
    #[arg(value_name = "NAME", value_parser = values::name)]
    pub(crate) name: String,
}

/// A sandbox, and how the result looks.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The sandbox
    #[arg(value_name = "NAME", value_parser = values::name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Name of the sandbox
    #[arg(value_name = "NAME", value_parser = values::name)]
    pub(crate) name: String,
    /// What its programs may do; without it: system directories read-only, the working directory and a private /tmp
    /// read-write, no network
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Start the view from this directory instead of the host's root
    #[arg(long, value_name = "DIR")]
    pub(crate) rootfs: Option<PathBuf>,
    /// Working directory of its programs; the caller's if not given
    #[arg(long, value_name = "D")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set a variable of its environment, or pass the caller's value of K
    #[arg(long, value_name = "K=V|K")]
    pub(crate) env: Vec<OsString>,
    /// When its program is started again after its end
    #[arg(long, value_name = "WHEN", default_value = "never")]
    pub(crate) restart: Restart,
    /// A word to find it by
    #[arg(long, value_name = "K=V", value_parser = values::label)]
    pub(crate) label: Vec<(String, String)>,
    /// Wait until it is ready
    #[arg(long)]
    pub(crate) wait: bool,
    /// What happens to its programs while their keeper is away; the policy's word if not given
    #[arg(long, value_name = "WHAT")]
    pub(crate) on_link_loss: Option<OnLinkLoss>,
    /// Its program and the arguments, passed as they are; without one it idles and serves execs
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// When a program is started again after its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Restart {
    /// Not at all
    Never,
    /// When it failed
    OnFailure,
    /// In any case
    Always,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Print a table or one JSON document
    #[arg(short, long = "output", value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Listing,
    /// Only those with this label; several: with all of them
    #[arg(long, value_name = "K=V", value_parser = values::label)]
    pub(crate) label: Vec<(String, String)>,
}

/// How a list looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Listing {
    /// For people
    Table,
    /// One JSON document
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The sandbox
    #[arg(value_name = "NAME", value_parser = values::name)]
    pub(crate) name: String,
    /// Say it again at each change, until the sandbox is deleted
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// The sandbox
    #[arg(value_name = "NAME", value_parser = values::name)]
    pub(crate) name: String,
    /// What is waited for
    #[arg(long = "for", value_name = "PHASE")]
    pub(crate) goal: Goal,
    /// Give up after this long, with code 124: 500ms, 30s, 5m, 2h
    #[arg(long, value_name = "D", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) timeout: Option<Duration>,
}

/// What can be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Goal {
    /// Every condition is true
    Ready,
    /// It lives, and something is being healed
    Degraded,
    /// Its processes have ended
    Stopped,
    /// It was given up
    Failed,
}

#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// The sandbox
    #[arg(value_name = "NAME", value_parser = values::name)]
    pub(crate) name: String,
    /// Pass our input on; without it the program's input is empty
    #[arg(short = 'i', long = "interactive")]
    pub(crate) input: bool,
    /// Give the program a terminal
    #[arg(short = 't', long = "terminal", visible_alias = "tty")]
    pub(crate) terminal: bool,
    /// Set a variable of the program's environment, or pass the caller's value of K
    #[arg(long, value_name = "K=V|K")]
    pub(crate) env: Vec<OsString>,
    /// Working directory of the program; the sandbox's if not given
    #[arg(long, value_name = "D")]
    pub(crate) cwd: Option<PathBuf>,
    /// End the program and all that it started after this long: 500ms, 30s, 5m, 2h
    #[arg(long, value_name = "D", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) timeout: Option<Duration>,
    /// Print the session's number and leave it running; with -i its input stays open for `attach -i`
    #[arg(long)]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    /// The program and its arguments, passed as they are; no shell
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// The sandbox
    #[arg(value_name = "NAME", value_parser = values::name)]
    pub(crate) name: String,
    /// The session's number
    #[arg(value_name = "SESSION", value_parser = values::session)]
    pub(crate) session: u64,
    /// The first byte of its output that is wanted
    #[arg(long, value_name = "OFFSET", default_value_t = 0, value_parser = values::offset, allow_negative_numbers = true)]
    pub(crate) from: u64,
    /// Pass our input on, though it is no terminal
    #[arg(short = 'i', long = "interactive")]
    pub(crate) input: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Kill {
    /// The sandbox
    #[arg(value_name = "NAME", value_parser = values::name)]
    pub(crate) name: String,
    /// The session's number
    #[arg(value_name = "SESSION", value_parser = values::session)]
    pub(crate) session: u64,
    /// The signal, by name or number
    #[arg(long, value_name = "S", default_value = "TERM", value_parser = values::signal, allow_hyphen_values = true)]
    pub(crate) signal: i32,
}

#[derive(Debug, Args)]
pub(crate) struct Stop {
    /// The sandbox
    #[arg(value_name = "NAME", value_parser = values::name)]
    pub(crate) name: String,
    /// Between TERM and KILL
    #[arg(long, value_name = "D", default_value = "10s", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The sandbox
    #[arg(value_name = "NAME", value_parser = values::name)]
    pub(crate) name: String,
    /// Though it runs
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The sandbox
    #[arg(value_name = "NAME", value_parser = values::name)]
    pub(crate) name: String,
    /// Go on with what is logged from now on
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
    /// Only what is not older: 30s, 5m, 2h
    #[arg(long, value_name = "D", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) since: Option<Duration>,
    /// Only what this process logged, or the verdicts; all if not given
    #[arg(long, value_name = "SOURCE", value_delimiter = ',')]
    pub(crate) source: Vec<Source>,
    /// Only lines of this level and above
    #[arg(long, value_name = "LEVEL")]
    pub(crate) level: Option<Level>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Who logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Source {
    /// The process that serves the sandbox
    Keeper,
    /// The process at its fence
    Boundary,
    /// The program itself
    Workload,
    /// The verdicts
    Audit,
}

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// An operator must act
    Error,
    /// Something is being dealt with
    Warn,
    /// What happens
    Info,
    /// Everyday races too
    Debug,
    /// Everything
    Trace,
}

#[derive(Debug, Args)]
pub(crate) struct GetPolicy {
    /// The sandbox
    #[arg(value_name = "NAME", value_parser = values::name)]
    pub(crate) name: String,
    /// This revision; the one in force if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) revision: Option<u64>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct SetPolicy {
    /// The sandbox
    #[arg(value_name = "NAME", value_parser = values::name)]
    pub(crate) name: String,
    /// The policy
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Wait until it is in force
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct DiffPolicy {
    /// The sandbox
    #[arg(value_name = "NAME", value_parser = values::name)]
    pub(crate) name: String,
    /// The policy to compare with
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// The decision's id, as denials and audit records have it
    #[arg(value_name = "DECISION", value_parser = values::decision)]
    pub(crate) decision: String,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Copy {
    /// NAME:PATH, a path of this host, or - for a tar stream on stdin
    #[arg(value_name = "SRC")]
    pub(crate) source: OsString,
    /// NAME:PATH, a path of this host, or - for a tar stream on stdout
    #[arg(value_name = "DST")]
    pub(crate) destination: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct Forward {
    /// The sandbox
    #[arg(value_name = "NAME", value_parser = values::name)]
    pub(crate) name: String,
    /// The port here, 0 for any that is free, and the port there
    #[arg(value_name = "LOCAL:REMOTE", value_parser = values::ports)]
    pub(crate) ports: (u16, u16),
}
