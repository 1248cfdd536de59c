//! The sessions by their numbers: those that run, and the last ones that are over.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use holdfast_wire::v1;

use super::session::Session;

/// Every session that is known.
#[derive(Debug, Default)]
pub(super) struct Table {
    known: HashMap<u64, Arc<Session>>,
    /// Those that are over, in the order in which they ended.
    over: VecDeque<u64>,
    /// The same for canaries: a few, so that they push nobody's session out.
    canaries: VecDeque<u64>,
    outputs: Outputs,
}

impl Table {
    pub(super) fn find(&self, id: u64) -> Option<Arc<Session>> {
        self.known.get(&id).cloned()
    }

    pub(super) fn enter(&mut self, session: Arc<Session>) {
        self.known.insert(session.id, session);
    }

    /// How many run.
    pub(super) fn running(&self) -> usize {
        self.known.len() - self.over.len() - self.canaries.len()
    }

    pub(super) fn states(&self) -> Vec<v1::SessionState> {
        let sessions = self.known.values().filter(|session| !session.fleeting);
        sessions.map(|session| session.state()).collect()
    }

    /// The session `id` is over. The oldest that are over make room: first by their output, then altogether.
    pub(super) fn finish(&mut self, id: u64) {
        if self.known.get(&id).is_some_and(|session| session.fleeting) {
            self.canaries.push_back(id);
            if self.canaries.len() > MOST_CANARIES
                && let Some(oldest) = self.canaries.pop_front()
            {
                self.known.remove(&oldest);
            }
            return;
        }
        self.over.push_back(id);
        if self.over.len() > MOST_OVER
            && let Some(oldest) = self.over.pop_front()
        {
            self.known.remove(&oldest);
            self.outputs.forget(oldest);
        }
        let Some(session) = self.known.get(&id) else {
            return;
        };
        self.outputs.add(id, session.kept());
        let known = &self.known;
        let is_read = |id: u64| known.get(&id).is_some_and(|session| session.is_read());
        for victim in self.outputs.exceed(MOST_KEPT, is_read) {
            if let Some(session) = known.get(&victim) {
                session.drop_output();
            }
        }
    }
}

/// Who has how much output, in the order of their ends; sessions without output cost nothing here.
#[derive(Debug, Default)]
struct Outputs {
    kept: VecDeque<(u64, u64)>,
    sum: u64,
}

impl Outputs {
    fn add(&mut self, id: u64, bytes: u64) {
        if bytes > 0 {
            self.kept.push_back((id, bytes));
            self.sum += bytes;
        }
    }

    /// `id` is known no more. It ended before all others.
    fn forget(&mut self, id: u64) {
        if let Some((_, bytes)) = self.kept.pop_front_if(|(first, _)| *first == id) {
            self.sum -= bytes;
        }
    }

    /// Takes out those that have to go, the first ones first, so that at most `most` bytes are kept. One that is being read
    /// stays: its reader holds a connection, and those are few.
    fn exceed(&mut self, most: u64, is_read: impl Fn(u64) -> bool) -> Vec<u64> {
        let (mut victims, mut place) = (Vec::new(), 0);
        while self.sum > most
            && let Some((id, bytes)) = self.kept.get(place).copied()
        {
            if is_read(id) {
                place += 1;
                continue;
            }
            self.kept.remove(place);
            self.sum -= bytes;
            victims.push(id);
        }
        victims
    }
}

/// How many sessions that are over are known.
const MOST_OVER: usize = 1024;

/// How many canaries that are over are known: the keeper asks for the end of the last one.
const MOST_CANARIES: usize = 4;

/// How much output is kept of all of them.
const MOST_KEPT: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_output_makes_room_and_what_is_being_read_stays() {
        let mut outputs = Outputs::default();
        for (id, bytes) in [(1, 5), (2, 0), (3, 4), (4, 3), (5, 2)] {
            outputs.add(id, bytes);
        }
        let is_read = |id: u64| id == 3;

        assert_eq!(outputs.exceed(14, is_read), Vec::<u64>::new());
        assert_eq!(outputs.exceed(13, is_read), [1]);
        assert_eq!(outputs.exceed(6, is_read), [4]);
        assert_eq!(outputs.exceed(0, is_read), [5]);
        assert_eq!(outputs.exceed(0, |_| false), [3]);
        assert_eq!(outputs.sum, 0);
    }

    #[test]
    fn one_that_is_forgotten_takes_its_output_along() {
        let mut outputs = Outputs::default();
        for (id, bytes) in [(1, 5), (2, 0), (3, 4)] {
            outputs.add(id, bytes);
        }

        for id in [1, 2] {
            outputs.forget(id);
        }

        assert_eq!(outputs.sum, 4);
    }
}
