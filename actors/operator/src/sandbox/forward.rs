//! `holdfast forward`: a port of this host leads to one of the sandbox's own loopback, until Ctrl-C.
//!
//! ```text
//! accept ──> one session of the kind dial ──> bytes both ways, each half closed by itself ──> both over
//! ```
//!
//! It belongs to one sandbox, by its id: while that is stopped connections are closed, when it is deleted this ends, and
//! another of its name is never reached.

use std::io;
use std::net::Ipv4Addr;
use std::process::ExitCode;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use holdfast_kernel::urgent;
use holdfast_wire::v1;
use holdfast_wire::v1::Phase;
use holdfast_wire::v1::session_input::Kind as Said;
use holdfast_wire::v1::session_output::Kind as Heard;
use nix::sys::socket::{setsockopt, sockopt};
use std::io::Write as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use super::{request, words};
use crate::cli::sandboxes::Forward;
use crate::client::{self, Client, refused};
use crate::config::Config;
use crate::failure::{Failure, Kind};
use crate::output;

/// Carries connections until a signal ends it.
pub(crate) fn forward(
    arguments: &Forward,
    config: &Config,
    quiet: bool,
) -> Result<ExitCode, Failure> {
    let (local, remote) = arguments.ports;
    client::with(config, async |mut client| {
        // A sandbox that is not there is told now, and not to the first who connects.
        let answer = client.get(request(&arguments.name)).await;
        let status = answer.map_err(|status| refused(&status))?.into_inner();
        runs(&status)?;
        let target = Target {
            name: status.name,
            id: status.id,
            port: remote,
        };
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, local)).await;
        let listener = bound.map_err(|error| unbound(local, &error))?;
        let port = listener
            .local_addr()
            .map_err(|error| unbound(local, &error))?
            .port();
        output::text(&format!("127.0.0.1:{port}\n"))?;
        let mut connections = FuturesUnordered::new();
        let deleted = deleted(client.clone(), &target);
        tokio::pin!(deleted);
        loop {
            tokio::select! {
                failure = &mut deleted => return Err(failure),
                accepted = listener.accept(), if connections.len() < MOST => match accepted {
                    Ok((stream, _)) => {
                        connections.push(carry(client.clone(), target.clone(), stream));
                    }
                    Err(error) => {
                        tell(quiet, &format!("accept a connection: {error}"));
                        tokio::time::sleep(REST).await;
                    }
                },
                Some(outcome) = connections.next() => if let Err(why) = outcome {
                    tell(quiet, &why);
                },
            }
        }
    })
    .or_else(super::status::quietly)
}

/// Where connections lead.
#[derive(Clone)]
struct Target {
    name: String,
    id: String,
    port: u16,
}

/// Refuses a sandbox that no connection could lead to.
fn runs(status: &v1::Status) -> Result<(), Failure> {
    let name = &status.name;
    let (code, reason, advice) = match status.phase() {
        Phase::Ready | Phase::Degraded => return Ok(()),
        Phase::Unspecified | Phase::Pending => {
            let advice = format!("`holdfast wait {name} --for ready` waits for it");
            ("UNAVAILABLE", "NotReady", advice)
        }
        Phase::Stopped | Phase::Failed => {
            let advice = format!("`holdfast start {name}` starts it");
            ("FAILED_PRECONDITION", "NotRunning", advice)
        }
        Phase::Deleting => {
            let advice = "forward to another".to_owned();
            ("FAILED_PRECONDITION", "Deleting", advice)
        }
    };
    let phase = words::phase(status.phase());
    let message = format!(
        "forward to {name}: it does not run ({phase}: {}); {advice}",
        status.message
    );
    Err(Failure::new(Kind::Refused, message).told(code, reason, None))
}

/// Waits until the sandbox is deleted. A gateway that goes away is waited for: no sandbox is deleted without one.
async fn deleted(mut client: Client, target: &Target) -> Failure {
    let over = || {
        let message = format!("forward to {}: it was deleted", target.name);
        Failure::new(Kind::NotReached, message)
    };
    loop {
        match is_kept(&mut client, target).await {
            Ok(true) => {}
            Ok(false) => return over(),
            Err(status) if status.code() == Code::NotFound => return over(),
            Err(_lost) => {}
        }
        tokio::time::sleep(REST).await;
    }
}

/// Watches until there is no more to watch; whether the sandbox may still be there then.
async fn is_kept(client: &mut Client, target: &Target) -> Result<bool, Status> {
    let mut changes = client.watch(request(&target.name)).await?.into_inner();
    let mut last = Phase::Unspecified;
    while let Some(status) = changes.message().await? {
        if status.id != target.id {
            return Ok(false);
        }
        last = status.phase();
    }
    // Without a word about its deletion it is the gateway that ends.
    Ok(last != Phase::Deleting)
}

