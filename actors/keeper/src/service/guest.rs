//! A connection of one who was let in.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use holdfast_kernel::descriptors::Loan;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

/// One who was let in.
#[derive(Debug)]
pub(crate) struct Guest {
    stream: UnixStream,
    /// When a guest on the last spare has been here for long enough: the next one needs it.
    leaves: Option<Pin<Box<Sleep>>>,
    /// Given back after the stream is closed.
    loan: Option<Loan>,
}

/// What a guest has of the keeper's descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// One of many, or of the spares.
    Own,
    /// The last one: what may last has no place there.
    Last,
}

impl Guest {
    pub(super) fn new(stream: UnixStream, loan: Option<Loan>) -> Self {
        let last = loan.as_ref().filter(|loan| loan.last);
        Self {
            stream,
            leaves: last.map(|_| Box::pin(sleep(VISIT))),
            loan,
        }
    }
}

impl Connected for Guest {
    type ConnectInfo = Place;

    fn connect_info(&self) -> Place {
        match &self.loan {
            Some(loan) if loan.last => Place::Last,
            Some(_) | None => Place::Own,
        }
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let over = |leaves: &mut Pin<Box<Sleep>>| leaves.as_mut().poll(task).is_ready();
        if self.leaves.as_mut().is_some_and(over) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(task, buffer)
    }
}

impl AsyncWrite for Guest {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(task, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(task, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(task)
    }
}

/// How long a guest may stay on the last spare.
const VISIT: Duration = Duration::from_secs(1);
