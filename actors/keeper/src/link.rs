//! The keeper's side of the link: connections to the boundary, and its sign of life.
//!
//! ```text
//!  Linked ── no answer for 1.2 s, or a failed connection ──> Lost ── an answer ──> Linked
//!     └──────────────┬──────────────────────────────────────────┘
//!                    └── the process is gone, another keeper has taken over ──> Over
//! ```
//!
//! Control and session bytes never share a connection: each session dials one of its own, so that a stalled reader holds
//! up nothing else. A connection is one end of a socket pair whose other end travels over the handoff socket, and one that
//! breaks is followed by another: whoever has a client never has to ask for a new one.
//!
//! Only the beat says whether the link is lost; a stream that fails is the failure of a stream. A boundary that is silent
//! may come back, so a lasting sandbox waits for it; one whose process has ended is gone at once.

mod approach;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use holdfast_actor::{Actor, Clock, Fault, Me, Moment};
use holdfast_clock::every;
use holdfast_kernel::descriptors::both_noted;
use holdfast_kernel::handoff::Socket;
use holdfast_kernel::look::is_exiting;
use holdfast_kernel::ready::Ready;
use holdfast_wire::handshake::VERSION;
use holdfast_wire::v1::boundary_client::BoundaryClient;
use holdfast_wire::v1::handoff::Kind;
use holdfast_wire::v1::{self, Handoff};
use holdfast_wire::{FRAME, MOST_BYTES};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

pub use self::approach::{Approach, connect};

/// A client of the boundary over one connection.
pub type Client = BoundaryClient<Channel>;

/// Dials connections to the boundary.
#[derive(Clone, Debug)]
pub struct Dialler {
    socket: Arc<Ready<Arc<Socket>>>,
    /// Cancelled when the boundary has closed its end.
    closed: CancellationToken,
}

/// Why the boundary cannot be spoken with.
#[derive(Debug, thiserror::Error)]
pub enum Unlinked {
    /// The boundary refuses this keeper: another one came later, the token is wrong, or the versions do not match.
    #[error("attach to the boundary: {0}")]
    Refused(String),
    /// It could not be reached.
    #[error("reach the boundary at {path}: {source}")]
    Unreachable {
        /// Where it was looked for.
        path: String,
        /// Why not.
        source: io::Error,
    },
}

impl Dialler {
    /// Dials over `handoff`.
    pub fn new(handoff: Arc<Socket>) -> Result<Self, Fault> {
        Ok(Self {
            socket: Arc::new(Ready::new(handoff)?),
            closed: CancellationToken::new(),
        })
    }

    /// The socket that connections travel over.
    pub(crate) fn handoff(&self) -> &Ready<Arc<Socket>> {
        &self.socket
    }

    /// Whoever reads the socket has found its end.
    pub(crate) fn closed(&self) {
        self.closed.cancel();
    }

    /// Asks for the listener on `port` once more.
    pub(crate) async fn miss(&self, port: u16) -> Result<(), Fault> {
        let missed = Handoff {
            kind: Some(Kind::Listener(v1::Listener { port: port.into() })),
        }
        .encode_to_vec();
        Ok(self.socket.send(&missed, &[]).await?)
    }

    /// Makes a connection, and another one in its place whenever it breaks. What was under way over it has failed then; what comes
    /// next has not.
    pub async fn dial(&self) -> Result<Client, Fault> {
        let dialler = self.clone();
        let connector = service_fn(move |_| {
            let dialler = dialler.clone();
            async move { dialler.connect().await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://boundary")
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_frame_size(FRAME)
            .connect_with_connector(connector)
            .await?;
        Ok(BoundaryClient::new(channel)
            .max_decoding_message_size(MOST_BYTES)
            .max_encoding_message_size(MOST_BYTES))
    }

    /// One end of a socket pair whose other end is on its way to the boundary.
    async fn connect(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = both_noted(StdStream::pair()?);
        ours.set_nonblocking(true)?;
        let dial = Handoff {
            kind: Some(Kind::Dial(v1::Dial {})),
        }
        .encode_to_vec();
        if let Err(error) = self.socket.send(&dial, &[theirs.as_fd()]).await {
            if matches!(error.errno(), libc::EPIPE | libc::ECONNRESET) {
                // The other end is closed: this keeper is fenced, or the boundary's process is about to be seen to end.
                self.closed();
            }
            return Err(error.into());
        }
        UnixStream::from_std(ours)
    }
}

/// Takes the boundary over, with `epoch` and the token of its launch.
pub(crate) async fn attach(
    control: &mut Client,
    epoch: u64,
    token: &[u8],
) -> Result<v1::AttachReply, Unlinked> {
    let version = VERSION.to_string();
    let request = v1::AttachRequest {
        oldest: version.clone(),
        newest: version,
        epoch,
        token: token.to_vec(),
    };
    let reply = control.attach(request).await;
    reply
        .map(tonic::Response::into_inner)
        .map_err(|status| Unlinked::Refused(status.message().to_owned()))
}

/// How the link stands. What is older than two beats or so is no news of the boundary.
#[derive(Clone, Debug)]
pub struct State {
    /// With which epoch this keeper holds the boundary.
    pub epoch: u64,
    /// The version that both speak.
    pub protocol: String,
    /// Whether it answers.
    pub standing: Standing,
    /// How often an answer came after a question had failed, over a connection that was made anew, or to another keeper: in
    /// the life of the boundary.
    pub reconnects: u64,
    /// The last answer, and when it was asked for and came.
    pub beat: Option<(Asked, v1::BeatReply)>,
}

/// When something was asked for, and when the answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What happened before is in the answer.
    pub at: Moment,
    /// What happened afterwards is not.
    pub heard: Moment,
}

/// Whether the boundary answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Linked {
        /// Since when without a break.
        since: Moment,
    },
    /// It does not; it may again.
    Lost {
        /// Since when.
        since: Moment,
        /// What was seen.
        why: String,
    },
    /// It never will.
    Over {
        /// Since when.
        since: Moment,
        /// Why.
        why: Parting,
    },
}

