//! Turns a freshly forked process into a program: its descriptors, signals, limits, directory, and the `execve`.

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, execve};

use crate::error::{Called, Error, Result, answered};

/// Makes the three descriptors this process's standard input, output and error, and closes every other one but `kept`
/// (which closes at `execve`).
pub fn take_standard(
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    kept: &OwnedFd,
) -> Result<()> {
    dup2_stdin(stdin.as_fd()).called("dup2 0")?;
    dup2_stdout(stdout.as_fd()).called("dup2 1")?;
    dup2_stderr(stderr.as_fd()).called("dup2 2")?;
    drop((stdin, stdout, stderr));
    close_all_but(&[0, 1, 2, kept.as_raw_fd()])
}

/// Closes every descriptor but `kept`, which must be in ascending order.
pub fn close_all_but(kept: &[i32]) -> Result<()> {
    let mut from = 0;
    for &number in kept {
        if number > from {
            close_range(from, number - 1)?;
        }
        from = number + 1;
    }
    close_range(from, i32::MAX)
}

/// Gives every signal its default action and blocks none, as a login shell's child has it.
pub fn reset_signals() -> Result<()> {
    let default = KernelAction::default();
    for number in 1..=LAST_SIGNAL {
        // SAFETY: the kernel reads one action of its own layout, which lives here; the default one runs no code of ours.
        // The C library's own call would refuse the two signals that it keeps to itself.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                number,
                &raw const default,
                std::ptr::null_mut::<KernelAction>(),
                size_of::<u64>(),
            )
        };
        // SIGKILL and SIGSTOP cannot be anything else.
        if !matches!(number, libc::SIGKILL | libc::SIGSTOP) {
            answered("rt_sigaction", answer)?;
        }
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None).called("sigprocmask")
}

/// Limits a resource of this process, soft and hard; the hard limit is never raised.
pub fn limit(resource: Resource, soft: u64, hard: u64) -> Result<()> {
    let (_, ceiling) = nix::sys::resource::getrlimit(resource).called("getrlimit")?;
    let hard = hard.min(ceiling);
    setrlimit(resource, soft.min(hard), hard).called("setrlimit")
}

/// Where the program `name` is found: itself if it has a slash, otherwise in the directories of `path`.
///
/// As shells do: a file that may not be executed is remembered while the search goes on. ENOENT when there is none.
pub fn find_program(name: &OsStr, path: &OsStr) -> Result<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    let mut forbidden = None;
    for directory in std::env::split_paths(path) {
        let candidate = directory.join(name);
        match nix::unistd::access(&candidate, nix::unistd::AccessFlags::X_OK) {
            Ok(()) if candidate.is_file() => return Ok(candidate),
            Ok(()) => {}
            Err(_) => forbidden = forbidden.or_else(|| candidate.is_file().then_some(candidate)),
        }
    }
    forbidden.ok_or_else(|| Error::new("execve", libc::ENOENT))
}

/// Executes `program`. Returns only if that failed.
pub fn execute(program: &Path, arguments: &[CString], environment: &[CString]) -> Error {
    let Ok(path) = CString::new(program.as_os_str().as_bytes()) else {
        return Error::new("execve", libc::EINVAL);
    };
    let Err(errno) = execve(&path, arguments, environment);
    Error::new("execve", errno as i32)
}

/// Why a program that is there was not found: the interpreter that its first line or its header names is missing.
pub fn misses_interpreter(program: &Path, error: &Error) -> bool {
    error.errno() == libc::ENOENT && fs::metadata(program).is_ok_and(|file| file.is_file())
}

/// `struct kernel_sigaction`: the default action, no flags, nothing blocked.
#[repr(C)]
#[derive(Default)]
struct KernelAction {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

/// Signals are numbered from 1 to this.
const LAST_SIGNAL: libc::c_int = 64;

fn close_range(first: i32, last: i32) -> Result<()> {
    // SAFETY: the caller gives up every descriptor of the range; none of them is used afterwards, because the process
    // goes on to `execve` or holds only the ones it kept.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    answered("close_range", answer).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_as_a_shell_finds_it() {
        let find = |name: &str| find_program(OsStr::new(name), OsStr::new("/nowhere:/etc:/bin"));

        assert_eq!(find("sh").expect("sh"), Path::new("/bin/sh"));
        assert_eq!(find("/x/y").expect("as it is"), Path::new("/x/y"));
        assert_eq!(
            find("passwd-")
                .or_else(|_| find("passwd"))
                .expect("found")
                .parent(),
            Some(Path::new("/etc"))
        );
        assert_eq!(
            find("no-such-program").expect_err("missing").errno(),
            libc::ENOENT
        );
    }
}
