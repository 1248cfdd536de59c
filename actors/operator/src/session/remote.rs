//! A session behind the gateway, carried over one gRPC stream.
//!
//! ```text
//! Opening ──begun──> Carrying ──ended──> Over: the exit
//!    │ refused           ├── the stream ends, or breaks ──> Lost: the outcome is unknown, from which offset on
//!    └──> the refusal    ├── nobody reads stdout ──> it is closed, SIGPIPE, and its end is awaited for a while (a terminal: SIGHUP)
//!                        └── nobody reads stderr ──> it is closed
//! ```
//!
//! Input, output and requests are three loops that never wait for each other: a program that does not read its input still
//! writes, and can be signalled. Only a message `ended` makes an exit.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use holdfast_keeper::link::DIED;
use holdfast_keeper::sessions::Control;
use holdfast_wire::v1::exit::How;
use holdfast_wire::v1::session_input::Kind as Said;
use holdfast_wire::v1::session_output::Kind as Heard;
use holdfast_wire::{problem, v1};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Sleep, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use self::asking::Asking;
use super::{Bond, Exit, Session};
use crate::client::{Client, is_lost, refused, undecided};
use crate::failure::{Failure, Kind};
use crate::sandbox::look;

mod asking;

/// What is known of a session that was carried.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    /// Its number and its start.
    pub(crate) begun: Option<v1::Begun>,
    /// How it ended.
    pub(crate) ending: Option<v1::Ending>,
    /// Bytes that were overwritten before they were read.
    pub(crate) lost: u64,
}

/// How we behave towards a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// Our input is its input.
    pub(crate) input: bool,
    /// How we stand to it.
    pub(crate) bond: Bond,
    /// What is read of it goes to our terminal.
    pub(crate) screen: bool,
}

impl Manner {
    /// What whoever reads the output says to us by going away.
    fn farewell(self) -> i32 {
        if self.screen {
            libc::SIGHUP
        } else {
            libc::SIGPIPE
        }
    }

    /// By which signal the session hears of it, if it does. What has a terminal of its own is hung up.
    fn passed_on(self) -> Option<i32> {
        match self.bond {
            Bond::Own | Bond::Ours => Some(self.farewell()),
            Bond::Lent => Some(libc::SIGHUP),
            Bond::Guest => None,
        }
    }

    /// Whether a stream that nobody reads here has no reader any more. A terminal is one for both ways, and whoever came later
    /// is not the only one.
    fn ends_streams(self) -> bool {
        match self.bond {
            Bond::Own | Bond::Ours => true,
            Bond::Lent | Bond::Guest => false,
        }
    }
}

/// The far ends of a session's channels.
pub(crate) struct Part {
    sandbox: String,
    manner: Manner,
    begun: oneshot::Sender<Result<(), Failure>>,
    stdin: Option<mpsc::Receiver<Bytes>>,
    stdout: Option<mpsc::Sender<Bytes>>,
    stderr: Option<mpsc::Sender<Bytes>>,
    control: mpsc::Receiver<Control>,
    exit: oneshot::Sender<Exit>,
}

/// A session that is being opened: resolves when it has begun.
pub(crate) type Opening = oneshot::Receiver<Result<(), Failure>>;

impl Part {
    /// A session, what tells when it has begun, and the part that carries it.
    pub(crate) fn new(sandbox: &str, manner: Manner) -> (Session, Opening, Self) {
        let (stdin, stdin_end) = mpsc::channel(DEPTH);
        let (stdout_end, stdout) = mpsc::channel(DEPTH);
        let (stderr_end, stderr) = mpsc::channel(DEPTH);
        let (control, control_end) = mpsc::channel(DEPTH);
        let (exit_end, exit) = oneshot::channel();
        let (begun, opening) = oneshot::channel();
        let session = Session {
            stdin: manner.input.then_some(stdin),
            stdout,
            stderr,
            control,
            exit: Box::pin(async move {
                let untold = |_| Exit::Unknown(super::unknown("nobody carries it any more"));
                exit.await.unwrap_or_else(untold)
            }),
            bond: manner.bond,
            axe: None,
            delivery: None,
        };
        let part = Self {
            sandbox: sandbox.to_owned(),
            manner,
            begun,
            stdin: manner.input.then_some(stdin_end),
            stdout: Some(stdout_end),
            stderr: Some(stderr_end),
            control: control_end,
            exit: exit_end,
        };
        (session, opening, part)
    }

