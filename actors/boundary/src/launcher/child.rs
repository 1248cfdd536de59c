//! A session's process between its fork and its `execve`.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use holdfast_kernel::execute::{
    execute, find_program, limit, misses_interpreter, reset_signals, take_standard,
};
use holdfast_kernel::fork::leave;
use holdfast_kernel::{Called, Error, terminal};
use holdfast_wire::v1;
use holdfast_wire::v1::launch_request::What;
use nix::sys::resource::Resource;
use nix::unistd::{chdir, setsid};
use prost::Message;

use super::{Launcher, builtin, canary, herd};
use crate::fence::Limits;

/// What a session reads and writes.
pub(super) enum Standard {
    /// Three ends of pipes.
    Pipes {
        stdin: OwnedFd,
        stdout: OwnedFd,
        stderr: OwnedFd,
    },
    /// A terminal of its own.
    Terminal(OwnedFd),
}

/// Confines this process and does what the session is there for. Never returns: a failure goes through `report` to the
/// launcher. With `shepherd`, this process stays behind as one and tells over it, and its child goes on.
pub(super) fn become_session(
    launcher: &Launcher<'_>,
    request: &OwnedFd,
    standard: Standard,
    report: OwnedFd,
    shepherd: Option<&OwnedFd>,
) -> ! {
    let herded = shepherd.map_or(Ok(()), herd::shepherd);
    let begun = match herded {
        Ok(()) => begin(launcher, request, standard, &report),
        Err(error) => Err(refusal("make its shepherd", &error)),
    };
    let refused = match begun {
        Ok(Work::Program(program)) => start(&program),
        Ok(Work::Canary(task)) => canary::run(task),
        Ok(Work::Builtin(what)) => {
            // Its end says that the session runs, as `execve` does for a program.
            drop(report);
            leave(builtin::run(&what));
        }
        Err(refused) => refused,
    };
    // A launcher that is gone takes everything along.
    let _ = File::from(report).write_all(&refused.encode_to_vec());
    leave(125)
}

/// What a session is there for.
enum Work {
    Program(v1::Program),
    Canary(v1::Canary),
    Builtin(builtin::What),
}

/// What the child reported: `None` when the program runs.
pub(super) fn outcome(report: &OwnedFd) -> Option<v1::NotStarted> {
    let mut bytes = Vec::new();
    let read = report
        .try_clone()
        .and_then(|fd| File::from(fd).read_to_end(&mut bytes));
    match read {
        Ok(0) => None,
        Ok(_) => Some(v1::NotStarted::decode(bytes.as_slice()).unwrap_or_default()),
        Err(error) => Some(refusal(
            "hear of it",
            &Error::new("read", error.raw_os_error().unwrap_or(0)),
        )),
    }
}

/// A start that failed at `step`; which session it was is the launcher's to say.
pub(crate) fn refusal(step: &str, error: &Error) -> v1::NotStarted {
    v1::NotStarted {
        session: 0,
        step: step.to_owned(),
        errno: error.errno(),
        message: error.told(),
        shortage: None,
    }
}

/// Everything but the program itself: a session of its own, three descriptors, limits, rules.
pub(super) fn confine(
    launcher: &Launcher<'_>,
    standard: Standard,
    report: &OwnedFd,
) -> Result<(), (&'static str, Error)> {
    let step = |name| move |error| (name, error);
    setsid().called("setsid").map_err(step("start a session"))?;
    let (stdin, stdout, stderr) = match standard {
        Standard::Pipes {
            stdin,
            stdout,
            stderr,
        } => (stdin, stdout, stderr),
        Standard::Terminal(own) => {
            terminal::control(&own).map_err(step("take the terminal"))?;
            let copy = || {
                own.try_clone()
                    .called("dup")
                    .map_err(step("share the terminal"))
            };
            (copy()?, copy()?, copy()?)
        }
    };
    if let Some(rules) = &launcher.rules {
        rules.restrict().map_err(step("apply the Landlock rules"))?;
    }
    take_standard(stdin, stdout, stderr, report).map_err(step("take its descriptors"))?;
    set_limits(&launcher.fence.limits).map_err(step("set process.limits"))?;
    reset_signals().map_err(step("reset signals"))
}

