//! `holdfast cp`: files into a sandbox or out of it, as a tar stream over one session.
//!
//! ```text
//! out   session ──tar──> staged beside the destination ──all came, exit 0──> moved into place
//! into  packed ──tar──> session, which does the same on its side
//!       on any failure what was staged is removed, and the destination is as it was
//! ```

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use holdfast_keeper::sessions::Control;
use holdfast_wire::v1;
use holdfast_wire::v1::session_input::Kind as Said;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::exec::{Attended, standard};
use crate::cli::sandboxes::Copy;
use crate::client::{self, Client};
use crate::config::Config;
use crate::failure::{Failure, Kind};
use crate::session::foreground::Ends;
use crate::session::printer::{Capture, Sink};
use crate::session::remote::{Manner, Part};
use crate::session::signals;
use crate::session::{Bond, Exit, Session};
use crate::threads;

mod packing;
mod unpacking;

/// One end of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Side {
    /// A path in a sandbox.
    Inside(String, Vec<u8>),
    /// A path of this host.
    Here(PathBuf),
    /// A tar stream on stdin or stdout.
    Stream,
}

/// Copies from one side to the other.
pub(crate) fn copy(arguments: &Copy, config: &Config) -> Result<ExitCode, Failure> {
    let sides = (side(&arguments.source), side(&arguments.destination));
    match sides {
        (Side::Inside(name, path), Side::Stream) => streamed(config, &name, path, false),
        (Side::Stream, Side::Inside(name, path)) => streamed(config, &name, path, true),
        (Side::Inside(name, path), Side::Here(destination)) => {
            unpacking::check(&destination)?;
            let first = request(&name, path, false);
            client::on_runtime(out(config, &name, first, destination))
        }
        (Side::Here(source), Side::Inside(name, path)) => {
            packing::check(&source)?;
            let first = request(&name, path, true);
            client::on_runtime(into(config, &name, first, source))
        }
        (Side::Inside(..), Side::Inside(..)) => Err(usage("both sides are in sandboxes")),
        (Side::Here(_) | Side::Stream, Side::Here(_) | Side::Stream) => {
            Err(usage("neither side is in a sandbox"))
        }
    }
}

fn usage(what: &str) -> Failure {
    Failure::new(Kind::Usage, format!("copy: {what}"))
        .hint("write NAME:PATH on one side, and a path or - on the other; a file with a colon in its name is ./NAME")
}

/// `NAME:PATH` is in a sandbox; what begins with `/` or `.` never is.
fn side(text: &OsStr) -> Side {
    let bytes = text.as_bytes();
    if bytes == b"-" {
        return Side::Stream;
    }
    let local = bytes.starts_with(b"/") || bytes.starts_with(b".");
    let colon = bytes
        .iter()
        .position(|byte| *byte == b':')
        .filter(|_| !local);
    let split = colon.map(|place| (&bytes[..place], &bytes[place + 1..]));
    match split.and_then(|(name, path)| Some((std::str::from_utf8(name).ok()?, path))) {
        Some((name, path)) if !name.is_empty() && !name.contains('/') && !path.is_empty() => {
            Side::Inside(name.to_owned(), path.to_vec())
        }
        Some(_) | None => Side::Here(text.into()),
    }
}

fn request(name: &str, path: Vec<u8>, into: bool) -> Said {
    Said::Copy(v1::CopyStart {
        sandbox: name.to_owned(),
        path,
        into,
    })
}

/// A copy's session: it takes input when it goes into the sandbox.
const fn manner(into: bool) -> Manner {
    Manner {
        input: into,
        bond: Bond::Ours,
        screen: false,
    }
}

/// The tar stream itself, from our input or to our output. What the sandbox says of it is the reason of a failure.
fn streamed(config: &Config, name: &str, path: Vec<u8>, into: bool) -> Result<ExitCode, Failure> {
    let attended = Attended {
        sandbox: name.to_owned(),
        manner: manner(into),
        limit: None,
        raw: None,
        first: request(name, path, into),
        quiet: false,
    };
    let errors = Capture::default();
    let code = client::on_runtime(async {
        let ends = Ends {
            errors: Sink::Memory(errors.clone()),
            ..standard()?
        };
        attended.attend(config, ends).await.1
    })?;
    match code {
        0 => Ok(ExitCode::SUCCESS),
        code if code > 128 => Ok(ExitCode::from(code)),
        code => {
            let way = if into { Way::Into } else { Way::OutOf };
            settled(Exit::Code(code), (name, way), &errors.take().bytes, None)?;
            Ok(ExitCode::from(code))
        }
    }
}

