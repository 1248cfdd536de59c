//! One verdict, as it is told: who wanted what, what was decided, by which rule, and what came of it.
//!
//! Shaped after OCSF: a connect is Network Activity (4001), a name is DNS Activity (4003), a system call that no
//! policy allows is Kernel Activity (1003). A field that says nothing is left out.

use std::net::IpAddr;
use std::time::SystemTime;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::Decision;

/// What was attempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// A TCP connect.
    Connect,
    /// A name was asked for.
    Query,
    /// A system call that no policy allows; `syscall` and `detail` say which.
    Syscall,
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    /// It may be done.
    Allowed,
    /// It may not be done.
    Denied,
}

/// One audit record: exactly one for each verdict.
///
/// Make one with [`Record::connect`], [`Record::query`] or [`Record::syscall`], fill in what is known, and give
/// it to [`crate::Audit`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Record {
    /// When it was decided; written to the millisecond.
    #[serde(deserialize_with = "moment")]
    pub time: SystemTime,
    /// What was attempted.
    pub activity: Activity,
    /// The id of this verdict, as it is told to the workload and to `holdfast why`.
    pub decision: Decision,
    /// What was decided.
    pub verdict: Ruling,
    /// Why, as one word of a closed list: `allowed`, `no_rule`, `identity_unobservable`…
    pub reason: String,
    /// The name that was asked for or connected to.
    pub host: Option<String>,
    /// The address as the workload used it.
    pub address: Option<IpAddr>,
    /// The address that was dialled for it, outside.
    pub dialled: Option<IpAddr>,
    /// The destination port.
    pub port: Option<u16>,
    /// The caller's executable; unknown when it could not be observed.
    pub binary: Option<String>,
    /// The executables of the caller's ancestors, parent first.
    #[serde(default)]
    pub ancestors: Vec<String>,
    /// The caller's process, in the sandbox's outer pid namespace.
    pub pid: Option<u32>,
    /// The system call, when it was one: `unshare`.
    pub syscall: Option<String>,
    /// What was asked of it, for people: `unshare(CLONE_NEWUSER)`.
    pub detail: Option<String>,
    /// The rule that allowed it.
    pub rule: Option<String>,
    /// The rule that came nearest to allowing it.
    pub nearest: Option<String>,
    /// What would allow it.
    pub hint: Option<String>,
    /// What came of it: `connected`, or the name of an errno.
    pub outcome: Option<String>,
    /// The sandbox's name.
    pub sandbox: String,
}

impl Record {
    /// A connect, with a new decision id.
    pub fn connect(sandbox: &str, now: SystemTime, verdict: Ruling, reason: &str) -> Self {
        Self::new(Activity::Connect, sandbox, now, (verdict, reason))
    }

    /// A question for a name, with a new decision id.
    pub fn query(sandbox: &str, now: SystemTime, verdict: Ruling, reason: &str) -> Self {
        Self::new(Activity::Query, sandbox, now, (verdict, reason))
    }

    /// A system call that was refused with `errno` because no policy allows it, with a new decision id.
    pub fn syscall(sandbox: &str, now: SystemTime, name: &str, errno: &str) -> Self {
        let verdict = (Ruling::Denied, "syscall_refused");
        Self {
            syscall: Some(name.to_owned()),
            outcome: Some(errno.to_owned()),
            ..Self::new(Activity::Syscall, sandbox, now, verdict)
        }
    }

    fn new(
        activity: Activity,
        sandbox: &str,
        now: SystemTime,
        (verdict, reason): (Ruling, &str),
    ) -> Self {
        Self {
            time: now,
            activity,
            decision: Decision::new(now),
            verdict,
            reason: reason.to_owned(),
            host: None,
            address: None,
            dialled: None,
            port: None,
            binary: None,
            ancestors: Vec::new(),
            pid: None,
            syscall: None,
            detail: None,
            rule: None,
            nearest: None,
            hint: None,
            outcome: None,
            sandbox: sandbox.to_owned(),
        }
    }
}

