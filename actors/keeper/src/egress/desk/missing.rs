//! Gives back the places of attempts whose connect has failed in the kernel, when room runs short.

use super::{Cookies, Desk};
use crate::egress::attempt::Cookie;
use crate::egress::book::Event;
use crate::egress::counters::bump;
use holdfast_observability::race;
use std::collections::HashSet;
use std::io;

impl Desk {
    /// Ends the attempts whose connect has failed in the kernel, as far as that shows: the places of thousands of them are for
    /// others. Takes milliseconds.
    pub(in crate::egress) fn look_for_missing(&self, cookies: &dyn Cookies) {
        let doubtful = self.state.lock().book.doubtful(self.clock.now());
        if doubtful.is_empty() {
            return;
        }
        let known = match looks(cookies) {
            Ok(known) => known,
            Err(fault) => {
                bump(&self.counters.unlooked);
                race!(%fault, "look up the sockets of the sandbox");
                return;
            }
        };
        let missing = doubtful
            .into_iter()
            .filter(|(_, cookie)| !known.iter().any(|known| known.contains(cookie)));
        let serials = missing.map(|(serial, _)| serial).collect();
        let left = self.step(Event::Missing { serials });
        self.errands.leave(left.answers);
    }
}

/// Twice: a look may leave a socket out, and what is left out both times is not there.
fn looks(cookies: &dyn Cookies) -> io::Result<[HashSet<Cookie>; 2]> {
    Ok([cookies.connections()?, cookies.connections()?])
}
