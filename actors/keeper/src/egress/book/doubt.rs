//! Room runs short: some of the pending attempts may wait for connections that do not come any more.
//!
//! A caller that was let go connects in the kernel, and nobody tells when it fails there (its source port is taken, say). The kernel
//! knows the cookies of all sockets that are connecting or connected, and takes milliseconds to tell them; so it is asked only when
//! [`MANY`] attempts are pending, and then after each [`MORE`] and with each passing of time.
//!
//! In doubt is whose caller was let go and is certainly back from its call: its thread has made another one, or it has had [`TARDY`].
//! If the kernel knows no socket of its cookie then, its connect has failed or its connection is over.

use super::event::Hands;
use super::pending::Attempt;
use super::{Book, Commands, DIALLING, LIFETIME, PENDING, TARDY};
use crate::egress::attempt::{Cookie, Fate, Serial};
use holdfast_clock::Moment;
use std::collections::HashMap;

impl<H: Hands> Book<H> {
    /// Whether the attempts in doubt are to be looked after.
    pub fn is_short(&self) -> bool {
        self.pending.len() >= self.brink
    }

    /// The attempts in doubt. Those whose socket the kernel does not know *after* this call are [`Event::Missing`](super::Event::Missing).
    pub fn doubtful(&mut self, now: Moment) -> Vec<(Serial, Cookie)> {
        self.brink = self.pending.len() + MORE;
        let mut last: HashMap<u32, Serial> = HashMap::new();
        for (serial, attempt) in self.pending.all() {
            if let Some(thread) = attempt.who.thread {
                let last = last.entry(thread).or_insert(serial);
                *last = serial.max(*last);
            }
        }
        let is_back = |serial: Serial, attempt: &Attempt<H>| {
            let thread = attempt.who.thread.as_ref();
            let has_called_again = thread.is_some_and(|thread| last[thread] > serial);
            attempt.is_let_go() && (has_called_again || has_had_time(attempt, now))
        };
        let doubtful = self
            .pending
            .all()
            .filter(|(serial, it)| is_back(*serial, it));
        doubtful
            .filter_map(|(serial, attempt)| Some((serial, attempt.who.cookie?)))
            .collect()
    }

    pub(super) fn missing(&mut self, missing: Vec<Serial>) -> Commands<H> {
        let gone = |serial: &Serial| self.pending.get(*serial).is_some_and(Attempt::is_let_go);
        let gone: Vec<_> = missing.into_iter().filter(gone).collect();
        self.counts.missing += gone.len() as u64;
        let commands = gone
            .into_iter()
            .flat_map(|serial| self.end(serial, Fate::Abandoned));
        let commands = commands.collect();
        self.brink = MANY.max(self.pending.len() + MORE);
        commands
    }
}

/// What has little time left ends by itself: it may have been given less than others.
fn has_had_time<H: Hands>(attempt: &Attempt<H>, now: Moment) -> bool {
    let lifetime = if attempt.state.is_dialling() {
        DIALLING
    } else {
        LIFETIME
    };
    let left = attempt.deadline - now;
    left > TARDY && left + TARDY <= lifetime
}

/// So many pending attempts are no usual load: half of what the audit trail has room for.
pub(super) const MANY: usize = PENDING / 4;
/// Further attempts until the kernel is asked again.
pub(super) const MORE: usize = PENDING / 16;
