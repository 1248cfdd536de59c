//! What a session's process does itself, without a program of the sandbox: copies and connections.
//!
//! It is confined like any other session, before it comes here: the view, the rules, the user and the limits decide what it
//! can read and write, and nothing here has to. What goes wrong is one line on its standard error and the status 1.

mod copy_in;
mod copy_out;
mod dial;

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::panic::catch_unwind;
use std::path::Path;

use holdfast_wire::v1;
use nix::errno::Errno;

/// What is to be done.
#[derive(Clone, Debug)]
pub(super) enum What {
    CopyOut(v1::CopyOut),
    CopyIn(v1::CopyIn),
    Dial(v1::DialPort),
}

/// Something that could not be done with something.
#[derive(Debug)]
struct Failed {
    object: String,
    source: io::Error,
}

/// Does it. Answers the status of the process.
pub(super) fn run(what: &What) -> i32 {
    // A panic must not find its way into the launcher's code, of which this process is a copy.
    let done = catch_unwind(|| match what {
        What::CopyOut(copy) => copy_out::run(path(&copy.path), io::stdout().lock()),
        What::CopyIn(copy) => copy_in::run(path(&copy.path), io::stdin().lock()),
        What::Dial(dial) => dial::run(dial.port),
    });
    match done {
        Ok(Ok(())) => 0,
        Ok(Err(failed)) => {
            complain(&failed);
            1
        }
        Err(_) => 125,
    }
}

impl Failed {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self {
            object: path.display().to_string(),
            source,
        }
    }

    fn with(object: &str, errno: Errno) -> Self {
        Self {
            object: object.to_owned(),
            source: errno.into(),
        }
    }

    /// What is neither file nor directory nor link.
    fn special(path: &Path, what: &str) -> Self {
        let why =
            format!("it is {what}, which is not copied; remove it, or copy what stands beside it");
        Self {
            object: path.display().to_string(),
            source: io::Error::other(why),
        }
    }
}

/// What the kernel said, also where the archive has put words of its own around it.
fn errno_of(error: &io::Error) -> Option<i32> {
    let inner = std::error::Error::source(error);
    let inner = inner.and_then(|cause| cause.downcast_ref::<io::Error>());
    error.raw_os_error().or_else(|| inner.and_then(errno_of))
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match errno_of(&self.source) {
            Some(errno) => Errno::from_raw(errno).desc().to_owned(),
            None => self.source.to_string(),
        };
        let mut letters = reason.chars();
        let first = letters.next().map(|first| first.to_lowercase().to_string());
        let first = first.unwrap_or_default();
        write!(f, "{}: {first}{}", self.object, letters.as_str())
    }
}

/// Says it on standard error; a reader that is gone does not want to know.
fn complain(failed: &Failed) {
    let _ = writeln!(io::stderr().lock(), "{failed}");
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// What is read and written at a time.
const PIECE: usize = 64 << 10;
