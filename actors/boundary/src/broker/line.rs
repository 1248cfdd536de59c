//! The lane to the keeper as the broker waits on it.
//!
//! Room to write is waited for only while there is none. The kernel would report it each time the keeper takes a packet, which is once
//! for every connect, and each report is a wake-up of this process.

use std::sync::Arc;

use holdfast_kernel::Result;
use holdfast_kernel::handoff::Socket;
use holdfast_kernel::ready::Ready;

/// One lane.
#[derive(Debug)]
pub(super) struct Line {
    socket: Ready<Arc<Socket>>,
    full: bool,
}

impl Line {
    pub(super) fn new(socket: Arc<Socket>) -> Result<Self> {
        Ok(Self {
            socket: Ready::reading(socket)?,
            full: false,
        })
    }

    /// The same, waited on until there is room.
    pub(super) fn full(self) -> Result<Self> {
        Ok(Self {
            socket: Ready::new(self.socket.into_inner())?,
            full: true,
        })
    }

    /// The same, with room.
    pub(super) fn roomy(self) -> Result<Self> {
        if self.full {
            Self::new(self.socket.into_inner())
        } else {
            Ok(self)
        }
    }

    /// Calls `read` until it does not answer "not now", waiting in between.
    pub(super) async fn read<R>(&self, read: impl Fn(&Socket) -> Result<R>) -> Result<R> {
        self.socket.read(|socket| read(socket)).await
    }

    /// Sends `bytes`: at once or, once it is known to be full, when there is room.
    pub(super) async fn send(&self, bytes: &[u8]) -> Result<()> {
        if self.full {
            self.socket
                .write(|socket| socket.try_send(bytes, &[]))
                .await
        } else {
            self.socket.inner().try_send(bytes, &[])
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_kernel::handoff::{Received, pair};
    use holdfast_kernel::ready::Later as _;

    use super::*;

    #[tokio::test]
    async fn what_finds_no_room_goes_when_there_is_some() {
        let (ours, theirs) = pair().expect("a pair");
        let mut line = Line::new(Arc::new(ours)).expect("registered");
        let mut sent = 0;
        let full = loop {
            match line.send(&[7; 1024]).await {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        assert!(full.is_later(), "{full:?}");

        line = line.full().expect("registered anew");
        let receive = || {
            let received = theirs.try_receive(&mut [0; 2048]).expect("received");
            assert!(matches!(received, Received::Packet { length: 1024, .. }));
        };
        let room = async { (0..sent).for_each(|_| receive()) };
        let (last, ()) = tokio::join!(line.send(&[7; 1024]), room);
        last.expect("sent");
        receive();

        line = line.roomy().expect("registered anew");
        theirs.try_send(&[1], &[]).expect("sent");
        let heard = line.read(|socket| socket.try_receive(&mut [0; 8])).await;
        assert!(matches!(heard, Ok(Received::Packet { length: 1, .. })));
    }
}
