//! Tasks that belong to an actor.

use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use holdfast_supervision::Fault;
use parking_lot::Mutex;
use ractor::ActorCell;
use tokio::task::{AbortHandle, JoinHandle};

use crate::life::Life;

/// A task of an actor. Dropping this leaves the task running; it ends with its actor at the latest.
#[derive(Debug)]
pub struct Task(Option<AbortHandle>);

impl Task {
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// Ends it at the next point where it waits. That is no failure.
    pub fn cancel(&self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.0.as_ref().is_none_or(AbortHandle::is_finished)
    }
}

/// All tasks of one life of an actor.
#[derive(Debug)]
pub(crate) struct Tasks {
    /// Told to stop when one of them fails.
    actor: ActorCell,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    closed: bool,
    number: u64,
    tasks: HashMap<u64, AbortHandle>,
    /// What the first one of them failed with.
    fault: Option<Fault>,
}

impl Tasks {
    pub(crate) fn new(actor: ActorCell) -> Self {
        Self {
            actor,
            running: Mutex::default(),
        }
    }

    pub(crate) fn spawn(
        self: &Arc<Self>,
        life: Arc<Life>,
        work: impl Future<Output = Result<(), Fault>> + Send + 'static,
    ) -> Task {
        let mut running = self.running.lock();
        if running.closed {
            return Task(None);
        }
        running.number += 1;
        let number = running.number;
        // Held until the task is on the list, which its own end waits for.
        let task = detach(Work {
            future: Box::pin(work),
            entry: Entry {
                tasks: Arc::clone(self),
                number,
            },
            _life: life,
        })
        .abort_handle();
        running.tasks.insert(number, task.clone());
        Task(Some(task))
    }

    /// How many are running.
    pub(crate) fn count(&self) -> usize {
        self.running.lock().tasks.len()
    }

    /// Ends all of them and lets no new one begin.
    pub(crate) fn close(&self) {
        let tasks = {
            let mut running = self.running.lock();
            running.closed = true;
            std::mem::take(&mut running.tasks)
        };
        for task in tasks.values() {
            task.abort();
        }
    }

    /// What one of them failed with, if one did.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.running.lock().fault.clone()
    }

    fn fail(&self, fault: Fault) {
        let mut running = self.running.lock();
        if running.closed || running.fault.is_some() {
            return;
        }
        running.fault = Some(fault);
        drop(running);
        self.actor.stop(None);
    }
}

/// A task's work. The order of the fields is the order in which they are dropped: the life is let go of last.
struct Work {
    future: Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>,
    entry: Entry,
    _life: Arc<Life>,
}

impl Future for Work {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        let polled = catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(task)));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(Ok(()))) => Poll::Ready(()),
            Ok(Poll::Ready(Err(fault))) => {
                self.entry.tasks.fail(fault);
                Poll::Ready(())
            }
            Err(payload) => {
                let text = payload
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| payload.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "a payload that is no text".to_owned());
                let fault = Fault::bug(format!("task panicked: {text}"));
                self.entry.tasks.fail(fault);
                Poll::Ready(())
            }
        }
    }
}

/// A task's place on the list.
struct Entry {
    tasks: Arc<Tasks>,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.tasks.running.lock().tasks.remove(&self.number);
    }
}

/// The one place where a task comes into being. Whoever calls this hears of its end and ends it in time.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where a task comes into being; its owners are actors and wardens"
)]
pub(crate) fn detach<F>(work: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(work)
}
