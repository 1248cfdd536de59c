//! Looks at the sandbox as a user does: by watching it, and by asking again and again whether anybody still answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_wire::v1;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_stream::StreamExt as _;

use crate::gate::{Gate, Unanswered};
use crate::journal::Journal;
use crate::timeline::{Descriptors, Fact, Phase, Row, Shown, Tree};

/// Writes down what the sandbox says until it is dropped.
pub(crate) async fn look(gate: Gate, sandbox: String, journal: Journal) {
    // How often the watch has spoken: an answer that it overtook is old.
    let spoken = AtomicU64::new(0);
    let watched = watch(&gate, &sandbox, &spoken, &journal);
    let asked = ask(&gate, &sandbox, &spoken, &journal);
    let told = trees(&gate, &sandbox, &journal);
    tokio::join!(watched, asked, told);
}

async fn watch(gate: &Gate, sandbox: &str, spoken: &AtomicU64, journal: &Journal) {
    let gate = gate.apart();
    loop {
        let request = v1::SandboxRequest {
            sandbox: sandbox.to_owned(),
        };
        if let Ok(Ok(response)) = timeout(ANSWER, gate.client().watch(request)).await {
            let mut stream = response.into_inner();
            while let Some(Ok(status)) = stream.next().await {
                spoken.fetch_add(1, Ordering::Relaxed);
                journal.show(shown(&status));
            }
            spoken.fetch_add(1, Ordering::Relaxed);
            journal.silence();
        }
        sleep(AGAIN).await;
    }
}

/// An answer that does not come is an answer: nothing is shown to whoever asks.
async fn ask(gate: &Gate, sandbox: &str, spoken: &AtomicU64, journal: &Journal) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let before = spoken.load(Ordering::Relaxed);
        match gate.status(sandbox, ANSWER).await {
            Ok(status) if spoken.load(Ordering::Relaxed) == before => journal.show(shown(&status)),
            Ok(_overtaken) => {}
            Err(Unanswered::Refused { .. } | Unanswered::Gone(_)) => journal.silence(),
        }
    }
}

async fn trees(gate: &Gate, sandbox: &str, journal: &Journal) {
    let mut ticks = interval(TREES);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Ok(list) = gate.trees(sandbox).await else {
            continue;
        };
        let pids = journal.last().pids;
        for tree in list.trees {
            let rows = tree.rows.into_iter().map(|row| Row {
                path: row.path,
                state: row.state,
                restarts: row.restarts,
            });
            journal.tell(Fact::Tree(Tree {
                pid: pids.get(&tree.process).copied(),
                rows: rows.collect(),
                process: tree.process,
            }));
        }
    }
}

/// The part of a status that a siege cares for.
pub(crate) fn shown(status: &v1::Status) -> Shown {
    let mut failing = BTreeMap::new();
    for condition in &status.conditions {
        if condition.status() != v1::Truth::True {
            let name = condition
                .r#type()
                .as_str_name()
                .trim_start_matches("CONDITION_TYPE_");
            failing.insert(camel(name), condition.reason.clone());
        }
    }
    let descriptors = status.descriptors.iter().map(|(process, of)| {
        let of = Descriptors {
            limit: of.limit,
            used: of.used,
            high_water: of.high_water,
            shed: of.shed,
            waiting: of.waiting,
        };
        (process.clone(), of)
    });
    Shown {
        phase: phase(status.phase()),
        reason: status.reason.clone(),
        failing,
        descriptors: descriptors.collect(),
        pids: status.pids.clone().into_iter().collect(),
        generation: status.generation,
        epoch: status.link.as_ref().map_or(0, |link| link.epoch),
        restarts: status.restarts.values().sum(),
    }
}

const fn phase(phase: v1::Phase) -> Phase {
    match phase {
        v1::Phase::Unspecified => Phase::Silent,
        v1::Phase::Pending => Phase::Pending,
        v1::Phase::Ready => Phase::Ready,
        v1::Phase::Degraded => Phase::Degraded,
        v1::Phase::Failed => Phase::Failed,
        v1::Phase::Stopped => Phase::Stopped,
        v1::Phase::Deleting => Phase::Deleting,
    }
}

/// `BOUNDARY_LINKED` as the contract writes it.
fn camel(name: &str) -> String {
    let words = name.split('_').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        format!("{first}{}", rest.to_lowercase())
    });
    words.collect()
}

/// Between two questions.
const EVERY: Duration = Duration::from_millis(100);
/// Who asks does not wait longer.
const ANSWER: Duration = Duration::from_millis(300);
const AGAIN: Duration = Duration::from_millis(50);
const TREES: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_with_what_fails() {
        let condition = v1::Condition {
            r#type: v1::ConditionType::ProxyServing.into(),
            status: v1::Truth::False.into(),
            reason: "AcceptBackoff".into(),
            ..v1::Condition::default()
        };
        let status = v1::Status {
            phase: v1::Phase::Degraded.into(),
            conditions: vec![condition],
            ..v1::Status::default()
        };

        let shown = shown(&status);

        assert_eq!(shown.phase, Phase::Degraded);
        assert_eq!(
            shown.failing.get("ProxyServing").map(String::as_str),
            Some("AcceptBackoff")
        );
    }
}
