//! What outlives a broker that falls: the calls that wait for a verdict, and what the keeper has still to be told.
//!
//! ```text
//!  Mute ── a lane ──> Speaking: every call that waits is told ── the same lane, by the next broker ──> goes on where it was
//!    ▲                    │  └── another lane ──> Speaking: every call that waits is told anew
//!    └── the lane is gone ┘
//! ```
//!
//! A refusal that has not been told stays to be told, whoever comes: it owes a record. An attempt that was to be told to a
//! keeper that is gone is told to the next one because it waits.

use std::collections::{BTreeMap, VecDeque};

use holdfast_kernel::look::Pinned;
use holdfast_kernel::notify::Call;
use holdfast_wire::v1;
use holdfast_wire::v1::from_broker::Kind as Told;

/// The calls that wait for a verdict, by id, and what has to be told.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Heard and not yet handled, the first of them first.
    heard: VecDeque<Call>,
    calls: BTreeMap<u64, Pending>,
    /// Attempts whose calls went on with a signal.
    withheld: BTreeMap<u64, Withheld>,
    /// The first one that the next patrol looks at.
    next: u64,
    /// What has to be told, the first of it first.
    outbox: VecDeque<Told>,
    /// The lane that calls are told over.
    lane: Option<u64>,
    /// How many races have been told of.
    races: u64,
}

/// A call that waits.
#[derive(Debug)]
struct Pending {
    descriptor: i32,
    looks: u32,
    attempt: v1::Attempt,
}

/// An attempt that has no verdict and whose call waits no more: its socket takes no packet until it has one.
#[derive(Debug)]
struct Withheld {
    attempt: v1::Attempt,
    socket: Pinned,
}

/// One look at a call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) id: u64,
    /// Who made it.
    pub(super) thread: u32,
    /// The number of its socket there.
    pub(super) descriptor: i32,
    /// The same socket, for ever.
    pub(super) cookie: u64,
    /// It has waited for so long that a signal is not held back any more.
    pub(super) is_long: bool,
}

impl Waiting {
    /// Speaks over `lane` from now on. Whoever is at the other end of another one than before is told of every call that waits.
    pub(super) fn speak(&mut self, lane: u64) {
        if self.lane == Some(lane) {
            return;
        }
        self.fall_silent();
        self.lane = Some(lane);
        let calls = self.calls.values().map(|pending| &pending.attempt);
        let withheld = self.withheld.values().map(|withheld| &withheld.attempt);
        let attempts = calls.chain(withheld).cloned();
        self.outbox.extend(attempts.map(Told::Attempt));
    }

    /// The keeper is gone.
    pub(super) fn fall_silent(&mut self) {
        self.lane = None;
        self.outbox.retain(|told| match told {
            Told::Refused(_) | Told::Races(_) => true,
            // Each beat tells the next one of those.
            Told::Attempt(_) | Told::Gone(_) | Told::Unheard(_) => false,
        });
    }

    /// A call has been heard, and is to be handled.
    pub(super) fn hear(&mut self, call: Call) {
        self.heard.push_back(call);
    }

    /// Whether there is a call to be handled.
    pub(super) fn has_heard(&self) -> bool {
        !self.heard.is_empty()
    }

    /// The call to be handled next.
    pub(super) fn next_heard(&mut self) -> Option<Call> {
        self.heard.pop_front()
    }

    /// A call waits from now on; its socket has the number `descriptor` there.
    pub(super) fn enter(&mut self, descriptor: i32, attempt: v1::Attempt) {
        if self.lane.is_some() {
            self.outbox.push_back(Told::Attempt(attempt.clone()));
        }
        let pending = Pending {
            descriptor,
            looks: 0,
            attempt,
        };
        self.calls.insert(pending.attempt.id, pending);
    }

    /// A call has its verdict: what it attempts and, if it went on with a signal, its socket. `None`: it did not wait.
    pub(super) fn settle(&mut self, id: u64) -> Option<(v1::Attempt, Option<Pinned>)> {
        if let Some(Withheld { attempt, socket }) = self.withheld.remove(&id) {
            return Some((attempt, Some(socket)));
        }
        self.calls
            .remove(&id)
            .map(|pending| (pending.attempt, None))
    }

    /// Whether one more call may go on before its verdict: each is a descriptor.
    pub(super) fn may_withhold(&self) -> bool {
        self.withheld.len() < MOST_WITHHELD
    }

