//! Starts a gateway in the background, once, however many ask at the same time.
//!
//! Whoever gets the lock starts it and holds the lock until it listens; the others find it listening when they get the
//! lock. One that is just ending is waited for. The gateway is in a session of its own: neither our terminal nor our end
//! reaches it.
//!
//! One that does not come up tells why on its stdout, as a document, and on its stderr, which is its log. The first needs
//! no room on any disk.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use super::internal;
use crate::config::Config;
use crate::failure::{Failure, Kind, remedy};

/// Starts a gateway unless one has come up meanwhile; answers the first connection to it.
pub(super) async fn start(config: &Config, socket: &Path) -> Result<UnixStream, Failure> {
    let (runtime, state) = (config.runtime_directory(), config.state_directory());
    for directory in [&runtime, &state] {
        private(directory)?;
    }
    let _alone = lock(&state).await?;
    if let Ok(stream) = UnixStream::connect(socket).await {
        return Ok(stream);
    }
    // One that does not end in time is told of by the gateway that it keeps from starting.
    if let Ok(Some(stream)) = timeout(ENDING, gone(&runtime.join("gateway.pid"), socket)).await {
        return Ok(stream);
    }
    // It lets go of its state right after; somebody who serves elsewhere does not.
    let _free = timeout(RIGHT_AFTER, gone(&state.join("gateway.lock"), socket)).await;
    let path = state.join("gateway.log");
    let (log, begin) = log(&path).map_err(|error| unusable(&path, &state, &error))?;
    let mut gateway = spawn(config, &log).map_err(|error| internal("start the gateway", &error))?;
    match timeout(LONGEST, listening(socket, &mut gateway)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(ended)) => Err(failed(
            &ended,
            &document(gateway),
            &last_words(&log, begin),
            &path,
        )),
        Err(_late) => {
            // One that does not listen by now must not be in the way of the next attempt.
            let _gone = gateway.kill();
            let _reaped = gateway.wait();
            let waited = format!("it does not listen after {LONGEST:?}");
            Err(failed(
                &waited,
                &document(gateway),
                &last_words(&log, begin),
                &path,
            ))
        }
    }
}

fn private(directory: &Path) -> Result<(), Failure> {
    if let Some(parent) = directory.parent() {
        // What is there already keeps its mode.
        let _told_below = fs::create_dir_all(parent);
    }
    let made = DirBuilder::new().mode(0o700).create(directory);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            let message = format!("start the gateway: make {}", directory.display());
            Err(Failure::caused(Kind::Unreadable, message, &error).hint(
                remedy(&error, directory).unwrap_or_else(|| {
                    "name directories that you can write to: HOLDFAST_RUNTIME_DIR, HOLDFAST_STATE_DIR".to_owned()
                }),
            ))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Waits its turn without holding up the runtime.
async fn lock(state: &Path) -> Result<Flock<File>, Failure> {
    let path = &state.join("gateway.start");
    let opened = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path);
    let mut file = opened.map_err(|error| unusable(path, state, &error))?;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((back, nix::errno::Errno::EWOULDBLOCK)) => file = back,
            Err((_, errno)) => {
                return Err(internal(&format!("lock {}", path.display()), &errno.into()));
            }
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// Waits until no gateway holds a lock. `Some`: one listens meanwhile.
async fn gone(held: &Path, socket: &Path) -> Option<UnixStream> {
    while is_held(held) {
        if let Ok(stream) = UnixStream::connect(socket).await {
            return Some(stream);
        }
        sleep(LOOK_AGAIN).await;
    }
    None
}

/// A holder removes the file when it ends; one that was killed leaves it, unlocked.
fn is_held(path: &Path) -> bool {
    let locked = File::open(path).map(|file| Flock::lock(file, FlockArg::LockSharedNonblock));
    matches!(locked, Ok(Err((_, nix::errno::Errno::EWOULDBLOCK))))
}

/// The gateway's log, and where it ends before anything new is written.
fn log(path: &Path) -> io::Result<(File, u64)> {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    let end = log.metadata()?.len();
    Ok((log, end))
}

fn spawn(config: &Config, log: &File) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command
        // It makes its session itself: a program that did it for it would be one more to find.
        .args(["--own-session", "gateway"])
        .env("HOLDFAST_RUNTIME_DIR", config.runtime_directory())
        .env("HOLDFAST_STATE_DIR", config.state_directory())
        // It serves whoever comes: the directory where the first one stood is not its own.
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.try_clone()?);
    command.spawn()
}