/// Why a boundary will never answer again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parting {
    /// Its process has ended, and everything inside with it.
    Died,
    /// It may live, but not for this keeper: another one has it, or it does not answer. What was seen.
    Left(String),
}

impl fmt::Display for Parting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Died => DIED,
            Self::Left(seen) => seen,
        })
    }
}

impl State {
    /// A link that has just been made.
    pub(crate) fn fresh(epoch: u64, protocol: String, reconnects: u64, now: Moment) -> Self {
        Self {
            epoch,
            protocol,
            standing: Standing::Linked { since: now },
            reconnects,
            beat: None,
        }
    }

    /// An answer has come.
    fn heard(&mut self, reply: v1::BeatReply, asked: Moment, now: Moment) {
        self.beat = Some((
            Asked {
                at: asked,
                heard: now,
            },
            reply,
        ));
        if !matches!(self.standing, Standing::Linked { .. }) {
            tracing::info!("the boundary answers again");
            self.standing = Standing::Linked { since: now };
        }
    }

    /// None has come in time.
    fn missed(&mut self, why: &str, now: Moment) {
        if let Standing::Linked { .. } = self.standing {
            tracing::warn!("the link to the boundary is lost: {why}");
            self.standing = Standing::Lost {
                since: now,
                why: why.to_owned(),
            };
        }
    }

    /// None will come.
    fn over(&mut self, why: Parting, now: Moment) {
        self.standing = Standing::Over { since: now, why };
    }
}

/// Keeps an eye on the boundary.
pub struct Link;

/// What the link is born with.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// The attached connection.
    pub control: Client,
    /// Knows when the boundary has closed its end.
    pub dialler: Dialler,
    /// The boundary's process, as this one numbers it.
    pub pid: u32,
    /// Readable when that has ended.
    pub process: Arc<OwnedFd>,
    /// Whether a boundary that is silent is waited for, however long.
    pub lasting: bool,
    /// Who wants to know.
    pub state: watch::Sender<State>,
}

impl Actor for Link {
    type Message = std::convert::Infallible;
    type Arguments = Arguments;
    type State = ();

    async fn start(me: &Me<Self::Message>, arguments: Arguments) -> Result<(), Fault> {
        let clock = me.clock().clone();
        let process = Ready::reading(Arc::clone(&arguments.process))?;
        me.spawn(async move {
            let (state, closed) = (arguments.state.clone(), arguments.dialler.closed.clone());
            let pid = arguments.pid;
            let why = tokio::select! {
                biased;
                ended = process.readable() => ended.map(|_| Parting::Died)?,
                () = closed.cancelled() => part(pid, &process).await,
                seen = beat(arguments, &clock) => Parting::Left(seen?),
            };
            let fault = Fault::last(why.to_string());
            state.send_modify(|state| state.over(why, clock.now()));
            Err(fault)
        });
        Ok(())
    }

    async fn handle(_: &Me<Self::Message>, never: Self::Message, (): &mut ()) -> Result<(), Fault> {
        match never {}
    }
}

/// Why the boundary has closed its end. One that dies is on its way out before it closes anything, and takes its time to
/// end when there was much inside.
async fn part(pid: u32, process: &Ready<Arc<OwnedFd>>) -> Parting {
    if let Ok(false) = is_exiting(pid) {
        return Parting::Left(LET_GO.to_owned());
    }
    let _it_is_killed = tokio::time::timeout(DYING, process.readable()).await;
    Parting::Died
}

