//! Everything a run needs to know, complete and checked before anything is started.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_kernel::terminal::Size;
use holdfast_observability::{Audit, Unopened};
use holdfast_policy::{OnLinkLoss, Policy};

use super::environment::{self, Person};
use crate::cli;
use crate::config::Config;
use crate::failure::{Failure, Kind};
use crate::policy::{self, source};
use crate::session::terminal;

/// One run, well typed.
#[derive(Debug)]
pub(crate) struct Request {
    /// The sandbox's name.
    pub(crate) name: String,
    /// What the program may do; the links of its binaries are followed.
    pub(crate) policy: Policy,
    /// What happens to the program while the keeper is away.
    pub(crate) on_link_loss: OnLinkLoss,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
    /// Its whole environment.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Its working directory, as it is called in the view.
    pub(crate) directory: PathBuf,
    /// What `include_workdir` means: the caller's directory, or with a root of its own the one it starts in.
    pub(crate) workdir: PathBuf,
    /// Whether a policy was given: what it lists and is not there is worth a word.
    pub(crate) has_policy: bool,
    /// What the view starts from, when it is not the host's root.
    pub(crate) rootfs: Option<PathBuf>,
    /// The size of the terminal it gets, if it gets one.
    pub(crate) terminal: Option<Size>,
    /// After this long it is ended.
    pub(crate) timeout: Option<Duration>,
    /// Where verdicts are written; opened, not started.
    pub(crate) audit: Audit,
    /// Where gateways of this caller keep their files and sockets.
    pub(crate) hidden: Vec<PathBuf>,
}

impl Request {
    /// Checks the arguments against the host.
    pub(crate) fn assemble(arguments: cli::Run, config: &Config) -> Result<Self, Failure> {
        let written = policy::of_run(arguments.policy.as_deref())?;
        if arguments
            .command
            .first()
            .is_some_and(|name| name.is_empty())
        {
            return Err(
                Failure::new(Kind::ProgramNotFound, "find the program: its name is empty")
                    .hint("name it after `--`; a variable may be empty that should hold it"),
            );
        }
        let rootfs = arguments.rootfs.map(|path| root(&path)).transpose()?;
        let directory = directory(arguments.cwd.as_deref(), rootfs.as_deref())?;
        let callers = std::env::current_dir().ok().filter(|_| rootfs.is_none());
        let person = person(&written, rootfs.as_deref());
        let on_link_loss = arguments.on_link_loss.map(OnLinkLoss::from);
        let with_terminal = arguments.terminal || terminal::interactive();
        Ok(Self {
            name: arguments.name.unwrap_or_else(default_name),
            on_link_loss: on_link_loss.unwrap_or(written.on_link_loss()),
            policy: source::follow_links(written, rootfs.as_deref()),
            command: arguments.command,
            environment: environment::assemble(config, &arguments.env, &person)?,
            workdir: callers.unwrap_or_else(|| directory.clone()),
            has_policy: arguments.policy.is_some(),
            directory,
            rootfs,
            terminal: with_terminal.then(terminal::size),
            timeout: arguments.timeout,
            audit: audit(arguments.audit.as_deref())?,
            hidden: vec![config.state_directory(), config.runtime_directory()],
        })
    }
}

impl From<cli::OnLinkLoss> for OnLinkLoss {
    fn from(what: cli::OnLinkLoss) -> Self {
        match what {
            cli::OnLinkLoss::Continue => Self::Continue,
            cli::OnLinkLoss::Freeze => Self::Freeze,
        }
    }
}

/// A directory that a view can start from.
pub(crate) fn root(path: &Path) -> Result<PathBuf, Failure> {
    let found = fs::canonicalize(path).and_then(is_directory);
    found.map_err(|error| {
        Failure::caused(
            Kind::Unreadable,
            format!("use --rootfs {}", path.display()),
            &error,
        )
        .hint("name a directory that holds a whole system: /usr, /etc, …")
    })
}

