//! Looks after the calls that wait.
//!
//! ```text
//!  Waiting ──┬── its caller is gone ──> forgotten
//!            └── a signal, and it has waited long ──┬──> the call goes on with it, the connect is Withheld
//!                                                   └── that cannot be ──> both end; the call may be made again
//! ```
//!
//! Outside, a signal ends the call and not the connect: that stays under way, and the caller may wait for its socket. It would
//! take one that is not under way for connected. So the kernel makes the connect at once, as the caller's own, and the socket
//! takes no packet until the verdict is there.

use std::sync::atomic::Ordering;

use holdfast_kernel::Result;
use holdfast_kernel::look::{self, Pinned};

use super::waiting::Look;
use super::{Broker, caller};

impl Broker {
    /// Looks after some of the calls that wait, and tells the keeper of races.
    pub(super) fn patrol(&self) -> Result<()> {
        let round = self.waiting().round();
        for look in round {
            if !self.arguments.listener.is_pending(look.id) {
                self.waiting().forget(look.id);
                self.answered(false);
            } else if look.is_long && look::has_signal(look.thread).unwrap_or(false) {
                self.let_go_on(look)?;
            }
        }
        let races = self.races();
        self.waiting().races(races);
        Ok(())
    }

    /// Lets a call go on before its verdict, since its caller has a signal to handle.
    fn let_go_on(&self, look: Look) -> Result<()> {
        let listener = &self.arguments.listener;
        let may_withhold = self.waiting().may_withhold();
        let socket = caller::socket(look).ok().filter(|_| may_withhold);
        let Some(socket) = socket.filter(|socket| socket.withhold().is_ok()) else {
            // No room for it, or the caller has said itself which packets it takes: the connect ends, too.
            self.waiting().forget(look.id);
            self.answered(listener.interrupt(look.id)?);
            return Ok(());
        };
        if listener.let_go(look.id)? {
            self.waiting().withhold(look.id, socket);
        } else {
            self.end(&socket, true);
            self.waiting().forget(look.id);
            self.answered(false);
        }
        Ok(())
    }

    /// Ends the wait of a socket that took no packet: its connect goes on, or fails.
    pub(super) fn end(&self, socket: &Pinned, goes_on: bool) {
        // Its owner may have given the connect up, and begun another.
        let fails = !goes_on && socket.is_connecting().unwrap_or(false);
        let failed = if fails { socket.abort() } else { Ok(()) };
        if failed.and(socket.release()).is_err() {
            self.arguments.counts.faults.fetch_add(1, Ordering::Relaxed);
        }
    }
}
