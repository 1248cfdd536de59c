//! A thread that is there before its work.
//!
//! What is hired while the fence is built can be refused then, with a reason; what is started later can be refused at any
//! time, and whoever falls in a shortage of threads could not come back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use holdfast_kernel::{Called, Result};
use tokio::sync::oneshot;

type Work = Box<dyn FnOnce() + Send>;

/// Does one piece of work after the other, for as long as it has an owner.
#[derive(Debug)]
pub(crate) struct Worker(Sender<Work>);

impl Worker {
    /// Starts the thread `name`; `EAGAIN` if no more can be had.
    pub(crate) fn hire(name: &str) -> Result<Self> {
        let (give, given) = channel::<Work>();
        let work = move || {
            for work in given {
                // Whoever waits for it hears that there is no answer.
                let _ = catch_unwind(AssertUnwindSafe(work));
            }
        };
        let thread = thread::Builder::new().name(name.to_owned());
        thread.stack_size(STACK).spawn(work).called("clone3")?;
        Ok(Self(give))
    }

    /// Has something done when all that was given before is. No answer comes from work that panics.
    pub(crate) fn give<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (tell, told) = oneshot::channel();
        // The thread lives for as long as this value. Nobody may want to know the answer any more.
        let _ = self.0.send(Box::new(move || drop(tell.send(work()))));
        told
    }
}

/// It calls nothing that is deep.
const STACK: usize = 512 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_in_order_on_one_thread_and_a_panic_ends_only_its_own() {
        let worker = Worker::hire("worker").expect("hired");
        let first = worker.give(|| thread::current().id());
        let fallen = worker.give(|| -> u8 { panic!("work that falls") });
        let last = worker.give(|| thread::current().id());

        assert!(fallen.await.is_err());
        assert_eq!(first.await.expect("done"), last.await.expect("done"));
    }
}
