//! Whatever comes in whatever order: callers that race, dials that end late, connections that arrive elsewhere.

use super::*;
use crate::egress::attempt::Ruling;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

#[derive(Debug, Clone)]
enum Happening {
    Attempt {
        cookie: u64,
        to: usize,
        curl: bool,
        blocking: bool,
        readable: bool,
    },
    Dialled(usize),
    Failed(usize),
    Released(usize),
    Deferred(usize),
    Accept {
        cookie: u64,
        to: usize,
    },
    Gone(usize),
    Reset(usize),
    Closed(usize),
    /// The kernel knows none of the sockets in doubt but this one.
    Missing(u64),
    Wait {
        seconds: u64,
        held: bool,
    },
    Revise(bool),
    Over,
}

const PLACES: [[u8; 4]; 3] = [OPEN, GUARDED, FOREIGN];

/// Two revisions, read once.
static OPENED: LazyLock<Court> = LazyLock::new(|| Court::new(policy(PORT), Arc::new(table())));
static CLOSED: LazyLock<Court> = LazyLock::new(|| OPENED.under(Arc::new(Policy::standard())));

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let attempt = (
        0..6_u64,
        0..3_usize,
        any::<bool>(),
        any::<bool>(),
        prop::bool::weighted(0.9),
    );
    let one = prop_oneof![
        4 => attempt.prop_map(|(cookie, to, curl, blocking, readable)| {
            Happening::Attempt { cookie, to, curl, blocking, readable }
        }),
        3 => (0..64_usize).prop_map(Happening::Dialled),
        1 => (0..64_usize).prop_map(Happening::Failed),
        1 => (0..64_usize).prop_map(Happening::Released),
        1 => (0..64_usize).prop_map(Happening::Deferred),
        4 => (0..6_u64, 0..3_usize).prop_map(|(cookie, to)| Happening::Accept { cookie, to }),
        1 => (0..64_usize).prop_map(Happening::Gone),
        1 => (0..3_usize).prop_map(Happening::Reset),
        1 => (0..64_usize).prop_map(Happening::Closed),
        1 => (0..6_u64).prop_map(Happening::Missing),
        1 => (0..400_u64, any::<bool>()).prop_map(|(seconds, held)| Happening::Wait { seconds, held }),
        1 => any::<bool>().prop_map(Happening::Revise),
        1 => Just(Happening::Over),
    ];
    prop::collection::vec(one, 1..120)
}

/// What an outsider sees of the book.
#[derive(Default)]
struct World {
    /// Who announced something on each socket, the last of them.
    owners: BTreeMap<u64, (Caller, Option<SocketAddr>)>,
    dials: Vec<Dial>,
    calls: Vec<u64>,
    unanswered: BTreeSet<u64>,
    relayed: Vec<Serial>,
    /// Attempts that owe a record, and records written.
    owed: u64,
    written: u64,
}

struct Run {
    book: Book<Tokens>,
    court: Court,
    now: Moment,
    world: World,
}

impl Run {
    fn happen(&mut self, happening: &Happening) {
        match *happening {
            Happening::Attempt {
                cookie,
                to,
                curl: is_curl,
                blocking,
                readable,
            } => {
                let caller = if is_curl { curl() } else { wget() };
                self.attempt(cookie, PLACES[to], caller, (blocking, readable));
            }
            Happening::Dialled(index) => self.with_dial(index, |dial| {
                let (serial, upstream) = (dial.serial, dial.destination);
                Event::Dialled {
                    serial,
                    upstream,
                    address: at(REAL, PORT),
                }
            }),
            Happening::Failed(index) => self.with_dial(index, |dial| {
                let failure = Failure::Errno(libc::ECONNREFUSED);
                Event::DialFailed {
                    serial: dial.serial,
                    failure,
                }
            }),
            Happening::Released(index) => {
                self.with_dial(index, |dial| Event::Released {
                    serial: dial.serial,
                });
            }
            Happening::Deferred(index) => {
                self.with_dial(index, |dial| Event::Deferred {
                    serial: dial.serial,
                });
            }
            Happening::Accept { cookie, to } => self.accept(cookie, at(PLACES[to], PORT)),
            Happening::Gone(index) => {
                if let Some(call) = self.world.calls.get(index).copied() {
                    self.world.unanswered.remove(&call);
                    self.step(Event::Gone { call }, None);
                }
            }
            Happening::Reset(to) => {
                let destination = at(PLACES[to], PORT);
                self.step(Event::Reset { destination }, None);
            }
            Happening::Closed(index) => {
                if let Some(serial) = self.world.relayed.get(index).copied() {
                    self.step(Event::Closed { serial }, None);
                }
            }
            Happening::Missing(but) => self.miss(but),
            Happening::Wait { seconds, held } => self.wait(seconds, held),
            Happening::Revise(open) => {
                self.court = if open { OPENED.clone() } else { CLOSED.clone() };
                self.step(Event::Revised, None);
            }
            Happening::Over => {
                self.step(Event::Over, None);
                assert_eq!(self.book.pending(), 0);
                assert_eq!(self.world.written, self.world.owed);
                assert!(
                    self.world.unanswered.is_empty(),
                    "nobody waits after the end"
                );
            }
        }
    }