/// Asks for signs of life until there can be none any more; answers why not.
async fn beat(arguments: Arguments, clock: &Clock) -> Result<String, Fault> {
    let Arguments {
        mut control,
        lasting,
        state,
        ..
    } = arguments;
    let (mut broken, mut suspect) = (false, false);
    let mut ticks = every(BEAT);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = tokio::time::sleep(CLOSER), if suspect => {}
        }
        let asked = clock.now();
        let answered = ask(&mut control, lasting, &state, clock).await;
        match answered {
            Some(Ok(reply)) => {
                let reply = reply.into_inner();
                suspect = Duration::from_millis(reply.launcher_silent_ms) > SUSPECT;
                state.send_modify(|state| {
                    state.reconnects += u64::from(std::mem::take(&mut broken));
                    state.heard(reply, asked, clock.now());
                });
            }
            Some(Err(status)) if status.code() == Code::Aborted => {
                return Ok(status.message().to_owned());
            }
            Some(Err(status)) if lasting => {
                state.send_modify(|state| state.missed(status.message(), clock.now()));
                broken = true;
            }
            Some(Err(status)) => {
                return Ok(format!("the boundary is lost: {}", status.message()));
            }
            None => return Ok("the boundary does not answer".to_owned()),
        }
    }
}

/// Asks once. `None`: there was no answer for so long that none is waited for.
async fn ask(
    control: &mut Client,
    lasting: bool,
    state: &watch::Sender<State>,
    clock: &Clock,
) -> Option<Result<tonic::Response<v1::BeatReply>, tonic::Status>> {
    // One question at a time: a boundary that is stopped must not find a heap of them.
    let answer = control.beat(v1::Nothing {});
    tokio::pin!(answer);
    if let Ok(answered) = tokio::time::timeout(PATIENCE, &mut answer).await {
        return Some(answered);
    }
    state.send_modify(|state| state.missed("it does not answer", clock.now()));
    if lasting {
        return Some(answer.await);
    }
    let late = tokio::time::timeout(SILENCE, answer).await;
    late.ok()
}

/// What one stream, and one connection, may have under way: a stalled reader holds no more than this.
const WINDOW: u32 = 1 << 20;

/// How often the boundary is asked for a sign of life.
pub const BEAT: Duration = Duration::from_millis(700);

/// A launcher that owes a sign of life for longer is looked at more often.
const SUSPECT: Duration = Duration::from_millis(650);

/// How often.
const CLOSER: Duration = Duration::from_millis(200);

/// An answer that takes longer means that the link is lost.
pub const PATIENCE: Duration = Duration::from_millis(1200);

/// How long a process that is on its way out may take to be seen to end.
const DYING: Duration = Duration::from_secs(5);

/// Why nothing that ran inside goes on: its boundary has ended.
pub const DIED: &str = "the boundary died, and everything inside with it";
const LET_GO: &str = "the boundary has let go of this keeper: another one has taken over";

/// A boundary that is tied to this process and silent for so long is given up.
const SILENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use holdfast_kernel::handoff::{Received, pair};

    use super::*;

    /// Takes what is dialled; answers our end.
    async fn taken(boundary: &Ready<Arc<Socket>>) -> OwnedFd {
        let mut buffer = [0; 64];
        let received = boundary.read(|socket| socket.try_receive(&mut buffer));
        let Ok(Received::Packet { descriptors, .. }) = received.await else {
            panic!("nothing was dialled");
        };
        descriptors.into_iter().next().expect("its other end")
    }

    #[tokio::test]
    async fn a_connection_that_breaks_is_followed_by_another() {
        let (ours, theirs) = pair().expect("a pair");
        let boundary = Ready::new(Arc::new(theirs)).expect("registered");
        let dialler = Dialler::new(Arc::new(ours)).expect("registered");
        let mut client = dialler.dial().await.expect("dialled");
        drop(taken(&boundary).await);

        let ask = async {
            loop {
                let _broken = client.beat(v1::Nothing {}).await;
            }
        };
        let again = tokio::time::timeout(SILENCE, taken(&boundary));
        tokio::select! {
            () = ask => {}
            again = again => drop(again.expect("another connection is made")),
        }
    }

    #[tokio::test]
    async fn whoever_connects_to_a_boundary_that_has_let_go_finds_that_out() {
        let (ours, theirs) = pair().expect("a pair");
        let dialler = Dialler::new(Arc::new(ours)).expect("registered");
        drop(theirs);

        assert!(dialler.dial().await.is_err());

        assert!(dialler.closed.is_cancelled());
    }

    #[test]
    fn only_an_answer_ends_a_loss_and_its_beginning_is_kept() {
        let start = Clock::tokio().now();
        let mut state = State::fresh(3, "1.0".to_owned(), 0, start);

        state.missed("it does not answer", start + PATIENCE);
        state.missed("transport error", start + BEAT + PATIENCE);

        let lost = Standing::Lost {
            since: start + PATIENCE,
            why: "it does not answer".to_owned(),
        };
        assert_eq!(state.standing, lost);
        let again = start + Duration::from_mins(2);
        state.heard(v1::BeatReply::default(), again, again);
        state.heard(v1::BeatReply::default(), again, again + BEAT);
        assert_eq!(state.standing, Standing::Linked { since: again });
        assert_eq!(state.beat.map(|(asked, _)| asked.heard), Some(again + BEAT));
    }
}
