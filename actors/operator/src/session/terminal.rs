//! The caller's terminal: whose turn it is, its size, and raw mode that always ends.
//!
//! We never make ourselves the foreground (`tcsetpgrp` is the shell's business), and touch the terminal only while we
//! are it: a background job that reads or sets its terminal gets stopped by the kernel, or disturbs whoever has it.

use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd, BorrowedFd};

use holdfast_kernel::terminal::{self, Size};
use holdfast_observability::Journal;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::termios::{OutputFlags, SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};

/// Whether a person sits at all three of our ends, and we have the turn.
pub(crate) fn interactive() -> bool {
    let terminals =
        io::stdin().is_terminal() && io::stdout().is_terminal() && io::stderr().is_terminal();
    terminals && in_foreground(io::stdin().as_fd())
}

/// Whether reading from this terminal is our turn. True for what is not our controlling terminal: there no job control
/// applies.
pub(crate) fn in_foreground(terminal: BorrowedFd) -> bool {
    match tcgetpgrp(terminal) {
        Ok(group) => group == getpgrp(),
        Err(Errno::ENOTTY) => true,
        Err(_) => false,
    }
}

/// The size of whichever of our ends has one; 24 lines of 80 if none has.
pub(crate) fn size() -> Size {
    terminal::size(io::stdout())
        .or_else(|| terminal::size(io::stdin()))
        .or_else(|| terminal::size(io::stderr()))
        .unwrap_or_default()
}

/// Keeps this thread from being stopped for touching a terminal in the background: reads then fail with EIO, writes and
/// settings are done.
pub(crate) fn never_stopped() -> Unstopped {
    let mut stops = SigSet::empty();
    stops.add(Signal::SIGTTIN);
    stops.add(Signal::SIGTTOU);
    Unstopped(stops.thread_swap_mask(SigmaskHow::SIG_BLOCK).ok())
}

/// Puts the thread's signal mask back when it is dropped.
#[derive(Debug)]
pub(crate) struct Unstopped(Option<SigSet>);

impl Drop for Unstopped {
    fn drop(&mut self) {
        if let Some(mask) = &self.0 {
            let _unchanged = mask.thread_set_mask();
        }
    }
}

/// How much of our terminal is the program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Keys and screen.
    Whole,
    /// The screen alone. The keys stay ours: Ctrl-C is a signal to us, which we pass on.
    Screen,
}

impl Share {
    /// The end of ours that the terminal is at.
    fn end<T>(self, look: impl FnOnce(BorrowedFd) -> T) -> T {
        match self {
            Self::Whole => look(io::stdin().as_fd()),
            Self::Screen => look(io::stdout().as_fd()),
        }
    }
}

/// Raw mode of our terminal, for as long as this lives: every byte is the program's, and log lines wait. A screen alone is
/// raw in that nothing is put in front of a line feed any more: the terminal inside has done that already.
///
/// Dropped on every way out, an unwinding panic among them, it puts the terminal back as it was.
#[derive(Debug)]
pub(crate) struct Raw {
    share: Share,
    saved: Termios,
    journal: Option<Journal>,
}

impl Raw {
    /// Enters raw mode; of the screen alone where our input is none to give away. `None` when there is no terminal or it
    /// is not our turn.
    pub(crate) fn enter(share: Share, journal: Option<&Journal>) -> Option<Self> {
        let share = match share {
            Share::Whole if !io::stdin().is_terminal() => Share::Screen,
            Share::Whole | Share::Screen => share,
        };
        let ours = |end: BorrowedFd| end.is_terminal() && in_foreground(end);
        let saved = share.end(|end| ours(end).then(|| tcgetattr(end).ok()))??;
        let raw = Self {
            share,
            saved,
            journal: journal.cloned(),
        };
        raw.resume();
        Some(raw)
    }

    /// Puts the terminal back for a while: somebody else has it now.
    pub(crate) fn pause(&self) {
        self.set(&self.saved);
        if let Some(journal) = &self.journal {
            journal.release();
        }
    }

    /// Takes it again, if it is our turn.
    pub(crate) fn resume(&self) {
        if self.share.end(in_foreground) {
            let mut raw = self.saved.clone();
            match self.share {
                Share::Whole => cfmakeraw(&mut raw),
                Share::Screen => raw.output_flags.remove(OutputFlags::OPOST),
            }
            self.set(&raw);
            if let Some(journal) = &self.journal {
                journal.hold();
            }
        }
    }

    fn set(&self, mode: &Termios) {
        self.share.end(|end| {
            // In the background the shell has put its own settings back, and they are not ours to change.
            if in_foreground(end) {
                let _unstopped = never_stopped();
                let _terminal_is_gone = tcsetattr(end, SetArg::TCSADRAIN, mode);
            }
        });
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.pause();
    }
}
