//! `holdfast policy check` and `holdfast policy explain`.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use holdfast_policy::{
    Destination, Explanation, Identity, Policy, Problem, Request, Verdict, is_synthetic,
};
use serde::Serialize;
use serde_json::json;

use crate::cli;
use crate::config::Config;
use crate::failure::{Failure, Kind};
use crate::output::{self, Format, harmless, harmless_lines};
use crate::run::environment;
use program::{Program, Surroundings};
use source::Refused;

mod program;
pub(crate) mod remote;
pub(crate) mod source;

/// Reports every problem of each file, or what it means in full.
pub(crate) fn check(
    files: &[PathBuf],
    format: Format,
    config: &Config,
    quiet: bool,
) -> Result<ExitCode, Failure> {
    let path = environment::path(config);
    let checked: Vec<Checked> = files.iter().map(|file| Checked::of(file, &path)).collect();
    for warning in checked
        .iter()
        .flat_map(Checked::warnings)
        .filter(|_| !quiet)
    {
        // When stderr is gone, the document says the same.
        let _unheard = writeln!(io::stderr(), "holdfast: warning: {}", harmless(&warning));
    }
    let failure = failure(&checked);
    match (format, &failure) {
        // One document only: the failure's, which tells of the good files as well.
        (Format::Json, Some(_)) => {}
        (Format::Json, None) => output::document(&json!({"files": checked}))?,
        (Format::Text, _) => output::text(&passed(&checked))?,
    }
    match failure {
        Some(failure) => Err(failure),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Says what a policy says about one connection, and why. Allowed or denied: the question was answered.
pub(crate) fn explain(question: &cli::Explain, config: &Config) -> Result<ExitCode, Failure> {
    let written = match (&question.policy, &question.name) {
        (Some(file), _) => source::load(file)?,
        (None, Some(name)) => remote::of_sandbox(name, config)?,
        (None, None) => Policy::standard(),
    };
    let policy = source::follow_links(written, None);
    let destination: Destination = question.host.parse().map_err(|error| {
        let message = format!("read --host {}", question.host);
        Failure::caused(Kind::Usage, message, &error)
            .hint("write a host name or an address, without a scheme and without a port")
    })?;
    let path = environment::path(config);
    let surroundings = Surroundings::of(&policy, &path, std::env::current_dir().ok());
    let program = program(question.binary.as_deref(), &surroundings)?;
    let identity = identity(program.as_ref());
    let explanation = policy.explain(&Request {
        destination,
        port: question.port,
        identity: &identity,
    });
    let answer = Answer {
        notes: notes(question, &explanation, program.as_ref()),
        explanation,
        interpreters: program
            .map(|program| program.interpreters)
            .unwrap_or_default(),
    };
    match question.output.output {
        Format::Text => output::text(&answer.text())?,
        Format::Json => output::document(&answer)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What became of one file.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Checked {
    Valid {
        file: String,
        valid: bool,
        hash: String,
        expanded: String,
        /// What is well written, and means less on this host than it seems to.
        warnings: Vec<String>,
    },
    Invalid {
        file: String,
        valid: bool,
        problems: Vec<Problem>,
    },
    Unreadable {
        file: String,
        valid: bool,
        error: String,
        suggestion: Option<String>,
        #[serde(skip)]
        kind: Kind,
    },
}

impl Checked {
    fn of(path: &Path, programs: &OsStr) -> Self {
        let file = path.display().to_string();
        match source::read(path) {
            Ok(policy) => Self::Valid {
                file,
                valid: true,
                hash: policy.hash(),
                expanded: policy.expanded(),
                warnings: scripts(&policy, programs),
            },
            Err(Refused::Invalid(invalid)) => Self::Invalid {
                file,
                valid: false,
                problems: invalid.problems,
            },
            Err(Refused::Unreadable(failure)) => Self::Unreadable {
                file,
                valid: false,
                error: failure.message().to_owned(),
                suggestion: failure.advice().map(str::to_owned),
                kind: failure.kind(),
            },
        }
    }

    fn complaints(&self) -> Vec<String> {
        match self {
            Self::Valid { .. } => Vec::new(),
            Self::Invalid { problems, .. } => problems.iter().map(ToString::to_string).collect(),
            Self::Unreadable {
                error, suggestion, ..
            } => vec![match suggestion {
                Some(suggestion) => format!("{error}; {suggestion}"),
                None => error.clone(),
            }],
        }
    }

    fn warnings(&self) -> Vec<String> {
        match self {
            Self::Valid { file, warnings, .. } => {
                let told = |warning| format!("{file}: {warning}");
                warnings.iter().map(told).collect()
            }
            Self::Invalid { .. } | Self::Unreadable { .. } => Vec::new(),
        }
    }

    fn kind(&self) -> Option<Kind> {
        match self {
            Self::Valid { .. } => None,
            Self::Invalid { .. } => Some(Kind::PolicyInvalid),
            Self::Unreadable { kind, .. } => Some(*kind),
        }
    }
}

/// The scripts of this host that rules name as programs.
fn scripts(policy: &Policy, path: &OsStr) -> Vec<String> {
    let surroundings = Surroundings::of(policy, path, std::env::current_dir().ok());
    let named = policy.rules().iter().flat_map(|rule| {
        let binaries = rule.binaries.iter().flatten();
        binaries.filter_map(move |binary| Some((&rule.key, binary.literal()?)))
    });
    let scripts = named.filter_map(|(key, path)| {
        let program = Program::at(path, &surroundings);
        let interpreter = program.interpreters.last()?;
        Some(format!(
            "rule `{key}` names {path}, which is a script here and never matches: what connects is its interpreter, {interpreter}"
        ))
    });
    scripts.collect()
}

/// For each good file a line, and under it the policy with every default written out.
fn passed(checked: &[Checked]) -> String {
    let mut text = String::new();
    for check in checked {
        if let Checked::Valid {
            file,
            hash,
            expanded,
            ..
        } = check
        {
            let _infallible = writeln!(text, "{}: ok {hash}", harmless(file));
            for line in expanded.lines() {
                let _infallible = writeln!(text, "  {}", harmless(line));
            }
        }
    }
    text
}

/// One failure for all the bad files; that a file cannot be read weighs more than what it says.
fn failure(checked: &[Checked]) -> Option<Failure> {
    let bad = checked
        .iter()
        .filter(|check| check.kind().is_some())
        .count();
    if bad == 0 {
        return None;
    }
    let mut kinds = checked.iter().filter_map(Checked::kind);
    let unread = kinds.find(|kind| *kind != Kind::PolicyInvalid);
    let kind = unread.unwrap_or(Kind::PolicyInvalid);
    let message = format!("{bad} of {} files: no valid policy", checked.len());
    let failure = Failure::new(kind, message)
        .lines(checked.iter().flat_map(Checked::complaints))
        .details(json!({"files": checked}));
    Some(failure)
}

/// The program whose path was given, if one was.
fn program(
    binary: Option<&str>,
    surroundings: &Surroundings<'_>,
) -> Result<Option<Program>, Failure> {
    match binary {
        None => Ok(None),
        Some(path) if path.starts_with('/') => Ok(Some(Program::at(path, surroundings))),
        Some(path) => {
            let message = format!("read --binary {path}: it is not an absolute path");
            let hint = format!("write --binary \"$(command -v {path})\"");
            Err(Failure::new(Kind::Usage, message).hint(hint))
        }
    }
}

/// Who asks, as the broker sees it.
fn identity(program: Option<&Program>) -> Identity {
    match program {
        Some(program) if program.is_observable => Identity::of(&program.file),
        Some(_) | None => Identity::Unobservable,
    }
}

#[derive(Debug, Serialize)]
struct Answer {
    #[serde(flatten)]
    explanation: Explanation,
    /// What is executed in the place of the script that was asked about, in that order; the last one is judged.
    interpreters: Vec<String>,
    /// What the asker should know about the question.
    notes: Vec<String>,
}

impl Answer {
    fn text(&self) -> String {
        let mut text = harmless_lines(&in_lines(&self.explanation).to_string());
        for note in &self.notes {
            let _infallible = writeln!(text, "  note: {}", harmless(note));
        }
        text
    }
}

/// The same without line ends in what may have some: the paths of programs, and the hint that names them.
fn in_lines(explanation: &Explanation) -> Explanation {
    let mut explanation = explanation.clone();
    let considered = explanation.considered.iter_mut();
    let binaries = considered.flat_map(|rule| &mut rule.binaries);
    let hint = match &mut explanation.verdict {
        Verdict::Denied(denied) => Some(&mut denied.hint),
        Verdict::Allowed(_) => None,
    };
    for text in binaries.chain(&mut explanation.binary).chain(hint) {
        *text = harmless(text);
    }
    explanation
}

fn notes(
    question: &cli::Explain,
    explanation: &Explanation,
    program: Option<&Program>,
) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(program.and_then(|program| program.note.clone()));
    let choosy = explanation
        .considered
        .iter()
        .any(|rule| !rule.binaries.is_empty());
    if question.binary.is_none() && choosy {
        notes
            .push("a rule for this host names binaries: say with --binary who connects".to_owned());
    }
    if let Destination::Address(address) = explanation.host
        && is_synthetic(address)
    {
        notes.push(format!(
            "where {address} stands for a name, which differs by sandbox, it is judged as that name"
        ));
    }
    if question.method.is_some() || question.path.is_some() {
        notes.push(
            "no rule of this policy looks into requests: --method and --path make no difference"
                .to_owned(),
        );
    }
    notes
}

/// The policy of a run: the file's, or the standard one.
pub(crate) fn of_run(file: Option<&Path>) -> Result<Policy, Failure> {
    match file {
        Some(file) => source::load(file),
        None => Ok(Policy::standard()),
    }
}
