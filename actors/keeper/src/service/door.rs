//! The keeper's socket: who may come in, and what happens when there is no descriptor for one who wants to.
//!
//! ```text
//! Accepting ── own uid ──> served     Accepting ── another uid ──> closed
//!     ├── EMFILE, a spare is left ──> served on its number; on the last one briefly
//!     └── EMFILE, ENFILE, ENOBUFS, ENOMEM ──> Resting, 10 ms … 1 s ──> Accepting
//! ```
//!
//! Whoever wants to come in meanwhile waits in the backlog. A socket whose place is empty is found by nobody: with each beat it
//! is looked for, and made anew. One that is another keeper's is left alone.

use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use holdfast_actor::{Backoff, Class, Seed};
use holdfast_clock::every;
use holdfast_kernel::descriptors::{Loan, Spares, noted};
use nix::unistd::geteuid;
use parking_lot::Mutex;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use super::guest::Guest;

/// A socket that is listened on, and its place. It outlives the actor that accepts on it.
#[derive(Debug)]
pub(crate) struct Door {
    listening: Mutex<Listening>,
    path: PathBuf,
    spares: Arc<Spares>,
}

#[derive(Debug)]
struct Listening {
    listener: Arc<UnixListener>,
    /// Which file its socket is. No other one gets the number while it is open.
    file: (u64, u64),
}

impl Door {
    /// Listens on `path`; the socket of a keeper that is dead is replaced.
    pub(crate) fn open(path: &Path, spares: Arc<Spares>) -> io::Result<Self> {
        Ok(Self {
            listening: Mutex::new(listen(path)?),
            path: path.to_owned(),
            spares,
        })
    }

    /// Listens anew when somebody has removed the socket.
    fn look(&self) {
        if !matches!(self.path.try_exists(), Ok(false)) {
            return;
        }
        // Without its directory it cannot; the next look tries again.
        if let Ok(listening) = listen(&self.path) {
            tracing::warn!(path = %self.path.display(), "the keeper's socket was removed; it listens anew");
            *self.listening.lock() = listening;
        }
    }

    /// Lets in one who waits, in the place of a spare.
    fn squeeze(&self, listener: &UnixListener) -> Option<(UnixStream, Option<Loan>)> {
        let mut now = Context::from_waker(Waker::noop());
        match self.spares.lend(|| listener.poll_accept(&mut now))? {
            (Poll::Ready(Ok((guest, _))), loan) => Some((guest, Some(loan))),
            (Poll::Ready(Err(_)) | Poll::Pending, _) => None,
        }
    }

    /// Lets in whoever may come in, for ever.
    pub(crate) async fn attend(
        self: Arc<Self>,
        guests: mpsc::Sender<io::Result<Guest>>,
        seed: Seed,
    ) -> io::Error {
        let (mut dice, mut failures) = (seed.dice(), 0);
        let mut looks = every(LOOK);
        loop {
            let listener = Arc::clone(&self.listening.lock().listener);
            let came = tokio::select! {
                came = listener.accept() => came,
                _ = looks.tick() => {
                    self.spares.gather();
                    self.look();
                    continue;
                }
            };
            let came = match came {
                Ok((guest, _)) => Ok((guest, None)),
                Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                    self.squeeze(&listener).ok_or(error)
                }
                Err(error) => Err(error),
            };
            match came {
                Ok((guest, loan)) => {
                    failures = 0;
                    let guest = noted(guest);
                    if !is_own(&guest) {
                        tracing::warn!("a stranger came to the keeper's socket");
                        continue;
                    }
                    if guests.send(Ok(Guest::new(guest, loan))).await.is_err() {
                        return io::ErrorKind::BrokenPipe.into();
                    }
                }
                Err(error) if is_passing(&error) => {
                    if failures == 0 {
                        tracing::warn!(%error, "let a client in");
                    }
                    tokio::time::sleep(BACKOFF.delay(failures, &mut dice)).await;
                    failures = failures.saturating_add(1);
                }
                Err(error) => return error,
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // The next keeper may have its own there by now.
        if file(&self.path).is_ok_and(|there| there == self.listening.lock().file) {
            let _gone_already = std::fs::remove_file(&self.path);
        }
    }
}

/// Which file is there.
fn file(path: &Path) -> io::Result<(u64, u64)> {
    let there = std::fs::symlink_metadata(path)?;
    Ok((there.dev(), there.ino()))
}

fn listen(path: &Path) -> io::Result<Listening> {
    // Bound beside its place and moved there: nobody ever finds a socket that others may use.
    let fresh = path.with_extension("new");
    let _there_was_none = std::fs::remove_file(&fresh);
    let listener = noted(UnixListener::bind(&fresh)?);
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600))?;
    let file = file(&fresh)?;
    std::fs::rename(&fresh, path)?;
    Ok(Listening {
        listener: Arc::new(listener),
        file,
    })
}