/// Which way a copy goes, as its failure says it.
#[derive(Clone, Copy)]
enum Way {
    Into,
    OutOf,
}

async fn out(
    config: &Config,
    name: &str,
    first: Said,
    destination: PathBuf,
) -> Result<ExitCode, Failure> {
    let mut ends = listen()?;
    let client = reached(config, &mut ends).await?;
    let (session, opening, part) = Part::new(name, manner(false));
    let Session {
        stdout,
        stderr,
        exit,
        ..
    } = session;
    let mut staging = on_thread(move || unpacking::stage(Reader::new(stdout), &destination))?;
    let carried = async { tokio::join!(part.carry(client, first), opening, all(stderr), exit) };
    let (_, opened, said, exit) = tokio::select! {
        carried = carried => carried,
        signal = ends.next() => {
            // What was staged is removed by whoever staged it, once its stream has ended.
            let _removed = timeout(PATIENCE, &mut staging).await;
            return Err(Failure::interrupted(signal));
        }
    };
    let staged = staging
        .await
        .map_err(|_untold| failed("", "its thread ended"))?;
    opened.map_err(|_untold| failed("", "nobody opened it"))??;
    settled(exit, (name, Way::OutOf), &said, staged.as_ref().err())?;
    staged?.commit()?;
    Ok(ExitCode::SUCCESS)
}

async fn into(
    config: &Config,
    name: &str,
    first: Said,
    source: PathBuf,
) -> Result<ExitCode, Failure> {
    let mut ends = listen()?;
    let client = reached(config, &mut ends).await?;
    let (session, opening, part) = Part::new(name, manner(true));
    let Session {
        stdin,
        stderr,
        exit,
        control,
        ..
    } = session;
    let Some(stdin) = stdin else {
        return Err(failed("", "it takes no input"));
    };
    // One end of the input stays here: it ends only when everything was packed.
    let held = stdin.clone();
    let packing = on_thread(move || packing::pack(stdin, &source))?;
    let packed = async {
        let packed = packing
            .await
            .unwrap_or_else(|_untold| Err(failed("", "its thread ended")));
        if packed.is_err() {
            let _asked = control.send(Control::Kill).await;
            // Its end is not the input's: that would make a half copy a whole one.
            std::mem::forget(held);
        }
        packed
    };
    let carried = async {
        tokio::join!(
            part.carry(client, first),
            opening,
            all(stderr),
            exit,
            packed
        )
    };
    tokio::pin!(carried);
    let (_, opened, said, exit, packed) = tokio::select! {
        carried = &mut carried => carried,
        signal = ends.next() => {
            let _asked = control.try_send(Control::Kill);
            let _ended = timeout(PATIENCE, carried).await;
            return Err(Failure::interrupted(signal));
        }
    };
    opened.map_err(|_untold| failed("", "nobody opened it"))??;
    settled(exit, (name, Way::Into), &said, packed.as_ref().err())?;
    packed?;
    Ok(ExitCode::SUCCESS)
}

/// Whether the sandbox's side is content. What it says explains what broke on ours, unless ours broke first.
fn settled(
    exit: Exit,
    (name, way): (&str, Way),
    said: &[u8],
    ours: Option<&Failure>,
) -> Result<(), Failure> {
    let what = match way {
        Way::Into => format!("copy to {name}"),
        Way::OutOf => format!("copy from {name}"),
    };
    match exit {
        Exit::Code(0) => Ok(()),
        Exit::Code(_) if !said.is_empty() => {
            let said = String::from_utf8_lossy(said);
            let mut lines: Vec<&str> = said.trim().lines().collect();
            let last = lines.pop().unwrap_or_default();
            let last = last.trim_start_matches("holdfast: ");
            let others = lines.into_iter().map(str::to_owned);
            let failure = failed(&what, last).lines(others);
            Err(match hint(last, name, way) {
                Some(hint) => failure.hint(hint),
                None => failure,
            })
        }
        // Our own failure is told by whoever had it.
        Exit::Code(_) | Exit::Signal(_) if ours.is_some() => Ok(()),
        Exit::Code(code) => {
            let why = format!("the session in the sandbox ended with {code} and did not say why");
            Err(failed(&what, &why).hint(format!("`holdfast logs {name}` may")))
        }
        Exit::Signal(signal) => {
            let why = format!("signal {signal} ended the session in the sandbox");
            Err(failed(&what, &why))
        }
        Exit::TimedOut => Err(failed(&what, "it timed out")),
        Exit::Unknown(failure) => Err(failure),
    }
}

