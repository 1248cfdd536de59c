//! How a dynamic supervisor takes in and lets go. It may have many children, so nothing here looks at all of them.

use super::{Level, Strategy};
use crate::slot::{Role, Slot, State, Then, Turn};
use crate::{Child, Command, Refusal};

impl Level {
    /// Takes in another child.
    pub(super) fn admit(&mut self, child: Child, turn: &mut Turn<'_>) {
        let place = self.path.join(&child.id);
        let refusal = match self.strategy {
            Strategy::OneForOne | Strategy::OneForAll | Strategy::RestForOne => {
                Some(Refusal::Unknown)
            }
            Strategy::Dynamic { .. } if turn.ending || !self.is_serving() => Some(Refusal::Down),
            Strategy::Dynamic { .. } if self.index.contains_key(&place) => Some(Refusal::Duplicate),
            Strategy::Dynamic { most } if self.slots.len() >= most => Some(Refusal::Full { most }),
            Strategy::Dynamic { .. } => None,
        };
        if let Some(refusal) = refusal {
            return turn.order(Command::Refuse {
                path: place,
                refusal,
            });
        }
        let dice = self.seed.derive(&child.id).dice();
        self.index.insert(place.clone(), self.slots.len());
        self.slots.push(Slot::new(place, Role::Leaf(child), dice));
        self.start_if_due(self.slots.len() - 1, turn);
    }

    /// Somebody has no more use for the one in this place.
    pub(super) fn dismiss(&mut self, index: usize, turn: &mut Turn<'_>) {
        if !self.is_dynamic() {
            return;
        }
        let slot = &mut self.slots[index];
        match &mut slot.state {
            State::Starting { .. } | State::Up { .. } => {
                self.take_down(index, Then::Leave, turn);
            }
            State::Stopping { then, .. } | State::Killing { then, .. } => *then = Then::Leave,
            State::Idle | State::Waiting { .. } | State::Due { .. } => self.retire(index, turn),
            State::Lost | State::Done => {}
        }
    }

    /// Removes those who have retired in this step.
    pub(super) fn bury(&mut self) {
        for path in std::mem::take(&mut self.retired) {
            let Some(index) = self.index.remove(&path) else {
                continue;
            };
            self.slots.swap_remove(index);
            if let Some(moved) = self.slots.get(index) {
                self.index.insert(moved.path.clone(), index);
            }
        }
    }
}