    fn miss(&mut self, but: u64) {
        let doubtful = self.book.doubtful(self.now);
        let missing = doubtful.iter().filter(|(_, cookie)| cookie.get() != but);
        let serials = missing.map(|(serial, _)| *serial).collect();
        self.step(Event::Missing { serials }, None);
    }

    fn wait(&mut self, seconds: u64, held: bool) {
        self.now += Duration::from_secs(seconds);
        self.step(if held { Event::Held } else { Event::Passed }, None);
    }

    fn attempt(
        &mut self,
        cookie: u64,
        to: [u8; 4],
        caller: Caller,
        (blocking, readable): (bool, bool),
    ) {
        let call = 1000 + self.world.calls.len() as u64;
        self.world.calls.push(call);
        self.world.unanswered.insert(call);
        let hint = readable.then(|| at(to, PORT));
        self.world.owners.insert(cookie, (caller.clone(), hint));
        let allowed = !readable || self.allows(at(to, PORT), &caller);
        let attempted = Attempted {
            thread: (cookie < 4).then_some(7),
            cookie: NonZeroU64::new(cookie),
            hint,
            ..attempted(call, to, caller, blocking)
        };
        self.world.owed += 1;
        self.step(Event::Attempted(attempted), None);
        // Let through without an entry: its record is that of its arrival.
        if cookie == 0 && allowed {
            self.world.owed -= 1;
        }
    }

    fn accept(&mut self, cookie: u64, destination: SocketAddr) {
        let unannounced = self.book.counts().unannounced;
        // An arrival that nobody announced owes a record from now on.
        self.world.owed += 1;
        let arrival = Accepted {
            cookie: NonZeroU64::new(cookie),
            destination,
            waiter: destination,
            slot: Some(Slot),
        };
        self.step(Event::Accepted(arrival), Some(cookie));
        if self.book.counts().unannounced == unannounced {
            self.world.owed -= 1;
        }
    }

    fn with_dial(&mut self, index: usize, event: impl FnOnce(&Dial) -> Event<Tokens>) {
        if let Some(dial) = self.world.dials.get(index).cloned() {
            self.step(event(&dial), None);
        }
    }

    fn allows(&self, to: SocketAddr, caller: &Caller) -> bool {
        match self.court.judge(to, &caller.identity).ruling {
            Ruling::Allowed(_) => true,
            Ruling::Denied(_) => false,
        }
    }

    fn step(&mut self, event: Event<Tokens>, arrived: Option<u64>) {
        for command in self.book.step(event, self.now, &self.court) {
            match command {
                Command::Answer { call, .. } => {
                    assert!(self.world.calls.contains(&call), "an answer to no call");
                    self.world.unanswered.remove(&call);
                }
                Command::Dial(dial) => self.world.dials.push(dial),
                Command::Relay {
                    serial,
                    waiter,
                    upstream,
                } => {
                    assert_eq!(
                        waiter, upstream,
                        "an upstream serves what it was dialled for"
                    );
                    assert!(!self.world.relayed.contains(&serial), "relayed twice");
                    self.world.relayed.push(serial);
                }
                Command::Record { report, .. } => self.wrote(&report, arrived),
                Command::Cancel(_) | Command::Await(_) | Command::Refuse(_) | Command::Close(_) => {
                }
            }
        }
        assert!(self.book.pending() <= PENDING);
    }

    fn wrote(&mut self, report: &Report, arrived: Option<u64>) {
        match &report.fate {
            Fate::Withdrawn(_) => return,
            Fate::Connected(_) => self.justify(report, arrived),
            Fate::Denied(_)
            | Fate::Own
            | Fate::Failed(_)
            | Fate::Abandoned
            | Fate::Unheard(_)
            | Fate::Unknown
            | Fate::Crowded
            | Fate::Unrecorded => {}
        }
        self.world.written += 1;
    }

    /// What is relayed is allowed by the policy of this moment; at its arrival, for who was the last to announce something on this very socket, and announced this.
    fn justify(&self, report: &Report, arrived: Option<u64>) {
        let destination = report.destination.expect("the kernel's word");
        assert!(
            self.allows(destination, &report.caller),
            "{destination} is denied"
        );
        if let Some(cookie) = arrived {
            let (caller, announced) = &self.world.owners[&cookie];
            assert_eq!(caller, &report.caller);
            assert_eq!(announced, &Some(destination));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn nothing_is_relayed_unjudged_and_each_attempt_leaves_one_record(happenings in happenings()) {
        let court = OPENED.clone();
        let (book, world) = (Book::default(), World::default());
        let mut run = Run { book, court, now: Moment::ORIGIN, world };

        for happening in &happenings {
            run.happen(happening);
            prop_assert!(run.world.written <= run.world.owed, "a record too many after {:?}", happening);
        }
        let (seconds, held) = (DIALLING.as_secs(), false);
        run.happen(&Happening::Wait { seconds, held });

        prop_assert_eq!(run.book.pending(), 0);
        prop_assert_eq!(run.world.written, run.world.owed);
        prop_assert!(run.world.unanswered.is_empty(), "{:?} wait for ever", run.world.unanswered);
    }
}
