//! The JSON documents of status and list, literally as scripts rely on them.

use holdfast_wire::v1;
use serde_json::{Map, Value, json};

use super::words;
use crate::times::{age, rfc3339};

/// How a sandbox stands.
pub(super) fn status(status: &v1::Status) -> Value {
    let link = status.link.clone().unwrap_or_default();
    let sessions = status.sessions.unwrap_or_default();
    let egress = status.egress.unwrap_or_default();
    let broker = status.broker.clone().unwrap_or_default();
    let canary = status.canary.unwrap_or_default();
    let policy = status.policy.clone().unwrap_or_default();
    json!({
        "name": status.name,
        "id": status.id,
        "generation": status.generation,
        "phase": words::phase(status.phase()),
        "reason": status.reason,
        "message": status.message,
        "since": rfc3339(status.since_ms),
        "leaseExpires": rfc3339(status.lease_expires_ms),
        "conditions": status.conditions.iter().map(condition).collect::<Vec<_>>(),
        "confinement": status.evidence.as_ref().map(confinement),
        "descriptors": descriptors(status),
        "restarts": {
            "total": status.restarts.values().sum::<u64>(),
            "byActor": sorted(status.restarts.iter()),
        },
        "link": {
            "epoch": link.epoch,
            "connected": link.connected,
            "reconnects": link.reconnects,
            "protocol": link.protocol,
        },
        "sessions": {
            "running": sessions.running,
            "total": sessions.total,
            "failed": sessions.failed,
        },
        "egress": {
            "open": egress.open,
            "allowed": egress.allowed,
            "denied": egress.denied,
            "refusedUpstream": egress.refused_upstream,
        },
        "broker": {
            "notifications": broker.notifications,
            "denied": broker.denied,
            "races": sorted(broker.races.iter()),
            "faults": broker.faults,
        },
        "canary": {
            "last": rfc3339(canary.last_ms),
            "lastOk": rfc3339(canary.last_ok_ms),
            "durationMs": milliseconds(canary.duration_us),
            "failures": canary.failures,
        },
        "policy": policy_state(&policy),
        "pids": sorted(status.pids.iter()),
        "version": status.version,
        "created": rfc3339(status.created_ms),
        "labels": sorted(status.labels.iter()),
        "main": status.main.as_ref().map(ending),
    })
}

/// One row of the list.
pub(super) fn row(status: &v1::Status, now_ms: i64) -> Value {
    let policy = status.policy.clone().unwrap_or_default();
    json!({
        "name": status.name,
        "phase": words::phase(status.phase()),
        "reason": status.reason,
        "age": age(status.created_ms, now_ms),
        "sessions": status.sessions.unwrap_or_default().running,
        "policy": policy.enforced,
        "restarts": status.restarts.values().sum::<u64>(),
        "labels": sorted(status.labels.iter()),
    })
}

/// Which revision is in force.
pub(crate) fn policy_state(policy: &v1::PolicyState) -> Value {
    json!({
        "desired": policy.desired,
        "enforced": policy.enforced,
        "hash": policy.hash,
        "error": policy.error,
    })
}

/// How a session ended: code or signal, and why.
pub(super) fn ending(ending: &v1::Ending) -> Value {
    use v1::exit::How;
    let how = ending.exit.as_ref().and_then(|exit| exit.how.as_ref());
    let (code, signal) = match how {
        Some(How::Code(code)) => (Some(*code), None),
        Some(How::Signal(signal)) => (Some(128 + *signal), Some(*signal)),
        Some(How::Unknown(_)) | None => (None, None),
    };
    json!({
        "exitCode": code,
        "signal": signal,
        "reason": reason(ending),
        "endedAt": rfc3339(ending.ended_ms),
    })
}

/// Why a session ended; of an end that nobody knows, why not.
pub(super) fn reason(ending: &v1::Ending) -> &str {
    use v1::exit::How;
    match ending.exit.as_ref().and_then(|exit| exit.how.as_ref()) {
        Some(How::Unknown(why)) if ending.reason.is_empty() => why,
        Some(How::Unknown(_) | How::Code(_) | How::Signal(_)) | None => &ending.reason,
    }
}

fn condition(condition: &v1::Condition) -> Value {
    json!({
        "type": words::condition(condition.r#type()),
        "status": words::truth(condition.status()),
        "reason": condition.reason,
        "message": condition.message,
        "since": rfc3339(condition.since_ms),
        "observed": rfc3339(condition.observed_ms),
    })
}

fn confinement(evidence: &v1::Evidence) -> Value {
    json!({
        "capture": "kernel",
        "landlock": {
            "abi": evidence.landlock_abi,
            // Everything that Holdfast asks of Landlock, scopes among it.
            "level": match (evidence.landlock_abi > 0, evidence.scoped) {
                (true, true) => "full",
                (true, false) => "partial",
                (false, _) => "none",
            },
            "skipped": evidence.skipped,
        },
        "seccomp": evidence.seccomp,
        "namespaces": NAMESPACES,
        "uid": evidence.uid,
        "ipv6": evidence.ipv6,
        "unset": evidence.unset,
    })
}

fn descriptors(status: &v1::Status) -> Value {
    let of = |process: &str| {
        let of = status.descriptors.get(process).copied().unwrap_or_default();
        json!({
            "limit": of.limit,
            "used": of.used,
            "highWater": of.high_water,
            "shed": of.shed,
            "waiting": of.waiting,
        })
    };
    json!({"keeper": of("keeper"), "boundary": of("boundary")})
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a duration is far below 2^53 microseconds"
)]
fn milliseconds(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

fn sorted<'a, V: Into<Value> + Clone + 'a>(
    entries: impl Iterator<Item = (&'a String, &'a V)>,
) -> Value {
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by_key(|(name, _)| *name);
    let map: Map<String, Value> = entries
        .into_iter()
        .map(|(name, value)| (name.clone(), value.clone().into()))
        .collect();
    map.into()
}

/// No sandbox stands with fewer.
const NAMESPACES: [&str; 6] = ["user", "pid", "mnt", "net", "ipc", "uts"];

#[cfg(test)]
mod tests;