/// The working directory: the caller's unless another is given. It must be there; whether the policy shows it is for
/// the fence to say.
pub(crate) fn directory(given: Option<&Path>, rootfs: Option<&Path>) -> Result<PathBuf, Failure> {
    let callers = std::env::current_dir();
    let (directory, hint) = match (given, callers) {
        (Some(given), _) if given.is_absolute() => (given.to_owned(), "check --cwd"),
        (Some(given), Ok(callers)) => (callers.join(given), "check --cwd"),
        (None, Ok(callers)) => (callers, "say with --cwd where the program starts"),
        (_, Err(error)) => {
            let failure = Failure::caused(Kind::Unreadable, "find where you are", &error);
            return Err(failure.hint("go to a directory that exists"));
        }
    };
    let real = match rootfs {
        None => directory.clone(),
        Some(root) => root.join(directory.strip_prefix("/").unwrap_or(&directory)),
    };
    is_directory(real).map_err(|error| {
        let message = format!("start in {}", directory.display());
        Failure::caused(Kind::Unreadable, message, &error).hint(hint)
    })?;
    Ok(directory)
}

fn is_directory(path: PathBuf) -> io::Result<PathBuf> {
    if fs::metadata(&path)?.is_dir() {
        Ok(path)
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    }
}

/// Whom the program of this policy runs as.
pub(crate) fn person(policy: &Policy, rootfs: Option<&Path>) -> Person {
    let root = rootfs.unwrap_or(Path::new("/"));
    // Without the file nobody has a name: that is no failure.
    let accounts = fs::read_to_string(root.join("etc/passwd")).unwrap_or_default();
    Person::of(policy.process().run_as_user.as_ref(), &accounts)
}

fn audit(file: Option<&Path>) -> Result<Audit, Failure> {
    let Some(file) = file else {
        return Ok(Audit::off());
    };
    Audit::file(file).map_err(|error| {
        let hint = match error {
            Unopened::Refused { .. } => "name a file in a directory that you can write to",
            Unopened::Unread { .. } => "start its reader first",
        };
        Failure::caused(Kind::Unreadable, "use --audit", &error).hint(hint)
    })
}

fn default_name() -> String {
    format!("run-{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &[&str]) -> Result<Request, Failure> {
        let words = ["holdfast", "run"]
            .iter()
            .chain(line)
            .chain(&["--", "true"]);
        let words: Vec<OsString> = words.map(OsString::from).collect();
        let cli = cli::parse(&words)?.expect("asks for no help");
        let cli::Command::Run(arguments) = cli.command else {
            panic!("{words:?} is no run");
        };
        Request::assemble(arguments, &Config::default())
    }

    #[test]
    fn a_bare_run_has_the_standard_policy_and_the_callers_directory() {
        let request = request(&[]).expect("assembles");

        assert_eq!(request.policy, Policy::standard());
        assert_eq!(
            request.directory,
            std::env::current_dir().expect("is there")
        );
        assert_eq!(request.command, ["true"]);
        assert!(request.name.starts_with("run-"));
    }

    #[test]
    fn a_terminal_is_given_when_it_is_asked_for_and_has_a_size_in_any_case() {
        let size = request(&["-t"]).expect("assembles").terminal;

        let size = size.expect("was asked for");
        assert!(size.rows > 0 && size.columns > 0);
    }

    #[test]
    fn the_flag_wins_over_the_policy() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("p.yaml");
        fs::write(&file, "version: 1\non_link_loss: freeze\n").expect("writes");
        let file = file.to_str().expect("is text");

        let policys = request(&["--policy", file]).expect("assembles");
        let flags = request(&["--policy", file, "--on-link-loss", "continue"]).expect("assembles");

        assert_eq!(policys.on_link_loss, OnLinkLoss::Freeze);
        assert_eq!(flags.on_link_loss, OnLinkLoss::Continue);
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (line, message) in [
            (["--policy", "/nosuch.yaml"], "read policy /nosuch.yaml"),
            (["--rootfs", "/nosuch"], "use --rootfs /nosuch"),
            (["--cwd", "/nosuch"], "start in /nosuch"),
            (["--cwd", "/etc/passwd"], "start in /etc/passwd"),
            (["--audit", "/nosuch/a"], "use --audit: open /nosuch/a"),
        ] {
            let failure = request(&line).expect_err(message);
            assert!(
                failure.message().starts_with(message),
                "{}",
                failure.message()
            );
            assert_eq!(failure.kind(), Kind::Unreadable);
        }
    }

    #[test]
    fn a_directory_is_looked_for_in_the_given_root() {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir(root.path().join("job")).expect("creates");
        let root = root.path().to_str().expect("is text");

        let there = request(&["--rootfs", root, "--cwd", "/job"]);
        let elsewhere = request(&["--rootfs", root, "--cwd", "/etc"]);

        assert_eq!(there.expect("assembles").directory, Path::new("/job"));
        assert!(elsewhere.is_err());
    }
}