    /// Opens the session with `first`, and carries it to its end.
    pub(crate) async fn carry(mut self, mut client: Client, first: Said) -> Carried {
        let is_copy = matches!(first, Said::Copy(_));
        let (say, begun, incoming) = match begin(&mut client, first).await {
            Ok(opened) => opened,
            Err(failure) => {
                let _nobody_waits = self.begun.send(Err(failure));
                return Carried::default();
            }
        };
        let _nobody_waits = self.begun.send(Ok(()));
        let mut carried = Carried {
            begun: Some(begun),
            ..Carried::default()
        };
        let stdin = self.stdin.take();
        let (unread, gone) = mpsc::channel(STREAMS);
        let output = Output {
            incoming,
            stdout: self.stdout.take(),
            stderr: self.stderr.take(),
            offset: 0,
            client: client.clone(),
            unread,
            farewell: self.manner.farewell(),
            is_copy,
        };
        let asking = Asking {
            client,
            say: say.clone(),
            sandbox: self.sandbox.clone(),
            session: begun.session,
            manner: self.manner,
        };
        // The output decides when all is over; the other two end with it.
        let exit = tokio::select! {
            exit = output.carry(&mut carried, &self.sandbox) => exit,
            () = feed(stdin, say) => unreachable_end(),
            () = asking.obey(self.control, gone) => unreachable_end(),
        };
        let _nobody_waits = self.exit.send(exit);
        carried
    }
}

/// Why a session did not begin.
enum Unopened {
    Refused(Status),
    /// Something else was said than that it began.
    Untold,
}

impl Unopened {
    /// Whether it may have begun all the same: who was asked fell before he answered.
    fn is_open(&self) -> bool {
        match self {
            Self::Refused(status) => {
                is_lost(status)
                    || problem::of(status)
                        .is_some_and(|told| told.details.contains_key(problem::BEGUN))
            }
            Self::Untold => true,
        }
    }

    fn told(self, is_copy: bool) -> Failure {
        let is_open = self.is_open();
        let failure = match self {
            Self::Refused(status) => refused(&status),
            Self::Untold => Failure::new(
                Kind::Refused,
                "open the session: the gateway did not say that it began",
            ),
        };
        if is_open {
            let look = if is_copy {
                NOT_COMPLETE
            } else {
                "`holdfast sessions NAME` shows whether it has begun"
            };
            undecided(&failure, look)
        } else {
            failure
        }
    }
}

/// Begins a session. What a keeper may have heard before it fell is said again to the next one, which knows each request
/// that was carried out, and begins none twice.
pub(crate) async fn begin(client: &mut Client, first: Said) -> Result<Opened, Failure> {
    let once = match &first {
        Said::Start(start) => !start.request.is_empty(),
        Said::Attach(_) => true,
        Said::Copy(_)
        | Said::Dial(_)
        | Said::Data(_)
        | Said::End(_)
        | Said::Resize(_)
        | Said::Signal(_) => false,
    };
    let is_copy = matches!(first, Said::Copy(_));
    match open(client, first.clone()).await {
        Err(unopened) if once && unopened.is_open() => open(client, first).await,
        opened => opened,
    }
    .map_err(|unopened| unopened.told(is_copy))
}

/// What follows goes in at the one end, and the session's own words come out at the other.
pub(crate) type Opened = (
    mpsc::Sender<v1::SessionInput>,
    v1::Begun,
    Streaming<v1::SessionOutput>,
);