/// Waits until it listens. An error is the way it ended.
async fn listening(socket: &Path, gateway: &mut Child) -> Result<UnixStream, String> {
    loop {
        if let Ok(stream) = UnixStream::connect(socket).await {
            return Ok(stream);
        }
        if let Ok(Some(status)) = gateway.try_wait() {
            return Err(format!("it ended with {status}"));
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// What was logged since `begin`, for the error of whoever started it; the last of it where it is much.
fn last_words(log: &File, begin: u64) -> String {
    let end = log.metadata().map_or(begin, |log| log.len());
    let mut at = begin.max(end.saturating_sub(MOST_WORDS));
    let mut said = Vec::new();
    let mut buffer = [0; 4096];
    // The descriptor's own offset is shared with the gateway, which moves it.
    while at < end
        && let Ok(count @ 1..) = log.read_at(&mut buffer, at)
    {
        said.extend_from_slice(&buffer[..count]);
        at += count as u64;
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// The failure that a gateway which has ended told as a document; nothing of one that told none.
fn document(gateway: Child) -> String {
    let mut said = String::new();
    if let Some(stdout) = gateway.stdout {
        // It has ended, so there is an end to what it said; what is cut off is no document.
        let _whole = stdout.take(MOST_WORDS).read_to_string(&mut said);
    }
    said
}

/// Its failure as it told it, with its own hint; of one that told none, how it ended and the last line it logged.
fn failed(how: &str, document: &str, said: &str, log: &Path) -> Failure {
    let document: Value = serde_json::from_str(document).unwrap_or_default();
    let told = |pointer| document.pointer(pointer).and_then(Value::as_str);
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    let message = match (told("/error/message"), last) {
        (Some(reason), _) => format!("start the gateway: {reason}"),
        (None, Some(last)) => format!("start the gateway: {how}: {last}"),
        (None, None) => format!("start the gateway: {how}, and it logged nothing"),
    };
    let log = last.map(|_| format!("its log is {}", log.display()));
    let hints = [told("/error/details/hint").map(str::to_owned), log];
    let hints: Vec<String> = hints.into_iter().flatten().collect();
    let failure = Failure::new(Kind::Unreachable, message);
    if hints.is_empty() {
        failure
    } else {
        failure.hint(hints.join("; "))
    }
}

/// A file of the state directory that cannot be had.
fn unusable(path: &Path, state: &Path, error: &io::Error) -> Failure {
    let message = format!("start the gateway: open {}", path.display());
    let failure = Failure::caused(Kind::Unreadable, message, error);
    match remedy(error, state) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// How long a gateway may take until it listens.
const LONGEST: Duration = Duration::from_secs(5);

const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// As much of a log as is looked through for the reason.
const MOST_WORDS: u64 = 64 << 10;

/// How long a gateway that was told to stop may take to be gone.
const ENDING: Duration = Duration::from_secs(5);

/// Between the two locks that a gateway lets go of.
const RIGHT_AFTER: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn text(document: &str, said: &str) -> (String, String) {
        let how = "it ended with exit status: 125";
        let failure = failed(how, document, said, Path::new("/l"));
        let hint = failure.document()["error"]["details"]["hint"].clone();
        let hint = hint.as_str().unwrap_or_default().to_owned();
        (failure.message().to_owned(), hint)
    }

    #[test]
    fn what_the_gateway_told_is_the_reason_and_its_hint_ours() {
        let told = Failure::new(Kind::Internal, "use /s: it is open to others")
            .hint("chmod 700 /s")
            .document()
            .to_string();

        let (message, hint) = text(&told, "12:00 INFO serving\n");
        let (without_room, only_its_own) = text(&told, "");

        assert_eq!(message, "start the gateway: use /s: it is open to others");
        assert_eq!(hint, "chmod 700 /s; its log is /l");
        assert_eq!(without_room, message);
        assert_eq!(only_its_own, "chmod 700 /s");
    }

    #[test]
    fn one_that_told_nothing_is_told_by_its_end_once() {
        let (silent, hint) = text("", "");
        let (panicked, _) = text("{\"err", "thread 'main' panicked\nat the disco\n\n");

        let ended = "start the gateway: it ended with exit status: 125";
        assert_eq!(silent, format!("{ended}, and it logged nothing"));
        assert_eq!(hint, "");
        assert_eq!(panicked, format!("{ended}: at the disco"));
    }

    #[test]
    fn only_what_this_start_logged_is_looked_at() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("gateway.log");
        fs::write(&path, "holdfast: an old story\n").expect("writes");
        let (log, begin) = log(&path).expect("opens");
        // As a gateway writes: by a descriptor that shares our offset.
        let mut gateways = log.try_clone().expect("is shared");

        gateways.write_all(b"holdfast: the news\n").expect("writes");

        assert_eq!(last_words(&log, begin), "holdfast: the news\n");
    }

    #[test]
    fn a_lock_is_held_as_long_as_somebody_holds_it() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("gateway.pid");
        assert!(!is_held(&path));

        let file = File::create(&path).expect("creates");
        let held = Flock::lock(file, FlockArg::LockExclusiveNonblock).expect("locks");
        assert!(is_held(&path));
        drop(held);

        assert!(!is_held(&path));
    }
}
