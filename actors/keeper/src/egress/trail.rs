//! Turns the end of an attempt into its audit record.

use super::attempt::{Caller, Fate, Report};
use holdfast_observability::{Record, Ruling};
use holdfast_policy::{Denied, Identity};
use std::time::SystemTime;

/// One record, with a new decision id.
pub(super) fn record(sandbox: &str, now: SystemTime, report: Report) -> Record {
    let Report {
        caller,
        destination,
        host,
        allowed,
        fate,
    } = report;
    let (ruling, reason, outcome) = told(&fate);
    let (nearest, hint) = advice(&fate);
    let detail = detail(&fate);
    let Caller { identity, pid } = caller;
    let (binary, ancestors) = match identity {
        Identity::Observed {
            executable,
            ancestors,
        } => (Some(executable), ancestors),
        Identity::Unobservable => (None, Vec::new()),
    };
    let dialled = match &fate {
        Fate::Connected(address) => Some(address.ip()),
        Fate::Denied(_)
        | Fate::Own
        | Fate::Failed(_)
        | Fate::Abandoned
        | Fate::Unheard(_)
        | Fate::Unknown
        | Fate::Crowded
        | Fate::Unrecorded
        | Fate::Withdrawn(_) => None,
    };
    Record {
        host: host.map(|name| name.as_str().to_owned()),
        address: destination.map(|destination| destination.ip()),
        port: destination.map(|destination| destination.port()),
        dialled,
        binary,
        ancestors,
        pid,
        rule: allowed.map(|allowed| allowed.rule),
        nearest,
        hint,
        outcome,
        detail,
        ..Record::connect(sandbox, now, ruling, reason)
    }
}

fn told(fate: &Fate) -> (Ruling, &'static str, Option<String>) {
    let allowed = |outcome: &str| (Ruling::Allowed, "allowed", Some(outcome.to_owned()));
    let denied = |reason| (Ruling::Denied, reason, None);
    match fate {
        Fate::Connected(_) => allowed("connected"),
        Fate::Failed(errno) => allowed(&name(*errno)),
        Fate::Abandoned => allowed("abandoned"),
        Fate::Unheard(why) => allowed(&name(why.errno)),
        Fate::Unknown => allowed("unknown"),
        Fate::Denied(refusal) => denied(refusal.reason.as_str()),
        Fate::Own => denied("own_listener"),
        Fate::Crowded => denied("too_many_pending"),
        Fate::Unrecorded => denied("audit_full"),
        Fate::Withdrawn(refusal) => (
            Ruling::Denied,
            refusal.reason.as_str(),
            Some("closed".to_owned()),
        ),
    }
}

fn advice(fate: &Fate) -> (Option<String>, Option<String>) {
    match fate {
        Fate::Denied(Denied { nearest, hint, .. })
        | Fate::Withdrawn(Denied { nearest, hint, .. }) => (nearest.clone(), Some(hint.clone())),
        Fate::Own
        | Fate::Connected(_)
        | Fate::Failed(_)
        | Fate::Abandoned
        | Fate::Unheard(_)
        | Fate::Unknown
        | Fate::Crowded
        | Fate::Unrecorded => (None, None),
    }
}

fn detail(fate: &Fate) -> Option<String> {
    match fate {
        Fate::Unheard(why) => Some(why.detail.clone()),
        Fate::Denied(_)
        | Fate::Own
        | Fate::Connected(_)
        | Fate::Failed(_)
        | Fate::Abandoned
        | Fate::Unknown
        | Fate::Crowded
        | Fate::Unrecorded
        | Fate::Withdrawn(_) => None,
    }
}

/// The names of what a connect fails with; anything else keeps its number.
pub(super) fn name(errno: i32) -> String {
    let known = match errno {
        libc::ECONNREFUSED => "ECONNREFUSED",
        libc::EHOSTUNREACH => "EHOSTUNREACH",
        libc::ENETUNREACH => "ENETUNREACH",
        libc::ETIMEDOUT => "ETIMEDOUT",
        libc::EINPROGRESS => "EINPROGRESS",
        libc::ECONNRESET => "ECONNRESET",
        libc::EACCES => "EACCES",
        libc::EPERM => "EPERM",
        libc::EADDRNOTAVAIL => "EADDRNOTAVAIL",
        libc::EINVAL => "EINVAL",
        libc::ENOBUFS => "ENOBUFS",
        libc::ENOSYS => "ENOSYS",
        libc::EAFNOSUPPORT => "EAFNOSUPPORT",
        libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
        other => return format!("errno {other}"),
    };
    known.to_owned()
}
