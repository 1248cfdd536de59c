//! Answers that did not arise in the lane itself, for the lane to send: it may be restarting.

use super::Answer;
use crate::egress::book::PENDING;
use parking_lot::Mutex;
use std::collections::VecDeque;
use tokio::sync::Notify;

/// In the order in which they were left.
#[derive(Default)]
pub(super) struct Errands {
    queue: Mutex<VecDeque<Answer>>,
    told: Notify,
}

impl Errands {
    /// Leaves answers. Each stands for a pending attempt, so the book's bound is the queue's.
    pub(super) fn leave(&self, answers: Vec<Answer>) {
        if answers.is_empty() {
            return;
        }
        let mut queue = self.queue.lock();
        queue.extend(answers);
        queue.truncate(PENDING);
        drop(queue);
        self.told.notify_one();
    }

    /// Ready when there may be something to send.
    pub(super) async fn told(&self) {
        self.told.notified().await;
    }

    /// The oldest.
    pub(super) fn next(&self) -> Option<Answer> {
        self.queue.lock().pop_front()
    }
}
