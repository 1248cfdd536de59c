//! Waiting for a descriptor in tokio, without giving up what makes descriptors safe.
//!
//! tokio's `AsyncFd` is unsafe to make, because epoll goes on to report a number whose file was closed or replaced.
//! [`Ready`] takes only what promises never to change its descriptor ([`Steady`]) and never lends it mutably.

use std::fs::File;
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

use crate::{Called, Error, Result, handoff};

/// Keeps one open descriptor from its creation to its drop.
///
/// # Safety
///
/// Through a shared reference `as_fd` always answers the same descriptor, and it stays open, on the same open file,
/// until the value is dropped.
pub unsafe trait Steady: AsFd {}

/// A descriptor registered with the current tokio runtime.
///
/// Close-over-poll rules hold: readiness is a hint, so try the call and wait when it would block. [`Ready::read`] and
/// [`Ready::write`] do both.
#[derive(Debug)]
pub struct Ready<T: Steady + 'static>(AsyncFd<Registered<T>>);

/// One report of readiness, not yet taken back.
#[derive(Debug)]
pub struct Guard<'a, T: Steady + 'static>(AsyncFdReadyGuard<'a, Registered<T>>);

/// An error that may only mean "not now".
pub trait Later {
    /// Would the call have had to wait?
    fn is_later(&self) -> bool;
}

impl<T: Steady + 'static> Ready<T> {
    /// Waits for both directions. Panics outside a tokio runtime.
    pub fn new(inner: T) -> Result<Self> {
        Self::register(inner, Interest::READABLE | Interest::WRITABLE)
    }

    /// Waits for something to read, or for the end. Panics outside a tokio runtime.
    pub fn reading(inner: T) -> Result<Self> {
        Self::register(inner, Interest::READABLE)
    }

    /// What is being waited for.
    pub fn inner(&self) -> &T {
        &self.0.get_ref().0
    }

    /// Takes the descriptor back from the runtime.
    pub fn into_inner(self) -> T {
        self.0.into_inner().0
    }

    /// Waits until there may be something to read: bytes, a connection, the end.
    pub async fn readable(&self) -> Result<Guard<'_, T>> {
        self.0.readable().await.called("epoll").map(Guard)
    }

    /// Waits until there may be room to write.
    pub async fn writable(&self) -> Result<Guard<'_, T>> {
        self.0.writable().await.called("epoll").map(Guard)
    }

    /// Calls `read` until it does not answer "not now", waiting in between. Cancelling it loses nothing.
    pub async fn read<R, E: Later + From<Error>>(
        &self,
        mut read: impl FnMut(&T) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        loop {
            let mut guard = self.readable().await?;
            match read(self.inner()) {
                Err(error) if error.is_later() => guard.clear(),
                answer => return answer,
            }
        }
    }

    /// Calls `write` until it does not answer "not now", waiting in between. Cancelling it loses nothing.
    pub async fn write<R, E: Later + From<Error>>(
        &self,
        mut write: impl FnMut(&T) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        loop {
            let mut guard = self.writable().await?;
            match write(self.inner()) {
                Err(error) if error.is_later() => guard.clear(),
                answer => return answer,
            }
        }
    }

    fn register(inner: T, interest: Interest) -> Result<Self> {
        // SAFETY: `Registered` answers the descriptor of a `Steady` value, which by that trait's contract is open and
        // the same until the value is dropped; the value is owned by the `AsyncFd` and lent out only by `&`.
        let registered = unsafe { AsyncFd::register_with_interest(Registered(inner), interest) };
        registered
            .map(Self)
            .map_err(io::Error::from)
            .called("epoll_ctl")
    }
}

impl<'a, T: Steady + 'static> Guard<'a, T> {
    /// What is ready.
    pub fn inner(&self) -> &'a T {
        &self.0.get_inner().0
    }

    /// Takes the report back: the call would have blocked, so wait for the next one.
    pub fn clear(&mut self) {
        self.0.clear_ready();
    }
}

impl Later for io::Error {
    fn is_later(&self) -> bool {
        self.kind() == io::ErrorKind::WouldBlock
    }
}

impl Later for Error {
    fn is_later(&self) -> bool {
        self.errno() == libc::EAGAIN
    }
}

