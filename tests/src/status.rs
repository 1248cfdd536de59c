//! The status of a sandbox, as it changes.

use crate::keeping::Client;
use crate::wait::now;
use holdfast_wire::v1::{self, ConditionType, Phase};
use std::time::Duration;
use tonic::Streaming;

/// The statuses of a sandbox, as they change.
#[derive(Debug)]
pub struct Watch(Streaming<v1::Status>);

impl Watch {
    /// Those of the sandbox that `client` speaks with.
    pub async fn new(client: &mut Client) -> Self {
        let watch = client.watch(v1::Nothing {}).await.expect("watched");
        Self(watch.into_inner())
    }

    /// The next one; the first is how it stands now.
    pub async fn next(&mut self) -> v1::Status {
        self.0.message().await.expect("a status").expect("no end")
    }

    /// Waits for a status that is as wanted, and answers how long that took.
    pub async fn until(
        &mut self,
        limit: Duration,
        wanted: impl Fn(&v1::Status) -> bool,
    ) -> (v1::Status, Duration) {
        let (began, mut last) = (now(), None);
        let found = async {
            loop {
                let status = self.next().await;
                if wanted(&status) {
                    return status;
                }
                last = Some(status);
            }
        };
        let found = tokio::time::timeout(limit, found).await;
        let found = found.unwrap_or_else(|_| panic!("not within {limit:?}; last: {last:#?}"));
        (found, now() - began)
    }

    /// Waits for Ready.
    pub async fn ready(&mut self, limit: Duration) -> (v1::Status, Duration) {
        self.until(limit, |status| status.phase() == Phase::Ready)
            .await
    }
}

/// One of the conditions.
pub fn condition(status: &v1::Status, kind: ConditionType) -> &v1::Condition {
    let found = status.conditions.iter().find(|one| one.r#type() == kind);
    found.expect("every condition is told")
}
