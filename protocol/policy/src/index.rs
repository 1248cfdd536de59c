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
    /// The first that names a host of somebody, by the domain that this somebody has registered.
    owner: HashMap<Box<str>, Slot>,
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
                if let Some(domain) = endpoint.host.domain() {
                    index
                        .owner
                        .entry(owner(domain).into())
                        .or_insert_with(|| slot.clone());
                }
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

    /// The endpoints that write the canonical `address`, then those without a host that list it.
    pub(crate) fn by_address(&self, address: IpAddr) -> impl Iterator<Item = &Slot> {
        let exact = self.address.get(&address).into_iter().flatten();
        exact.chain(
            self.addresses
                .iter()
                .filter(move |slot| slot.endpoint.lists(address)),
        )
    }

    /// The endpoint whose host looks most like `name`, which none is for: one of the same owner, or one that is a slip
    /// of the hand away.
    pub(crate) fn nearest(&self, name: &Name) -> Option<&Slot> {
        let misspelt = || {
            let like = self
                .exact
                .iter()
                .filter(|(host, _)| one_slip(host.as_str(), name.as_str()));
            like.filter_map(|(_, slots)| slots.first())
                .min_by_key(|slot| slot.rule)
        };
        self.owner.get(owner(name)).or_else(misspelt)
    }
}

/// The domain that somebody has registered, under which `name` is.
fn owner(name: &Name) -> &str {
    psl::domain_str(name.as_str()).unwrap_or(name.as_str())
}

/// Whether one letter is missing, too many, another, or two neighbours are swapped.
fn one_slip(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let start = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let (a, b) = (&a[start..], &b[start..]);
    let end = a
        .iter()
        .rev()
        .zip(b.iter().rev())
        .take_while(|(x, y)| x == y)
        .count();
    match (&a[..a.len() - end], &b[..b.len() - end]) {
        ([], [_]) | ([_], [] | [_]) => true,
        ([first, second], [third, last]) => first == last && second == third,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slip_is_a_letter_missing_added_changed_or_swapped_with_its_neighbour() {
        for slip in [
            "orgin.test",
            "origgin.test",
            "orifin.test",
            "roigin.test",
            "origin.tests",
            "xorigin.test",
        ] {
            assert!(
                one_slip("origin.test", slip) && one_slip(slip, "origin.test"),
                "{slip}"
            );
        }
        for other in [
            "origin.test",
            "orgn.test",
            "ogirin.test",
            "nigiro.test",
            "test",
            "",
        ] {
            assert!(!one_slip("origin.test", other), "{other}");
        }
    }
}
