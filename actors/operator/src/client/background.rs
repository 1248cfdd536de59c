//! Starts a gateway in the background, once, however many ask at the same time.
//!
//! Whoever gets the lock starts it and holds the lock until it listens; the others find it listening when they get the
//! lock. The gateway is in a session of its own: neither our terminal nor our end reaches it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use super::internal;
use crate::config::Config;
use crate::failure::{Failure, Kind};

/// Starts a gateway unless one has come up meanwhile; answers the first connection to it.
pub(super) async fn start(config: &Config, socket: &Path) -> Result<UnixStream, Failure> {
    let (runtime, state) = (config.runtime_directory(), config.state_directory());
    for directory in [&runtime, &state] {
        private(directory)?;
    }
    let _alone = lock(&state.join("gateway.start")).await?;
    if let Ok(stream) = UnixStream::connect(socket).await {
        return Ok(stream);
    }
    let path = state.join("gateway.log");
    let mut log = log(&path).map_err(|error| {
        Failure::caused(Kind::Unreadable, format!("open {}", path.display()), &error)
    })?;
    let mut gateway = spawn(config, &log).map_err(|error| internal("start the gateway", &error))?;
    match timeout(LONGEST, listening(socket, &mut gateway)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(ended)) => Err(failed(&ended, &last_words(&mut log), &path)),
        Err(_late) => {
            // One that does not listen by now must not be in the way of the next attempt.
            let _gone = gateway.kill();
            let _reaped = gateway.wait();
            let waited = format!("it does not listen after {LONGEST:?}");
            Err(failed(&waited, &last_words(&mut log), &path))
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
                "name directories that you can write to: HOLDFAST_RUNTIME_DIR, HOLDFAST_STATE_DIR",
            ))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Waits its turn without holding up the runtime.
async fn lock(path: &Path) -> Result<Flock<File>, Failure> {
    let opened = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path);
    let mut file = opened.map_err(|error| {
        Failure::caused(Kind::Unreadable, format!("open {}", path.display()), &error)
    })?;
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

/// The gateway's log, from its end on.
fn log(path: &Path) -> io::Result<File> {
    let mut log = OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    log.seek(SeekFrom::End(0))?;
    Ok(log)
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
        .stdout(Stdio::null())
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

/// The last lines that it logged, for the error of whoever started it.
fn last_words(log: &mut File) -> String {
    let mut said = Vec::new();
    // Our own descriptor still stands where the log ended before it was started.
    let _nothing_said = log.take(MOST_WORDS).read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said);
    said.lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or_default()
        .to_owned()
}

fn failed(how: &str, said: &str, log: &Path) -> Failure {
    let said = said.strip_prefix("holdfast: ").unwrap_or(said);
    let reason = if said.is_empty() { how } else { said };
    Failure::new(Kind::Unreachable, format!("start the gateway: {reason}"))
        .hint(format!("{how}; its log is {}", log.display()))
}

/// How long a gateway may take until it listens.
const LONGEST: Duration = Duration::from_secs(5);

const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// As much of a log as is looked through for the reason.
const MOST_WORDS: u64 = 64 << 10;
