//! Attempts and connections end: their caller leaves, their time is over, another takes their place, or the policy denies them.

use super::event::{Command, Hands};
use super::pending::{Attempt, State};
use super::{Book, Commands, RESETS, TARDY, answer, doubt, record};
use crate::egress::attempt::{Call, Cookie, Fate, Judge, Serial};
use holdfast_clock::Moment;
use std::net::SocketAddr;

impl<H: Hands> Book<H> {
    pub(super) fn gone(&mut self, call: Call, fate: Fate) -> Commands<H> {
        self.pending
            .of_call(call)
            .map_or_else(Vec::new, |serial| self.end(serial, fate))
    }

    pub(super) fn closed(&mut self, serial: Serial) -> Commands<H> {
        self.open.remove(serial);
        self.abandon(serial)
    }

    pub(super) fn passed(&mut self, now: Moment) -> Commands<H> {
        let past = self.pending.past(now);
        self.counts.expired += past.len() as u64;
        self.brink = doubt::MANY;
        self.pending.hurry(&self.resets, now + TARDY);
        self.resets.clear();
        past.into_iter()
            .flat_map(|serial| self.cut(serial, libc::ETIMEDOUT))
            .collect()
    }

    pub(super) fn reset(&mut self, destination: SocketAddr) {
        if self.resets.len() < RESETS {
            self.resets.insert(destination);
        }
    }

    pub(super) fn held(&mut self, now: Moment) -> Commands<H> {
        self.brink = doubt::MANY;
        let mut commands = Vec::new();
        for serial in self.pending.past(now) {
            let Some(Attempt {
                who,
                state,
                deadline,
            }) = self.pending.remove(serial)
            else {
                continue;
            };
            match state {
                State::Ready(bound, ..) => self.keep(serial, who, State::Bare(Some(bound)), now),
                state @ (State::Dialling(_) | State::Broken(..) | State::Bare(_)) => {
                    self.keep(serial, who, state, now);
                }
                state @ (State::Asked(_) | State::Awaited(..)) => {
                    let attempt = Attempt {
                        who,
                        state,
                        deadline,
                    };
                    self.pending.insert(serial, attempt);
                    self.counts.expired += 1;
                    commands.extend(self.cut(serial, libc::ETIMEDOUT));
                }
            }
        }
        commands
    }

    pub(super) fn revised(&mut self, judge: &impl Judge) -> Commands<H> {
        let withdrawn = self.open.withdraw(judge).into_iter();
        withdrawn
            .flat_map(|(serial, report)| [record(None, report), Command::Close(serial)])
            .collect()
    }

    pub(super) fn over(&mut self) -> Commands<H> {
        let left = self.pending.serials().into_iter();
        left.flat_map(|serial| self.cut(serial, libc::ENETDOWN))
            .collect()
    }

    /// Ends an attempt in the middle; a caller that waits is told `errno`.
    fn cut(&mut self, serial: Serial, errno: i32) -> Commands<H> {
        let asked = self.pending.get(serial).and_then(Attempt::asked);
        let told = asked.map(|call| answer(call, errno, None));
        told.into_iter().chain(self.abandon(serial)).collect()
    }

    /// Nobody waits for it any more, or nobody may.
    fn abandon(&mut self, serial: Serial) -> Commands<H> {
        self.end(serial, Fate::Abandoned)
    }

    /// It brings no connection.
    pub(super) fn end(&mut self, serial: Serial, fate: Fate) -> Commands<H> {
        let Some(Attempt { who, state, .. }) = self.pending.remove(serial) else {
            return Vec::new();
        };
        let record = who.end(state.bound(), fate);
        let mut commands = vec![record];
        match state {
            State::Awaited(_, waiter) => {
                commands.extend([Command::Cancel(serial), Command::Refuse(waiter)]);
            }
            State::Asked(_) | State::Dialling(_) => commands.push(Command::Cancel(serial)),
            State::Ready(..) | State::Broken(..) | State::Bare(_) => {}
        }
        commands
    }

    /// A new call on the same socket, or a new call under an old id: the old attempt ends.
    pub(super) fn supersede(&mut self, call: Call, cookie: Option<Cookie>) -> Commands<H> {
        let of_cookie = cookie.and_then(|cookie| self.pending.of_cookie(cookie));
        let old = [
            self.pending.of_call(call),
            of_cookie.map(|(serial, _)| serial),
        ];
        let mut commands = Vec::new();
        for serial in old.into_iter().flatten() {
            let asked = self.pending.get(serial).and_then(Attempt::asked);
            commands.extend(
                asked
                    .filter(|asked| *asked != call)
                    .map(|asked| answer(asked, 0, None)),
            );
            commands.extend(self.abandon(serial));
        }
        commands
    }
}
