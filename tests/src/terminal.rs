//! A terminal with a person at it, as far as Holdfast can tell.

use crate::gathered::Gathered;
use crate::run::{Run, end_of};
use crate::wait::LONG;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, ttyname};
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
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
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = openpty(&size, None).expect("open a terminal");
        // A program that held the master would keep its own terminal from being hung up.
        for end in [&pair.master, &pair.slave] {
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).expect("close on exec");
        }
        let line = ttyname(&pair.slave).expect("name the terminal");
        let mut command: Command = run.led_by(["setsid", "--ctty"]).describe();
        let end = |what| {
            Stdio::from(
                pair.slave
                    .try_clone()
                    .unwrap_or_else(|e| panic!("{what}: {e}")),
            )
        };
        command
            .stdin(end("stdin"))
            .stdout(end("stdout"))
            .stderr(end("stderr"));
        command.env("TERM", "xterm");
        let child = command.spawn().expect("start holdfast");
        let master = File::from(pair.master);
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
        let (rows, columns) = (rows.to_string(), columns.to_string());
        let line = File::open(&self.line).expect("open the terminal's line");
        let done = Command::new("stty")
            .args(["rows", &rows, "columns", &columns])
            .stdin(line)
            .status()
            .expect("run stty");
        assert!(done.success(), "stty could not set the size");
    }

    /// The terminal's settings, as `stty -a` says them.
    pub fn settings(&self) -> String {
        let line = File::open(&self.line).expect("open the terminal's line");
        let said = Command::new("stty")
            .arg("-a")
            .stdin(line)
            .output()
            .expect("run stty");
        String::from_utf8_lossy(&said.stdout).into_owned()
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
