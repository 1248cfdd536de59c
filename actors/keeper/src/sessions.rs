//! Sessions, as their owner sees them: channels of bytes, and how they ended.

use bytes::Bytes;
use holdfast_actor::{Actor, Child, Dynamic, Fault, Me};
use holdfast_kernel::terminal::Size;
use holdfast_wire::v1;
use holdfast_wire::v1::output::Kind;
use parking_lot::Mutex;
use std::error::Error as _;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use self::lack::Lack;
use crate::link::{Client, DIED, Dialler, Standing, State};

mod advice;
pub(crate) mod attend;
pub(crate) mod book;
pub(crate) mod errand;
pub(crate) mod feed;
mod lack;
pub(crate) mod lasting;
pub(crate) mod pool;
pub(crate) mod refusal;
mod watcher;
mod withdrawal;

/// A program that runs, seen from the one who started it.
///
/// Every channel is bounded: a reader that is slow holds the program back, and nothing is lost.
#[derive(Debug)]
pub struct Session {
    /// What goes to its input. Dropped: its input ends (half-close), its output goes on.
    /// When it closes, the program reads no more, which is no failure.
    pub stdin: mpsc::Sender<Bytes>,
    /// Its output, byte for byte; ends when there will be no more. With a terminal both outputs are here.
    /// Dropped: nobody reads any more, and the program's next write fails as into any closed pipe.
    pub stdout: mpsc::Receiver<Bytes>,
    /// The same for its errors.
    pub stderr: mpsc::Receiver<Bytes>,
    /// What is asked of it besides.
    pub control: mpsc::Sender<Control>,
    /// How it ended. Dropped untold, the end is not known.
    pub exit: oneshot::Receiver<Exit>,
}

/// What can be asked of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// The terminal has this size now.
    Resize(Size),
    /// Send this signal to its process group.
    Signal(i32),
    /// End its process group by SIGKILL.
    Kill,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this status.
    Code(u8),
    /// By this signal.
    Signal(i32),
    /// Nobody knows, and why.
    Unknown(String),
}

/// A program to be started.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its name and arguments, byte for byte.
    pub arguments: Vec<Vec<u8>>,
    /// Its whole environment: `NAME=value` each.
    pub environment: Vec<Vec<u8>>,
    /// Where it starts.
    pub directory: Vec<u8>,
    /// The size of its terminal, if it gets one.
    pub terminal: Option<Size>,
}

/// Why a program does not run.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// A step on the way to it failed, in the sandbox.
    #[error("{message}")]
    Program {
        /// Which step.
        step: String,
        /// Its errno.
        errno: i32,
        /// What happened, for people.
        message: String,
    },
    /// The boundary could not be asked, or refused.
    #[error("ask the boundary to start it: {0}")]
    Link(String),
}

impl NotStarted {
    /// What to do when it was for want of something; `None` when it was not.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Program { errno, .. } => Lack::of(*errno).map(|lack| lack.remedy),
            Self::Link(_) => None,
        }
    }

    /// What to do about a program that was not found or cannot be executed.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Program {
                step,
                errno,
                message,
            } => advice::advice(step, *errno, message),
            Self::Link(_) => None,
        }
    }
}

/// Starts sessions and watches over them.
#[derive(Clone, Debug)]
pub(crate) struct Launcher {
    pub(crate) control: Client,
    pub(crate) dialler: Dialler,
    pub(crate) sessions: Dynamic,
    /// Says why sessions are lost.
    pub(crate) link: watch::Receiver<State>,
}

impl Launcher {
    /// Starts `program`; its session has an actor of its own.
    pub(crate) async fn launch(&self, program: Program) -> Result<Session, NotStarted> {
        let mut control = self.control.clone();
        let size = program.terminal.map(wire_size);
        let asked = v1::LaunchRequest {
            what: Some(v1::launch_request::What::Program(v1::Program {
                arguments: program.arguments,
                environment: program.environment,
                directory: program.directory,
            })),
            terminal: size,
            attended: true,
            ..v1::LaunchRequest::default()
        };
        // The connection for its bytes is made while it starts.
        let (launched, data) = tokio::join!(control.launch(asked), self.dialler.dial());
        let link = |what: String| NotStarted::Link(what);
        let launched = launched
            .map_err(|status| link(status.message().to_owned()))?
            .into_inner();
        let data = data.map_err(|fault| link(fault.to_string()))?;
        match launched.outcome {
            Some(v1::launch_reply::Outcome::Session(id)) => {
                let (session, part) = Part::new(id, control, data, self.link.clone());
                let child = Child::temporary(&id.to_string());
                let arguments = Arc::new(Mutex::new(Some(part)));
                let added = self.sessions.add::<SessionActor>(child, arguments).await;
                added.map_err(|refusal| link(refusal.to_string()))?;
                Ok(session)
            }
            Some(v1::launch_reply::Outcome::NotStarted(refused)) => Err(NotStarted::Program {
                step: refused.step,
                errno: refused.errno,
                message: refused.message,
            }),
            None => Err(link("it answered nothing".to_owned())),
        }
    }
}

