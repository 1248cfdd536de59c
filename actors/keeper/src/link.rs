//! The keeper's side of the link: connections to the boundary, and its sign of life.
//!
//! Control and session bytes never share a connection: each session dials one of its own, so that a stalled reader holds
//! up nothing else. A connection is one end of a socket pair whose other end travels over the handoff socket.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use holdfast_actor::{Actor, Fault, Me};
use holdfast_kernel::handoff::Socket;
use holdfast_kernel::ready::Ready;
use holdfast_wire::MOST_BYTES;
use holdfast_wire::handshake::VERSION;
use holdfast_wire::v1::boundary_client::BoundaryClient;
use holdfast_wire::v1::handoff::Kind;
use holdfast_wire::v1::{self, Handoff};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prost::Message;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// A client of the boundary over one connection.
pub type Client = BoundaryClient<Channel>;

/// Dials connections to the boundary.
#[derive(Clone, Debug)]
pub struct Dialler(Arc<Ready<Arc<Socket>>>);

/// Why the boundary cannot be spoken with.
#[derive(Debug, thiserror::Error)]
pub enum Unlinked {
    /// The boundary refuses this keeper.
    #[error("attach to the boundary: {0}")]
    Refused(String),
}

impl Dialler {
    /// Dials over `handoff`.
    pub fn new(handoff: Arc<Socket>) -> Result<Self, Fault> {
        Ok(Self(Arc::new(Ready::new(handoff)?)))
    }

    /// The socket that connections travel over.
    pub(crate) fn handoff(&self) -> &Ready<Arc<Socket>> {
        &self.0
    }

    /// Makes a new connection.
    pub async fn dial(&self) -> Result<Client, Fault> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        let dial = Handoff {
            kind: Some(Kind::Dial(v1::Dial {})),
        }
        .encode_to_vec();
        self.0
            .write(|socket| socket.try_send(&dial, &[theirs.as_fd()]))
            .await?;
        let stream = Mutex::new(Some(UnixStream::from_std(ours)?));
        // A pair is used once: a connection that is lost is dialled anew, never resumed.
        let connector = service_fn(move |_| {
            let stream = stream.lock().take();
            let used = || std::io::Error::from(std::io::ErrorKind::NotConnected);
            async move { stream.map(TokioIo::new).ok_or_else(used) }
        });
        let channel = Endpoint::from_static("http://boundary")
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .connect_with_connector(connector)
            .await?;
        Ok(BoundaryClient::new(channel)
            .max_decoding_message_size(MOST_BYTES)
            .max_encoding_message_size(MOST_BYTES))
    }
}

/// Takes the boundary over, with `epoch`.
pub(crate) async fn attach(control: &mut Client, epoch: u64) -> Result<v1::AttachReply, Unlinked> {
    let version = VERSION.to_string();
    let request = v1::AttachRequest {
        oldest: version.clone(),
        newest: version,
        epoch,
        token: Vec::new(),
    };
    let reply = control.attach(request).await;
    reply
        .map(tonic::Response::into_inner)
        .map_err(|status| Unlinked::Refused(status.message().to_owned()))
}

/// Keeps an eye on the boundary.
pub struct Link;

/// What the link is born with.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// The attached connection.
    pub control: Client,
}

impl Actor for Link {
    type Message = std::convert::Infallible;
    type Arguments = Arguments;
    type State = ();

    async fn start(me: &Me<Self::Message>, arguments: Arguments) -> Result<(), Fault> {
        me.spawn(async move {
            let Arguments { mut control } = arguments;
            let mut ticks = tokio::time::interval(BEAT);
            loop {
                ticks.tick().await;
                let answer = control.beat(v1::Nothing {});
                match tokio::time::timeout(SILENCE, answer).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(status)) => {
                        return Err(Fault::last(format!(
                            "the boundary is lost: {}",
                            status.message()
                        )));
                    }
                    Err(_) => return Err(Fault::last("the boundary does not answer")),
                }
            }
        });
        Ok(())
    }

    async fn handle(_: &Me<Self::Message>, never: Self::Message, (): &mut ()) -> Result<(), Fault> {
        match never {}
    }
}

/// What one stream, and one connection, may have under way: a stalled reader holds no more than this.
const WINDOW: u32 = 1 << 20;

/// How often the boundary is asked for a sign of life.
const BEAT: Duration = Duration::from_secs(1);

/// How long it may take to give one.
const SILENCE: Duration = Duration::from_secs(10);
