//! One session in the foreground: its input and output are ours, our signals are its, its end is our exit code.
//!
//! ```text
//! Starting ──launched──> Running ──exit──> Draining ──all is written──> Delivering ──all is delivered──> its exit code
//!     │ signal    ▲         │ limit, signals     │ signals                  │ limit, signals
//!     │           │         └──> 124, 128+N      ├──────────────────────────┴──> its exit code, at once
//!     │           │                              └ limit ──> 124
//!     ├─ leaving undoes the launch ──> 128+N
//!     └─ it does not: the answer is awaited, and the signal passed on
//! ```

use std::convert::Infallible;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

use super::input;
use super::printer::{Printer, Sink};
use super::signals::{Answer, Heard, Patience, Signals};
use super::terminal::{self, Raw};
use super::{Axe, Bond, Exit, Session};
use crate::failure::{Failure, Kind, by_signal};
use crate::threads;
use holdfast_keeper::sessions::Control;
use holdfast_kernel::outset;
use rest::Rest;

mod rest;

/// Our three ends.
#[derive(Debug)]
pub(crate) struct Ends {
    /// Read from, if the session takes input.
    pub(crate) input: OwnedFd,
    /// Written to.
    pub(crate) output: Sink,
    /// Written to.
    pub(crate) errors: Sink,
}

impl Ends {
    /// Duplicates of this process's standard three.
    pub(crate) fn standard() -> io::Result<Self> {
        Ok(Self {
            input: io::stdin().as_fd().try_clone_to_owned()?,
            output: Sink::File(output()?),
            errors: Sink::File(io::stderr().as_fd().try_clone_to_owned()?),
        })
    }
}

/// A duplicate of our stdout. What was closed when we began takes nothing, as it would from the program itself; the standard
/// library has opened in its place what takes everything.
fn output() -> io::Result<OwnedFd> {
    if outset::had_stdout() {
        io::stdout().as_fd().try_clone_to_owned()
    } else {
        File::open("/dev/null").map(OwnedFd::from)
    }
}

/// What an attendance is bounded by.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bounds {
    /// How long the session may take, its launch included.
    pub(crate) limit: Option<Duration>,
    /// How long the answer to a launch is awaited that a signal has met. Zero where dropping the launch undoes it.
    pub(crate) answer: Duration,
}