/// Carries one session's bytes. Never started again: what it carried is gone with it.
pub(crate) struct SessionActor;

/// The other ends of a session's channels.
pub(crate) struct Part {
    id: u64,
    control: Client,
    data: Client,
    input: mpsc::Receiver<Bytes>,
    output: mpsc::Sender<Bytes>,
    errors: mpsc::Sender<Bytes>,
    asked: mpsc::Receiver<Control>,
    exit: Teller,
}

/// Tells how the session ended. It may fall with the link before it has heard that the link is lost: then it tells that.
struct Teller {
    exit: Option<oneshot::Sender<Exit>>,
    link: watch::Receiver<State>,
}

impl Teller {
    fn tell(mut self, told: Exit) {
        if let Some(exit) = self.exit.take() {
            // Whoever does not want to know any more is no failure.
            let _ = exit.send(told);
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        let (exit, standing) = (self.exit.take(), self.link.borrow().standing.clone());
        if let (Some(exit), Standing::Over { why, .. }) = (exit, standing) {
            let _ = exit.send(Exit::Unknown(why.to_string()));
        }
    }
}

impl Part {
    fn new(
        id: u64,
        control: Client,
        data: Client,
        link: watch::Receiver<State>,
    ) -> (Session, Self) {
        let (stdin, input) = mpsc::channel(DEPTH);
        let (output, stdout) = mpsc::channel(DEPTH);
        let (errors, stderr) = mpsc::channel(DEPTH);
        let (ask, asked) = mpsc::channel(DEPTH);
        let (tell, exit) = oneshot::channel();
        let session = Session {
            stdin,
            stdout,
            stderr,
            control: ask,
            exit,
        };
        (
            session,
            Self {
                id,
                control,
                data,
                input,
                output,
                errors,
                asked,
                exit: Teller {
                    exit: Some(tell),
                    link,
                },
            },
        )
    }
}

impl Actor for SessionActor {
    type Message = std::convert::Infallible;
    type Arguments = Arc<Mutex<Option<Part>>>;
    type State = ();

    async fn start(me: &Me<Self::Message>, arguments: Self::Arguments) -> Result<(), Fault> {
        let Some(part) = arguments.lock().take() else {
            return Ok(());
        };
        let Part {
            id,
            control,
            data,
            input,
            output,
            errors,
            asked,
            exit,
        } = part;
        me.spawn(write(id, data.clone(), input));
        me.spawn(obey(id, control.clone(), asked));
        let this = me.clone();
        me.spawn(async move {
            let told = read(id, data, control, [output, errors]).await;
            exit.tell(told);
            this.end();
            Ok(())
        });
        Ok(())
    }

