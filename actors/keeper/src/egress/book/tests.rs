use super::*;
use crate::egress::attempt::{Caller, Unheard};
use crate::egress::court::Court;
use crate::egress::testing::{FOREIGN, GUARDED, OPEN, at, curl, policy, table, wget};
use holdfast_observability::Place;
use holdfast_policy::Policy;
use std::num::NonZeroU64;
use std::sync::Arc;

mod arrivals;
mod doubts;
mod endings;
mod interleavings;

/// The tokens say what they were made for, so that a mix-up shows.
#[derive(Debug)]
struct Tokens;

impl Hands for Tokens {
    type Upstream = SocketAddr;
    type Waiter = SocketAddr;
    type Slot = Slot;

    fn place(_: &Slot) -> Place {
        Place::default()
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Slot;

const PORT: u16 = 443;
const REAL: [u8; 4] = [127, 0, 0, 1];

struct Desk {
    book: Book<Tokens>,
    court: Court,
    now: Moment,
}

impl Desk {
    fn new() -> Desk {
        let court = Court::new(policy(PORT), Arc::new(table()));
        Desk {
            book: Book::default(),
            court,
            now: Moment::ORIGIN,
        }
    }

    fn step(&mut self, event: Event<Tokens>) -> Vec<String> {
        let commands = self.book.step(event, self.now, &self.court);
        commands.iter().map(shown).collect()
    }

    fn attempt(&mut self, call: u64, to: [u8; 4], caller: Caller, blocking: bool) -> Vec<String> {
        self.step(Event::Attempted(attempted(call, to, caller, blocking)))
    }

    fn accept(&mut self, cookie: u64, to: [u8; 4]) -> Vec<String> {
        let destination = at(to, PORT);
        let cookie = NonZeroU64::new(cookie);
        self.step(Event::Accepted(Accepted {
            cookie,
            destination,
            waiter: destination,
            slot: Some(Slot),
        }))
    }

    fn dialled(&mut self, serial: u64, to: [u8; 4]) -> Vec<String> {
        let (upstream, address) = (at(to, PORT), at(REAL, PORT));
        self.step(Event::Dialled {
            serial: Serial(serial),
            upstream,
            address,
        })
    }

    fn failed(&mut self, serial: u64, errno: i32) -> Vec<String> {
        self.step(Event::DialFailed {
            serial: Serial(serial),
            failure: Failure::Errno(errno),
        })
    }
}

/// The call is the cookie of its socket.
fn attempted(call: u64, to: [u8; 4], caller: Caller, blocking: bool) -> Attempted<Tokens> {
    Attempted {
        call,
        thread: None,
        cookie: NonZeroU64::new(call),
        hint: Some(at(to, PORT)),
        blocking,
        patience: None,
        caller,
        slot: Some(Slot),
    }
}

/// One word per command, so that a test reads as a story.
fn shown(command: &Command<Tokens>) -> String {
    match command {
        Command::Answer { call, errno, .. } => format!("answer {call} {errno}"),
        Command::Dial(dial) => format!("dial {} {}", dial.serial.0, dial.target),
        Command::Cancel(serial) => format!("cancel {}", serial.0),
        Command::Await(serial) => format!("await {}", serial.0),
        Command::Relay {
            serial,
            waiter,
            upstream,
        } => {
            assert_eq!(
                waiter, upstream,
                "an upstream serves the destination it was dialled for"
            );
            format!("relay {}", serial.0)
        }
        Command::Refuse(_) => "refuse".to_owned(),
        Command::Close(serial) => format!("close {}", serial.0),
        Command::Record { report, .. } => format!("record {}", fate(&report.fate)),
    }
}

fn fate(fate: &Fate) -> String {
    match fate {
        Fate::Denied(denied) => format!("denied {}", denied.reason),
        Fate::Own => "own".to_owned(),
        Fate::Connected(address) => format!("connected {}", address.ip()),
        Fate::Failed(errno) => format!("failed {errno}"),
        Fate::Abandoned => "abandoned".to_owned(),
        Fate::Unheard(why) => format!("unheard {}", why.errno),
        Fate::Unknown => "unknown".to_owned(),
        Fate::Crowded => "crowded".to_owned(),
        Fate::Unrecorded => "unrecorded".to_owned(),
        Fate::Withdrawn(denied) => format!("withdrawn {}", denied.reason),
    }
}
