//! `holdfast create`: a sandbox that lasts.
//!
//! ```text
//! Asking ──acknowledged──> its name is printed
//!             └─ --wait ─> Waiting ──ready──> its name is printed
//!                             │ signal: deleted again, 128+N
//!                             └ it fails: kept, so that its logs can be read; 125
//! ```

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use holdfast_policy::Policy;
use holdfast_wire::v1;
use holdfast_wire::v1::Phase;
use nix::sys::resource::{Resource, getrlimit};
use tokio::time::timeout;

use super::{request, status, wait, words};
use crate::cli::OnLinkLoss;
use crate::cli::sandboxes::{Create, Goal, Restart};
use crate::client::{self, Client, refused};
use crate::config::Config;
use crate::failure::{Failure, Kind};
use crate::output;
use crate::policy::source;
use crate::run::environment;
use crate::run::request as paths;
use crate::session::signals::Ends;
use crate::table::fitting;

/// Creates a sandbox, and prints its name.
pub(crate) fn create(arguments: Create, config: &Config, quiet: bool) -> Result<ExitCode, Failure> {
    let waits = arguments.wait;
    let name = arguments.name.clone();
    let asked = assemble(arguments, config)?;
    client::on_runtime(async {
        let mut ends = Ends::listen()
            .map_err(|error| Failure::caused(Kind::Internal, "listen for signals", &error))?;
        let client = tokio::select! {
            reached = client::reach(config) => reached?,
            signal = ends.next() => return Err(Failure::interrupted(signal)),
        };
        // From here on it may exist: whoever interrupts us wants it gone again.
        let mut asking = client.clone();
        let work = async {
            let answer = asking.create(asked).await;
            answer.map_err(|status| refused(&status))?;
            if waits {
                ready(&mut asking, &name, quiet).await?;
            }
            Ok(())
        };
        let outcome = tokio::select! {
            outcome = work => outcome,
            signal = ends.next() => Err(Failure::interrupted(signal)),
        };
        if let Err(failure) = &outcome
            && let Kind::Interrupted(_) = failure.kind()
        {
            undo(client, &name).await;
        }
        outcome?;
        output::text(&format!("{name}\n"))?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Waits until it is ready; a program that has ended by then was ready before.
async fn ready(client: &mut Client, name: &str, quiet: bool) -> Result<(), Failure> {
    let mut last = None;
    let mut progress = Progress::new(quiet);
    let mut watching = client.clone();
    let waited = tokio::select! {
        waited = wait::reached(client, name, Goal::Ready, &mut last) => waited,
        never = progress.show(&mut watching, name) => never,
    };
    progress.clear();
    match waited {
        Err(_) if last.as_ref().is_some_and(has_run) => Ok(()),
        Err(failure) if failure.kind() == Kind::NotReached => Err(failure.hint(format!(
            "`holdfast logs {name}` says what happened; `holdfast delete {name}` removes it"
        ))),
        other => other,
    }
}

fn has_run(status: &v1::Status) -> bool {
    status.phase() == Phase::Stopped && status.reason == "MainExited"
}

/// Deletes what was half made. Bounded: whoever pressed Ctrl-C wants to leave.
async fn undo(mut client: Client, name: &str) {
    let request = v1::DeleteRequest {
        sandbox: name.to_owned(),
        force: true,
    };
    let _told_by_the_list = timeout(UNDOING, client.delete(request)).await;
}

/// One line on stderr that is drawn again and again, for a person who waits.
struct Progress {
    shown: bool,
}

impl Progress {
    fn new(quiet: bool) -> Self {
        Self {
            shown: !quiet && io::stderr().is_terminal(),
        }
    }

    /// Shows each change; never ends by itself.
    async fn show(&mut self, client: &mut Client, name: &str) -> Result<(), Failure> {
        if self.shown
            && let Ok(changes) = client.watch(request(name)).await
        {
            let mut changes = changes.into_inner();
            while let Ok(Some(status)) = changes.message().await {
                let phase = words::phase(status.phase());
                let line = format!("{name}: {phase} {}", status::first_false(&status));
                let _unseen = write!(io::stderr(), "\r\x1b[K{}", fitting(&line, NARROW));
            }
        }
        std::future::pending().await
    }

    fn clear(&self) {
        if self.shown {
            let _unseen = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Everything the gateway has to know, checked here first: paths and the environment are the caller's.
fn assemble(arguments: Create, config: &Config) -> Result<v1::CreateRequest, Failure> {
    let policy_text = arguments.policy.as_deref().map(source::text).transpose()?;
    let policy = match (&arguments.policy, &policy_text) {
        (Some(path), Some(text)) => source::parse(path, text)?,
        _ => Policy::standard(),
    };
    let rootfs = arguments.rootfs.as_deref().map(paths::root).transpose()?;
    let directory = paths::directory(arguments.cwd.as_deref(), rootfs.as_deref())?;
    let callers = std::env::current_dir().ok().filter(|_| rootfs.is_none());
    let workdir = callers.unwrap_or_else(|| directory.clone());
    let person = paths::person(&policy, rootfs.as_deref());
    let environment = environment::assemble(config, &arguments.env, &person)?;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)
        .map_err(|errno| Failure::caused(Kind::Internal, "read the descriptor limit", &errno))?;
    Ok(v1::CreateRequest {
        name: arguments.name,
        policy: policy_text.unwrap_or_default(),
        policy_name: arguments
            .policy
            .map_or_else(String::new, |path| path.display().to_string()),
        rootfs: rootfs.map_or_else(Vec::new, bytes),
        directory: bytes(directory),
        workdir: bytes(workdir),
        environment: joined(&environment),
        arguments: arguments
            .command
            .into_iter()
            .map(OsString::into_vec)
            .collect(),
        restart: restart(arguments.restart).into(),
        labels: arguments.label.into_iter().collect(),
        descriptors_soft: soft,
        descriptors_hard: hard,
        on_link_loss: arguments.on_link_loss.map_or("", link_loss).to_owned(),
    })
}

fn bytes(path: PathBuf) -> Vec<u8> {
    path.into_os_string().into_vec()
}

/// `NAME=value` each.
pub(super) fn joined(environment: &[(OsString, OsString)]) -> Vec<Vec<u8>> {
    let joined =
        |(name, value): &(OsString, OsString)| [name.as_bytes(), value.as_bytes()].join(&b'=');
    environment.iter().map(joined).collect()
}

fn restart(when: Restart) -> v1::RestartPolicy {
    match when {
        Restart::Never => v1::RestartPolicy::Never,
        Restart::OnFailure => v1::RestartPolicy::OnFailure,
        Restart::Always => v1::RestartPolicy::Always,
    }
}

fn link_loss(what: OnLinkLoss) -> &'static str {
    match what {
        OnLinkLoss::Continue => "continue",
        OnLinkLoss::Freeze => "freeze",
    }
}

/// How long the deletion of something half made may take.
const UNDOING: Duration = Duration::from_secs(10);

/// Progress is short: a line that wraps cannot be drawn again.
const NARROW: usize = 72;