/// Attends a session from its start to its end. Answers our exit code.
pub(crate) async fn attend(
    launching: impl Future<Output = Result<Session, Failure>>,
    ends: Ends,
    Bounds { limit, answer }: Bounds,
    raw: Option<Raw>,
) -> Result<u8, Failure> {
    let internal = |error: io::Error| Failure::caused(Kind::Internal, "listen for signals", &error);
    let mut signals = Signals::listen(raw.is_some()).map_err(internal)?;
    let deadline = limit.map(later);
    tokio::pin!(launching);
    let (session, met) = tokio::select! {
        session = &mut launching => (session?, None),
        signal = first_end(&mut signals) => {
            let session = awaited(launching, answer, &mut signals, signal).await?;
            (session, Some(Heard::End(signal)))
        }
        () = passing(deadline) => return Err(timed_out(limit)),
    };
    let mut running = Running::begin(session, ends, raw)?;
    if let Some(met) = met {
        running.hear(met).await;
    }
    let ending = running.wait(&mut signals, deadline).await;
    let rest = match &ending {
        Ending::Known(_) => {
            // Elsewhere its output is kept, and the limit is the sandbox's to keep.
            let until = deadline.filter(|_| running.bond == Bond::Own);
            running.drain(&mut signals, until).await?
        }
        Ending::TimedOut => running.drain(&mut signals, None).await?,
        Ending::Overdue | Ending::Left(_) => {
            running.fell();
            Rest::Unwanted
        }
    };
    if let (Some(unread), Ending::Known(exit)) = (running.unread(), &ending) {
        if matches!(exit, Exit::Code(0)) && running.passed_on.is_none() {
            return Err(unread);
        }
        // It has a failure of its own, which this one may be the reason for.
        let _told = unread.tell(false, false);
    }
    // Whoever was told to leave, or lost the program, does not wait for what it had to say.
    if let (Rest::Wanted, Ending::Known(Exit::Code(_) | Exit::Signal(_))) = (rest, &ending) {
        running.deliver(&mut signals, deadline).await;
    }
    match ending {
        Ending::Known(exit) if rest == Rest::Overdue => Err(overdue(limit, exit)),
        Ending::Known(Exit::Code(0)) => Ok(running.passed_on.map_or(0, by_signal)),
        Ending::Known(Exit::Code(code)) => Ok(code),
        Ending::Known(Exit::Signal(signal)) => Ok(by_signal(signal)),
        Ending::Known(Exit::Unknown(failure)) => Err(failure),
        Ending::Known(Exit::TimedOut) | Ending::TimedOut | Ending::Overdue => Err(timed_out(limit)),
        Ending::Left(signal) => Err(Failure::interrupted(signal)),
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
    exit: BoxFuture<'static, Exit>,
    bond: Bond,
    /// When we leave it alone: our terminal was hung up.
    leaving: Option<Instant>,
    /// When it is told so once more. A shell that hears of it just before it reads waits on: outside its read would fail as well.
    again: Option<Instant>,
    /// The first signal that was passed on.
    passed_on: Option<i32>,
    printers: [Printer; 2],
    /// Why our input could not be read to its end.
    unread: Option<oneshot::Receiver<io::Error>>,
    patience: Patience,
    raw: Option<Raw>,
    axe: Option<Axe>,
    delivery: Option<BoxFuture<'static, ()>>,
    kill: Kill,
}

/// How far a kill has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kill {
    Unasked,
    /// The session was asked to die. If it has not by then, because somebody on the way stands still, all of it falls that is ours.
    Asked {
        until: Option<Instant>,
    },
    Fallen,
}

impl Kill {
    fn due(self) -> Option<Instant> {
        match self {
            Self::Asked { until } => until,
            Self::Unasked | Self::Fallen => None,
        }
    }
}

impl Running {
    fn begin(session: Session, ends: Ends, raw: Option<Raw>) -> Result<Self, Failure> {
        let output = Printer::new("stdout", ends.output, session.stdout);
        let errors = Printer::new("stderr", ends.errors, session.stderr);
        let outlasts = session.bond.outlasts();
        let pumped = session
            .stdin
            .map(|stdin| input::pump(ends.input, stdin, outlasts));
        let unread = pumped
            .transpose()
            .map_err(|error| threads::refused("start a thread that reads stdin", &error))?;
        Ok(Self {
            control: session.control,
            exit: session.exit,
            bond: session.bond,
            leaving: None,
            again: None,
            passed_on: None,
            printers: [output, errors],
            unread,
            patience: Patience::of(session.bond == Bond::Guest),
            raw,
            axe: session.axe,
            delivery: session.delivery,
            kill: Kill::Unasked,
        })
    }

    /// Waits for the exit, and passes on what we hear meanwhile.
    async fn wait(&mut self, signals: &mut Signals, deadline: Option<Instant>) -> Ending {
        let mut deadline = deadline;
        let mut late = false;
        loop {
            let (leaving, again, overdue) = (self.leaving, self.again, self.kill.due());
            tokio::select! {
                exit = &mut self.exit => {
                    return match self.kill {
                        _ if late => Ending::TimedOut,
                        Kill::Fallen => Ending::Known(Exit::Signal(libc::SIGKILL)),
                        Kill::Unasked | Kill::Asked { .. } => Ending::Known(exit),
                    };
                }
                heard = signals.next() => if let Some(signal) = self.hear(heard).await {
                    return Ending::Left(signal);
                },
                never = flow(&mut self.printers) => match never {},
                () = passing(leaving) => return Ending::Left(libc::SIGHUP),
                () = passing(again) => {
                    self.again = None;
                    self.ask(Control::Signal(libc::SIGHUP)).await;
                }
                () = passing(overdue) => self.fell(),
                () = passing(deadline) => {
                    if late {
                        return Ending::Overdue;
                    }
                    late = true;
                    deadline = Some(later(GRACE));
                    self.kill().await;
                }
            }
        }
    }

