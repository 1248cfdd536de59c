//! Judges by the policy in force.

use super::attempt::{Grant, Judge, Judgement, Ruling};
use super::names::Names;
use holdfast_policy::{
    Captured, Denied, Destination, Identity, Policy, Request, Verdict, canonical,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A policy, and the names that synthetic addresses stand for.
#[derive(Clone)]
pub struct Court {
    policy: Arc<Policy>,
    captured: Arc<Captured>,
    names: Arc<dyn Names>,
}

impl Court {
    /// Judges by this revision from now on.
    pub fn new(policy: Arc<Policy>, names: Arc<dyn Names>) -> Court {
        let captured = Arc::new(policy.captured_ports());
        Court {
            policy,
            captured,
            names,
        }
    }

    /// The same names under another revision.
    #[must_use]
    pub fn under(&self, policy: Arc<Policy>) -> Court {
        Court::new(policy, Arc::clone(&self.names))
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
                let on_demand = !self.captured.named.contains(&port);
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
