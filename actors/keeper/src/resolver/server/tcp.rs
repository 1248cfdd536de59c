//! Serves the connections: queries one after the other without waiting for replies (RFC 7766).

use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use holdfast_kernel::descriptors::noted;
use holdfast_kernel::ready::Ready;
use holdfast_kernel::{Called, Result};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::faults::Faults;
use super::udp::rest;
use super::{Desk, Served};
use crate::resolver::{Begun, Via};

/// Serves until the listener is useless.
pub(super) async fn serve(desk: &Desk<'_>, listener: &Arc<TcpListener>) -> Served {
    let listener = Ready::reading(Arc::clone(listener))?;
    let mut faults = Faults::new();
    let mut clients = FuturesUnordered::new();
    loop {
        let room = clients.len() < desk.limits.connections;
        let accepted: Result<TcpStream> = tokio::select! {
            Some(()) = clients.next() => continue,
            accepted = listener.read(|listener| accept(listener)), if room => accepted,
        };
        match accepted {
            Ok(stream) => {
                faults.clear();
                clients.push(converse(desk, stream));
            }
            Err(error) => rest(&mut faults, error, desk).await?,
        }
    }
}

fn accept(listener: &TcpListener) -> Result<TcpStream> {
    let (stream, _) = listener.accept().called("accept")?;
    let stream = noted(stream);
    stream.set_nonblocking(true).called("fcntl")?;
    TcpStream::from_std(stream).called("epoll_ctl")
}

/// Talks with one client until it leaves, breaks the framing, or takes too long.
async fn converse(desk: &Desk<'_>, mut stream: TcpStream) {
    let (mut reader, mut writer) = stream.split();
    let mut inbox = BytesMut::new();
    let mut lookups = FuturesUnordered::new();
    let mut open = true;
    let mut idle = pin!(sleep(desk.limits.idle));
    loop {
        while lookups.len() < desk.limits.pipeline {
            let query = match take(&mut inbox) {
                Taken::Query(query) => query,
                Taken::Part => break,
                Taken::TooLong => return,
            };
            idle.set(sleep(desk.limits.idle));
            let reply = match desk.resolver.begin(&query, Via::Tcp) {
                Begun::Reply(reply) => reply,
                Begun::Silence => continue,
                Begun::Lookup(lookup) => match desk.seat() {
                    None => desk.resolver.shed(&lookup),
                    Some(seat) => {
                        lookups.push(async move {
                            let reply = desk.resolver.finish(lookup).await;
                            drop(seat);
                            reply
                        });
                        continue;
                    }
                },
            };
            if !write(desk, &mut writer, &reply).await {
                return;
            }
        }
        if !open && lookups.is_empty() {
            return;
        }
        let reading = open && lookups.len() < desk.limits.pipeline;
        tokio::select! {
            Some(reply) = lookups.next() => {
                if !write(desk, &mut writer, &reply).await {
                    return;
                }
                idle.set(sleep(desk.limits.idle));
            }
            read = reader.read_buf(&mut inbox), if reading => match read {
                // Half a close: what was asked before is still answered.
                Ok(0) => open = false,
                Ok(_) => {}
                Err(_) => return,
            },
            () = &mut idle, if lookups.is_empty() => return,
        }
    }
}

/// What stands at the head of the inbox.
enum Taken {
    Query(Bytes),
    Part,
    TooLong,
}

fn take(inbox: &mut BytesMut) -> Taken {
    let Some(prefix) = inbox.first_chunk::<2>() else {
        return Taken::Part;
    };
    let length = usize::from(u16::from_be_bytes(*prefix));
    if length > LONGEST_QUERY {
        return Taken::TooLong;
    }
    if inbox.len() < 2 + length {
        return Taken::Part;
    }
    inbox.advance(2);
    Taken::Query(inbox.split_to(length).freeze())
}

/// Length and reply in one segment; clients exist that cannot put two together.
async fn write(desk: &Desk<'_>, writer: &mut (impl AsyncWrite + Unpin), reply: &[u8]) -> bool {
    let Ok(length) = u16::try_from(reply.len()) else {
        return false;
    };
    let mut bytes = Vec::with_capacity(2 + reply.len());
    bytes.extend(length.to_be_bytes());
    bytes.extend(reply);
    let written = timeout(desk.limits.idle, writer.write_all(&bytes)).await;
    matches!(written, Ok(Ok(())))
}

const LONGEST_QUERY: usize = 4096;