    /// Obeys one signal. `Some`: leave at once.
    async fn hear(&mut self, heard: Heard) -> Option<i32> {
        match heard {
            Heard::End(signal) => match self.patience.answer(signal) {
                Answer::Forward(signal) => {
                    if self.bond.cancels() {
                        self.passed_on.get_or_insert(signal);
                    }
                    if self.bond.outlasts() && signal == libc::SIGHUP {
                        self.leaving.get_or_insert_with(|| later(FAREWELL));
                        self.again = Some(later(AGAIN));
                    }
                    self.ask(Control::Signal(signal)).await;
                }
                Answer::Kill => self.kill().await,
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

    /// Why the program had less of our input than there is, if it had.
    fn unread(&mut self) -> Option<Failure> {
        let error = self.unread.as_mut()?.try_recv().ok()?;
        let failure = Failure::caused(Kind::InputFailed, "read stdin", &error);
        Some(failure.hint("the program's input ended there"))
    }

    /// Asks the session to die, for a while.
    async fn kill(&mut self) {
        if self.kill == Kill::Unasked {
            let until = self.axe.as_ref().map(|_| later(ASKED));
            self.kill = Kill::Asked { until };
        }
        self.ask(Control::Kill).await;
    }

    /// Kills what all of it stands on, if that is ours: the kernel ends the rest, whoever stands still.
    fn fell(&mut self) {
        if let Some(axe) = &self.axe {
            axe();
            self.kill = Kill::Fallen;
        }
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

/// The session whose launch a signal has met, if it is told within `answer` that it runs: then it can be ended.
async fn awaited(
    launching: impl Future<Output = Result<Session, Failure>>,
    answer: Duration,
    signals: &mut Signals,
    signal: i32,
) -> Result<Session, Failure> {
    if answer.is_zero() {
        return Err(Failure::interrupted(signal));
    }
    let launched = tokio::select! {
        launched = timeout(answer, launching) => launched,
        signal = first_end(signals) => return Err(unanswered(signal)),
    };
    match launched {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(_unlaunched)) => Err(Failure::interrupted(signal)),
        Err(_late) => Err(unanswered(signal)),
    }
}

fn unanswered(signal: i32) -> Failure {
    Failure::interrupted(signal)
        .hint("nobody has said whether it began: `holdfast sessions NAME` shows what runs")
}

/// Has all output flow, for as long as somebody waits for something else.
async fn flow([output, errors]: &mut [Printer; 2]) -> Infallible {
    let _heard_when_all_is_drained = tokio::join!(output.run(), errors.run());
    std::future::pending().await
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

/// Its time was up.
pub(crate) fn timed_out(limit: Option<Duration>) -> Failure {
    match limit {
        Some(limit) => Failure::new(Kind::TimedOut, format!("timed out after {limit:?}"))
            .hint("give it more with --timeout"),
        None => Failure::new(Kind::TimedOut, "its time limit ended it"),
    }
}

/// It has ended in its time, and not all of its output was read in it. Its own status would say that all is there.
fn overdue(limit: Option<Duration>, exit: Exit) -> Failure {
    let late = timed_out(limit);
    let ended = match exit {
        Exit::Code(code) => format!("with status {code}"),
        Exit::Signal(signal) => format!("by signal {signal}"),
        Exit::TimedOut => return late,
        Exit::Unknown(failure) => return failure,
    };
    let message = format!(
        "{}: the program ended {ended}, and its output was not read to the end",
        late.message()
    );
    Failure::new(Kind::TimedOut, message).hint("read it sooner, or give it more with --timeout")
}

/// How long a killed session may take to say that it has ended.
const GRACE: Duration = Duration::from_secs(5);

/// How long a session that is asked to die may take before all that it stands on is killed.
const ASKED: Duration = Duration::from_millis(500);

/// How long after the first hang-up the second one is.
const AGAIN: Duration = Duration::from_secs(1);

/// How long a session whose terminal was hung up may take to hear and to end of it.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long a request may wait for room.
const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
