//! Whoever lives there now.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_supervision::{Generation, Path};
use parking_lot::RwLock;

use crate::{Handle, Reply, Unanswered, Undelivered};

/// Reaches the present life of an actor, through all its restarts. Between two lives nobody is there and a message
/// is [`Undelivered::Gone`]. Cheap to clone.
pub struct Address<M>(Arc<Desk<M>>);

pub(crate) struct Desk<M> {
    path: Path,
    /// None while nobody is up.
    present: RwLock<Option<Handle<M>>>,
}

impl<M: Send + 'static> Address<M> {
    pub(crate) fn new(path: Path) -> Self {
        Self(Arc::new(Desk {
            path,
            present: RwLock::new(None),
        }))
    }

    /// Leaves a message with whoever lives there now, without ever waiting.
    pub fn send(&self, message: M) -> Result<(), Undelivered> {
        match &*self.0.present.read() {
            Some(handle) => handle.send(message),
            None => Err(Undelivered::Gone),
        }
    }

    /// Asks whoever lives there now. See [`Handle::ask`].
    pub async fn ask<T: Send>(
        &self,
        question: impl FnOnce(Reply<T>) -> M + Send,
        deadline: Duration,
    ) -> Result<T, Unanswered> {
        let handle = self.handle().ok_or(Unanswered::Gone)?;
        handle.ask(question, deadline).await
    }

    /// The present life.
    pub fn handle(&self) -> Option<Handle<M>> {
        self.0.present.read().clone()
    }

    /// Where this is.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Moves in; whoever holds the seat moves out by dropping it.
    pub(crate) fn take(&self, handle: Handle<M>) -> Seat<M> {
        let generation = handle.generation;
        *self.0.present.write() = Some(handle);
        Seat {
            desk: Arc::clone(&self.0),
            generation,
        }
    }
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M> fmt::Debug for Address<M> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0.path)
    }
}

/// Keeps one life at its address.
pub(crate) struct Seat<M> {
    desk: Arc<Desk<M>>,
    generation: Generation,
}

impl<M> Drop for Seat<M> {
    fn drop(&mut self) {
        let mut present = self.desk.present.write();
        if present
            .as_ref()
            .is_some_and(|handle| handle.generation == self.generation)
        {
            *present = None;
        }
    }
}
