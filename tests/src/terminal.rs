//! A terminal with a person at it, as far as Holdfast can tell.

use crate::gathered::Gathered;
use crate::run::{Run, end_of};
use crate::wait::LONG;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{File, OpenOptions};
use std::io::{PipeReader, PipeWriter, Read, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};

/// The binary with a terminal of its own: it leads a session, and the terminal is its controlling one.
#[derive(Debug)]
pub struct Terminal {
    master: Arc<File>,
    line: PathBuf,
    pid: Pid,
    screen: Gathered,
    watched: PipeWriter,
    end: mpsc::Receiver<ExitStatus>,
}

impl Terminal {
    /// Starts a run at a terminal of this size.
    pub fn start(run: Run<'_>, rows: u16, columns: u16) -> Self {
        let (master, line) = open();
        set_size(&line, rows, columns);
        let slave = side(&line);
        let mut command: Command = run.led_by(["setsid", "--ctty"]).describe();
        let end = |what| Stdio::from(slave.try_clone().unwrap_or_else(|e| panic!("{what}: {e}")));
        command
            .stdin(end("stdin"))
            .stdout(end("stdout"))
            .stderr(end("stderr"));
        command.env("TERM", "xterm");
        let child = command.spawn().expect("start holdfast");
        let (unwatched, watched) = std::io::pipe().expect("open a pipe");
        let master = Arc::new(master);
        let screen = Gathered::from(Screen {
            master: Arc::clone(&master),
            unwatched,
        });
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid fits"));
        Self {
            master,
            line,
            pid,
            screen,
            watched,
            end: end_of(child),
        }
    }

    /// The process that was started.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Types.
    pub fn send(&self, keys: &str) {
        (&*self.master).write_all(keys.as_bytes()).expect("type");
    }

    /// Waits until the screen has shown this; answers all that it has shown.
    pub fn expect(&self, text: &str) -> String {
        let shown = self.screen.wait_for(text, LONG);
        shown.unwrap_or_else(|so_far| panic!("no {text:?} on the screen: {so_far:?}"))
    }

    /// All that the screen has shown.
    pub fn shown(&self) -> String {
        self.screen.text()
    }

    /// Changes the size; the kernel tells the foreground process group.
    pub fn resize(&self, rows: u16, columns: u16) {
        set_size(&self.line, rows, columns);
    }

    /// Waits for the end of the run.
    pub fn finish(self) -> (ExitStatus, String) {
        let Ok(status) = self.end.recv_timeout(LONG) else {
            let _ = kill(self.pid, Signal::SIGKILL);
            panic!(
                "still running; the screen has shown {:?}",
                self.screen.text()
            );
        };
        self.screen.wait_for_end();
        (status, self.screen.text())
    }

    /// Hangs up: the person and the terminal are gone. Answers where the end of the run will be heard.
    pub fn hang_up(self) -> mpsc::Receiver<ExitStatus> {
        let Self {
            master,
            watched,
            screen,
            end,
            ..
        } = self;
        drop(watched);
        screen.wait_for_end();
        drop(master);
        end
    }
}

/// Runs at a terminal, with these keys once it has said that it is ready, and finds the terminal as it was before.
pub fn is_given_back(run: Run<'_>, keys: &str) {
    // The shell that starts the binary holds the terminal open, so that its settings can be read afterwards.
    let line = "trap '' INT; stty -a >before; (trap - INT; exec \"$@\"); stty -a >after; cmp before after && echo same";
    let terminal = Terminal::start(run.under(["/bin/sh", "-c", line, "sh"]), 24, 80);
    if !keys.is_empty() {
        terminal.expect("ready");
        terminal.send(keys);
    }
    let (_, shown) = terminal.finish();
    assert!(shown.contains("same"), "{shown}");
}

/// A terminal whose master no child inherits: it hangs up when we let go of it.
fn open() -> (File, PathBuf) {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = posix_openpt(flags).expect("open a terminal");
    grantpt(&master).expect("grant the terminal");
    unlockpt(&master).expect("unlock the terminal");
    let line = ptsname_r(&master).expect("name the terminal");
    let master = master
        .as_fd()
        .try_clone_to_owned()
        .expect("duplicate the master");
    (File::from(master), line.into())
}

/// The side of the program, without becoming our own controlling terminal.
fn side(line: &Path) -> File {
    let flags = OFlag::O_NOCTTY.bits();
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(line);
    opened.expect("open the terminal's line")
}

fn set_size(line: &Path, rows: u16, columns: u16) {
    let (rows, columns) = (rows.to_string(), columns.to_string());
    let done = Command::new("stty")
        .args(["rows", &rows, "columns", &columns])
        .stdin(side(line))
        .status()
        .expect("run stty");
    assert!(done.success(), "stty could not set the size");
}

/// The reading side of a terminal, which lets go of it when nobody watches any more: a terminal hangs up with its last descriptor.
struct Screen {
    master: Arc<File>,
    unwatched: PipeReader,
}

impl Read for Screen {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut both = [
            PollFd::new(self.master.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.unwatched.as_fd(), PollFlags::POLLIN),
        ];
        poll(&mut both, PollTimeout::NONE)?;
        if both[1].any() == Some(true) {
            return Ok(0);
        }
        (&*self.master).read(buffer)
    }
}
