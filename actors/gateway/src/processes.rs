//! Keepers and boundaries as processes: started, found again, watched and reaped.
//!
//! ```text
//! spawn ─────────────┐                    ┌─▶ ended: its status, where we are its parent
//! find (pid + start) ┴▶ pidfd ── readable ┘
//! SIGCHLD ──▶ sweep: every dead child is taken; what is watched keeps its status until it is asked for
//! ```
//!
//! A pid counts only together with the start time of its process, and from then on as a pidfd. The gateway is the reaper of
//! what its keepers leave behind (`PR_SET_CHILD_SUBREAPER`), so no zombie stays.

use std::collections::HashMap;
use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use holdfast_actor::{Actor, Fault, Me};
use holdfast_kernel::fork::{self, Ended};
use holdfast_kernel::look::started;
use holdfast_kernel::ready::Ready;
use holdfast_kernel::signals::Signals;
use nix::fcntl::OFlag;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use parking_lot::Mutex;

use crate::registry::row::Process;

/// The processes of all sandboxes. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Processes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    book: Mutex<Book>,
    boot: String,
    environment: Vec<CString>,
}

/// By pid, those that are watched.
#[derive(Debug, Default)]
struct Book(HashMap<u32, Page>);

/// One process in the book, for as long as anybody watches it.
#[derive(Debug)]
struct Page {
    start: u64,
    watchers: usize,
    /// How it ended, once that is known.
    ended: Option<Ended>,
}

/// One process that is watched.
#[derive(Clone, Debug)]
pub(crate) struct Watched(Arc<Watch>);

#[derive(Debug)]
struct Watch {
    process: Process,
    pidfd: Ready<OwnedFd>,
    book: Processes,
}

impl Processes {
    /// No process yet. What is started gets the part of `environment` that is meant for us.
    pub(crate) fn new(environment: &[(OsString, OsString)]) -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let passed = |name: &[u8]| {
            PASSED.iter().any(|known| known.as_bytes() == name) || name.starts_with(b"HOLDFAST_")
        };
        let environment = environment
            .iter()
            .filter(|(name, _)| passed(name.as_bytes()))
            .filter_map(|(name, value)| {
                CString::new([name.as_bytes(), value.as_bytes()].join(&b'=')).ok()
            });
        Ok(Self(Arc::new(Inner {
            book: Mutex::default(),
            boot: boot.trim().to_owned(),
            environment: environment.collect(),
        })))
    }

    /// Which start of the host this is.
    pub(crate) fn boot(&self) -> &str {
        &self.0.boot
    }

    /// Starts a keeper of our own program in a session of its own, with `log` for what it writes to stderr. It has `spec`
    /// open, and so locked, until it lets go of what it inherits. Must be called within a tokio runtime.
    pub(crate) fn keeper(&self, directory: &Path, spec: &File, log: &Path) -> io::Result<Watched> {
        let words = [
            c"holdfast".into(),
            c"keeper".into(),
            CString::new(directory.as_os_str().as_bytes())?,
        ];
        let mut files = PosixSpawnFileActions::init()?;
        files.add_open(0, "/dev/null", OFlag::O_RDONLY, Mode::empty())?;
        files.add_open(1, "/dev/null", OFlag::O_WRONLY, Mode::empty())?;
        let appending = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT;
        files.add_open(2, log, appending, Mode::S_IRUSR | Mode::S_IWUSR)?;
        // A duplicate stays open when the program is executed.
        files.add_dup2(spec.as_raw_fd(), INHERITED)?;
        let mut attributes = PosixSpawnAttr::init()?;
        attributes.set_sigmask(&SigSet::empty())?;
        attributes.set_sigdefault(&SigSet::all())?;
        attributes.set_flags(
            PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK
                | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF
                // Not named by nix: a session of its own.
                | PosixSpawnFlags::from_bits_retain(libc::POSIX_SPAWN_SETSID.into()),
        )?;
        // Nobody reaps until it is in the book, or its pid could be another's by then.
        let mut book = self.0.book.lock();
        let pid = posix_spawn(
            c"/proc/self/exe",
            &files,
            &attributes,
            &words,
            &self.0.environment,
        )
        .map_err(io::Error::from)
        .map_err(named("execute /proc/self/exe"))?;
        let held = hold(u32::try_from(pid.as_raw()).unwrap_or_default());
        match held.and_then(|held| held.ok_or_else(|| io::ErrorKind::NotFound.into())) {
            Ok((process, pidfd)) => Ok(self.watch(&mut book, process, pidfd)),
            Err(error) => {
                // One that nobody can watch must not run. It is not reaped, so the number is still its own.
                let _ = kill(pid, Signal::SIGKILL);
                let _ = waitpid(pid, None);
                Err(named("watch it")(error))
            }
        }
    }

    /// The process of this pid and start time, if it is still that one. An error: nobody knows. Must be called within a tokio
    /// runtime.
    pub(crate) fn find(&self, process: &Process) -> io::Result<Option<Watched>> {
        let held = hold(process.pid)?.filter(|(found, _)| found == process);
        Ok(held.map(|(process, pidfd)| self.watch(&mut self.0.book.lock(), process, pidfd)))
    }

    fn watch(&self, book: &mut Book, process: Process, pidfd: Ready<OwnedFd>) -> Watched {
        book.open(&process);
        Watched(Arc::new(Watch {
            process,
            pidfd,
            book: self.clone(),
        }))
    }

    /// Takes the status of every child that has ended.
    fn sweep(&self) {
        let mut book = self.0.book.lock();
        while let Ok(Some((pid, ended))) = fork::reap() {
            let pid = u32::try_from(pid.as_raw()).unwrap_or_default();
            if let Some(page) = book.0.get_mut(&pid) {
                page.ended = Some(ended);
            }
        }
    }
}