impl Activity {
    const fn class(self) -> (u32, &'static str) {
        match self {
            Self::Connect => (4001, "Network Activity"),
            Self::Query => (4003, "DNS Activity"),
            Self::Syscall => (1003, "Kernel Activity"),
        }
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (class_uid, class_name) = self.activity.class();
        Line {
            time: written(self.time),
            class_uid,
            class_name,
            activity: self.activity,
            decision: self.decision,
            verdict: self.verdict,
            reason: &self.reason,
            host: self.host.as_deref(),
            address: self.address,
            dialled: self.dialled,
            port: self.port,
            binary: self.binary.as_deref(),
            ancestors: &self.ancestors,
            pid: self.pid,
            syscall: self.syscall.as_deref(),
            detail: self.detail.as_deref(),
            rule: self.rule.as_deref(),
            nearest: self.nearest.as_deref(),
            hint: self.hint.as_deref(),
            outcome: self.outcome.as_deref(),
            sandbox: &self.sandbox,
        }
        .serialize(serializer)
    }
}

/// A record in the order in which it is written.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    class_uid: u32,
    class_name: &'static str,
    activity: Activity,
    decision: Decision,
    verdict: Ruling,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dialled: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binary: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    ancestors: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    syscall: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nearest: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'a str>,
    sandbox: &'a str,
}

/// Milliseconds always: a column that changes its width cannot be compared as text.
pub fn written(time: SystemTime) -> String {
    format!("{:.3}", Timestamp::try_from(time).unwrap_or_default())
}

fn moment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    let text = String::deserialize(deserializer)?;
    let time: Timestamp = text.parse().map_err(de::Error::custom)?;
    SystemTime::try_from(time).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn noon() -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(1_795_953_600_007)
    }

    #[test]
    fn a_connect_is_one_flat_object_of_network_activity() {
        let record = Record {
            host: Some("origin.test".into()),
            address: Some([198, 18, 3, 7].into()),
            dialled: Some([127, 0, 0, 1].into()),
            port: Some(443),
            binary: Some("/usr/bin/curl".into()),
            ancestors: vec!["/bin/sh".into()],
            pid: Some(123),
            rule: Some("origin".into()),
            outcome: Some("connected".into()),
            ..Record::connect("qa", noon(), Ruling::Allowed, "allowed")
        };

        let line = serde_json::to_string(&record).expect("a record is always JSON");

        let expected = format!(
            concat!(
                r#"{{"time":"2026-11-29T12:00:00.007Z","class_uid":4001,"class_name":"Network Activity","#,
                r#""activity":"connect","decision":"{}","verdict":"allowed","reason":"allowed","#,
                r#""host":"origin.test","address":"198.18.3.7","dialled":"127.0.0.1","port":443,"#,
                r#""binary":"/usr/bin/curl","ancestors":["/bin/sh"],"pid":123,"rule":"origin","#,
                r#""outcome":"connected","sandbox":"qa"}}"#
            ),
            record.decision
        );
        assert_eq!(line, expected);
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let records = [
            Record::query("qa", noon(), Ruling::Denied, "no_rule"),
            Record::syscall("qa", noon(), "mount", "EPERM"),
            Record::connect("qa", noon(), Ruling::Denied, "no_rule"),
        ];

        for record in records {
            let line = serde_json::to_string(&record).expect("a record is always JSON");
            assert_eq!(
                serde_json::from_str::<Record>(&line).expect("reads back"),
                record
            );
        }
    }

    #[test]
    fn a_line_break_in_a_name_stays_inside_its_line() {
        let record = Record {
            binary: Some("/tmp/a\nb".into()),
            ..Record::connect("qa", noon(), Ruling::Denied, "no_rule")
        };

        let line = serde_json::to_string(&record).expect("a record is always JSON");

        assert!(!line.contains('\n'));
    }
}
