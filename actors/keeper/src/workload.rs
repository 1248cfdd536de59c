//! The workload: the sessions that run are watched again, and the main process is started once in a generation, its output
//! written down, its end told.
//!
//! ```text
//! nothing asked ──> Idle          launched, or found at a takeover ──> Written down ── exit ──> told
//!                                     └── not started ──> told
//! ```
//!
//! After a restart of this actor, or of the keeper, the log goes on behind the last byte that it has.

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_actor::{Actor, Fault, Me};
use holdfast_wire::v1;
use holdfast_wire::v1::exit::How;
use holdfast_wire::v1::session_output::Kind;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tonic::Status;

use crate::board::Board;
use crate::health::Event;
use crate::sessions::attend::Attending;
use crate::sessions::book::BOUNDARY_LOST;
use crate::sessions::errand::{self, Home, MAIN};
use crate::sessions::lasting::{Begun, Sessions};
use crate::status::Vitals;
use log::Log;

mod log;

/// Attends the main process.
pub(crate) struct Workload;

/// What it is born with.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) home: Arc<Home>,
    /// Empty: the sandbox idles.
    pub(crate) program: Vec<Vec<u8>>,
    pub(crate) generation: u64,
    /// Where the output is written.
    pub(crate) log: PathBuf,
    pub(crate) ended: Arc<watch::Sender<Option<v1::Ending>>>,
    pub(crate) board: Board,
    pub(crate) vitals: Vitals,
    /// The session, once it is known.
    pub(crate) session: Arc<Mutex<Option<u64>>>,
}

impl Actor for Workload {
    type Message = std::convert::Infallible;
    type Arguments = Arguments;
    type State = ();

    async fn start(me: &Me<Self::Message>, arguments: Arguments) -> Result<(), Fault> {
        // It is the first behind the sessions: if those fell, their watchers are placed anew here.
        let resumed = arguments.sessions.resume().await;
        resumed.map_err(|status| Fault::exhausted(status.message().to_owned()))?;
        if arguments.program.is_empty() || arguments.ended.borrow().is_some() {
            return Ok(());
        }
        let (tell, settled) = oneshot::channel::<()>();
        let this = me.clone();
        me.spawn(async move {
            let begun = arguments.begin(&this).await;
            let ending = match begun {
                Ok((log, attending)) => {
                    drop(tell);
                    arguments.attend(&this, log, attending).await?
                }
                Err(Failure::NotStarted(status)) => {
                    let ending = arguments.unstarted(&status);
                    arguments.foretell(&ending);
                    tracing::error!(%status, "start the main process");
                    let told = Some(ending.clone());
                    arguments.board.revise(|status| status.main = told);
                    ending
                }
                Err(Failure::Fault(fault)) => return Err(fault),
            };
            arguments.ended.send_replace(Some(ending));
            Ok(())
        });
        // Nobody calls the sandbox ready before it is known whether its program runs.
        let _it_is_known = settled.await;
        Ok(())
    }

    async fn handle(_: &Me<Self::Message>, never: Self::Message, (): &mut ()) -> Result<(), Fault> {
        match never {}
    }
}

