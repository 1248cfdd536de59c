//! From a request to a running program: the fence planned, the boundary forked, the keeper started, the program launched.

use std::borrow::Cow;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::sync::Arc;

use holdfast_boundary::fence::Fence;
use holdfast_boundary::{self as boundary, Boundary};
use holdfast_keeper::Keeper;
use holdfast_keeper::link::Approach;
use holdfast_keeper::sessions::{NotStarted, Program, Session};

use super::request::Request;
use crate::failure::{Failure, Kind};
use crate::ground::{self, Ground};

/// Plans the fence that the request asks for. Nothing is started.
pub(crate) fn plan(request: &Request) -> Result<Fence, Failure> {
    Ground {
        policy: &request.policy,
        root: request.rootfs.as_deref().unwrap_or(Path::new("/")),
        directory: &request.directory,
        workdir: &request.workdir,
        on_link_loss: request.on_link_loss,
        descriptors: None,
        hidden: request.hidden.clone(),
    }
    .plan()
}

/// Forks the boundary. This process has one thread until then.
pub(crate) fn start(fence: &mut Fence) -> Result<(Boundary, Approach), Failure> {
    ground::approach(boundary::start(fence))
}

/// Waits for the fence, then starts the program behind it. `descriptors`: how many this process may have.
pub(crate) async fn launch(
    request: &Request,
    descriptors: u64,
    approach: Approach,
) -> Result<(Keeper, Session), Failure> {
    let arguments = holdfast_keeper::Arguments {
        sandbox: request.name.clone(),
        policy: Arc::new(request.policy.clone()),
        audit: request.audit.clone(),
        descriptors,
        tenure: None,
    };
    let keeper = Keeper::start(&arguments, approach)
        .await
        .map_err(|unbuilt| ground::unbuilt(&unbuilt))?;
    for step in &keeper.standing().steps {
        tracing::info!(step = step.name, micros = step.micros, "fence");
    }
    let session = keeper
        .launch(program(request))
        .await
        .map_err(|why| unstarted(&name(request), &why))?;
    Ok((keeper, session))
}

fn program(request: &Request) -> Program {
    let variables = request
        .environment
        .iter()
        .map(|(name, value)| [name.as_bytes(), value.as_bytes()].join(&b'='));
    Program {
        arguments: request
            .command
            .iter()
            .map(|word| word.as_bytes().to_vec())
            .collect(),
        environment: variables.collect(),
        directory: request.directory.clone().into_os_string().into_vec(),
        terminal: request.terminal,
    }
}

fn name(request: &Request) -> Cow<'_, str> {
    let first = request.command.first();
    first.map(|word| word.to_string_lossy()).unwrap_or_default()
}

/// Not found and not executable are the program's; every other step is ours, and want is nobody's.
fn unstarted(name: &str, why: &NotStarted) -> Failure {
    let NotStarted::Program {
        step,
        errno,
        message,
    } = why
    else {
        return Failure::new(Kind::Internal, format!("start {name}: {why}"));
    };
    let (kind, hint) = match (step.as_str(), *errno) {
        (_, _) if let remedy @ Some(_) = why.remedy() => (Kind::Internal, remedy),
        ("find" | "execute", libc::ENOENT) => (Kind::ProgramNotFound, why.advice()),
        ("find" | "execute", _) => (Kind::ProgramNotExecutable, why.advice()),
        // Its message names the directory, and it is none of the program's.
        (DIRECTORY, _) => {
            let failure = Failure::new(Kind::Internal, format!("{step}: {message}"));
            return failure.hint("choose another with --cwd");
        }
        _ => (Kind::Internal, None),
    };
    let failure = Failure::new(kind, format!("{step} {name}: {message}"));
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// The step before the program is looked for.
const DIRECTORY: &str = "enter its directory";

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: i32) -> NotStarted {
        NotStarted::Program {
            step: "execute".to_owned(),
            errno,
            message: "execve: no".to_owned(),
        }
    }

    #[test]
    fn each_way_in_which_a_program_cannot_be_executed_has_its_hint() {
        for errno in [
            libc::ENOENT,
            libc::EACCES,
            libc::ENOEXEC,
            libc::ELOOP,
            libc::ENOTDIR,
            libc::ENAMETOOLONG,
            libc::E2BIG,
            libc::ETXTBSY,
        ] {
            let failure = unstarted("prog", &refused(errno));
            assert!(failure.advice().is_some(), "{failure:?}");
        }
    }

    /// EX-23: nobody is sent to look for what is wrong with a program that finds no room.
    #[test]
    fn want_is_neither_a_missing_program_nor_one_that_cannot_run() {
        let told = |errno| unstarted("prog", &refused(errno));

        assert_eq!(told(libc::EACCES).kind().exit(), 126);
        assert_eq!(told(libc::ENOENT).kind().exit(), 127);
        let short = told(libc::EAGAIN);
        assert_eq!(short.kind().exit(), 125);
        assert!(
            format!("{short:?}").contains("process.limits.nproc"),
            "{short:?}"
        );
    }
}