// SAFETY: owns one descriptor, closes it on drop, and cannot exchange it through `&`.
unsafe impl Steady for OwnedFd {}
// SAFETY: as OwnedFd, which it is.
unsafe impl Steady for File {}
// SAFETY: as OwnedFd, which it is.
unsafe impl Steady for TcpListener {}
// SAFETY: as OwnedFd, which it is.
unsafe impl Steady for TcpStream {}
// SAFETY: as OwnedFd, which it is.
unsafe impl Steady for UdpSocket {}
// SAFETY: as OwnedFd, which it is.
unsafe impl Steady for UnixListener {}
// SAFETY: as OwnedFd, which it is.
unsafe impl Steady for UnixStream {}
// SAFETY: as OwnedFd, which it is.
unsafe impl Steady for UnixDatagram {}
// SAFETY: as OwnedFd, which it is.
unsafe impl Steady for io::PipeReader {}
// SAFETY: as OwnedFd, which it is.
unsafe impl Steady for io::PipeWriter {}
// SAFETY: a field of type OwnedFd that no method exchanges.
unsafe impl Steady for handoff::Socket {}
// SAFETY: a field of type OwnedFd that no method exchanges.
unsafe impl Steady for handoff::door::Door {}
// SAFETY: the shared value keeps its descriptor at least as long as this reference to it lives.
unsafe impl<T: Steady> Steady for Arc<T> {}

/// What tokio asks for the number.
#[derive(Debug)]
struct Registered<T>(T);

impl<T: Steady> AsRawFd for Registered<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn in_runtime<R>(test: impl Future<Output = R>) -> R {
        tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .expect("a runtime")
            .block_on(test)
    }

    #[test]
    fn a_read_waits_for_the_packet_and_then_for_the_end() {
        in_runtime(async {
            let (ours, theirs) = handoff::pair().expect("a pair");
            let theirs = Ready::new(theirs).expect("registered");
            let mut buffer = [0; 16];
            {
                let mut early = pin!(theirs.read(|socket| socket.try_receive(&mut buffer)));
                let polled = early.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(matches!(polled, Poll::Pending));

                ours.send(b"now", &[]).expect("room");
                let received = early.await.expect("a packet");
                assert!(matches!(
                    received,
                    handoff::Received::Packet { length: 3, .. }
                ));
            }
            assert_eq!(&buffer[..3], b"now");

            drop(ours);
            let end = theirs
                .read(|socket| socket.try_receive(&mut buffer))
                .await
                .expect("the end");
            assert!(matches!(end, handoff::Received::Closed));
        });
    }

    #[test]
    fn a_write_waits_for_room() {
        in_runtime(async {
            let (ours, theirs) = handoff::pair().expect("a pair");
            let ours = Ready::new(ours).expect("registered");
            while ours.inner().try_send(&[1; 1024], &[]).is_ok() {}

            let mut blocked = pin!(ours.write(|socket| socket.try_send(b"last", &[])));
            let polled = blocked
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Pending));
            let mut buffer = [0; 1024];
            while !buffer.starts_with(b"last") {
                let received = theirs.try_receive(&mut buffer);
                if received.is_err_and(|error| error.is_later()) {
                    blocked.as_mut().await.expect("room");
                }
            }
        });
    }

    #[test]
    fn a_descriptor_that_came_back_is_open_and_registers_again() {
        in_runtime(async {
            let (reader, writer) = io::pipe().expect("a pipe");
            let back = Ready::reading(reader).expect("registered").into_inner();
            let again = Ready::reading(back).expect("registered again");

            drop(writer);

            let mut guard = again.readable().await.expect("the end is readable");
            let ended = io::Read::read(&mut guard.inner(), &mut [0; 1]).expect("the end");
            assert_eq!(ended, 0);
            guard.clear();
        });
    }

    #[test]
    fn a_plain_file_is_refused_by_name() {
        in_runtime(async {
            let file = File::open("/proc/self/exe").expect("our own program");

            let refused = Ready::reading(file).expect_err("a file is always ready");

            assert_eq!(
                (refused.call(), refused.errno()),
                ("epoll_ctl", libc::EPERM)
            );
        });
    }
}
