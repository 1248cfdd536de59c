//! Finds the endpoints for a host without looking at the others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::host::Host;
use crate::name::Name;
use crate::rule::{Endpoint, Rule};

/// The endpoints of all rules, by host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    exact: HashMap<Name, Vec<Slot>>,
    /// By the domain above the wildcard.
    wildcard: HashMap<Name, Vec<Slot>>,
    address: HashMap<IpAddr, Vec<Slot>>,
    /// Those without a host.
    addresses: Vec<Slot>,
}

/// An endpoint and the place of its rule in the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) rule: usize,
    pub(crate) endpoint: Arc<Endpoint>,
}

impl Index {
    pub(crate) fn new(rules: &[Rule]) -> Self {
        let mut index = Self::default();
        for (rule, endpoints) in rules.iter().map(|rule| &rule.endpoints).enumerate() {
            for endpoint in endpoints {
                let slot = Slot {
                    rule,
                    endpoint: Arc::clone(endpoint),
                };
                match &endpoint.host {
                    Host::Exact(name) => index.exact.entry(name.clone()).or_default().push(slot),
                    Host::Wildcard(wildcard) => {
                        index
                            .wildcard
                            .entry(wildcard.domain().clone())
                            .or_default()
                            .push(slot);
                    }
                    Host::Address(address) => index.address.entry(*address).or_default().push(slot),
                    Host::Addresses => index.addresses.push(slot),
                }
            }
        }
        index
    }

    /// The endpoints whose host is `name`: first those that write it exactly, then the narrower wildcards.
    pub(crate) fn by_name<'i>(&'i self, name: &'i Name) -> impl Iterator<Item = &'i Slot> {
        let exact = self.exact.get(name).into_iter().flatten();
        let domains = if self.wildcard.is_empty() {
            None
        } else {
            Some(name.parents())
        };
        let wildcard = domains
            .into_iter()
            .flatten()
            .filter_map(|domain| self.wildcard.get(domain))
            .flatten();
        exact.chain(wildcard.filter(move |slot| match &slot.endpoint.host {
            Host::Wildcard(wildcard) => wildcard.matches(name),
            Host::Exact(_) | Host::Address(_) | Host::Addresses => false,
        }))
    }

    /// The endpoints that write the canonical `address`, then those without a host, whichever range they list.
    pub(crate) fn by_address(&self, address: IpAddr) -> impl Iterator<Item = &Slot> {
        self.address
            .get(&address)
            .into_iter()
            .flatten()
            .chain(&self.addresses)
    }
}