fn unbound(port: u16, error: &io::Error) -> Failure {
    Failure::caused(
        Kind::Unreadable,
        format!("listen on 127.0.0.1:{port}"),
        error,
    )
    .hint("write 0 for any port that is free")
}

fn tell(quiet: bool, what: &str) {
    if !quiet {
        let _unheard = writeln!(io::stderr(), "holdfast: {}", output::harmless(what));
    }
}

/// One connection, from its session's start to its end.
async fn carry(mut client: Client, target: Target, stream: TcpStream) -> Result<(), String> {
    let _only_slower = stream.set_nodelay(true);
    // An urgent byte keeps its place, as in the relays of the egress; left out of it, it would be lost.
    let inline = setsockopt(&stream, sockopt::OobInline, &true);
    inline.map_err(|errno| format!("keep urgent bytes in their place: {errno}"))?;
    let (say, said) = mpsc::channel(DEPTH);
    let dial = Said::Dial(v1::DialStart {
        sandbox: target.name,
        port: target.port.into(),
        id: target.id,
    });
    let _has_room = say.try_send(message(dial));
    let opened = client.session(ReceiverStream::new(said)).await;
    let incoming = opened
        .map_err(|status| refused(&status).message().to_owned())?
        .into_inner();
    let (reader, writer) = stream.into_split();
    // The session's end is the end of both halves; the caller's end is only that of its own.
    tokio::select! {
        ended = inwards(incoming, writer) => ended,
        () = outwards(reader, say) => Ok(()),
    }
}

async fn outwards(mut reader: OwnedReadHalf, say: mpsc::Sender<v1::SessionInput>) {
    let mut buffer = vec![0; CHUNK];
    let mut marked = false;
    loop {
        let read = match marked.then(|| read_now(&reader, &mut buffer)) {
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                reader.read(&mut buffer).await
            }
            Some(read) => read,
            None => reader.read(&mut buffer).await,
        };
        match read {
            Ok(0) => {
                let _over = say.send(message(Said::End(v1::Nothing {}))).await;
                return std::future::pending().await;
            }
            Ok(count) => {
                // A read ends before an urgent byte, and nobody is woken for what is behind it.
                let short = count < buffer.len();
                marked = short && urgent::is_next(reader.as_ref()).unwrap_or(false);
                let data = Bytes::copy_from_slice(&buffer[..count]);
                if say.send(message(Said::Data(data))).await.is_err() {
                    return std::future::pending().await;
                }
            }
            // It was reset: nobody is there for the rest, and the session ends with its stream.
            Err(_reset) => return,
        }
    }
}

/// Past the readiness that the runtime keeps.
fn read_now(reader: &OwnedReadHalf, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(nix::unistd::read(reader.as_ref(), buffer)?)
}

async fn inwards(
    mut incoming: Streaming<v1::SessionOutput>,
    mut writer: OwnedWriteHalf,
) -> Result<(), String> {
    let mut said = Vec::new();
    loop {
        let heard = incoming.message().await;
        let heard = heard.map_err(|status| refused(&status).message().to_owned())?;
        match heard.and_then(|output| output.kind) {
            Some(Heard::Chunk(chunk)) if chunk.stream() == v1::Stream::Stderr => {
                let room = CHUNK.saturating_sub(said.len());
                said.extend_from_slice(&chunk.data[..chunk.data.len().min(room)]);
            }
            Some(Heard::Chunk(chunk)) => {
                if writer.write_all(&chunk.data).await.is_err() {
                    return Ok(());
                }
            }
            Some(Heard::Begun(_)) => {}
            Some(Heard::Lost(bytes)) => {
                return Err(format!("{bytes} bytes of a connection were lost"));
            }
            Some(Heard::Ended(_)) | None => break,
        }
    }
    let said = String::from_utf8_lossy(&said);
    if said.trim().is_empty() {
        Ok(())
    } else {
        Err(said.trim().to_owned())
    }
}

fn message(kind: Said) -> v1::SessionInput {
    v1::SessionInput { kind: Some(kind) }
}

/// Connections at once; more wait in the backlog.
const MOST: usize = 256;

/// Messages that may wait towards the sandbox.
const DEPTH: usize = 4;

const CHUNK: usize = 64 << 10;

/// After an accept that failed, since descriptors may be short, and before a lost gateway is asked again.
const REST: std::time::Duration = std::time::Duration::from_millis(100);
