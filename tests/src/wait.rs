//! Waiting for a condition, never for luck.

use std::future::Future;
use std::time::{Duration, Instant};

/// Runs one test's future on a runtime of its own.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}

/// Longer than anything here takes on a busy machine with two cores; a test that reaches it has failed.
pub const LONG: Duration = Duration::from_mins(1);

/// How often a condition that cannot announce itself is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// The present. Tests measure real processes: this is their one clock.
#[expect(
    clippy::disallowed_methods,
    reason = "black-box tests measure the real world"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// Looks until `holds` does, and says what was missing when it never did.
pub fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    assert!(
        holds_within(limit, &mut holds),
        "after {limit:?} still not: {what}"
    );
}

/// Looks until `holds` does or the limit is reached; says which.
pub fn holds_within(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = now() + limit;
    loop {
        if holds() {
            return true;
        }
        if now() >= end {
            return false;
        }
        std::thread::park_timeout(LOOK);
    }
}