    async fn handle(_: &Me<Self::Message>, never: Self::Message, (): &mut ()) -> Result<(), Fault> {
        match never {}
    }
}

/// Carries the input until it ends or the session reads no more.
async fn write(id: u64, mut data: Client, input: mpsc::Receiver<Bytes>) -> Result<(), Fault> {
    let first = v1::Input {
        session: id,
        data: Bytes::new(),
    };
    let pieces = ReceiverStream::new(input).map(|data| v1::Input { session: 0, data });
    // A session that has ended takes no input, and a link that is lost is told of elsewhere.
    let _ = data.write(tokio_stream::once(first).chain(pieces)).await;
    Ok(())
}

/// Asks the boundary for what is asked of the session.
async fn obey(
    id: u64,
    mut control: Client,
    mut asked: mpsc::Receiver<Control>,
) -> Result<(), Fault> {
    while let Some(asked) = asked.recv().await {
        let answer = match asked {
            Control::Resize(size) => {
                let size = Some(wire_size(size));
                control
                    .resize(v1::ResizeRequest { session: id, size })
                    .await
            }
            Control::Signal(signal) => {
                control
                    .signal(v1::SignalRequest {
                        session: id,
                        signal,
                        tree: false,
                    })
                    .await
            }
            Control::Kill => {
                control
                    .signal(v1::SignalRequest {
                        session: id,
                        signal: libc::SIGKILL,
                        tree: false,
                    })
                    .await
            }
        };
        if let Err(status) = answer {
            tracing::debug!(%status, "ask a session");
        }
    }
    // Nobody asks for anything any more; the session goes on.
    Ok(())
}

/// Carries the output; answers how the session ended.
async fn read(
    id: u64,
    mut data: Client,
    control: Client,
    outputs: [mpsc::Sender<Bytes>; 2],
) -> Exit {
    let mut stream = match data
        .read(v1::ReadRequest {
            session: id,
            offset: 0,
        })
        .await
    {
        Ok(reply) => reply.into_inner(),
        Err(status) => return lost(&status),
    };
    let mut outputs = outputs.map(Some);
    loop {
        match stream
            .message()
            .await
            .map(|output| output.and_then(|output| output.kind))
        {
            Ok(Some(Kind::Chunk(chunk))) => {
                let place = usize::from(chunk.stream() == v1::Stream::Stderr);
                let Some(output) = &outputs[place] else {
                    continue;
                };
                if output.send(chunk.data.clone()).await.is_err() {
                    outputs[place] = None;
                    let request = v1::CloseRequest {
                        session: id,
                        stream: chunk.stream,
                    };
                    // If it cannot be asked, the link is lost, and the next message says so.
                    let _ = control.clone().close(request).await;
                }
            }
            Ok(Some(Kind::Lost(bytes))) => {
                tracing::warn!(bytes, "output was overwritten before it was read");
            }
            Ok(Some(Kind::Exit(exit))) => return exit_of(exit),
            Ok(None) => return Exit::Unknown("the boundary did not say".to_owned()),
            Err(status) => return lost(&status),
        }
    }
}

/// Nobody says how it ended. A connection that broke is the end of a boundary that served nobody else, and everything
/// inside ends with it; how the connection broke is nothing that anybody could use.
fn lost(status: &tonic::Status) -> Exit {
    Exit::Unknown(match status.source() {
        Some(_broken) => DIED.to_owned(),
        None => format!("the boundary does not tell: {}", status.message()),
    })
}

fn exit_of(exit: v1::Exit) -> Exit {
    match exit.how {
        Some(v1::exit::How::Code(code)) => match u8::try_from(code) {
            Ok(code) => Exit::Code(code),
            Err(_) => Exit::Unknown(format!("the boundary told an impossible status {code}")),
        },
        Some(v1::exit::How::Signal(signal)) => Exit::Signal(signal),
        Some(v1::exit::How::Unknown(reason)) => Exit::Unknown(reason),
        None => Exit::Unknown("the boundary did not say".to_owned()),
    }
}

fn wire_size(size: Size) -> v1::TerminalSize {
    v1::TerminalSize {
        rows: size.rows.into(),
        columns: size.columns.into(),
    }
}

/// How many pieces of a stream wait for their reader.
const DEPTH: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Parting;
    use holdfast_actor::Clock;

    fn told(status: &tonic::Status) -> String {
        let Exit::Unknown(why) = lost(status) else {
            panic!("nobody knows how it ended");
        };
        why
    }

    #[test]
    fn a_connection_that_broke_is_the_end_of_the_boundary_and_not_a_matter_of_its_protocol() {
        let broken: Box<dyn std::error::Error + Send + Sync> = "h2 protocol error".into();
        let broken = tonic::Status::from_error(broken);
        let refused = tonic::Status::not_found("no session 3");

        assert_eq!(told(&broken), DIED);
        assert_eq!(told(&refused), "the boundary does not tell: no session 3");
    }

    #[test]
    fn a_session_that_falls_with_the_link_tells_that_the_link_is_lost() {
        let now = Clock::tokio().now();
        let (state, link) = watch::channel(State::fresh(1, String::new(), 0, now));
        let silent = Parting::Left("the boundary does not answer".to_owned());
        let mut exits = [Parting::Died, silent].map(|why| {
            let (tell, exit) = oneshot::channel();
            let teller = Teller {
                exit: Some(tell),
                link: link.clone(),
            };
            state.send_modify(|state| state.standing = Standing::Over { since: now, why });
            drop(teller);
            exit
        });

        let heard = exits
            .each_mut()
            .map(|exit| exit.try_recv().expect("is told"));

        let [ended, silent] = heard;
        assert!(matches!(ended, Exit::Unknown(why) if why == DIED));
        assert!(matches!(silent, Exit::Unknown(why) if why.ends_with("does not answer")));
    }
}
