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

use holdfast_kernel::notify::Call;
use holdfast_wire::v1;
use holdfast_wire::v1::from_broker::Kind as Told;

/// The calls that wait for a verdict, by id, and what has to be told.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Heard and not yet handled, the first of them first.
    heard: VecDeque<Call>,
    calls: BTreeMap<u64, Pending>,
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
    thread: u32,
    attempt: v1::Attempt,
}

impl Waiting {
    /// Speaks over `lane` from now on. Whoever is at the other end of another one than before is told of every call that waits.
    pub(super) fn speak(&mut self, lane: u64) {
        if self.lane == Some(lane) {
            return;
        }
        self.fall_silent();
        self.lane = Some(lane);
        let attempts = self.calls.values().map(|pending| pending.attempt.clone());
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

    /// A call waits from now on.
    pub(super) fn enter(&mut self, thread: u32, attempt: v1::Attempt) {
        if self.lane.is_some() {
            self.outbox.push_back(Told::Attempt(attempt.clone()));
        }
        self.calls.insert(attempt.id, Pending { thread, attempt });
    }

    /// A call has its verdict: what it attempts. `None`: it did not wait.
    pub(super) fn settle(&mut self, id: u64) -> Option<v1::Attempt> {
        self.calls.remove(&id).map(|pending| pending.attempt)
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

    /// The next few calls in turn, each with its thread, so that a thousand of them cost no more than these.
    pub(super) fn round(&mut self) -> Vec<(u64, u32)> {
        let behind = self
            .calls
            .range(self.next..)
            .chain(self.calls.range(..self.next));
        let round: Vec<_> = behind
            .take(ROUND)
            .map(|(id, pending)| (*id, pending.thread))
            .collect();
        self.next = round.last().map_or(0, |(id, _)| id.wrapping_add(1));
        round
    }
}

/// How many calls are looked after at a time.
const ROUND: usize = 64;

/// How many calls are heard before one of them is handled.
const MOST_HEARD: usize = 64;

/// How many records of refused calls are kept for the next keeper.
const MOST_KEPT: usize = 1024;

/// How many calls are entered while there is no keeper; the kernel keeps the others.
const MOST_WAITING: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(id: u64) -> v1::Attempt {
        v1::Attempt {
            id,
            ..v1::Attempt::default()
        }
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
