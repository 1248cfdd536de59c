//! `holdfast create`: a sandbox that lasts.
//!
//! ```text
//! Asking ──acknowledged──> its name is printed: it stays
//!   │         └─ --wait ─> Waiting ──ready, or its program has ended well──> its name is printed: it stays
//!   │ signal: the answer   │   │ signal: deleted again, 128+N
//!   │ is awaited, what     │   ├ nothing of it ever ran, nor will: deleted again; 127, 126, 125
//!   │ was made is deleted  │   └ it ended otherwise, or is tried again: kept, with its logs; 125, 127, 126
//!   └──> 128+N
//! ```

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::FutureExt as _;
use holdfast_policy::Policy;
use holdfast_wire::v1;
use holdfast_wire::v1::Phase;
use holdfast_wire::v1::exit::How;
use nix::sys::resource::{Resource, getrlimit};
use tokio::time::timeout;

use self::made::Made;
use super::wait::Standing;
use super::{look, request, status, wait, words};
use crate::cli::OnLinkLoss;
use crate::cli::sandboxes::{Create, Goal, Restart};
use crate::client::{self, Client, is_lost, unanswered};
use crate::config::Config;
use crate::failure::{Failure, Kind};
use crate::output;
use crate::policy::source;
use crate::run::environment;
use crate::run::request as paths;
use crate::session::signals::Ends;
use crate::table::fitting;

mod made;