    /// A call has gone on before its verdict; `socket` takes no packet.
    pub(super) fn withhold(&mut self, id: u64, socket: Pinned) {
        if let Some(Pending { attempt, .. }) = self.calls.remove(&id) {
            self.withheld.insert(id, Withheld { attempt, socket });
        }
    }

    /// A call waits no more, and has no verdict. Whoever comes next is told of the calls that wait, and of no other.
    pub(super) fn forget(&mut self, id: u64) {
        self.calls.remove(&id);
        self.gone(v1::Gone {
            id,
            ..v1::Gone::default()
        });
    }

    /// A call brings no connection. The keeper that has it on its books ends it; another one does not know it.
    pub(super) fn gone(&mut self, gone: v1::Gone) {
        if self.lane.is_some() {
            self.outbox.push_back(Told::Gone(gone));
        }
    }

    /// A call has been refused: that has to be recorded.
    pub(super) fn refused(&mut self, refused: v1::Refused) {
        self.outbox.push_back(Told::Refused(refused));
    }

    /// Nobody can listen on a port: the keeper hears of it now, and not only with the next beat.
    pub(super) fn unheard(&mut self, unheard: v1::Unheard) {
        if self.lane.is_some() {
            self.outbox.push_back(Told::Unheard(unheard));
        }
    }

    /// So many races have been counted in all.
    pub(super) fn races(&mut self, counted: u64) {
        if self.owes_races(counted) {
            let counts = [("connect/ENOENT".to_owned(), counted - self.races)].into();
            self.outbox.push_back(Told::Races(v1::Races { counts }));
            self.races = counted;
        }
    }

    /// Whether the keeper has not heard of all of these races, and can.
    pub(super) fn owes_races(&self, counted: u64) -> bool {
        self.lane.is_some() && counted > self.races
    }

    /// What has to be told next.
    pub(super) fn first(&self) -> Option<Told> {
        self.outbox.front().cloned()
    }

    /// The keeper has been told it.
    pub(super) fn told(&mut self) {
        self.outbox.pop_front();
    }

    /// Whether any call waits for a verdict.
    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Whether one more call may be heard; otherwise it waits in the kernel. A keeper is told everything before the next
    /// call is heard; for one that is still to come, some of it is kept.
    pub(super) fn has_room(&self) -> bool {
        let has_place = match self.lane {
            Some(_) => self.outbox.is_empty(),
            None => self.outbox.len() < MOST_KEPT && self.calls.len() < MOST_WAITING,
        };
        has_place && self.heard.len() < MOST_HEARD
    }

    /// Looks at the next few calls in turn, so that a thousand of them cost no more than these.
    pub(super) fn round(&mut self) -> Vec<Look> {
        let behind = self.calls.range(self.next..).map(|(id, _)| *id);
        let before = self.calls.range(..self.next).map(|(id, _)| *id);
        let round: Vec<_> = behind.chain(before).take(ROUND).collect();
        self.next = round.last().map_or(0, |id| id.wrapping_add(1));
        round.into_iter().filter_map(|id| self.look(id)).collect()
    }

    fn look(&mut self, id: u64) -> Option<Look> {
        let pending = self.calls.get_mut(&id)?;
        pending.looks = pending.looks.saturating_add(1);
        Some(Look {
            id,
            thread: pending.attempt.thread,
            descriptor: pending.descriptor,
            cookie: pending.attempt.cookie,
            is_long: pending.looks >= PATIENCE,
        })
    }
}

/// How many calls are looked after at a time.
const ROUND: usize = 64;

/// How many looks a call is given before it goes on with a signal: to be connected takes a second then.
const PATIENCE: u32 = 4;

/// How many calls go on before their verdict.
const MOST_WITHHELD: usize = 64;

/// How many calls are heard before one of them is handled.
const MOST_HEARD: usize = 64;

/// How many records of refused calls are kept for the next keeper.
const MOST_KEPT: usize = 1024;