/// Only who could do anything to this process anyway.
fn is_own(guest: &UnixStream) -> bool {
    guest
        .peer_cred()
        .is_ok_and(|peer| peer.uid() == geteuid().as_raw() || peer.uid() == 0)
}

fn is_passing(error: &io::Error) -> bool {
    let kind = error.kind();
    let short = error
        .raw_os_error()
        .is_some_and(|errno| Class::of_errno(errno) == Class::Exhausted);
    short || kind == io::ErrorKind::ConnectionAborted || kind == io::ErrorKind::Interrupted
}

/// Between two tries while there is no descriptor.
const BACKOFF: Backoff = Backoff::between(Duration::from_millis(10), Duration::from_secs(1));

/// How soon a socket that was removed is missed: with the beat, which wakes the process anyway.
const LOOK: Duration = Duration::from_millis(700);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_passes_and_a_broken_socket_does_not() {
        for passing in [
            libc::EMFILE,
            libc::ENFILE,
            libc::ENOMEM,
            libc::ENOBUFS,
            libc::ECONNABORTED,
        ] {
            assert!(is_passing(&io::Error::from_raw_os_error(passing)));
        }
        for fault in [libc::EBADF, libc::EINVAL, libc::ENOTSOCK] {
            assert!(!is_passing(&io::Error::from_raw_os_error(fault)));
        }
    }

    #[tokio::test]
    async fn the_socket_of_a_dead_keeper_is_replaced_and_is_its_owners_only() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("keeper.sock");
        let dead = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        drop(dead);

        let door = Arc::new(Door::open(&path, Arc::default()).expect("opened"));

        let mode = std::fs::metadata(&path)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let (guests, mut came) = mpsc::channel(1);
        tokio::select! {
            error = Arc::clone(&door).attend(guests, Seed::new(1)) => panic!("{error}"),
            guest = async {
                UnixStream::connect(&path).await.expect("connected");
                came.recv().await
            } => assert!(guest.is_some()),
        }
        drop(door);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_keeper_that_ends_leaves_the_next_ones_socket_in_its_place() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("keeper.sock");
        let before = Door::open(&path, Arc::default()).expect("opened");
        let next = Door::open(&path, Arc::default()).expect("opened");

        drop(before);

        UnixStream::connect(&path).await.expect("it is there");
        drop(next);
        assert!(!path.exists());
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "a test owns its tasks")]
    async fn a_socket_that_was_removed_is_made_anew_and_another_ones_is_left() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("keeper.sock");
        let door = Arc::new(Door::open(&path, Arc::default()).expect("opened"));
        let (guests, mut came) = mpsc::channel(1);
        let attending = tokio::spawn(Arc::clone(&door).attend(guests, Seed::new(1)));
        std::fs::remove_file(&path).expect("removed");

        tokio::time::sleep(LOOK * 2).await;
        let _guest = UnixStream::connect(&path).await.expect("connected");
        assert!(came.recv().await.is_some());

        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "another").expect("written");
        tokio::time::sleep(LOOK * 2).await;
        assert_eq!(std::fs::read(&path).expect("there"), b"another");
        attending.abort();
    }
}