/// What to do about it, where the reason is one that a policy decides.
fn hint(why: &str, name: &str, way: Way) -> Option<String> {
    let is_policys = why.ends_with("permission denied") || why.ends_with("read-only file system");
    let is_absent = why.ends_with("no such file or directory");
    match way {
        Way::Into if is_policys => Some(format!(
            "`holdfast policy get {name}` shows which paths may be written"
        )),
        Way::OutOf if is_policys => Some(format!(
            "`holdfast policy get {name}` shows which paths may be read"
        )),
        Way::Into | Way::OutOf if is_absent => Some(format!(
            "a path inside is as the sandbox sees it: `holdfast exec {name} -- ls -la DIRECTORY`"
        )),
        Way::Into | Way::OutOf => None,
    }
}

fn failed(what: &str, why: &str) -> Failure {
    let what = if what.is_empty() { "copy" } else { what };
    Failure::new(Kind::CopyFailed, format!("{what}: {why}"))
}

/// The gateway, unless a signal comes first.
async fn reached(config: &Config, ends: &mut signals::Ends) -> Result<Client, Failure> {
    tokio::select! {
        client = client::reach(config) => client,
        signal = ends.next() => Err(Failure::interrupted(signal)),
    }
}

fn listen() -> Result<signals::Ends, Failure> {
    signals::Ends::listen()
        .map_err(|error| Failure::caused(Kind::Internal, "listen for signals", &error))
}

/// Everything that a stream says, up to a bound.
async fn all(mut stream: mpsc::Receiver<Bytes>) -> Vec<u8> {
    let mut said = Vec::new();
    while let Some(chunk) = stream.recv().await {
        let room = MOST_SAID.saturating_sub(said.len());
        said.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
    said
}

fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<oneshot::Receiver<T>, Failure> {
    let (end, ended) = oneshot::channel();
    let thread = thread::Builder::new().name("tar".into());
    thread
        .spawn(move || drop(end.send(work())))
        .map_err(|error| threads::refused("start a thread that packs", &error))?;
    Ok(ended)
}

/// A stream of chunks, read by a thread.
struct Reader {
    chunks: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl Reader {
    fn new(chunks: mpsc::Receiver<Bytes>) -> Self {
        Self {
            chunks,
            rest: Bytes::new(),
        }
    }
}

impl io::Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.chunks.blocking_recv() {
                Some(chunk) => self.rest = chunk,
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.rest.len());
        buffer[..count].copy_from_slice(&self.rest.split_to(count));
        Ok(count)
    }
}

/// How long what was begun may take to be undone.
const PATIENCE: Duration = Duration::from_secs(2);

/// As much of the sandbox's complaints as is kept.
const MOST_SAID: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_in_a_sandbox_when_a_name_stands_before_a_colon() {
        let inside = |name: &str, path: &str| Side::Inside(name.into(), path.into());

        assert_eq!(side("qa:/tmp/x".as_ref()), inside("qa", "/tmp/x"));
        assert_eq!(side("qa:x:y".as_ref()), inside("qa", "x:y"));
        assert_eq!(side("-".as_ref()), Side::Stream);
        for local in ["x", "./qa:x", "/qa:x", "a/b:c", ":x", "qa:"] {
            assert_eq!(side(local.as_ref()), Side::Here(local.into()), "{local}");
        }
    }

    #[test]
    fn exactly_one_side_is_in_a_sandbox() {
        for (source, destination) in [("a", "b"), ("a:/x", "b:/y"), ("-", "-"), ("-", "x")] {
            let arguments = Copy {
                source: source.into(),
                destination: destination.into(),
            };
            let failure = copy(&arguments, &Config::default()).expect_err("is wrong");
            assert_eq!(failure.kind(), Kind::Usage, "{source} {destination}");
        }
    }
}
