//! One life of one actor, held by all that belongs to it.

use std::fmt;

use holdfast_supervision::Generation;
use ractor::ActorRef;

use crate::warden::Order;

/// Held by the actor and each of its tasks. When the last one lets go, the warden hears that nothing is left.
pub(crate) struct Life {
    generation: Generation,
    warden: ActorRef<Order>,
}

impl Life {
    pub(crate) fn new(generation: Generation, warden: ActorRef<Order>) -> Self {
        Self { generation, warden }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // A warden that is gone has nobody to tell.
        let _ = self.warden.send_message(Order::Vacated(self.generation));
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Life({})", self.generation)
    }
}