/// Sends the first message, and waits for the session's begin.
async fn open(client: &mut Client, first: Said) -> Result<Opened, Unopened> {
    let (say, said) = mpsc::channel(DEPTH);
    let _has_room = say.try_send(message(first));
    let opened = client.session(ReceiverStream::new(said)).await;
    let mut incoming = opened.map_err(Unopened::Refused)?.into_inner();
    match incoming.message().await {
        Ok(Some(v1::SessionOutput {
            kind: Some(Heard::Begun(begun)),
        })) => Ok((say, begun, incoming)),
        Ok(_) => Err(Unopened::Untold),
        Err(status) => Err(Unopened::Refused(status)),
    }
}

/// Passes input on until it ends, which is said; then rests.
async fn feed(stdin: Option<mpsc::Receiver<Bytes>>, say: mpsc::Sender<v1::SessionInput>) {
    if let Some(mut stdin) = stdin {
        while let Some(data) = stdin.recv().await {
            if say.send(message(Said::Data(data))).await.is_err() {
                break;
            }
        }
        let _over = say.send(message(Said::End(v1::Nothing {}))).await;
    }
    std::future::pending::<()>().await;
}

/// What comes from the session.
struct Output {
    incoming: Streaming<v1::SessionOutput>,
    stdout: Option<mpsc::Sender<Bytes>>,
    stderr: Option<mpsc::Sender<Bytes>>,
    /// The first byte that has not come yet.
    offset: u64,
    client: Client,
    /// Told of each stream once, when nobody reads it any more.
    unread: mpsc::Sender<v1::Stream>,
    farewell: i32,
    /// It cannot be gone on with.
    is_copy: bool,
}

impl Output {
    async fn carry(mut self, carried: &mut Carried, sandbox: &str) -> Exit {
        let mut leaving = None;
        loop {
            if self.stdout.is_none() && leaving.is_none() {
                leaving = Some(Box::pin(sleep(PATIENCE)));
            }
            let heard = tokio::select! {
                heard = self.incoming.message() => heard,
                () = closed(self.stdout.as_ref()) => {
                    self.shut(v1::Stream::Stdout);
                    continue;
                }
                () = closed(self.stderr.as_ref()) => {
                    self.shut(v1::Stream::Stderr);
                    continue;
                }
                () = passing(leaving.as_mut()) => return Exit::Signal(self.farewell),
            };
            match heard.map(|output| output.and_then(|output| output.kind)) {
                Ok(Some(Heard::Chunk(chunk))) => self.pass_on(chunk).await,
                Ok(Some(Heard::Lost(bytes))) => {
                    carried.lost += bytes;
                    self.offset += bytes;
                }
                Ok(Some(Heard::Begun(_))) => {}
                Ok(Some(Heard::Ended(ending))) => {
                    let exit = self.exit_of(&ending, carried, sandbox).await;
                    carried.ending = Some(ending);
                    return exit;
                }
                Ok(None) => {
                    return self
                        .lost(carried, sandbox, "the stream ended without it")
                        .await;
                }
                Err(status) => return self.lost(carried, sandbox, &why(&status)).await,
            }
        }
    }

    async fn pass_on(&mut self, chunk: v1::OutputChunk) {
        self.offset = chunk.offset + chunk.data.len() as u64;
        let stream = chunk.stream();
        let Some(open) = self.sink(stream) else {
            return;
        };
        if open.send(chunk.data).await.is_err() {
            self.shut(stream);
        }
    }

    /// Nobody reads it any more, which is told once.
    fn shut(&mut self, stream: v1::Stream) {
        *self.sink(stream) = None;
        let _told = self.unread.try_send(stream);
    }

    fn sink(&mut self, stream: v1::Stream) -> &mut Option<mpsc::Sender<Bytes>> {
        match stream {
            v1::Stream::Stdout | v1::Stream::Unspecified => &mut self.stdout,
            v1::Stream::Stderr => &mut self.stderr,
        }
    }

