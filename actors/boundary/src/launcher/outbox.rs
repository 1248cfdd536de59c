//! What the boundary has still to be told.
//!
//! A boundary that is stopped takes nothing. The launcher never waits for it: it has children to reap and limits to keep.
//! There is a bound all the same, for nobody else asks: at most a beginning and an end of each session that was asked for,
//! and one sign of life.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use holdfast_kernel::handoff::Socket;
use holdfast_wire::v1::FromLauncher;
use holdfast_wire::v1::from_launcher::Kind as Told;
use nix::poll::PollFlags;
use prost::Message;

/// Messages that wait, oldest first.
#[derive(Debug, Default)]
pub(super) struct Outbox(VecDeque<(Vec<u8>, Option<OwnedFd>)>);

impl Outbox {
    /// Tells it now, or as soon as the boundary takes it, behind what waits already.
    pub(super) fn tell(&mut self, boundary: &Socket, told: Told, descriptor: Option<OwnedFd>) {
        let message = FromLauncher { kind: Some(told) };
        self.0.push_back((message.encode_to_vec(), descriptor));
        self.flush(boundary);
    }

    /// Sends what the boundary takes.
    pub(super) fn flush(&mut self, boundary: &Socket) {
        while let Some((bytes, descriptor)) = self.0.front() {
            let descriptors: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
            match boundary.try_send(bytes, &descriptors) {
                Err(error) if error.errno() == libc::EINTR => continue,
                Err(error) if error.errno() == libc::EAGAIN => return,
                // A boundary that is gone ends the launcher at its next turn.
                Ok(()) | Err(_) => {}
            }
            self.0.pop_front();
        }
    }

    /// What of the boundary has to be waited for.
    pub(super) fn wanted(&self) -> PollFlags {
        if self.0.is_empty() {
            PollFlags::POLLIN
        } else {
            PollFlags::POLLIN | PollFlags::POLLOUT
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_kernel::handoff::{Received, pair};
    use holdfast_wire::v1;

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

    /// More than a socket takes.
    const MANY: u64 = 4096;
}
