//! What an actor knows of itself.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use holdfast_clock::{Clock, Moment, Seed};
use holdfast_supervision::{Fault, Path};
use ractor::ActorCell;

use crate::life::Life;
use crate::tasks::Tasks;
use crate::{Handle, Task};

/// An actor's view of itself, for its own methods and its tasks. Cheap to clone; a clone that outlives the actor can
/// do nothing any more.
pub struct Me<M>(Arc<Inner<M>>);

struct Inner<M> {
    handle: Handle<M>,
    cell: ActorCell,
    tasks: Arc<Tasks>,
    life: Weak<Life>,
    clock: Clock,
    seed: Seed,
}

impl<M: Send + 'static> Me<M> {
    pub(crate) fn new(
        handle: Handle<M>,
        cell: ActorCell,
        life: &Arc<Life>,
        clock: Clock,
        seed: Seed,
    ) -> Self {
        Self(Arc::new(Inner {
            handle,
            tasks: Arc::new(Tasks::new(cell.clone())),
            cell,
            life: Arc::downgrade(life),
            clock,
            seed,
        }))
    }

    /// How others reach this life.
    pub fn handle(&self) -> &Handle<M> {
        &self.0.handle
    }

    /// Where it stands in its tree.
    pub fn path(&self) -> &Path {
        self.0.handle.path()
    }

    /// The present moment.
    pub fn now(&self) -> Moment {
        self.0.clock.now()
    }

    /// The clock of its tree.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Its share of chance: the same at each restart.
    pub fn seed(&self) -> Seed {
        self.0.seed
    }

    /// Starts a task of this actor: it ends when the actor does, and an `Err` or panic of it fails the actor. After
    /// the end of the actor this drops the work without doing any of it.
    ///
    /// There is no limit here to how many there are ([`Me::tasks`]); what starts them at the wish of others has one.
    pub fn spawn(&self, work: impl Future<Output = Result<(), Fault>> + Send + 'static) -> Task {
        match self.0.life.upgrade() {
            Some(life) => self.0.tasks.spawn(life, work),
            None => Task::none(),
        }
    }

    /// How many tasks of this actor are running.
    pub fn tasks(&self) -> usize {
        self.0.tasks.count()
    }

    /// Tells this actor something after a delay, whether its mailbox is full or not. Cancelled with the task.
    pub fn after(&self, delay: Duration, message: M) -> Task {
        let handle = self.0.handle.clone();
        self.spawn(async move {
            tokio::time::sleep(delay).await;
            // Gone means that there is nobody left who wanted to know.
            let _ = handle.note(message);
            Ok(())
        })
    }

    /// Does something that blocks on a thread for such things and waits for it. What is under way cannot be ended: the
    /// actor's life lasts until it is done.
    pub async fn offload<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let life = self.0.life.upgrade();
        let done = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(life);
            result
        });
        done.await
            .map_err(|error| Fault::bug(format!("offloaded work: {error}")))
    }

    /// Ends this actor in good order after the message at hand.
    pub fn end(&self) {
        self.0.cell.stop(None);
    }

    pub(crate) fn beat(&self) {
        self.0.handle.beat();
    }

    pub(crate) fn close(&self) {
        self.0.tasks.close();
    }

    pub(crate) fn fault(&self) -> Option<Fault> {
        self.0.tasks.fault()
    }
}

impl<M> Clone for Me<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M> fmt::Debug for Me<M> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Me({:?})", self.0.handle)
    }
}
