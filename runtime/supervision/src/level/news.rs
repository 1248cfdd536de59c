//! What a supervisor hears of its children, and what it makes of it.

use super::{Level, Outcome, Verdict};
use crate::slot::{Past, Role, State, Then, Ticket, Turn};
use crate::{Child, Class, Command, Generation, Next, Path, Reason, Refusal, Strategy, What};

/// News of one place.
#[derive(Debug)]
pub(crate) enum News {
    Started(Generation),
    Dying(Generation, Reason),
    Ended(Generation, Reason),
    Stuck(Generation),
    Woke(Ticket),
    Wanted(Child),
    Unwanted,
}

impl Level {
    /// Hears news of a place at or below this level, and gives the orders that follow.
    pub(crate) fn step(&mut self, path: &Path, news: News, turn: &mut Turn<'_>) -> Outcome {
        if self.path == *path {
            match news {
                News::Wanted(child) => self.admit(child, turn),
                News::Started(_)
                | News::Dying(..)
                | News::Ended(..)
                | News::Stuck(_)
                | News::Woke(_)
                | News::Unwanted => {}
            }
            return self.settle(turn);
        }
        let Some(index) = self.find(path) else {
            refuse_lost(path, &news, turn);
            return Outcome::Nothing;
        };
        let wish = matches!(news, News::Wanted(_));
        let slot = &mut self.slots[index];
        match &mut slot.role {
            Role::Branch(level) if slot.path != *path || wish => {
                let outcome = level.step(path, news, turn);
                self.absorb(index, outcome, turn);
            }
            Role::Branch(_) | Role::Leaf(_) if slot.path == *path && !wish => {
                self.hear(index, news, turn);
            }
            // Under a child that does work there is nobody.
            Role::Branch(_) | Role::Leaf(_) => refuse_lost(path, &news, turn),
        }
        self.settle(turn)
    }

    /// A row for each state and the news that concern it; the last row is late news.
    fn hear(&mut self, index: usize, news: News, turn: &mut Turn<'_>) {
        let slot = &mut self.slots[index];
        let state = std::mem::replace(&mut slot.state, State::Idle);
        match (state, news) {
            (State::Starting { generation, .. }, News::Started(life)) if life == generation => {
                slot.rise(generation, turn);
            }
            (state @ (State::Starting { .. } | State::Up { .. }), News::Ended(life, reason)) => {
                slot.state = state;
                if slot.is(life) {
                    self.failed(index, reason, turn);
                }
            }
            (
                state @ (State::Starting { generation, .. } | State::Up { generation, .. }),
                News::Dying(life, reason),
            ) if life == generation => {
                slot.state = state;
                slot.credit(turn);
                slot.tell(
                    What::Dying {
                        reason: reason.clone(),
                    },
                    turn,
                );
                slot.kill(generation, Then::Fail(reason), turn);
            }
            (
                State::Stopping {
                    generation, then, ..
                }
                | State::Killing {
                    generation, then, ..
                },
                News::Ended(life, _),
            ) if life == generation => self.over(index, then, turn),
            (state @ State::Up { generation, .. }, News::Stuck(life)) if life == generation => {
                slot.state = state;
                slot.credit(turn);
                slot.tell(What::Stuck, turn);
                slot.kill(generation, Then::Fail(Reason::Stuck), turn);
            }
            (state, News::Woke(ticket)) => {
                slot.state = state;
                self.woke(index, ticket, turn);
            }
            (state, News::Unwanted) => {
                slot.state = state;
                self.dismiss(index, turn);
            }
            (
                state,
                News::Started(_)
                | News::Dying(..)
                | News::Ended(..)
                | News::Stuck(_)
                | News::Wanted(_),
            ) => slot.state = state,
        }
    }

    /// A deadline or a delay is over, unless it is one of an earlier state.
    fn woke(&mut self, index: usize, ticket: Ticket, turn: &mut Turn<'_>) {
        let slot = &mut self.slots[index];
        let state = std::mem::replace(&mut slot.state, State::Idle);
        match state {
            State::Starting { generation, alarm } if ticket == alarm => {
                slot.tell(What::StartTooLong, turn);
                slot.kill(generation, Then::Fail(Reason::StartTooLong), turn);
            }
            State::Stopping {
                generation,
                alarm,
                then,
            } if ticket == alarm => {
                slot.tell(What::Overdue, turn);
                slot.kill(generation, then, turn);
            }
            State::Killing { alarm, .. } if ticket == alarm => {
                slot.state = State::Lost;
                slot.tell(What::Wedged, turn);
                turn.wedged = Some(slot.path.clone());
                turn.ending = true;
            }
            State::Waiting { alarm, counted, .. } if ticket == alarm => {
                slot.state = State::Due { counted };
                if self.is_dynamic() && self.is_serving() && !turn.ending {
                    self.start_if_due(index, turn);
                }
            }
            late @ (State::Idle
            | State::Starting { .. }
            | State::Up { .. }
            | State::Stopping { .. }
            | State::Killing { .. }
            | State::Waiting { .. }
            | State::Due { .. }
            | State::Lost
            | State::Done) => slot.state = late,
        }
    }

