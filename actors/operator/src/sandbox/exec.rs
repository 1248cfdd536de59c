//! `holdfast exec`: a program in a sandbox that lasts; exits with its status.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::process::ExitCode;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_wire::v1;
use holdfast_wire::v1::session_input::Kind as Said;
use serde_json::{Value, json};
use uuid::Uuid;

use super::create::joined;
use super::document;
use super::life::milliseconds;
use crate::cli::sandboxes::Exec;
use crate::client::{self, Client};
use crate::config::Config;
use crate::failure::{Failure, Kind};
use crate::output::{self, Format};
use crate::run::environment;
use crate::session::Bond;
use crate::session::foreground::{self, Bounds, Ends};
use crate::session::printer::{Capture, Captured, Sink};
use crate::session::remote::{self, Carried, Manner, Part};
use crate::session::terminal::{self, Raw, Share};
use crate::times::rfc3339;

/// Runs a program in a sandbox.
pub(crate) fn exec(arguments: &Exec, config: &Config, quiet: bool) -> Result<ExitCode, Failure> {
    let start = start(arguments, config)?;
    let json = arguments.output.output == Format::Json;
    if arguments.detach {
        return client::with(config, async |client| detached(client, start, json).await);
    }
    let attended = Attended {
        sandbox: arguments.name.clone(),
        manner: Manner {
            input: arguments.input,
            bond: if arguments.terminal {
                Bond::Lent
            } else {
                Bond::Ours
            },
            screen: io::stdout().is_terminal(),
        },
        // The sandbox ends it in time; we only look after that, and a little later.
        limit: arguments.timeout.map(|limit| limit.saturating_add(SLACK)),
        raw: arguments.terminal.then_some(if arguments.input {
            Share::Whole
        } else {
            Share::Screen
        }),
        first: Said::Start(start),
        quiet,
    };
    client::on_runtime(async {
        let outcome = if json {
            captured(attended, config).await
        } else {
            let code = attended.attend(config, standard()?).await.1;
            code.map(ExitCode::from)
        };
        outcome.map_err(|failure| {
            if failure.kind() == Kind::TimedOut {
                foreground::timed_out(arguments.timeout)
            } else {
                failure
            }
        })
    })
}

/// A session that is about to be attended.
pub(super) struct Attended {
    pub(super) sandbox: String,
    pub(super) manner: Manner,
    pub(super) limit: Option<Duration>,
    /// What of our terminal is the session's meanwhile.
    pub(super) raw: Option<Share>,
    pub(super) first: Said,
    pub(super) quiet: bool,
}

impl Attended {
    /// Attends it to its end. Answers what is known of it, and our exit code.
    pub(super) async fn attend(
        self,
        config: &Config,
        ends: Ends,
    ) -> (Carried, Result<u8, Failure>) {
        let (session, opening, part) = Part::new(&self.sandbox, self.manner);
        let launching = async {
            let gone = |_| Failure::new(Kind::Internal, "open the session: nobody opened it");
            opening.await.map_err(gone)??;
            Ok(session)
        };
        let raw = self.raw.and_then(|share| Raw::enter(share, None));
        let bounds = Bounds {
            limit: self.limit,
            // What the sandbox is asked to start it starts, whether we stay or not.
            answer: match self.manner.bond {
                Bond::Ours | Bond::Lent => ANSWER,
                // Nothing is started for them that would outlast them.
                Bond::Own | Bond::Guest => Duration::ZERO,
            },
        };
        let attending = foreground::attend(launching, ends, bounds, raw);
        let carrying = async {
            match client::reach(config).await {
                Ok(client) => Ok(part.carry(client, self.first).await),
                Err(failure) => Err(failure),
            }
        };
        tokio::pin!(attending);
        let (carried, code) = tokio::select! {
            carried = carrying => match carried {
                Ok(carried) => (carried, attending.await),
                Err(failure) => (Carried::default(), Err(failure)),
            },
            code = &mut attending => (Carried::default(), code),
        };
        if carried.lost > 0 && !self.quiet {
            let _unheard = writeln!(
                io::stderr(),
                "holdfast: {} bytes of the output were overwritten before anybody read them",
                carried.lost
            );
        }
        (carried, code)
    }
}

/// Our own three ends.
pub(super) fn standard() -> Result<Ends, Failure> {
    Ends::standard()
        .map_err(|error| Failure::caused(Kind::Internal, "duplicate the standard files", &error))
}

/// Answers as soon as it runs.
async fn detached(
    mut client: Client,
    start: v1::ExecStart,
    json: bool,
) -> Result<ExitCode, Failure> {
    let name = start.sandbox.clone();
    let (_say, begun, _heard) = remote::begin(&mut client, Said::Start(start)).await?;
    let session = begun.session;
    let told = if json {
        let started = rfc3339(begun.started_ms);
        output::document(&json!({"session": session, "startedAt": started}))
    } else {
        output::text(&format!("{session}\n"))
    };
    told.map_err(|failure| failure.although(&format!("session {session} of {name} runs")))?;
    Ok(ExitCode::SUCCESS)
}

