//! What the boundary has still to be told.
//!
//! A boundary that is stopped takes nothing. The launcher never waits for it: it has children to reap and limits to keep.
//! There is a bound all the same, for nobody else asks: at most a beginning and an end of each session that was asked for,
//! and one sign of life. What the kernel has no room for just now waits, too: it may be the end of a session, which nobody
//! tells again.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use holdfast_kernel::Result;
use holdfast_kernel::handoff::Socket;
use holdfast_wire::v1::FromLauncher;
use holdfast_wire::v1::from_launcher::Kind as Told;
use nix::poll::{PollFlags, PollTimeout};
use prost::Message;

/// Messages that wait, oldest first.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<(Vec<u8>, Option<OwnedFd>)>,
    /// Whether it is the kernel that had no room: no readiness tells when it has.
    starved: bool,
}

impl Outbox {
    /// Tells it now, or as soon as the boundary takes it, behind what waits already.
    pub(super) fn tell(&mut self, boundary: &Socket, told: Told, descriptor: Option<OwnedFd>) {
        let message = FromLauncher { kind: Some(told) };
        self.waiting
            .push_back((message.encode_to_vec(), descriptor));
        self.flush(boundary);
    }

    /// Sends what the boundary takes.
    pub(super) fn flush(&mut self, boundary: &Socket) {
        self.send(|bytes, descriptors| boundary.try_send(bytes, descriptors));
    }

    fn send(&mut self, mut send: impl FnMut(&[u8], &[BorrowedFd<'_>]) -> Result<()>) {
        self.starved = false;
        while let Some((bytes, descriptor)) = self.waiting.front() {
            let descriptors: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
            match send(bytes, &descriptors).map_err(|error| error.errno()) {
                Err(libc::EINTR) => continue,
                Err(libc::EAGAIN) => return,
                Err(libc::ENOBUFS | libc::ENOMEM | libc::ETOOMANYREFS) => {
                    self.starved = true;
                    return;
                }
                // A boundary that is gone ends the launcher at its next turn.
                Ok(()) | Err(_) => {}
            }
            self.waiting.pop_front();
        }
    }

    /// What of the boundary has to be waited for.
    pub(super) fn wanted(&self) -> PollFlags {
        if self.waiting.is_empty() || self.starved {
            PollFlags::POLLIN
        } else {
            PollFlags::POLLIN | PollFlags::POLLOUT
        }
    }

    /// How long to wait, if nothing else needs less.
    pub(super) fn wait(&self) -> PollTimeout {
        if self.starved {
            AGAIN.into()
        } else {
            PollTimeout::NONE
        }
    }
}

/// How soon the kernel is asked for room again, in milliseconds.
const AGAIN: u8 = 100;

#[cfg(test)]
mod tests {
    use holdfast_kernel::Called;
    use holdfast_kernel::handoff::{Received, pair};
    use holdfast_wire::v1;
    use nix::errno::Errno;

    use super::*;

    fn ended(session: u64) -> Told {
        Told::Ended(v1::Ended {
            session,
            ..v1::Ended::default()
        })
    }

    fn hear(boundary: &Socket) -> Option<u64> {
        let mut buffer = [0; 64];
        let Ok(Received::Packet { length, .. }) = boundary.try_receive(&mut buffer) else {
            return None;
        };
        match FromLauncher::decode(&buffer[..length])
            .expect("a message")
            .kind
        {
            Some(Told::Ended(ended)) => Some(ended.session),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_boundary_that_takes_nothing_keeps_nobody_waiting_and_hears_all_in_order() {
        let (launcher, boundary) = pair().expect("a pair");
        let mut outbox = Outbox::default();

        for session in 1..=MANY {
            outbox.tell(&launcher, ended(session), None);
        }

        assert!(
            outbox.wanted().contains(PollFlags::POLLOUT),
            "it fits in the socket"
        );
        let mut heard = Vec::new();
        while let Some(session) = hear(&boundary) {
            heard.push(session);
            outbox.flush(&launcher);
        }
        assert_eq!(heard, (1..=MANY).collect::<Vec<_>>());
        assert_eq!(outbox.wanted(), PollFlags::POLLIN);
    }

    #[test]
    fn what_nobody_can_hear_any_more_is_dropped() {
        let (launcher, boundary) = pair().expect("a pair");
        drop(boundary);
        let mut outbox = Outbox::default();

        outbox.tell(&launcher, ended(1), None);

        assert_eq!(outbox.wanted(), PollFlags::POLLIN);
    }

    #[test]
    fn what_the_kernel_has_no_room_for_is_sent_when_it_has() {
        let (launcher, boundary) = pair().expect("a pair");
        let mut outbox = Outbox::default();
        let message = FromLauncher {
            kind: Some(ended(1)),
        };
        outbox.waiting.push_back((message.encode_to_vec(), None));

        for errno in [Errno::ENOBUFS, Errno::ENOMEM, Errno::ETOOMANYREFS] {
            outbox.send(|_, _| Err::<(), _>(errno).called("sendmsg"));
            assert_eq!(
                outbox.wanted(),
                PollFlags::POLLIN,
                "that is no use: {errno}"
            );
            assert_eq!(outbox.wait(), AGAIN.into(), "{errno}");
        }
        outbox.flush(&launcher);

        assert_eq!(hear(&boundary), Some(1));
        assert_eq!(outbox.wait(), PollTimeout::NONE);
    }

    /// More than a socket takes.
    const MANY: u64 = 4096;
}