/// Reads what is to be done, and confines this process for it.
fn begin(
    launcher: &Launcher<'_>,
    request: &OwnedFd,
    standard: Standard,
    report: &OwnedFd,
) -> Result<Work, v1::NotStarted> {
    let what = read_request(request).map_err(|error| refusal("read its arguments", &error))?;
    confine(launcher, standard, report).map_err(|(step, error)| refusal(step, &error))?;
    let unknown = || refusal("do it", &Error::new("builtin", libc::ENOSYS));
    match what {
        What::Program(program) => Ok(Work::Program(program)),
        What::Builtin(builtin) => match builtin.what.ok_or_else(unknown)? {
            v1::builtin::What::Canary(task) => Ok(Work::Canary(task)),
            v1::builtin::What::CopyOut(copy) => Ok(Work::Builtin(builtin::What::CopyOut(copy))),
            v1::builtin::What::CopyIn(copy) => Ok(Work::Builtin(builtin::What::CopyIn(copy))),
            v1::builtin::What::Dial(dial) => Ok(Work::Builtin(builtin::What::Dial(dial))),
        },
    }
}

fn start(program: &v1::Program) -> v1::NotStarted {
    let directory = Path::new(OsStr::from_bytes(&program.directory));
    if let Err(error) = chdir(directory).called("chdir") {
        let mut failed = refusal("enter its directory", &error);
        failed.message = format!("{}: {}", directory.display(), failed.message);
        return failed;
    }
    run(program)
}

fn run(program: &v1::Program) -> v1::NotStarted {
    let strings = |list: &[Vec<u8>]| {
        list.iter()
            .map(|bytes| CString::new(bytes.as_slice()))
            .collect::<Result<Vec<_>, _>>()
    };
    let (Ok(arguments), Ok(environment)) =
        (strings(&program.arguments), strings(&program.environment))
    else {
        return refusal(
            EXECUTE,
            &Error::new("execve with a NUL in an argument", libc::EINVAL),
        );
    };
    let name = program.arguments.first().map_or(&b""[..], Vec::as_slice);
    let path = environment
        .iter()
        .find_map(|entry| entry.to_bytes().strip_prefix(b"PATH="));
    let path = OsStr::from_bytes(path.unwrap_or(b""));
    let found = match find_program(OsStr::from_bytes(name), path) {
        Ok(found) => found,
        Err(error) => return refusal("find", &error),
    };
    let error = execute(&found, &arguments, &environment);
    if misses_interpreter(&found, &error) {
        let message = format!("{}: the interpreter it names is not there", found.display());
        // The program itself was found: it cannot be executed.
        return v1::NotStarted {
            errno: libc::ENOEXEC,
            message,
            ..refusal(EXECUTE, &error)
        };
    }
    refusal(EXECUTE, &error)
}

/// What is to be done, as the file holds it.
fn read_request(file: &OwnedFd) -> Result<What, Error> {
    let file = File::from(file.try_clone().called("dup")?);
    let length = file.metadata().called("fstat")?.len();
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0).called("read")?;
    v1::LaunchRequest::decode(bytes.as_slice())
        .ok()
        .and_then(|request| request.what)
        .ok_or_else(|| Error::new("decode the program", libc::EPROTO))
}

/// The limits of the policy, and of descriptors what the caller of the runtime had.
fn set_limits(limits: &Limits) -> Result<(), Error> {
    limit(
        Resource::RLIMIT_NOFILE,
        limits.descriptors,
        limits.descriptors_hard,
    )?;
    if let Some(processes) = limits.processes {
        limit(Resource::RLIMIT_NPROC, processes, processes)?;
    }
    if let Some(memory) = limits.memory {
        limit(Resource::RLIMIT_DATA, memory, memory)?;
    }
    limit(Resource::RLIMIT_CORE, 0, 0)
}

/// The step in which the program takes over.
pub(super) const EXECUTE: &str = "execute";
