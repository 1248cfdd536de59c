//! Keeping a long-lived process small.

use std::time::Duration;

use holdfast_kernel::memory;

/// Lets go of the code that only the start has called, once that is over: for a task of keeper and boundary. What lives
/// shorter ends before.
pub async fn settle() {
    tokio::time::sleep(SETTLED).await;
    if let Err(error) = memory::release_code() {
        tracing::debug!(%error, "let go of the code of the start");
    }
}

/// When a start is over, with some time to spare.
const SETTLED: Duration = Duration::from_secs(1);
