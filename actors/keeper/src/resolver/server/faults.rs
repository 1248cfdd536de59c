//! Sorts what can go wrong at a socket, so that nothing ends a loop but a useless socket. Pure.

use std::time::Duration;

use holdfast_clock::Moment;
use holdfast_kernel::Error;
use holdfast_observability::Limiter;

/// What to do about an error of `accept`, `recvmsg` or `sendmsg`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// It was about one peer or one moment: go on at once.
    GoOn,
    /// Something ran out: go on after a while.
    Wait(Duration),
    /// The socket is none, or none that listens.
    GiveUp,
}

/// Grows with each shortage in a row.
#[derive(Debug)]
pub(super) struct Faults {
    wait: Duration,
    lines: Limiter,
}

impl Faults {
    pub(super) fn new() -> Self {
        Self {
            wait: SHORTEST,
            lines: Limiter::default(),
        }
    }

    /// Something worked.
    pub(super) fn clear(&mut self) {
        self.wait = SHORTEST;
    }

    pub(super) fn remedy(&mut self, error: &Error, now: Moment) -> Remedy {
        match error.errno() {
            // accept(2): network errors of the new connection are reported by accept; go on.
            libc::EINTR
            | libc::EAGAIN
            | libc::ECONNABORTED
            | libc::EMSGSIZE
            | libc::ECONNREFUSED
            | libc::ENETDOWN
            | libc::EPROTO
            | libc::EHOSTDOWN
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::ENODATA => Remedy::GoOn,
            libc::EBADF | libc::EINVAL | libc::ENOTSOCK => Remedy::GiveUp,
            // EMFILE, ENFILE, ENOBUFS, ENOMEM; and whatever is unknown must not become a busy loop.
            errno => {
                if let Some(held) = self.lines.admit(now.since_origin()) {
                    holdfast_observability::exhausted!(
                        call = error.call(),
                        errno,
                        held,
                        "wait before serving names further"
                    );
                }
                let wait = self.wait;
                self.wait = (wait * 2).min(LONGEST);
                Remedy::Wait(wait)
            }
        }
    }
}

const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn remedy(faults: &mut Faults, errno: i32) -> Remedy {
        faults.remedy(&Error::new("accept", errno), Moment::ORIGIN)
    }

    #[test]
    fn a_shortage_waits_longer_each_time_up_to_a_second_and_starts_anew_after_success() {
        for errno in [
            libc::EMFILE,
            libc::ENFILE,
            libc::ENOBUFS,
            libc::ENOMEM,
            9999,
        ] {
            let mut faults = Faults::new();

            let waits: Vec<Remedy> = (0..9).map(|_| remedy(&mut faults, errno)).collect();
            faults.clear();
            let anew = remedy(&mut faults, errno);

            let millis = [10, 20, 40, 80, 160, 320, 640, 1000, 1000];
            assert_eq!(
                waits,
                millis.map(|ms| Remedy::Wait(Duration::from_millis(ms)))
            );
            assert_eq!(anew, Remedy::Wait(SHORTEST));
        }
    }

    #[test]
    fn a_peer_that_vanished_costs_nothing_and_a_useless_socket_ends_it() {
        let mut faults = Faults::new();

        for errno in [
            libc::EINTR,
            libc::ECONNABORTED,
            libc::EMSGSIZE,
            libc::EPROTO,
        ] {
            assert_eq!(remedy(&mut faults, errno), Remedy::GoOn);
        }
        for errno in [libc::EBADF, libc::EINVAL, libc::ENOTSOCK] {
            assert_eq!(remedy(&mut faults, errno), Remedy::GiveUp);
        }
    }
}