impl Watched {
    pub(crate) fn process(&self) -> &Process {
        &self.0.process
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.process.pid
    }

    /// Waits for its end. `None`: it was not our child, so nobody told us how.
    pub(crate) async fn ended(&self) -> Option<Ended> {
        // A pidfd that cannot be waited for is one of a process that nobody can know more of.
        let _ = self.0.pidfd.readable().await;
        self.0.book.sweep();
        let mut book = self.0.book.0.book.lock();
        book.page(self.process()).and_then(|page| page.ended)
    }

    pub(crate) fn kill(&self) {
        // One that has ended is what we want, and another error leaves nothing to do.
        let _ = fork::signal_by(self.0.pidfd.inner(), libc::SIGKILL);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.book.0.book.lock().close(&self.process);
    }
}

impl Book {
    /// One more watches this process. A page of another one that had its number is out of date.
    fn open(&mut self, process: &Process) {
        if let Some(page) = self.page(process) {
            page.watchers += 1;
            return;
        }
        let page = Page {
            start: process.start,
            watchers: 1,
            ended: None,
        };
        self.0.insert(process.pid, page);
    }

    /// One less watches it; the last one takes its page along, and nobody else's.
    fn close(&mut self, process: &Process) {
        let Some(page) = self.page(process) else {
            return;
        };
        page.watchers -= 1;
        if page.watchers == 0 {
            self.0.remove(&process.pid);
        }
    }

    fn page(&mut self, process: &Process) -> Option<&mut Page> {
        let page = self.0.get_mut(&process.pid)?;
        (page.start == process.start).then_some(page)
    }
}

/// Says at which step of several it was.
pub(crate) fn named(step: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{step}: {error}"))
}

/// The process that has this pid now; `None` when none has.
fn hold(pid: u32) -> io::Result<Option<(Process, Ready<OwnedFd>)>> {
    if pid == 0 {
        return Ok(None);
    }
    // In this order: if the pid came to mean another process in between, the start time is that one's, too.
    let Some(pidfd) = there(fork::open_pidfd(pid, false))? else {
        return Ok(None);
    };
    let Some(start) = there(started(pid))? else {
        return Ok(None);
    };
    Ok(Some((Process { pid, start }, Ready::reading(pidfd)?)))
}

/// Tells a process that is gone from one that cannot be looked at. The number may belong to a thread by now, which is no
/// process either.
fn there<T>(answer: holdfast_kernel::Result<T>) -> io::Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if matches!(error.errno(), libc::ESRCH | libc::EINVAL | libc::ENOENT) => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The descriptor by which a keeper has its spec locked.
const INHERITED: i32 = 3;

/// What a keeper gets of our environment, besides what is named after us.
const PASSED: [&str; 6] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR", "RUST_BACKTRACE"];

/// Takes the status of children that nobody watches: what a dead keeper left.
pub(crate) struct Reaper;

impl Actor for Reaper {
    type Message = std::convert::Infallible;
    type Arguments = Processes;
    type State = ();

    async fn start(me: &Me<Self::Message>, processes: Processes) -> Result<(), Fault> {
        let mut deaths = Signals::listen(&[libc::SIGCHLD])?;
        processes.sweep();
        me.spawn(async move {
            loop {
                deaths.next().await;
                processes.sweep();
            }
        });
        Ok(())
    }

    async fn handle(_: &Me<Self::Message>, never: Self::Message, (): &mut ()) -> Result<(), Fault> {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn whoever_watches_no_more_leaves_the_book_to_the_others() {
        let mut book = Book::default();
        let old = Process { pid: 7, start: 1 };
        let new = Process { start: 2, ..old };
        book.open(&old);
        book.open(&new);
        book.open(&new);

        book.close(&old);
        book.close(&new);
        book.page(&new).expect("still watched").ended = Some(Ended::Exited(0));
        book.close(&new);

        assert!(book.page(&new).is_none() && book.0.is_empty());
    }

    #[tokio::test]
    #[expect(clippy::zombie_processes, reason = "the book under test reaps it")]
    async fn a_process_is_found_by_pid_and_start_and_its_end_is_told() {
        let processes = Processes::new(&[]).expect("a host");
        let child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let start = started(child.id()).expect("runs");
        let process = Process {
            pid: child.id(),
            start,
        };
        let other = Process {
            start: start + 1,
            ..process
        };

        assert!(processes.find(&other).expect("known").is_none());
        let found = processes.find(&process).expect("known");
        let found = found.expect("the same");
        found.kill();

        assert_eq!(found.ended().await, Some(Ended::Signalled(libc::SIGKILL)));
        assert!(started(child.id()).is_err(), "a zombie is left");
    }
}
