//! What the foreground needs from a session, whoever provides it.

use bytes::Bytes;
use holdfast_kernel::terminal::Size;
use tokio::sync::{mpsc, oneshot};

/// A program that runs, seen from the one who started it.
///
/// Every channel is bounded: a reader that is slow holds the program back, and nothing is lost.
#[derive(Debug)]
pub(crate) struct Session {
    /// What goes to its input. Dropped: its input ends (half-close), its output goes on.
    /// When it closes, the program reads no more, which is no failure.
    pub(crate) stdin: mpsc::Sender<Bytes>,
    /// Its output, byte for byte; ends when there will be no more. With a terminal both outputs are here.
    /// Dropped: nobody reads any more. The provider must then close its end, so that the program's next write fails as
    /// into any closed pipe.
    pub(crate) stdout: mpsc::Receiver<Bytes>,
    /// The same for its errors.
    pub(crate) stderr: mpsc::Receiver<Bytes>,
    /// What is asked of it besides.
    pub(crate) control: mpsc::Sender<Control>,
    /// How it ended; told before the last of its output may have been read. Dropped untold, the end is not known.
    pub(crate) exit: oneshot::Receiver<Exit>,
}

/// What can be asked of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// The terminal has this size now.
    Resize(Size),
    /// Send this signal to its process group.
    Signal(i32),
    /// End it and everything that it started, by SIGKILL.
    Kill,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Exit {
    /// By itself, with this status.
    Code(u8),
    /// By this signal.
    Signal(i32),
    /// Nobody knows, and why.
    Unknown(String),
}