/// Creates a sandbox, and prints its name.
pub(crate) fn create(arguments: Create, config: &Config, quiet: bool) -> Result<ExitCode, Failure> {
    let waits = arguments.wait;
    let is_tried_once = arguments.restart == Restart::Never;
    let name = arguments.name.clone();
    let asked = assemble(arguments, config)?;
    client::on_runtime(async {
        let mut ends = Ends::listen()
            .map_err(|error| Failure::caused(Kind::Internal, "listen for signals", &error))?;
        let mut client = tokio::select! {
            reached = client::reach(config) => reached?,
            signal = ends.next() => return Err(Failure::interrupted(signal)),
        };
        if let Some(signal) = ends.next().now_or_never() {
            return Err(Failure::interrupted(signal));
        }
        let has_program = !asked.arguments.is_empty();
        let made = asking(&client, asked, &name, &mut ends).await?;
        // From here on it exists: whoever interrupts us before it has a name wants it gone again.
        let work = async {
            if !waits {
                return Ok(());
            }
            let mut last = None;
            let outcome = ready((&mut client, config), &name, quiet, &mut last).await;
            match (outcome, last) {
                (Err(failure), Some(last)) if is_void(&last, has_program, is_tried_once) => {
                    Err(made.with(client.clone()).removed(failure).await)
                }
                (outcome, _) => outcome,
            }
        };
        let outcome = tokio::select! {
            biased;
            signal = ends.next() => Err(signal),
            outcome = work => Ok(outcome),
        };
        match outcome {
            Ok(outcome) => outcome?,
            Err(signal) => return Err(made.undone(signal).await),
        }
        let told = output::text(&format!("{name}\n"));
        told.map_err(|failure| failure.although(&format!("sandbox {name} exists")))?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Asks for it until the gateway has answered. A request that is on its way cannot be called back: after a signal its
/// answer is awaited all the same, since only what this request has made may be deleted.
async fn asking(
    client: &Client,
    request: v1::CreateRequest,
    name: &str,
    ends: &mut Ends,
) -> Result<Made, Failure> {
    let mut asker = client.clone();
    let answered = asker.create(request);
    tokio::pin!(answered);
    let made = |status: tonic::Response<v1::Status>| Made {
        client: client.clone(),
        name: name.to_owned(),
        id: status.into_inner().id,
    };
    let signal = tokio::select! {
        answer = &mut answered => {
            return answer.map(made).map_err(|status| unanswered(&status, look(name)));
        }
        signal = ends.next() => signal,
    };
    match timeout(ACKNOWLEDGED, answered).await {
        Ok(Ok(status)) => Err(made(status).undone(signal).await),
        Ok(Err(status)) if is_lost(&status) => Err(left(name, signal, "the gateway went away")),
        Ok(Err(_refused)) => Err(Failure::interrupted(signal)),
        Err(_late) => Err(left(name, signal, "the gateway does not answer")),
    }
}

/// A signal ended us, and nobody knows what became of the sandbox.
fn left(name: &str, signal: i32, why: &str) -> Failure {
    let ended = Failure::interrupted(signal);
    let message = format!("{}; {name} may be there: {why}", ended.message());
    Failure::new(ended.kind(), message).hint(format!(
        "`holdfast status {name}` shows it; `holdfast delete {name} --force` removes it"
    ))
}

/// Waits until it is ready, or its program has ended well before that.
async fn ready(
    (client, config): (&mut Client, &Config),
    name: &str,
    quiet: bool,
    last: &mut Option<v1::Status>,
) -> Result<(), Failure> {
    let mut progress = Progress::new(quiet);
    let mut watching = client.clone();
    let way = (client, config, client::ANSWER);
    let waited = tokio::select! {
        waited = wait::reached(way, name, (Goal::Ready, standing), last) => waited,
        never = progress.show(&mut watching, name) => never,
    };
    progress.clear();
    waited.map_err(|failure| {
        let failure = match last.as_ref().and_then(|last| unstarted(name, last)) {
            Some(unstarted) => unstarted,
            None if failure.kind() == Kind::NotReached => failure,
            None if failure.kind() == Kind::Unreachable => {
                return failure.although(&format!("sandbox {name} exists"));
            }
            None => return failure,
        };
        let over = |last: &v1::Status| last.phase() == Phase::Deleting;
        if last.as_ref().is_none_or(over) {
            return failure;
        }
        hinting(
            failure,
            &format!(
                "`holdfast logs {name}` says what happened; `holdfast delete {name}` removes it"
            ),
        )
    })
}

/// Where it stands on the way to being ready. A program that could not be started is not waited for, even when it is tried
/// again; one that ended well has been what was wanted.
fn standing(status: &v1::Status) -> Standing {
    let exit = status.main.as_ref().and_then(|main| main.exit.as_ref());
    let ended_well = exit.and_then(|exit| exit.how.as_ref()) == Some(&How::Code(0));
    match status.phase() {
        Phase::Stopped if status.reason == "MainExited" && ended_well => Standing::Reached,
        Phase::Pending | Phase::Ready | Phase::Degraded if unstarted("", status).is_some() => {
            Standing::Never("its main process could not be started".to_owned())
        }
        Phase::Unspecified
        | Phase::Pending
        | Phase::Ready
        | Phase::Degraded
        | Phase::Failed
        | Phase::Stopped
        | Phase::Deleting => wait::judge(status, Goal::Ready),
    }
}

/// The failure to start its main process, if that is what its status tells.
fn unstarted(name: &str, status: &v1::Status) -> Option<Failure> {
    let main = status.main.as_ref()?;
    let kind = match main.reason.as_str() {
        "ProgramNotFound" => Kind::ProgramNotFound,
        "ProgramNotExecutable" => Kind::ProgramNotExecutable,
        _ => return None,
    };
    let why = match main.exit.as_ref().and_then(|exit| exit.how.as_ref()) {
        Some(How::Unknown(why)) => why.as_str(),
        Some(How::Code(_) | How::Signal(_)) | None => &status.message,
    };
    let message = format!("start the main process of {name}: {why}");
    let failure = Failure::new(kind, message);
    Some(match main.hint.as_str() {
        "" => failure,
        hint => failure.hint(hint),
    })
}

/// The failure with one hint more.
fn hinting(failure: Failure, hint: &str) -> Failure {
    let hint = match failure.advice() {
        Some(advice) => format!("{advice}; {hint}"),
        None => hint.to_owned(),
    };
    failure.hint(hint)
}

/// Whether nothing of it ever ran, nor will by itself: then there is nothing in it that anybody could want.
fn is_void(status: &v1::Status, has_program: bool, is_tried_once: bool) -> bool {
    let never_ran = match &status.main {
        Some(main) => match main.exit.as_ref().and_then(|exit| exit.how.as_ref()) {
            Some(How::Code(_) | How::Signal(_)) => false,
            // What ran and was lost has another reason than why it was not started, or none.
            Some(How::Unknown(_)) | None => !matches!(main.reason.as_str(), "" | "BoundaryLost"),
        },
        None => !has_program || status.reason != "BoundaryLost",
    };
    let will_not = match status.phase() {
        Phase::Failed => true,
        Phase::Unspecified | Phase::Pending | Phase::Ready | Phase::Degraded => is_tried_once,
        // An idle one was stopped by somebody, whose it is now.
        Phase::Stopped => is_tried_once && has_program,
        Phase::Deleting => false,
    };
    never_ran && will_not
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
        labels: labels(arguments.label)?,
        descriptors_soft: soft,
        descriptors_hard: hard,
        on_link_loss: arguments.on_link_loss.map_or("", link_loss).to_owned(),
    })
}

/// Each key once.
fn labels(given: Vec<(String, String)>) -> Result<HashMap<String, String>, Failure> {
    let mut labels = HashMap::new();
    for (key, value) in given {
        if let Some(before) = labels.get(&key) {
            let message =
                format!("read --label {key}={value}: there is --label {key}={before} already");
            return Err(Failure::new(Kind::Usage, message).hint("a label has one value"));
        }
        labels.insert(key, value);
    }
    Ok(labels)
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

/// How long a request that nobody wants any more may take to be answered.
const ACKNOWLEDGED: Duration = Duration::from_secs(5);

/// Progress is short: a line that wraps cannot be drawn again.
const NARROW: usize = 72;

#[cfg(test)]
mod tests {
    use super::*;

    fn status(phase: Phase, how: How, reason: &str) -> v1::Status {
        v1::Status {
            phase: phase.into(),
            reason: "MainExited".into(),
            main: Some(v1::Ending {
                exit: Some(v1::Exit { how: Some(how) }),
                reason: reason.into(),
                hint: "look".into(),
                ..v1::Ending::default()
            }),
            ..v1::Status::default()
        }
    }

    #[test]
    fn an_end_before_it_is_ready_is_a_success_only_when_it_is_one() {
        let stopped = |how| standing(&status(Phase::Stopped, how, ""));

        assert_eq!(stopped(How::Code(0)), Standing::Reached);
        for how in [How::Code(1), How::Signal(9), How::Unknown(String::new())] {
            assert!(matches!(stopped(how), Standing::Never(_)));
        }
        assert!(matches!(
            standing(&status(Phase::Failed, How::Code(0), "")),
            Standing::Never(_)
        ));
    }

    /// EX-10: what is missing and what cannot run are two answers.
    #[test]
    fn a_main_process_that_could_not_be_started_has_its_own_codes() {
        for (reason, code) in [("ProgramNotFound", 127), ("ProgramNotExecutable", 126)] {
            for phase in [Phase::Stopped, Phase::Failed, Phase::Pending] {
                let status = status(
                    phase,
                    How::Unknown("find /nope: no (os error 2)".into()),
                    reason,
                );

                let failure = unstarted("qa", &status).expect("is told");

                assert_eq!(failure.kind().exit(), code);
                assert!(failure.message().ends_with("qa: find /nope: no"));
                assert_eq!(failure.advice(), Some("look"));
                let failure = hinting(failure, "its name is free");
                assert_eq!(failure.advice(), Some("look; its name is free"));
                assert!(matches!(standing(&status), Standing::Never(_)));
            }
        }
        assert!(unstarted("qa", &status(Phase::Stopped, How::Code(3), "")).is_none());
    }

    #[test]
    fn a_label_that_is_given_twice_is_refused_with_both() {
        let given = |pairs: &[(&str, &str)]| {
            let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
            labels(pairs.iter().map(owned).collect())
        };

        let refused = given(&[("x", "1"), ("y", "1"), ("x", "2")]).expect_err("twice");

        assert_eq!(refused.kind(), Kind::Usage);
        assert!(refused.message().contains("x=2") && refused.message().contains("x=1"));
        assert_eq!(given(&[("x", "1"), ("y", "1")]).expect("once").len(), 2);
    }

    #[test]
    fn only_what_never_ran_and_never_will_is_void() {
        let lost = || How::Unknown(String::new());
        let void = |phase, how, reason| is_void(&status(phase, how, reason), true, true);

        assert!(void(Phase::Pending, lost(), "ProgramNotFound"));
        assert!(void(Phase::Stopped, lost(), "DirectoryNotFound"));
        for (how, reason) in [
            (How::Code(3), ""),
            (How::Signal(9), "Killed"),
            (lost(), "BoundaryLost"),
            (lost(), ""),
        ] {
            assert!(!void(Phase::Failed, how, reason), "{reason}");
        }
        let again = status(Phase::Pending, lost(), "ProgramNotFound");
        assert!(!is_void(&again, true, false), "it is tried again");

        let idle = |phase: Phase, reason: &str| {
            let status = v1::Status {
                phase: phase.into(),
                reason: reason.into(),
                ..v1::Status::default()
            };
            is_void(&status, false, true)
        };
        assert!(idle(Phase::Failed, "Unreadable"));
        assert!(!idle(Phase::Stopped, "Halted"), "somebody has stopped it");
        assert!(!idle(Phase::Deleting, ""));
    }
}
