//! A session, as whoever attends it sees it: bytes, signals and an end. Where it runs makes no difference.
//!
//! ```text
//! input ─────▶ stdin ──┐            ┌──▶ the keeper in this process (`run`)
//! signals ─▶ control ──┤  Session  ─┤
//! printer ◀── stdout ──┤            └──▶ the gateway (`exec`, `attach`)
//! printer ◀── stderr ──┤
//! code ◀──────── exit ─┘
//! ```

use std::fmt;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use holdfast_keeper::sessions::{self, Control};
use tokio::sync::mpsc;

use crate::failure::{Failure, Kind};

pub(crate) mod foreground;
mod input;
pub(crate) mod printer;
pub(crate) mod remote;
pub(crate) mod signals;
pub(crate) mod terminal;

/// A session that somebody attends.
pub(crate) struct Session {
    /// What goes to its input; dropped, the input ends. `None`: it takes none of ours.
    pub(crate) stdin: Option<mpsc::Sender<Bytes>>,
    /// Its output; with a terminal both outputs.
    pub(crate) stdout: mpsc::Receiver<Bytes>,
    /// Its errors.
    pub(crate) stderr: mpsc::Receiver<Bytes>,
    /// What is asked of it besides.
    pub(crate) control: mpsc::Sender<Control>,
    /// How it ended.
    pub(crate) exit: BoxFuture<'static, Exit>,
    /// How we stand to it.
    pub(crate) bond: Bond,
    /// Kills what all of it stands on, where that is ours: whoever stands still inside, the kernel ends it.
    pub(crate) axe: Option<Axe>,
    /// Delivers what it has sent elsewhere before its end, where that hangs on us; dropped, it lets go of the rest.
    pub(crate) delivery: Option<BoxFuture<'static, ()>>,
}

/// Ends everything at once, from outside.
pub(crate) type Axe = Box<dyn Fn() + Send>;

/// How whoever attends a session stands to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bond {
    /// It is in our hands, and ends with us.
    Own,
    /// A sandbox runs it for us: it ends when nobody reads it, and a signal cancels it.
    Ours,
    /// A sandbox runs it at our terminal: what a signal means is its own affair.
    Lent,
    /// We came later and leave earlier: told to end, we leave it running.
    Guest,
}

impl Bond {
    /// Whether a signal that we pass on cancels it: then success is no result any more, and status 0 becomes 128+N.
    pub(crate) fn cancels(self) -> bool {
        self == Self::Ours
    }

    /// Whether it goes on when nobody attends it: then one whose terminal was hung up need not wait for its end.
    pub(crate) fn outlasts(self) -> bool {
        matches!(self, Self::Lent | Self::Guest)
    }
}

impl From<sessions::Session> for Session {
    fn from(session: sessions::Session) -> Self {
        let exit = session.exit;
        Self {
            stdin: Some(session.stdin),
            stdout: session.stdout,
            stderr: session.stderr,
            control: session.control,
            exit: Box::pin(async move {
                let told = exit.await.map(Exit::from);
                told.unwrap_or_else(|_untold| Exit::Unknown(unknown("its keeper went away")))
            }),
            bond: Bond::Own,
            axe: None,
            delivery: None,
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

/// How a session ended, for whoever attended it.
#[derive(Debug)]
pub(crate) enum Exit {
    /// By itself, with this status.
    Code(u8),
    /// By this signal.
    Signal(i32),
    /// Its time was up.
    TimedOut,
    /// Nobody knows, and why.
    Unknown(Failure),
}

/// An end that nobody told.
pub(crate) fn unknown(reason: &str) -> Failure {
    Failure::new(
        Kind::Internal,
        format!("learn how the program ended: {reason}"),
    )
}

impl From<sessions::Exit> for Exit {
    fn from(exit: sessions::Exit) -> Self {
        match exit {
            sessions::Exit::Code(code) => Self::Code(code),
            sessions::Exit::Signal(signal) => Self::Signal(signal),
            sessions::Exit::Unknown(reason) => Self::Unknown(unknown(&reason)),
        }
    }
}
