//! What a session leaves when it has ended: output that is not written yet, and bytes on their way to servers.
//!
//! Both are waited for as long as somebody wants them. A signal that comes now has no program any more to pass it on to: it says that nobody does.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use super::super::signals::{Heard, Signals};
use super::{Kill, Running, later, passing};
use crate::failure::{Failure, Kind};
use crate::threads;

/// Whether anybody waits for what an ended session has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    Wanted,
    Unwanted,
    /// Its time is up.
    Overdue,
}

impl Running {
    /// Waits until everything is written, or its time is up; a signal means that nobody wants the rest, and the rest of what was killed
    /// is not waited for long: its reader may have stopped.
    pub(super) async fn drain(
        &mut self,
        signals: &mut Signals,
        deadline: Option<Instant>,
    ) -> Result<Rest, Failure> {
        let until = self.patient();
        loop {
            let [output, errors] = &mut self.printers;
            tokio::select! {
                () = passing(until) => return Ok(Rest::Unwanted),
                () = passing(deadline) => return Ok(Rest::Overdue),
                printed = async { tokio::join!(output.run(), errors.run()) } => {
                    printed.0.map_err(|error| unwritten("stdout", error))?;
                    printed.1.map_err(|error| unwritten("stderr", error))?;
                    return Ok(Rest::Wanted);
                }
                heard = signals.next() => {
                    if let Heard::End(_) = heard {
                        return Ok(Rest::Unwanted);
                    }
                    self.hear(heard).await;
                }
            }
        }
    }

    /// Waits until what the session has sent is delivered; a signal or the end of its time means that nobody waits for the rest, which is
    /// let go of, and that of what was killed is not waited for long.
    pub(super) async fn deliver(&mut self, signals: &mut Signals, deadline: Option<Instant>) {
        let Some(mut delivery) = self.delivery.take() else {
            return;
        };
        // Nobody is left to read keys: Ctrl-C is a signal again.
        self.raw = None;
        let until = self.patient();
        loop {
            tokio::select! {
                () = &mut delivery => return,
                () = passing(until) => return,
                () = passing(deadline) => return,
                heard = signals.next() => {
                    if let Heard::End(_) = heard {
                        return;
                    }
                    self.hear(heard).await;
                }
            }
        }
    }

    /// Until when the rest of what was killed is waited for.
    fn patient(&self) -> Option<Instant> {
        (self.kill != Kill::Unasked).then(|| later(REST))
    }
}

pub(super) fn unwritten(name: &str, error: &io::Error) -> Failure {
    match error.raw_os_error() {
        // Where it would block a write waits: it is the thread for it that was refused.
        Some(libc::EAGAIN) => {
            threads::refused(&format!("start a thread that writes {name}"), error)
        }
        Some(_) | None => Failure::caused(Kind::OutputFailed, format!("write to {name}"), error),
    }
}

/// How long the output of a killed session is written, and how long what it has sent is delivered.
const REST: Duration = Duration::from_secs(1);
