//! Signals that reach us and what becomes of them.
//!
//! ```text
//! 1st INT  -> INT      1st TERM -> TERM     HUP  -> HUP
//! 2nd INT  -> TERM     2nd TERM -> kill     QUIT -> QUIT
//! 3rd INT  -> kill     3rd TERM -> leave
//! 4th INT  -> leave
//! ```
//!
//! A guest in a session (`attach`) passes INT and QUIT on in the same way, and leaves at the first TERM or HUP.
//!
//! What we were started to ignore stays ignored: under `nohup`, nobody hears of a HUP. One whose terminal was hung up waits a
//! while for the session to end of it, and leaves one that goes on without us.
//!
//! One who presses Ctrl-C again means it: each time is harder than the last, and in the end we go, and the sandbox with
//! us.

use std::io;

use holdfast_kernel::signals;

/// What we do about a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The program gets it too.
    Forward(i32),
    /// The program and all that it started are killed.
    Kill,
    /// We end without waiting any longer.
    Leave,
}

/// How patient we still are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Patience {
    guest: bool,
    interrupts: u8,
    terminations: u8,
}

impl Patience {
    /// The patience of a guest, or of one whose session it is.
    pub(crate) fn of(guest: bool) -> Self {
        Self {
            guest,
            ..Self::default()
        }
    }

    /// What to do about one of INT, TERM, HUP and QUIT.
    pub(crate) fn answer(&mut self, signal: i32) -> Answer {
        match signal {
            libc::SIGINT => {
                self.interrupts = self.interrupts.saturating_add(1);
                match self.interrupts {
                    1 => Answer::Forward(libc::SIGINT),
                    2 => Answer::Forward(libc::SIGTERM),
                    3 => Answer::Kill,
                    _ => Answer::Leave,
                }
            }
            libc::SIGTERM | libc::SIGHUP if self.guest => Answer::Leave,
            libc::SIGTERM => {
                self.terminations = self.terminations.saturating_add(1);
                match self.terminations {
                    1 => Answer::Forward(libc::SIGTERM),
                    2 => Answer::Kill,
                    _ => Answer::Leave,
                }
            }
            other => Answer::Forward(other),
        }
    }
}

/// Something that the kernel told this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// One of INT, TERM, HUP and QUIT.
    End(i32),
    /// Our terminal has another size.
    Resized,
    /// We shall stop (Ctrl-Z, or somebody's kill).
    Stop,
    /// We go on after a stop.
    Continued,
}

/// Hears signals from now on; none of them ends the process by itself any more.
#[derive(Debug)]
pub(crate) struct Signals(signals::Signals);

impl Signals {
    /// `raw`: our terminal is in raw mode, so that a stop has to put it right first.
    pub(crate) fn listen(raw: bool) -> io::Result<Self> {
        let mut numbers = vec![libc::SIGQUIT, libc::SIGWINCH, libc::SIGCONT];
        numbers.extend(ENDS);
        numbers.extend(raw.then_some(libc::SIGTSTP));
        numbers.retain(|number| heeded(*number));
        Ok(Self(signals::Signals::listen(&numbers)?))
    }

    /// The next signal. May be dropped halfway: nothing gets lost.
    pub(crate) async fn next(&mut self) -> Heard {
        match self.0.next().await {
            libc::SIGWINCH => Heard::Resized,
            libc::SIGTSTP => Heard::Stop,
            libc::SIGCONT => Heard::Continued,
            end => Heard::End(end),
        }
    }
}

/// Hears only what asks us to end, for commands that have nobody to pass it on to.
#[derive(Debug)]
pub(crate) struct Ends(signals::Signals);

impl Ends {
    /// Hears from now on; none of these ends the process by itself any more.
    pub(crate) fn listen() -> io::Result<Self> {
        let mut numbers = ENDS.to_vec();
        numbers.retain(|number| heeded(*number));
        Ok(Self(signals::Signals::listen(&numbers)?))
    }

    /// The next signal. May be dropped halfway: nothing gets lost.
    pub(crate) async fn next(&mut self) -> i32 {
        self.0.next().await
    }
}

/// Whether a signal is for us: one that we were started to ignore (`nohup`, a job in the background of a script) is not.
fn heeded(number: i32) -> bool {
    !signals::is_ignored(number)
}

/// What asks a command to end.
const ENDS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interrupt_is_harder_than_the_last() {
        let mut patience = Patience::default();

        let answers: Vec<Answer> = (0..5).map(|_| patience.answer(libc::SIGINT)).collect();

        assert_eq!(
            answers,
            [
                Answer::Forward(libc::SIGINT),
                Answer::Forward(libc::SIGTERM),
                Answer::Kill,
                Answer::Leave,
                Answer::Leave,
            ]
        );
    }

    #[test]
    fn a_guest_leaves_when_told_to_end_and_passes_the_rest_on() {
        for signal in [libc::SIGTERM, libc::SIGHUP] {
            assert_eq!(Patience::of(true).answer(signal), Answer::Leave);
        }
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            assert_eq!(Patience::of(true).answer(signal), Answer::Forward(signal));
        }
    }

    #[test]
    fn a_second_termination_kills_and_a_hangup_is_passed_on_each_time() {
        let mut patience = Patience::default();

        let answers = [libc::SIGTERM, libc::SIGHUP, libc::SIGTERM, libc::SIGHUP]
            .map(|signal| patience.answer(signal));

        assert_eq!(
            answers,
            [
                Answer::Forward(libc::SIGTERM),
                Answer::Forward(libc::SIGHUP),
                Answer::Kill,
                Answer::Forward(libc::SIGHUP),
            ]
        );
    }
}
