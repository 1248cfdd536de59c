//! What a sandbox is shown as, moment by moment, beside what of it was dead meanwhile.

use crate::daemon::dial;
use crate::victim::Part;
use crate::wait::now;
use holdfast_wire::v1;
use holdfast_wire::v1::gateway_client::GatewayClient;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// For so long Ready may be shown over a dead part.
pub const FALSE_READY: Duration = Duration::from_millis(500);

/// How soon a stream that was cut is asked for again.
const AGAIN: Duration = Duration::from_millis(3);

/// From this moment on this was shown; nothing, when there was nobody to show it.
pub type Shown = (Instant, Option<v1::Status>);

/// A client that watches one sandbox all the time, over every gateway.
#[derive(Debug)]
pub struct Watcher {
    shown: Arc<Mutex<Vec<Shown>>>,
    runtime: Option<Runtime>,
}

/// A part that died.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    /// When.
    pub at: Instant,
    /// What it was.
    pub part: Part,
    /// Which one.
    pub pid: i32,
    /// In which life of the sandbox.
    pub generation: u64,
}

impl Watcher {
    /// Watches from now on, as soon as there is such a sandbox.
    pub fn start(gateway: PathBuf, name: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let shown = Arc::default();
        runtime.spawn(watch(gateway, name.to_owned(), Arc::clone(&shown)));
        Self {
            shown,
            runtime: Some(runtime),
        }
    }

    /// All that was shown so far.
    pub fn shown(&self) -> Vec<Shown> {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn watch(gateway: PathBuf, sandbox: String, shown: Arc<Mutex<Vec<Shown>>>) {
    let note = |status: Option<v1::Status>| {
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.push((now(), status));
    };
    loop {
        if let Ok(channel) = dial(&gateway).await {
            let sandbox = sandbox.clone();
            let request = v1::SandboxRequest { sandbox };
            if let Ok(stream) = GatewayClient::new(channel).watch(request).await {
                let mut stream = stream.into_inner();
                while let Ok(Some(status)) = stream.message().await {
                    note(Some(status));
                }
                note(None);
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// The longest time that Ready was shown over a dead part until `end`, and which part that was.
pub fn longest_false_ready(
    shown: &[Shown],
    deaths: &[Death],
    end: Instant,
) -> Option<(Duration, Part)> {
    let nexts = shown.iter().skip(1).map(|(at, _)| *at).chain([end]);
    let spans: Vec<_> = shown.iter().map(|it| &it.1).zip(nexts).collect();
    let of = |death: &Death| {
        // Spans of the same untruth that follow each other are one.
        let mut longest = Duration::ZERO;
        let mut since: Option<Instant> = None;
        for ((began, _), (status, until)) in shown.iter().zip(&spans) {
            if status.as_ref().is_some_and(|status| belies(status, death)) {
                let from = *since.get_or_insert((*began).max(death.at));
                longest = longest.max(until.saturating_duration_since(from));
            } else {
                since = None;
            }
        }
        (longest, death.part)
    };
    deaths.iter().map(of).max_by_key(|(longest, _)| *longest)
}

/// Whether this would be untrue once that part is dead.
fn belies(status: &v1::Status, death: &Death) -> bool {
    let names = || {
        let mut pids = status.pids.values();
        pids.any(|pid| i32::try_from(*pid) == Ok(death.pid))
    };
    status.phase() == v1::Phase::Ready
        && match death.part {
            Part::Gateway => false,
            Part::Keeper | Part::Boundary => names(),
            Part::Launcher => status.generation == death.generation,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(pid: u32) -> v1::Status {
        v1::Status {
            phase: v1::Phase::Ready.into(),
            generation: 1,
            pids: [("keeper".to_owned(), pid)].into(),
            ..v1::Status::default()
        }
    }

    #[test]
    fn only_ready_over_that_very_part_counts_and_only_from_its_death_on() {
        let began = now();
        let at = |millis| began + Duration::from_millis(millis);
        let death = Death {
            at: at(100),
            part: Part::Keeper,
            pid: 7,
            generation: 1,
        };
        let shown = [
            (at(0), Some(ready(7))),
            (at(150), Some(ready(7))),
            (at(300), None),
            (at(400), Some(ready(8))),
            (at(900), Some(ready(7))),
        ];

        let longest = longest_false_ready(&shown, &[death], at(950));

        assert_eq!(longest, Some((Duration::from_millis(200), Part::Keeper)));
        assert_eq!(longest_false_ready(&shown, &[], at(950)), None);
    }
}
