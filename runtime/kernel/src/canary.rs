//! A program of two kilobytes that goes the way of an agent: it asks for a name, connects, and reads one word.
//!
//! It is part of this file, so it is there whatever files a sandbox shows, and it is executed from memory. Its sources
//! are in `canary/`; what its statuses mean stands in a file that both read.

use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddrV4;
use std::os::fd::AsFd;

use nix::fcntl::AtFlags;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::execveat;

use crate::descriptors::noted;
use crate::error::{Called, Error, Result};

include!("../canary/codes.rs");

/// The program itself; empty where it is not built for the architecture.
pub const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/canary"));

/// What `/proc/PID/exe` says of a process that executes it, and nothing else that lies in a file.
pub const EXECUTABLE: &str = "/memfd:holdfast-canary (deleted)";

/// What a canary is told to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The name server to ask.
    pub server: SocketAddrV4,
    /// The name to ask it for.
    pub name: String,
    /// The port to connect to at the address that is answered.
    pub port: u16,
    /// What has to be heard there: up to 64 bytes without a NUL.
    pub word: Vec<u8>,
}

/// How far a canary came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Walk {
    /// The whole way.
    Whole,
    /// Up to this step, and why no further.
    Fell(Step, Cause),
}

/// Why a canary came no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The kernel refused with this errno.
    Errno(i32),
    /// What it met instead.
    Met(String),
}

impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(errno) => write!(out, "{}", io::Error::from_raw_os_error(*errno)),
            Self::Met(what) => out.write_str(what),
        }
    }
}

/// A step of the way, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// To be executed.
    Start,
    /// To have a name resolved.
    Resolve,
    /// To connect.
    Connect,
    /// To be answered.
    Answer,
}

impl Walk {
    /// What the status of a canary that ended says.
    pub fn of(status: i32) -> Self {
        let met = |step, what: &str| (step, Cause::Met(what.to_owned()));
        let (step, why) = match status {
            0 => return Self::Whole,
            UNTOLD => met(Step::Start, "it was not told what to do"),
            NO_DATAGRAM_SOCKET => met(Step::Resolve, "open a datagram socket"),
            UNASKED => met(Step::Resolve, "send a question for a name"),
            UNANSWERED => met(Step::Resolve, "no answer within 1 s"),
            NO_ADDRESS => met(Step::Resolve, "an answer without an address"),
            NO_STREAM_SOCKET => met(Step::Connect, "open a stream socket"),
            SILENT => met(Step::Answer, "connected and heard nothing within 1 s"),
            CLOSED => met(Step::Answer, "connected and was closed without a word"),
            OTHER_WORD => met(Step::Answer, "heard another word than the one agreed on"),
            40..CONNECT_ERRNO => {
                let code = status - ANSWER_CODE;
                met(
                    Step::Resolve,
                    &format!("the name server answered code {code}"),
                )
            }
            CONNECT_ERRNO..=255 => (Step::Connect, Cause::Errno(status - CONNECT_ERRNO)),
            _ => met(
                Step::Start,
                &format!("it ended with the unknown status {status}"),
            ),
        };
        Self::Fell(step, why)
    }
}

/// Becomes the canary. Returns only if that failed.
pub fn execute(task: &Task) -> Error {
    match memory_file() {
        Ok(file) => {
            let Ok(arguments) = task.arguments() else {
                return Error::new("execveat with a NUL in an argument", libc::EINVAL);
            };
            let Err(errno) = execveat(
                file.as_fd(),
                c"",
                &arguments,
                &[] as &[CString],
                AtFlags::AT_EMPTY_PATH,
            );
            Error::new("execveat of a memory file", errno as i32)
        }
        Err(error) => error,
    }
}

impl Task {
    fn arguments(&self) -> std::result::Result<Vec<CString>, std::ffi::NulError> {
        let server = self.server.ip().to_bits().to_string();
        let ports = [self.server.port(), self.port].map(|port| port.to_string());
        let [asked, wanted] = ports;
        let all = [
            b"holdfast-canary".to_vec(),
            server.into(),
            asked.into(),
            self.name.clone().into(),
            wanted.into(),
            self.word.clone(),
        ];
        all.into_iter().map(CString::new).collect()
    }
}

/// A file in memory that may be executed. Kernels before 6.3 do not know the flag that asks for that, and always allow it.
fn memory_file() -> Result<File> {
    let name = c"holdfast-canary";
    let made = memfd_create(name, MFdFlags::MFD_CLOEXEC | MAY_EXECUTE);
    let made = made.or_else(|errno| {
        if errno == nix::errno::Errno::EINVAL {
            memfd_create(name, MFdFlags::MFD_CLOEXEC)
        } else {
            Err(errno)
        }
    });
    let made = noted(made.called("memfd_create with MFD_EXEC, which vm.memfd_noexec can forbid")?);
    let mut file = File::from(made);
    file.write_all(PROGRAM).called("write the canary")?;
    Ok(file)
}

/// `MFD_EXEC`, which the wrapper of `memfd_create` does not name.
const MAY_EXECUTE: MFdFlags = MFdFlags::from_bits_retain(0x10);

#[cfg(test)]
mod tests;
