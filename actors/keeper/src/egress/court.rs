//! Judges by the policy in force.

use super::attempt::{Grant, Judge, Judgement, Ruling};
use super::names::Names;
use holdfast_policy::{Denied, Destination, Identity, Policy, Request, Verdict, canonical};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A policy, and the names that synthetic addresses stand for.
#[derive(Clone)]
pub struct Court {
    policy: Arc<Policy>,
    /// Ports that are listened on from the start, whatever the revision: the fence is built once.
    standing: Arc<BTreeSet<u16>>,
    names: Arc<dyn Names>,
}

impl Court {
    /// Judges by this revision from now on.
    pub fn new(policy: Arc<Policy>, names: Arc<dyn Names>) -> Court {
        let standing = Arc::new(policy.captured_ports().named);
        Court {
            policy,
            standing,
            names,
        }
    }

    /// The same names under another revision.
    #[must_use]
    pub fn under(&self, policy: Arc<Policy>) -> Court {
        Court {
            policy,
            ..self.clone()
        }
    }

    /// The same over a fence that listens on these ports: any other is captured when somebody connects to it.
    #[must_use]
    pub fn over(&self, standing: BTreeSet<u16>) -> Court {
        Court {
            standing: Arc::new(standing),
            ..self.clone()
        }
    }
}

impl Judge for Court {
    fn judge(&self, destination: SocketAddr, identity: &Identity) -> Judgement {
        let address = canonical(destination.ip());
        let target = self
            .names
            .name_of(address)
            .map_or(Destination::Address(address), Destination::Name);
        let port = destination.port();
        let request = Request {
            destination: target.clone(),
            port,
            identity,
        };
        let ruling = match self.policy.judge(&request) {
            Verdict::Allowed(allowed) => {
                let on_demand = !self.standing.contains(&port);
                Ruling::Allowed(Grant { allowed, on_demand })
            }
            Verdict::Denied(denied) => Ruling::Denied(denied),
        };
        Judgement { target, ruling }
    }

    fn admits(&self, grant: &Grant, address: IpAddr) -> Result<(), Denied> {
        self.policy.admits_address(&grant.allowed, address)
    }
}
