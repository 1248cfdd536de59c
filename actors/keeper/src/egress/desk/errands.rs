//! Answers that did not arise in the lane itself, for the lane to send: it may be restarting.

use super::Answer;
use crate::egress::book::PENDING;
use holdfast_kernel::bell::Bell;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// In the order in which they were left.
#[derive(Default)]
pub(super) struct Errands(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    queue: VecDeque<Answer>,
    /// Of the lane that serves now, if one does.
    bell: Option<Arc<Bell>>,
}

impl Errands {
    /// Leaves answers. Each stands for a pending attempt, so the book's bound is the queue's.
    pub(super) fn leave(&self, answers: Vec<Answer>) {
        if answers.is_empty() {
            return;
        }
        let mut waiting = self.0.lock();
        waiting.queue.extend(answers);
        waiting.queue.truncate(PENDING);
        let bell = waiting.bell.clone();
        drop(waiting);
        if let Some(bell) = bell {
            bell.ring();
        }
    }

    /// From now on `bell` is rung when something is left. What was left before is found without.
    pub(super) fn ring(&self, bell: Arc<Bell>) {
        self.0.lock().bell = Some(bell);
    }

    /// The oldest.
    pub(super) fn next(&self) -> Option<Answer> {
        self.0.lock().queue.pop_front()
    }
}
