//! The threads of a process of ours: all that it will need, or a failure that says which limit is in the way.
//!
//! A runtime that is refused a thread panics, and waits for ever for those that it has. So they are tried before it is
//! built; and if others were quicker in between, the process ends at once.

use std::io;
use std::panic;
use std::thread;

use holdfast_kernel::fork::leave;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::{Builder, Runtime};

use crate::failure::{Failure, Kind};
use crate::shortage::{self, Shortage};

/// Refuses to begin where the limits of memory are below what a runtime takes.
pub(crate) fn affordable() -> Result<(), Failure> {
    if shortage::is_starved_of_memory() {
        return Err(without("start", Shortage::Memory));
    }
    Ok(())
}

/// Refuses to read a command line for which there is no stack.
pub(crate) fn standing() -> Result<(), Failure> {
    if shortage::is_starved_of_stack() {
        return Err(without("start", Shortage::Stack));
    }
    Ok(())
}

/// A runtime of `workers` threads, with room for `more` small ones beside it.
///
/// `last` hears why, where the process has to end without going back to the caller.
pub(crate) fn runtime(
    workers: usize,
    more: usize,
    last: impl FnOnce(&Failure) + Send + 'static,
) -> Result<Runtime, Failure> {
    muster(workers, more)?;
    let last = Mutex::new(Some(last));
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |_refused| {
        if let Some(last) = last.lock().take() {
            last(&without("start its threads", Shortage::of_threads()));
        }
        leave(i32::from(Kind::Internal.exit()));
    }));
    let runtime = Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build();
    panic::set_hook(usual);
    runtime.map_err(|error| Failure::caused(Kind::Internal, "start the runtime", &error))
}

/// A thread that was refused.
pub(crate) fn refused(what: &str, error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOMEM) => without(what, Shortage::of_threads()),
        Some(_) | None => Failure::caused(Kind::Internal, what, error),
    }
}

fn without(what: &str, shortage: Shortage) -> Failure {
    let message = format!("{what}: {}", shortage.what());
    Failure::new(Kind::Internal, message)
        .hint(shortage.remedy())
        .told("RESOURCE_EXHAUSTED", shortage.reason(), None)
}

/// Has as many threads at the same time, and lets them go.
fn muster(workers: usize, more: usize) -> Result<(), Failure> {
    let gate = RwLock::new(());
    thread::scope(|scope| {
        let _shut = gate.write();
        for number in 0..workers + more {
            let usual = thread::Builder::new();
            let thread = if number < workers {
                usual
            } else {
                usual.stack_size(SMALL)
            };
            thread
                .spawn_scoped(scope, || drop(gate.read()))
                // What was short is seen only while the others are there.
                .map_err(|error| refused("start its threads", &error))?;
        }
        Ok(())
    })
}

/// What the threads have that print and read.
const SMALL: usize = 64 << 10;
