//! Tests that change their process, run apart from all other tests.
//!
//! A forked child does the work in one thread, with limits and namespaces of its own, and its panic becomes the
//! caller's. A child that hangs is killed by its alarm.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, alarm, fork, getegid, geteuid};

/// Runs `test` in a child of its own.
pub(crate) fn apart(test: impl FnOnce()) {
    listen_to_panics();
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    // SAFETY: the child is a copy of this thread alone. glibc's fork leaves the allocator usable; the child prints
    // nothing and takes no other lock that a thread of the test harness could have held.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Child => {
            alarm::set(SECONDS);
            let ended = child(test, &writer);
            // SAFETY: ends the child at once, without the handlers and buffers it shares with its parent.
            unsafe { libc::_exit(ended) }
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let mut said = String::new();
            reader.read_to_string(&mut said).expect("what it said");
            let ended = waitpid(child, None).expect("its end");
            assert_eq!(ended, WaitStatus::Exited(child, 0), "{said}");
        }
    }
}

/// Runs `test` in a child with a user and a network namespace of its own, `lo` still down.
///
/// Works as root and as an ordinary user. Where the host refuses namespaces it says so, counted, and tests nothing.
pub(crate) fn in_fresh_netns(test: impl FnOnce()) {
    if let Some(why) = refused() {
        static SKIPPED: AtomicUsize = AtomicUsize::new(0);
        let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
        let line = format!("could not run ({count} so far): no network namespace: {why}\n");
        // Past the harness, which keeps the output of tests that pass to itself.
        std::io::stderr()
            .write_all(line.as_bytes())
            .expect("stderr");
        return;
    }
    apart(|| {
        enter().expect("a network namespace");
        test();
    });
}

/// Waits until `socket` has something to read or to accept. Even on `lo` a packet may still be on its way when the
/// call that sent it has returned.
pub(crate) fn arrived(socket: &impl AsFd) {
    let mut waited = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    poll(&mut waited, PollTimeout::NONE).expect("polled");
}

/// Why a fresh network namespace cannot be had; found out in a child of its own.
fn refused() -> Option<String> {
    let found = catch_unwind(|| apart(|| enter().expect("enter")));
    found.err().map(|panic| text(panic.as_ref()))
}

/// Leaves the current network for an empty one, mapping nobody but the caller.
fn enter() -> nix::Result<()> {
    let (uid, gid) = (geteuid(), getegid());
    match unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET) {
        Ok(()) => {
            let put = |name: &str, line: String| fs::write(format!("/proc/self/{name}"), line);
            put("setgroups", "deny".to_owned())
                .and_then(|()| put("uid_map", format!("{uid} {uid} 1")))
                .and_then(|()| put("gid_map", format!("{gid} {gid} 1")))
                .map_err(|error| nix::Error::from_raw(error.raw_os_error().unwrap_or(0)))
        }
        Err(refused) if uid.is_root() => unshare(CloneFlags::CLONE_NEWNET).map_err(|_| refused),
        Err(refused) => Err(refused),
    }
}

fn child(test: impl FnOnce(), writer: &std::io::PipeWriter) -> i32 {
    SINK.store(writer.as_raw_fd(), Ordering::Relaxed);
    i32::from(catch_unwind(AssertUnwindSafe(test)).is_err())
}

/// Makes a panic of a child speak to its parent. Set once and before any fork: in a child, the lock around the hook
/// may be one that a thread of the parent held.
fn listen_to_panics() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            let sink = SINK.load(Ordering::Relaxed);
            if sink < 0 {
                return usual(panic);
            }
            // SAFETY: the number is that of the child's own writer, which its caller keeps open until the end.
            let sink = unsafe { BorrowedFd::borrow_raw(sink) };
            // Lost words change nothing: the status still says that the test failed.
            let _ = nix::unistd::write(sink, panic.to_string().as_bytes());
        }));
    });
}

/// Where a child's panic is told; negative everywhere else.
static SINK: AtomicI32 = AtomicI32::new(-1);

fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let known = panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    known.unwrap_or_else(|| "unknown".to_owned())
}

/// How long a child may take.
const SECONDS: u32 = 60;

#[test]
fn a_panic_apart_is_the_callers_panic() {
    let panic = catch_unwind(|| apart(|| panic!("far away"))).expect_err("a panic");

    assert!(text(panic.as_ref()).contains("far away"));
}