/// How many calls are entered while there is no keeper; the kernel keeps the others.
const MOST_WAITING: usize = 4096;

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    use holdfast_kernel::look::Thread;
    use nix::unistd::gettid;

    use super::*;

    fn attempt(id: u64) -> v1::Attempt {
        v1::Attempt {
            id,
            ..v1::Attempt::default()
        }
    }

    fn pinned() -> Pinned {
        let socket = UnixStream::pair().expect("a pair").0;
        let thread = Thread::hold(gettid().as_raw().unsigned_abs()).expect("this thread");
        thread.pin(socket.as_raw_fd()).expect("its socket")
    }

    fn outbox(waiting: &Waiting) -> Vec<Told> {
        waiting.outbox.iter().cloned().collect()
    }

    #[test]
    fn the_next_broker_on_the_same_lane_goes_on_where_the_last_one_fell() {
        let mut waiting = Waiting::default();
        waiting.speak(1);
        for id in [7, 8, 9] {
            waiting.enter(1, attempt(id));
        }
        waiting.told();
        waiting.refused(v1::Refused::default());
        waiting.races(2);
        let before = outbox(&waiting);

        waiting.speak(1);

        assert_eq!(outbox(&waiting), before);
        assert_eq!(waiting.first(), Some(Told::Attempt(attempt(8))));
        assert_eq!(before.len(), 4);
    }

    #[test]
    fn another_keeper_is_told_of_what_waits_once_and_of_what_was_refused() {
        let mut waiting = Waiting::default();
        waiting.speak(1);
        for id in [7, 8, 9] {
            waiting.enter(1, attempt(id));
        }
        waiting.told();
        waiting.forget(9);
        waiting.refused(v1::Refused::default());
        waiting.fall_silent();
        waiting.settle(8);
        waiting.enter(1, attempt(10));
        waiting.races(3);

        waiting.speak(2);

        let expected = [
            Told::Refused(v1::Refused::default()),
            Told::Attempt(attempt(7)),
            Told::Attempt(attempt(10)),
        ];
        assert_eq!(outbox(&waiting), expected);
        waiting.races(3);
        assert_eq!(waiting.outbox.len(), 4, "the races are told of now");
    }

    #[test]
    fn a_keeper_that_attaches_anew_is_another_one() {
        let mut waiting = Waiting::default();
        waiting.speak(1);
        waiting.enter(1, attempt(7));
        waiting.told();

        waiting.speak(2);

        assert_eq!(outbox(&waiting), [Told::Attempt(attempt(7))]);
    }

    #[test]
    fn an_attempt_that_is_withheld_is_told_to_another_keeper_and_settled_with_its_socket() {
        let mut waiting = Waiting::default();
        waiting.speak(1);
        for id in [7, 8] {
            waiting.enter(1, attempt(id));
            waiting.told();
        }
        waiting.withhold(7, pinned());
        let ids = |waiting: &mut Waiting| -> Vec<u64> {
            waiting.round().iter().map(|look| look.id).collect()
        };
        assert_eq!(ids(&mut waiting), [8], "it is not looked after any more");

        waiting.speak(2);

        let expected = [Told::Attempt(attempt(8)), Told::Attempt(attempt(7))];
        assert_eq!(outbox(&waiting), expected);
        let settled = waiting.settle(7);
        assert!(matches!(settled, Some((_, Some(_)))), "{settled:?}");
        assert!(waiting.settle(7).is_none());
    }

    #[test]
    fn so_many_attempts_are_withheld_and_no_more() {
        let mut waiting = Waiting::default();
        for id in 0..MOST_WITHHELD as u64 {
            assert!(waiting.may_withhold());
            waiting.enter(1, attempt(id));
            waiting.withhold(id, pinned());
        }

        assert!(!waiting.may_withhold());
    }

    #[test]
    fn a_call_has_waited_long_after_a_few_looks() {
        let mut waiting = Waiting::default();
        waiting.enter(1, attempt(7));

        let looks: Vec<_> = (0..=PATIENCE).flat_map(|_| waiting.round()).collect();

        let long = looks.iter().filter(|look| look.is_long).count();
        assert_eq!((looks.len(), long), (5, 2));
    }

    #[test]
    fn what_is_heard_before_it_is_handled_is_bounded_and_kept_in_order() {
        let call = |id| Call {
            id,
            tid: 1,
            number: libc::SYS_connect,
            arguments: [0; 6],
        };
        let mut waiting = Waiting::default();
        waiting.speak(1);
        for id in 0..MOST_HEARD as u64 {
            assert!(waiting.has_room());
            waiting.hear(call(id));
        }
        assert!(!waiting.has_room());

        let first = waiting.next_heard().expect("heard");

        assert_eq!(first.id, 0);
        assert!(waiting.has_room());
    }

    #[test]
    fn what_is_kept_without_a_keeper_is_bounded() {
        let mut waiting = Waiting::default();
        for id in 0..MOST_WAITING as u64 {
            assert!(waiting.has_room());
            waiting.enter(1, attempt(id));
        }
        assert!(!waiting.has_room());

        let mut waiting = Waiting::default();
        for _ in 0..MOST_KEPT {
            assert!(waiting.has_room());
            waiting.refused(v1::Refused::default());
        }
        assert!(!waiting.has_room());
    }
}
