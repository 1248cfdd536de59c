//! One session in the foreground: its input and output are ours, our signals are its, its end is our exit code.
//!
//! ```text
//! Starting ──launched──> Running ──exit──> Draining ──all is written──> its exit code
//!     │ signal              │ limit, signals      │ signals
//!     └──> 128+N            └──> 124, 128+N       └──> its exit code, at once
//! ```

use std::future::Future;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

use super::input;
use super::printer::{self, Printed};
use super::signals::{Answer, Heard, Patience, Signals};
use super::terminal::{self, Raw};
use crate::failure::{Failure, Kind, by_signal};
use holdfast_keeper::sessions::{Control, Exit, Session};

/// Our three ends.
#[derive(Debug)]
pub(crate) struct Ends {
    /// Read from.
    pub(crate) input: OwnedFd,
    /// Written to.
    pub(crate) output: OwnedFd,
    /// Written to.
    pub(crate) errors: OwnedFd,
}

impl Ends {
    /// Duplicates of this process's standard three.
    pub(crate) fn standard() -> io::Result<Self> {
        Ok(Self {
            input: io::stdin().as_fd().try_clone_to_owned()?,
            output: io::stdout().as_fd().try_clone_to_owned()?,
            errors: io::stderr().as_fd().try_clone_to_owned()?,
        })
    }
}

/// Attends a session from its start to its end. Answers our exit code.
pub(crate) async fn attend(
    launching: impl Future<Output = Result<Session, Failure>>,
    ends: Ends,
    limit: Option<Duration>,
    raw: Option<Raw>,
) -> Result<u8, Failure> {
    let internal = |error: io::Error| Failure::caused(Kind::Internal, "listen for signals", &error);
    let mut signals = Signals::listen(raw.is_some()).map_err(internal)?;
    let deadline = limit.map(later);
    let session = tokio::select! {
        session = launching => session?,
        signal = first_end(&mut signals) => return Err(interrupted(signal)),
        () = passing(deadline) => return Err(timed_out(limit)),
    };
    let mut running = Running::begin(session, ends, raw)?;
    let ending = running.wait(&mut signals, deadline).await;
    if let Ending::Known(_) | Ending::TimedOut = ending {
        running.drain(&mut signals).await?;
    }
    match ending {
        Ending::Known(Exit::Code(code)) => Ok(code),
        Ending::Known(Exit::Signal(signal)) => Ok(by_signal(signal)),
        Ending::Known(Exit::Unknown(reason)) => Err(unknown(&reason)),
        Ending::TimedOut | Ending::Overdue => Err(timed_out(limit)),
        Ending::Left(signal) => Err(interrupted(signal)),
    }
}

enum Ending {
    Known(Exit),
    /// It was killed because its time was up, and has ended.
    TimedOut,
    /// It was killed because its time was up, and does not say that it has ended.
    Overdue,
    /// We were told to leave without waiting.
    Left(i32),
}

/// A session whose bytes are flowing.
struct Running {
    control: tokio::sync::mpsc::Sender<Control>,
    exit: oneshot::Receiver<Exit>,
    printed: [Option<oneshot::Receiver<Printed>>; 2],
    patience: Patience,
    raw: Option<Raw>,
}

impl Running {
    fn begin(session: Session, ends: Ends, raw: Option<Raw>) -> Result<Self, Failure> {
        let internal = |error: io::Error| Failure::caused(Kind::Internal, "start a thread", &error);
        let output = printer::print("stdout", ends.output, session.stdout).map_err(internal)?;
        let errors = printer::print("stderr", ends.errors, session.stderr).map_err(internal)?;
        input::pump(ends.input, session.stdin).map_err(internal)?;
        Ok(Self {
            control: session.control,
            exit: session.exit,
            printed: [Some(output), Some(errors)],
            patience: Patience::default(),
            raw,
        })
    }

