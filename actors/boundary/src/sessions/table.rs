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
        while self.over.len() > MOST_OVER
            && let Some(oldest) = self.over.pop_front()
        {
            self.known.remove(&oldest);
        }
        let over: Vec<_> = self
            .over
            .iter()
            .filter_map(|id| self.known.get(id))
            .collect();
        let kept: Vec<_> = over.iter().map(|session| session.kept()).collect();
        for place in victims(&kept, MOST_KEPT) {
            over[place].drop_output();
        }
    }
}

/// Which of these outputs have to go, the first ones first, so that at most `most` bytes are kept. One that is being read
/// stays: its reader holds a connection, and those are few.
fn victims(kept: &[(u64, bool)], most: u64) -> Vec<usize> {
    let mut sum: u64 = kept.iter().map(|(bytes, _)| bytes).sum();
    let mut victims = Vec::new();
    for (place, (bytes, read)) in kept.iter().enumerate() {
        if sum <= most {
            break;
        }
        if *bytes > 0 && !read {
            sum -= bytes;
            victims.push(place);
        }
    }
    victims
}

/// How many sessions that are over are known.
const MOST_OVER: usize = 1024;

/// How many canaries that are over are known: the keeper asks for the end of the last one.
const MOST_CANARIES: usize = 4;

/// How much output is kept of all of them.
const MOST_KEPT: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_output_makes_room_and_what_is_being_read_stays() {
        let kept = [(5, false), (0, false), (4, true), (3, false), (2, false)];

        assert_eq!(victims(&kept, 14), Vec::<usize>::new());
        assert_eq!(victims(&kept, 13), [0]);
        assert_eq!(victims(&kept, 8), [0, 3]);
        assert_eq!(victims(&kept, 0), [0, 3, 4]);
    }
}
