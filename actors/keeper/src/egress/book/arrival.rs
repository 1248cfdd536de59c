//! A connection arrives: judged again, by the kernel's word and the recorded identity, and served with what was prepared for it.

use super::event::{Accepted, Command, Hands, Waiting};
use super::open::Connection;
use super::pending::{Attempt, Bound, Refused, State, Who, report};
use super::{Book, Commands, answer, record};
use crate::egress::attempt::{Caller, Cookie, Fate, Judge, Report, Serial};
use holdfast_clock::Moment;
use std::net::SocketAddr;

impl<H: Hands> Book<H> {
    pub(super) fn accepted(
        &mut self,
        accepted: Accepted<H>,
        now: Moment,
        judge: &impl Judge,
    ) -> Commands<H> {
        let Accepted {
            cookie,
            destination,
            waiter,
            slot,
        } = accepted;
        let (mut who, mut early) = match self.announced(cookie) {
            Some((serial, Attempt { who, state, .. })) => (who, Some((serial, state))),
            None => match slot {
                Some(slot) => (self.unannounced(cookie, slot), None),
                None => return reset_unrecorded(waiter, destination),
            },
        };
        let mut commands = Vec::new();
        if let (Some(call), Some((_, State::Asked(_)))) = (who.call, &early) {
            commands.push(answer(call, 0, None));
        }
        let announced = early.as_ref().and_then(|(_, state)| state.bound());
        let elsewhere = announced.is_some_and(|bound| bound.destination != destination);
        if elsewhere {
            // The address was swapped, or it is another's connect on a socket that was connected when the broker looked.
            self.counts.races += 1;
            who.caller = Caller::UNKNOWN;
        }
        let judged = Bound::of(destination, judge.judge(destination, &who.caller.identity));
        if elsewhere || judged.is_err() {
            commands.extend(early.take().and_then(cancel));
        }
        commands.extend(match judged {
            Ok(bound) => {
                let early = early.map(|(serial, state)| (serial, state.recheck(&bound, judge)));
                self.serve(early, who, (bound, waiter), now)
            }
            Err(refused) => refuse(waiter, who, refused),
        });
        commands
    }

    /// An arrival that was allowed finds what was prepared for it, if anything was.
    fn serve(
        &mut self,
        early: Option<(Serial, State<H>)>,
        who: Who<H>,
        (bound, waiter): (Bound, H::Waiter),
        now: Moment,
    ) -> Commands<H> {
        let (serial, command) = match early {
            Some((serial, State::Ready(_, upstream, address))) => {
                return self.relay(serial, who, (bound, waiter), (upstream, address));
            }
            Some((_, State::Broken(_, failure))) => {
                return vec![
                    who.end(Some(&bound), failure.into()),
                    Command::Refuse(waiter),
                ];
            }
            Some((serial, State::Asked(_) | State::Dialling(_))) => {
                (serial, Command::Await(serial))
            }
            None | Some((_, State::Bare(_) | State::Awaited(..))) => {
                let serial = self.serial();
                (
                    serial,
                    Command::Dial(bound.dial(serial, &who, Waiting::Connected)),
                )
            }
        };
        let who = Who { call: None, ..who };
        self.keep(serial, who, State::Awaited(bound, waiter), now);
        vec![command]
    }

    pub(super) fn relay(
        &mut self,
        serial: Serial,
        who: Who<H>,
        (bound, waiter): (Bound, H::Waiter),
        (upstream, address): (H::Upstream, SocketAddr),
    ) -> Commands<H> {
        let Who { caller, slot, .. } = who;
        let report = report(Some(&bound), caller.clone(), Fate::Connected(address));
        let (destination, dialled) = (bound.destination, address.ip());
        self.open.insert(
            serial,
            Connection {
                caller,
                destination,
                dialled,
            },
        );
        vec![
            record(Some(slot), report),
            Command::Relay {
                serial,
                waiter,
                upstream,
            },
        ]
    }

    fn announced(&mut self, cookie: Option<Cookie>) -> Option<(Serial, Attempt<H>)> {
        let (serial, attempt) = self.pending.of_cookie(cookie?)?;
        match attempt.state {
            // It has its connection; this one is another.
            State::Awaited(..) => None,
            State::Asked(_)
            | State::Dialling(_)
            | State::Ready(..)
            | State::Broken(..)
            | State::Bare(_) => Some((serial, self.pending.remove(serial)?)),
        }
    }

    /// Whoever had the socket before, it may have others by now.
    fn unannounced(&mut self, cookie: Option<Cookie>, slot: H::Slot) -> Who<H> {
        self.counts.unannounced += 1;
        Who {
            call: None,
            thread: None,
            cookie,
            caller: Caller::UNKNOWN,
            patience: None,
            slot,
        }
    }
}

pub(super) fn refuse<H: Hands>(waiter: H::Waiter, who: Who<H>, refused: Refused) -> Commands<H> {
    let Who { caller, slot, .. } = who;
    vec![
        record(Some(slot), refused.report(caller)),
        Command::Refuse(waiter),
    ]
}

fn reset_unrecorded<H: Hands>(waiter: H::Waiter, destination: SocketAddr) -> Commands<H> {
    let (caller, destination) = (Caller::UNKNOWN, Some(destination));
    let report = Report {
        caller,
        destination,
        host: None,
        allowed: None,
        fate: Fate::Unrecorded,
    };
    vec![record(None, Box::new(report)), Command::Refuse(waiter)]
}

fn cancel<H: Hands>((serial, state): (Serial, State<H>)) -> Option<Command<H>> {
    state.is_dialling().then_some(Command::Cancel(serial))
}