    /// What a step meant for the supervisor in this place.
    pub(super) fn absorb(&mut self, index: usize, outcome: Outcome, turn: &mut Turn<'_>) {
        let slot = &mut self.slots[index];
        let state = std::mem::replace(&mut slot.state, State::Idle);
        match (state, outcome) {
            (State::Starting { generation, .. }, Outcome::Rose) => slot.rise(generation, turn),
            (State::Stopping { then, .. } | State::Killing { then, .. }, Outcome::Sank(_)) => {
                self.over(index, then, turn);
            }
            (state, Outcome::Sank(verdict)) => {
                slot.state = state;
                let reason = match verdict {
                    Verdict::Told => Reason::Ended,
                    Verdict::GaveUp(reason) => reason,
                };
                self.failed(index, reason, turn);
            }
            (state, Outcome::Rose | Outcome::Nothing) => slot.state = state,
        }
    }

    /// An end that was brought about.
    fn over(&mut self, index: usize, then: Then, turn: &mut Turn<'_>) {
        match then {
            Then::Rest => {
                self.slots[index].tell(What::Stopped, turn);
                self.rest(index, turn);
            }
            Then::Leave => {
                self.slots[index].tell(What::Stopped, turn);
                self.retire(index, turn);
            }
            Then::Fail(reason) => self.failed(index, reason, turn),
        }
    }

    /// An end that nobody asked for.
    fn failed(&mut self, index: usize, reason: Reason, turn: &mut Turn<'_>) {
        let falling = self.is_falling();
        let doomed = falling || index >= self.cut;
        let unborn = self.is_dynamic() && matches!(self.slots[index].past, Past::None);
        let slot = &mut self.slots[index];
        if unborn {
            slot.fell(reason.clone(), Next::Nothing, turn);
            turn.order(Command::Refuse {
                path: slot.path.clone(),
                refusal: Refusal::StartFailed(reason),
            });
            return self.retire(index, turn);
        }
        if doomed && slot.returns_after(&reason) {
            // It was about to be taken down anyway: nothing is counted twice.
            let next = if falling {
                Next::Nothing
            } else {
                Next::WithSiblings
            };
            slot.fell(reason, next, turn);
            return self.rest(index, turn);
        }
        if !slot.returns_after(&reason) {
            slot.fell(reason, Next::Nothing, turn);
            return self.retire(index, turn);
        }
        let (last, counted) = match reason.class() {
            Class::Final => (true, true),
            Class::Exhausted => (false, false),
            Class::Failed | Class::Bug => (false, true),
        };
        if last || counted && !self.admits_a_restart(turn) {
            let slot = &mut self.slots[index];
            slot.fell(reason.clone(), Next::Escalation, turn);
            slot.state = State::Idle;
            let child = slot.path.clone();
            return self.give_up(child, reason, turn);
        }
        self.slots[index].wait(reason, counted, turn);
        self.cut = match self.strategy {
            Strategy::OneForOne | Strategy::Dynamic { .. } => self.cut,
            Strategy::RestForOne => self.cut.min(index + 1),
            Strategy::OneForAll => 0,
        };
    }

    fn admits_a_restart(&mut self, turn: &Turn<'_>) -> bool {
        let claimed = self.slots.iter().filter(|slot| slot.claims_a_restart());
        let claimed = claimed.count();
        self.window.admits(self.intensity, claimed, turn.now)
    }
}

/// Nobody of that name is here; whoever wanted something there has to hear of it.
fn refuse_lost(path: &Path, news: &News, turn: &mut Turn<'_>) {
    match news {
        News::Wanted(child) => turn.order(Command::Refuse {
            path: path.join(&child.id),
            refusal: Refusal::Unknown,
        }),
        News::Started(_)
        | News::Dying(..)
        | News::Ended(..)
        | News::Stuck(_)
        | News::Woke(_)
        | News::Unwanted => {}
    }
}
