//! What the resolver asks of the policy, and where it says what was denied.

use std::net::IpAddr;

use holdfast_clock::Clock;
use holdfast_observability::{Audit, Decision, Record, Ruling};
use holdfast_policy::{DEFAULT_PORT, Denied, Destination, Identity, Name, Policy, Reason};
use holdfast_policy::{Request, Verdict};

/// What the resolver asks of the policy in force. Each call may meet another revision.
pub trait Admission: Send + Sync + 'static {
    /// Could any rule match this name, on any port?
    fn admits_name(&self, name: &Name) -> bool;

    /// Could any rule that matches this name have this address dialled? If not, why not?
    fn admits_address(&self, name: &Name, address: IpAddr) -> Result<(), Denied>;

    /// The addresses that the policy itself gives this name; all of them, if any.
    fn hosts(&self, name: &Name) -> Option<Vec<IpAddr>>;

    /// Why a name is not admitted, for the one who wants it to be.
    fn explain(&self, name: &Name) -> Option<Denied>;
}

/// A policy that never changes. One that does hands each call on to the revision in force.
impl Admission for Policy {
    fn admits_name(&self, name: &Name) -> bool {
        Self::admits_name(self, name)
    }

    fn admits_address(&self, name: &Name, address: IpAddr) -> Result<(), Denied> {
        self.admits_name_at(name, address)
    }

    fn hosts(&self, name: &Name) -> Option<Vec<IpAddr>> {
        Self::hosts(self).get(name).cloned()
    }

    fn explain(&self, name: &Name) -> Option<Denied> {
        let request = Request {
            destination: Destination::Name(name.clone()),
            port: DEFAULT_PORT,
            identity: &Identity::Unobservable,
        };
        match self.judge(&request) {
            Verdict::Denied(denied) => Some(denied),
            Verdict::Allowed(_) => None,
        }
    }
}

/// Where denied names are recorded.
pub trait Ledger: Send + Sync + 'static {
    /// Records one denial. Must not block.
    fn denied(&self, denied: DeniedName) -> Decision;
}

/// A name was asked for and denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedName {
    /// As it was asked for, in lower case.
    pub name: String,
    /// What was denied about it.
    pub what: Withheld,
    /// How often it was denied since the last record of it.
    pub repeats: u64,
    /// What the policy says about it; nothing if it is no host name at all.
    pub why: Option<Denied>,
}

/// What the workload is not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withheld {
    /// Whether there is such a name: no rule could match it.
    Name,
    /// That it has this address, and perhaps others: none of them may be dialled.
    Address(IpAddr),
}

/// The audit trail of one sandbox, as a ledger.
#[derive(Debug, Clone)]
pub struct Trail {
    /// Where records go.
    pub audit: Audit,
    /// The sandbox's name.
    pub sandbox: String,
    /// For the date of a record.
    pub clock: Clock,
}

impl Ledger for Trail {
    fn denied(&self, denied: DeniedName) -> Decision {
        let reason = denied
            .why
            .as_ref()
            .map_or(Reason::HostNotAllowed, |why| why.reason);
        let wall = self.clock.wall();
        let mut record = Record::query(&self.sandbox, wall, Ruling::Denied, reason.as_str());
        record.host = Some(denied.name);
        let outcome = match denied.what {
            Withheld::Name => "NXDOMAIN",
            Withheld::Address(address) => {
                record.address = Some(address);
                "NODATA"
            }
        };
        record.outcome = Some(outcome.to_owned());
        if denied.repeats > 0 {
            let detail = format!("denied {} times more since the last record", denied.repeats);
            record.detail = Some(detail);
        }
        if let Some(why) = denied.why {
            record.nearest = why.nearest;
            record.hint = Some(why.hint);
        }
        let decision = record.decision;
        self.audit.record(record);
        decision
    }
}

#[cfg(test)]
mod tests {
    use holdfast_clock::ManualClock;

    use super::*;
    use crate::resolver::testing::{host, ip};

    const POLICY: &str = "
version: 1
network_policies:
  origin: {endpoints: [{host: origin.test, port: 443}]}
  cdn: {endpoints: [{host: '*.cdn.test', port: 443}]}
resolver: {hosts: {origin.test: [127.0.0.1]}}
";

    fn policy() -> Box<dyn Admission> {
        Box::new(Policy::parse("policy.yaml", POLICY).expect("a policy"))
    }

    #[test]
    fn a_policy_answers_for_its_names_and_their_addresses() {
        let policy = policy();
        let (origin, cdn) = (host("origin.test"), host("a.cdn.test"));

        assert!(policy.admits_name(&origin) && policy.admits_name(&cdn));
        assert!(!policy.admits_name(&host("cdn.test")));
        assert_eq!(policy.admits_address(&origin, ip("127.0.0.1")), Ok(()));
        assert!(policy.admits_address(&cdn, ip("10.0.0.5")).is_err());
        assert_eq!(policy.hosts(&origin), Some(vec![ip("127.0.0.1")]));
        assert_eq!(policy.hosts(&cdn), None);
        assert_eq!(policy.explain(&origin), None);
    }

    // DN-03
    #[test]
    fn a_denied_name_leaves_one_record_with_its_reason_and_what_would_allow_it() {
        let trail = Trail {
            audit: Audit::memory(),
            sandbox: "qa".to_owned(),
            clock: ManualClock::new().clock(),
        };
        let name = host("orgin.test");

        let decision = trail.denied(DeniedName {
            name: name.to_string(),
            what: Withheld::Name,
            repeats: 3,
            why: policy().explain(&name),
        });

        let records = trail.audit.records();
        assert_eq!(records.len(), 1);
        let record = &records[0];
        assert_eq!(record.decision, decision);
        assert_eq!(
            (record.verdict, record.reason.as_str()),
            (Ruling::Denied, "host_not_allowed")
        );
        assert_eq!(record.host.as_deref(), Some("orgin.test"));
        assert_eq!(record.nearest.as_deref(), Some("origin"));
        assert!(record.hint.is_some());
        assert!(
            record
                .detail
                .as_ref()
                .is_some_and(|detail| detail.contains("3 times"))
        );
    }

    // DN-09
    #[test]
    fn a_withheld_address_stands_in_its_record() {
        let trail = Trail {
            audit: Audit::memory(),
            sandbox: "qa".to_owned(),
            clock: ManualClock::new().clock(),
        };
        let name = host("a.cdn.test");
        let why = policy().admits_address(&name, ip("10.0.0.5"));

        trail.denied(DeniedName {
            name: name.to_string(),
            what: Withheld::Address(ip("10.0.0.5")),
            repeats: 0,
            why: why.err(),
        });

        let records = trail.audit.records();
        assert_eq!(records[0].reason, "address_private");
        assert_eq!(records[0].address, Some(ip("10.0.0.5")));
        assert_eq!(records[0].outcome.as_deref(), Some("NODATA"));
    }
}
