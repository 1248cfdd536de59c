//! A status of now: what is merely counted is told a few times in a second, and whoever asks has just changed it perhaps.

use std::time::Duration;

use holdfast_wire::v1;
use holdfast_wire::v1::keeper_client::KeeperClient;
use tokio::time::timeout;
use tonic::transport::Channel;

use super::serving;
use crate::directory::Entry;

/// How `entry` stands, with the counts that its keeper has now, if it answers.
pub(super) async fn of(entry: &Entry, keeper: KeeperClient<Channel>) -> v1::Status {
    let now = match serving(entry) {
        Ok(()) => timeout(PATIENCE, told(keeper)).await.ok().flatten(),
        Err(_) => None,
    };
    let status = entry.status().as_ref().clone();
    match now {
        Some(now) => counted(status, now),
        None => status,
    }
}

async fn told(mut keeper: KeeperClient<Channel>) -> Option<v1::Status> {
    let watched = keeper.watch(v1::Nothing {}).await.ok()?;
    watched.into_inner().message().await.ok()?
}

/// `status` with the counts of `now`. How it stands is for the gateway to say, and not in them.
fn counted(status: v1::Status, now: v1::Status) -> v1::Status {
    if now.id != status.id || now.generation != status.generation {
        return status;
    }
    v1::Status {
        sessions: now.sessions,
        egress: now.egress,
        broker: now.broker,
        ..status
    }
}

/// A keeper that takes longer is not asked for its counts.
const PATIENCE: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    fn status(generation: u64, total: u64, phase: v1::Phase) -> v1::Status {
        v1::Status {
            id: "01J".to_owned(),
            generation,
            phase: phase.into(),
            sessions: Some(v1::SessionCounts {
                total,
                ..v1::SessionCounts::default()
            }),
            ..v1::Status::default()
        }
    }

    #[test]
    fn counts_are_of_now_and_the_phase_is_the_gateways() {
        let shown = status(2, 5, v1::Phase::Degraded);

        let told = counted(shown.clone(), status(2, 6, v1::Phase::Ready));
        assert_eq!(told, status(2, 6, v1::Phase::Degraded));
        let late = counted(shown.clone(), status(1, 9, v1::Phase::Ready));
        assert_eq!(late, shown, "it is of another generation");
    }
}