    /// Waits for the exit, and passes on what we hear meanwhile.
    async fn wait(&mut self, signals: &mut Signals, deadline: Option<Instant>) -> Ending {
        let mut deadline = deadline;
        let mut late = false;
        loop {
            tokio::select! {
                exit = &mut self.exit => {
                    let exit = exit.unwrap_or_else(|_untold| {
                        Exit::Unknown("its keeper went away".into())
                    });
                    return if late { Ending::TimedOut } else { Ending::Known(exit) };
                }
                heard = signals.next() => if let Some(signal) = self.hear(heard).await {
                    return Ending::Left(signal);
                },
                () = passing(deadline) => {
                    if late {
                        return Ending::Overdue;
                    }
                    late = true;
                    deadline = Some(later(GRACE));
                    self.ask(Control::Kill).await;
                }
            }
        }
    }

    /// Waits until everything is written; a signal means that nobody wants the rest.
    async fn drain(&mut self, signals: &mut Signals) -> Result<(), Failure> {
        for place in 0..self.printed.len() {
            let Some(mut printed) = self.printed[place].take() else {
                continue;
            };
            let printed = loop {
                tokio::select! {
                    printed = &mut printed => break printed,
                    heard = signals.next() => {
                        if let Heard::End(_) = heard {
                            return Ok(());
                        }
                        self.hear(heard).await;
                    }
                }
            };
            match printed {
                Ok(Printed::Whole | Printed::Closed) => {}
                Ok(Printed::Failed(error)) => return Err(unwritten(place, &error)),
                Err(_untold) => {
                    return Err(Failure::new(
                        Kind::Internal,
                        "write the output: its thread ended",
                    ));
                }
            }
        }
        Ok(())
    }

    /// Obeys one signal. `Some`: leave at once.
    async fn hear(&mut self, heard: Heard) -> Option<i32> {
        match heard {
            Heard::End(signal) => match self.patience.answer(signal) {
                Answer::Forward(signal) => self.ask(Control::Signal(signal)).await,
                Answer::Kill => self.ask(Control::Kill).await,
                Answer::Leave => return Some(signal),
            },
            Heard::Resized => self.ask(Control::Resize(terminal::size())).await,
            Heard::Stop => self.stop(),
            Heard::Continued => {
                if let Some(raw) = &self.raw {
                    raw.resume();
                    self.ask(Control::Resize(terminal::size())).await;
                }
            }
        }
        None
    }

    /// Gives the terminal back and stops, as one does who gets SIGTSTP. Goes on with SIGCONT.
    fn stop(&self) {
        if let Some(raw) = &self.raw {
            raw.pause();
        }
        let _unstoppable = nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP);
    }

    /// Asks the session for something. One that has ended, or that takes nothing for a while, is not asked again: its
    /// exit is on the way, or the next signal is harder.
    async fn ask(&self, control: Control) {
        let _unasked = timeout(PATIENCE, self.control.send(control)).await;
    }
}

/// The first signal that asks us to end.
async fn first_end(signals: &mut Signals) -> i32 {
    loop {
        if let Heard::End(signal) = signals.next().await {
            return signal;
        }
    }
}

async fn passing(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a deadline of the runtime's own timer, which a test can pause"
)]
fn later(delay: Duration) -> Instant {
    Instant::now() + delay
}

fn interrupted(signal: i32) -> Failure {
    let name = nix::sys::signal::Signal::try_from(signal).map_or("a signal", |name| name.as_str());
    Failure::new(Kind::Interrupted(signal), format!("ended by {name}"))
}

fn timed_out(limit: Option<Duration>) -> Failure {
    let limit = limit.unwrap_or_default();
    Failure::new(Kind::TimedOut, format!("timed out after {limit:?}"))
        .hint("give it more with --timeout")
}

fn unknown(reason: &str) -> Failure {
    let message = format!("learn how the program ended: {reason}");
    Failure::new(Kind::Internal, message)
}

fn unwritten(place: usize, error: &io::Error) -> Failure {
    let name = ["stdout", "stderr"][place];
    Failure::caused(Kind::OutputFailed, format!("write to {name}"), error)
}

/// How long a killed session may take to say that it has ended.
const GRACE: Duration = Duration::from_secs(5);

/// How long a request may wait for room.
const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