/// Keeps the output, and prints one document.
async fn captured(attended: Attended, config: &Config) -> Result<ExitCode, Failure> {
    let (output, errors) = (Capture::default(), Capture::default());
    let ends = Ends {
        output: Sink::Memory(output.clone()),
        errors: Sink::Memory(errors.clone()),
        ..standard()?
    };
    let (carried, code) = attended.attend(config, ends).await;
    let known = carried.ending.as_ref().is_some_and(is_known);
    let code = match code {
        Ok(code) => code,
        // That its time was up is an answer; that nobody knows is none.
        Err(failure) if known => failure.kind().exit(),
        Err(failure) => return Err(failure),
    };
    output::document(&document_of(
        &carried,
        code,
        [&output.take(), &errors.take()],
    ))?;
    Ok(ExitCode::from(code))
}

fn is_known(ending: &v1::Ending) -> bool {
    use v1::exit::How;
    match ending.exit.as_ref().and_then(|exit| exit.how.as_ref()) {
        Some(How::Code(_) | How::Signal(_)) => true,
        Some(How::Unknown(_)) | None => false,
    }
}

fn document_of(carried: &Carried, code: u8, [output, errors]: [&Captured; 2]) -> Value {
    let begun = carried.begun.unwrap_or_default();
    let ending = carried.ending.clone().unwrap_or_default();
    let is_text = [output, errors].map(|stream| std::str::from_utf8(&stream.bytes).is_ok());
    // Cut in the middle of a character, text is still text.
    let is_text = is_text == [true, true] || [output, errors].iter().all(|stream| cut_text(stream));
    let written = |stream: &Captured| {
        if is_text {
            let whole = valid_up_to(&stream.bytes);
            String::from_utf8_lossy(&stream.bytes[..whole]).into_owned()
        } else {
            STANDARD.encode(&stream.bytes)
        }
    };
    let cut = |stream: &Captured| stream.total > stream.bytes.len() as u64;
    let started = if ending.started_ms == 0 {
        begun.started_ms
    } else {
        ending.started_ms
    };
    json!({
        "session": begun.session,
        "exitCode": code,
        "signal": document::ending(&ending)["signal"],
        "reason": document::reason(&ending),
        "stdout": written(output),
        "stderr": written(errors),
        "encoding": if is_text { "utf-8" } else { "base64" },
        "stdoutBytes": output.total.max(ending.stdout_bytes),
        "stderrBytes": errors.total.max(ending.stderr_bytes),
        "truncated": cut(output) || cut(errors) || carried.lost > 0,
        "startedAt": rfc3339(started),
        "endedAt": rfc3339(ending.ended_ms),
        "durationMs": ending.ended_ms.saturating_sub(started).max(0),
    })
}

fn valid_up_to(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.len(),
        Err(error) => error.valid_up_to(),
    }
}

/// Whether a stream is text, but for a last character that the bound may have cut.
fn cut_text(stream: &Captured) -> bool {
    let is_cut = stream.total > stream.bytes.len() as u64;
    match std::str::from_utf8(&stream.bytes) {
        Ok(_) => true,
        Err(error) => is_cut && error.error_len().is_none(),
    }
}

fn start(arguments: &Exec, config: &Config) -> Result<v1::ExecStart, Failure> {
    let mut variables = environment::given(config, &arguments.env)?;
    let has_term = variables.iter().any(|(name, _)| name == "TERM");
    if arguments.terminal
        && !has_term
        && let Some(term) = config.variable("TERM")
    {
        // It is our terminal that the program writes to.
        variables.push(("TERM".into(), term.to_owned()));
    }
    let size = arguments.terminal.then(terminal::size);
    Ok(v1::ExecStart {
        sandbox: arguments.name.clone(),
        request: Uuid::now_v7().to_string(),
        arguments: arguments
            .command
            .iter()
            .cloned()
            .map(OsString::into_vec)
            .collect(),
        environment: joined(&variables),
        directory: arguments
            .cwd
            .clone()
            .map_or_else(Vec::new, |path| path.into_os_string().into_vec()),
        terminal: size.map(|size| v1::TerminalSize {
            rows: size.rows.into(),
            columns: size.columns.into(),
        }),
        timeout_ms: arguments.timeout.map_or(0, milliseconds),
        detach: arguments.detach,
        stdin: arguments.input,
        // The gateway says when.
        deadline_ms: 0,
    })
}

/// How long we stay after a signal to hear whether the session began.
const ANSWER: Duration = Duration::from_secs(5);

/// How much later than the sandbox we give up on a session whose time is up.
const SLACK: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