    async fn exit_of(&mut self, ending: &v1::Ending, carried: &Carried, sandbox: &str) -> Exit {
        if ending.reason == "Timeout" {
            return Exit::TimedOut;
        }
        match ending.exit.as_ref().and_then(|exit| exit.how.as_ref()) {
            Some(How::Code(code)) => Exit::Code(u8::try_from(*code & 0xff).unwrap_or(u8::MAX)),
            Some(How::Signal(signal)) => Exit::Signal(*signal),
            Some(How::Unknown(reason)) if reason == DIED => {
                let failure = Failure::new(
                    Kind::OutcomeUnknown,
                    format!("the outcome is unknown: {DIED}"),
                )
                .hint(look(sandbox));
                Exit::Unknown(failure.details(self.place(carried, sandbox)))
            }
            Some(How::Unknown(reason)) => self.lost(carried, sandbox, reason).await,
            None => {
                self.lost(carried, sandbox, "the gateway did not say it")
                    .await
            }
        }
    }

    /// Nobody told how it ended; it may still be running, unless its sandbox is not.
    async fn lost(&mut self, carried: &Carried, sandbox: &str, why: &str) -> Exit {
        let session = carried.begun.map(|begun| begun.session).unwrap_or_default();
        let request = v1::SandboxRequest {
            sandbox: sandbox.to_owned(),
        };
        let asked = timeout(PATIENCE, self.client.get(request)).await;
        // A gateway that does not answer knows nothing against it.
        let over = match asked {
            Ok(Ok(status)) => over(status.get_ref().phase()),
            Ok(Err(status)) if status.code() == Code::NotFound => Some("was deleted"),
            Ok(Err(_)) | Err(_) => None,
        };
        let then = match over {
            Some(over) => format!("{sandbox} {over}"),
            None if self.is_copy => NOT_COMPLETE.to_owned(),
            None => format!(
                "attach again with: holdfast attach {sandbox} {session} --from {}",
                self.offset
            ),
        };
        let message = format!("the outcome is unknown: {why}; {then}");
        let details = self.place(carried, sandbox);
        Exit::Unknown(Failure::new(Kind::OutcomeUnknown, message).details(details))
    }

    /// Where nothing more was heard, for programs.
    fn place(&self, carried: &Carried, sandbox: &str) -> Value {
        let session = carried.begun.map(|begun| begun.session).unwrap_or_default();
        json!({"sandbox": sandbox, "session": session, "offset": self.offset})
    }
}

/// What became of a sandbox in which no session goes on.
fn over(phase: v1::Phase) -> Option<&'static str> {
    match phase {
        v1::Phase::Deleting => Some("is being deleted"),
        v1::Phase::Stopped => Some("is stopped"),
        v1::Phase::Failed => Some("has failed"),
        v1::Phase::Unspecified | v1::Phase::Pending | v1::Phase::Ready | v1::Phase::Degraded => {
            None
        }
    }
}

/// Whoever writes what is sent there has found that nobody reads it.
async fn closed(sink: Option<&mpsc::Sender<Bytes>>) {
    match sink {
        Some(sink) => sink.closed().await,
        None => std::future::pending().await,
    }
}

async fn passing(moment: Option<&mut Pin<Box<Sleep>>>) {
    match moment {
        Some(moment) => moment.await,
        None => std::future::pending().await,
    }
}

/// What was told, without the advice that came with it: ours says how, and knows whether there is anything to attach to.
fn why(status: &Status) -> String {
    refused(status).message().to_owned()
}

fn message(kind: Said) -> v1::SessionInput {
    v1::SessionInput { kind: Some(kind) }
}

fn unreachable_end() -> Exit {
    Exit::Unknown(super::unknown("its input ended before it"))
}

/// What is said of a copy whose end nobody told.
const NOT_COMPLETE: &str = "the copy is not known to be complete: run it again";

/// Output and errors.
const STREAMS: usize = 2;

/// Messages that may wait in each direction: a chunk is up to 64 KiB.
const DEPTH: usize = 8;

/// How long a request may take, and how long a session may take to end when nobody reads it any more.
const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_to_attach_is_given_only_where_a_session_may_go_on() {
        for phase in [v1::Phase::Deleting, v1::Phase::Stopped, v1::Phase::Failed] {
            assert!(over(phase).is_some());
        }
        for phase in [v1::Phase::Pending, v1::Phase::Ready, v1::Phase::Degraded] {
            assert!(over(phase).is_none());
        }
    }
}
