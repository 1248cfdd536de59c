//! Whether Ready is true: what it takes to be shown, how soon it is gone, and what brings it back.

use holdfast_tests::keeping::{Client, Keeping, code, run, shell};
use holdfast_tests::{Policy, everyone};
use holdfast_wire::v1::{self, Phase};
use std::future::Future;
use std::time::{Duration, Instant};
use tonic::Streaming;

/// Runs one test's future on a runtime of its own.
fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(future)
}

fn offline() -> String {
    Policy::offline().text()
}

/// The statuses of a sandbox, as they change.
struct Watch(Streaming<v1::Status>);

impl Watch {
    async fn new(client: &mut Client) -> Self {
        let watch = client.watch(v1::Nothing {}).await.expect("watched");
        Self(watch.into_inner())
    }

    /// Waits for a status that is as wanted, and answers how long that took.
    async fn until(
        &mut self,
        limit: Duration,
        wanted: impl Fn(&v1::Status) -> bool,
    ) -> (v1::Status, Duration) {
        let (began, mut last) = (Instant::now(), None);
        let found = async {
            loop {
                let status = self.0.message().await.expect("a status").expect("no end");
                if wanted(&status) {
                    return status;
                }
                last = Some(status);
            }
        };
        let found = tokio::time::timeout(limit, found).await;
        let found = found.unwrap_or_else(|_| panic!("not within {limit:?}; last: {last:#?}"));
        (found, began.elapsed())
    }

    async fn ready(&mut self, limit: Duration) -> (v1::Status, Duration) {
        self.until(limit, |status| status.phase() == Phase::Ready)
            .await
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// SV-01, SV-12: every condition is True, by a canary that went the whole way, under a policy without a network.
#[test]
fn ready_appears_after_a_canary_and_not_before() {
    for area in everyone() {
        wait(async {
            let mut sandbox = Keeping::new(&area, &offline());
            let mut client = sandbox.serve().await;
            let mut watch = Watch::new(&mut client).await;

            let (status, _) = watch.ready(SECOND * 10).await;

            let canary = status.canary.expect("a canary");
            assert!(canary.last_ok_ms > 0 && canary.failures == 0, "{canary:?}");
            assert_eq!(status.conditions.len(), 8);
            for condition in &status.conditions {
                assert_eq!(condition.status(), v1::Truth::True, "{condition:?}");
                assert!(condition.since_ms > 0 && condition.observed_ms > 0);
            }
            let (_, ending) = run(&mut client, shell("exit 3")).await.expect("ran");
            assert_eq!(code(&ending), Some(3));
            sandbox.end(client).await;
        });
    }
}