enum Failure {
    NotStarted(Status),
    Fault(Fault),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Arguments {
    /// The main process and the log to write it down in.
    async fn begin(&self, me: &Me<std::convert::Infallible>) -> Result<(Log, Attending), Failure> {
        let (path, generation) = (self.log.clone(), self.generation);
        let opened = me.offload(move || Log::open(&path, generation)).await?;
        let log = opened.map_err(|error| Fault::from(error).during("open the workload's log"))?;
        let attending = self.find(log.offset()).await?;
        Ok((log, attending))
    }

    /// Writes down what the main process says; answers how it ended.
    async fn attend(
        &self,
        me: &Me<std::convert::Infallible>,
        mut log: Log,
        mut attending: Attending,
    ) -> Result<v1::Ending, Fault> {
        loop {
            let lines = match attending.next().await {
                Some(Ok(Kind::Begun(_))) => continue,
                Some(Ok(Kind::Chunk(chunk))) => log.chunk(&chunk, self.sessions.wall()),
                Some(Ok(Kind::Lost(bytes))) => log.lost(bytes, self.sessions.wall()),
                Some(Ok(Kind::Ended(ending))) => {
                    self.foretell(&ending);
                    return Ok(ending);
                }
                Some(Err(status)) => {
                    return Err(Fault::failed(status.message().to_owned()));
                }
                None => return Err(Fault::bug("the main process ended without an end")),
            };
            let (kept, written) = me
                .offload(move || {
                    let written = log.write(&lines);
                    (log, written)
                })
                .await?;
            log = kept;
            if let Err(error) = written {
                // A full disk costs lines, not the workload.
                tracing::warn!(%error, "write the workload's log");
            }
        }
    }

    /// The main process's output behind `offset`; starts it if that was not done before.
    async fn find(&self, offset: u64) -> Result<Attending, Failure> {
        let request = format!("main of generation {}", self.generation);
        let known = *self.session.lock();
        let known = known
            .or_else(|| self.sessions.of_kind(MAIN))
            .or_else(|| self.sessions.of_request(&request));
        let session = if let Some(session) = known {
            session
        } else {
            let now = self.sessions.now_ms();
            let order = errand::main(&self.home, &self.program, request, now);
            match self.sessions.begin(order).await {
                Ok(Begun::Live(seat)) => {
                    *self.session.lock() = Some(seat.live().id);
                    return Ok(seat
                        .read(offset, None)
                        .await
                        .map_err(|status| unreached(&status))?);
                }
                Ok(Begun::Earlier(session)) => session,
                Err(status) if is_passing(&status) => return Err(unreached(&status).into()),
                Err(status) => return Err(Failure::NotStarted(status)),
            }
        };
        *self.session.lock() = Some(session);
        match self.sessions.own_seat(session) {
            Some(seat) => Ok(seat
                .read(offset, None)
                .await
                .map_err(|status| unreached(&status))?),
            None => Ok(self
                .sessions
                .revisit(session, offset)
                .await
                .map_err(|status| unreached(&status))?),
        }
    }

    /// From here on the sandbox comes to its end, and is not ready for anything. With the boundary the main process is lost; that is no
    /// end of its own.
    fn foretell(&self, ending: &v1::Ending) {
        if ended_itself(ending) {
            self.vitals.note(Event::Ending {
                reason: EXITED,
                message: exited(ending),
            });
        }
    }

    fn unstarted(&self, status: &Status) -> v1::Ending {
        let now = self.sessions.now_ms();
        let v1::Problem {
            reason,
            mut details,
            ..
        } = holdfast_wire::problem::of(status).unwrap_or_else(|| v1::Problem {
            reason: "NotStarted".to_owned(),
            ..v1::Problem::default()
        });
        v1::Ending {
            exit: Some(v1::Exit {
                how: Some(How::Unknown(status.message().to_owned())),
            }),
            reason,
            hint: details.remove("hint").unwrap_or_default(),
            started_ms: now,
            ended_ms: now,
            ..v1::Ending::default()
        }
    }
}

/// The main process cannot be reached or started now. Want is waited out, however long it takes.
fn unreached(status: &Status) -> Fault {
    let message = status.message().to_owned();
    if status.code() == tonic::Code::ResourceExhausted {
        Fault::exhausted(message)
    } else {
        Fault::failed(message)
    }
}

/// Whether it is worth while to try again: it is not the program that is wrong.
fn is_passing(status: &Status) -> bool {
    matches!(
        status.code(),
        tonic::Code::Unavailable | tonic::Code::ResourceExhausted
    )
}

/// Whether the main process has ended, and not because everything did.
pub(crate) fn ended_itself(ending: &v1::Ending) -> bool {
    ending.reason != BOUNDARY_LOST
}

/// How the main process ended, in one sentence.
pub(crate) fn exited(ending: &v1::Ending) -> String {
    let how = ending.exit.as_ref().and_then(|exit| exit.how.as_ref());
    let because = |how: String| match &*ending.reason {
        "" => how,
        reason => format!("{how} ({reason})"),
    };
    match how {
        Some(How::Code(code)) => because(format!("the main process exited with status {code}")),
        Some(How::Signal(signal)) => {
            because(format!("the main process was ended by signal {signal}"))
        }
        Some(How::Unknown(why)) if ending.reason.is_empty() => {
            format!("the main process ended, nobody knows how: {why}")
        }
        Some(How::Unknown(why)) => format!("the main process could not be started: {why}"),
        None => "the main process ended, nobody knows how".to_owned(),
    }
}

/// The reason of a sandbox that is over with its main process.
pub(crate) const EXITED: &str = "MainExited";

#[cfg(test)]
mod tests {
    use holdfast_actor::Class;

    use super::*;

    fn ending(how: How, reason: &str) -> v1::Ending {
        v1::Ending {
            exit: Some(v1::Exit { how: Some(how) }),
            reason: reason.to_owned(),
            ..v1::Ending::default()
        }
    }

    #[test]
    fn want_of_a_resource_is_no_fault_of_the_keepers() {
        let short = Status::resource_exhausted("fork x: no; 1 processes needed");
        let cut = Status::unavailable("ask the boundary: it went away");

        assert!(is_passing(&short) && is_passing(&cut));
        assert_eq!(unreached(&short).class(), Class::Exhausted);
        assert_eq!(unreached(&cut).class(), Class::Failed);
    }

    #[test]
    fn the_main_processs_end_is_one_sentence() {
        assert_eq!(
            exited(&ending(How::Code(3), "")),
            "the main process exited with status 3"
        );
        assert_eq!(
            exited(&ending(How::Signal(9), "")),
            "the main process was ended by signal 9"
        );
        assert_eq!(
            exited(&ending(How::Signal(9), "OutOfMemory")),
            "the main process was ended by signal 9 (OutOfMemory)"
        );
        assert_eq!(
            exited(&ending(
                How::Unknown("find x: no".to_owned()),
                "ProgramNotFound"
            )),
            "the main process could not be started: find x: no"
        );
    }
}
