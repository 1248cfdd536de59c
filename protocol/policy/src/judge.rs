//! Decides whether a connection may be made. Whatever no rule names is denied.

use std::net::IpAddr;
use std::sync::Arc;

use crate::address::{Class, canonical, is_synthetic};
use crate::hint;
use crate::index::Slot;
use crate::name::Name;
use crate::network::DEFAULT_PORT;
use crate::policy::Policy;
use crate::request::{Destination, Identity, Request};
use crate::rule::Endpoint;
use crate::verdict::{Allowed, Denied, Reason, Verdict};

impl Policy {
    /// Judges a connection by host, port and program; to an address itself, by that address too.
    ///
    /// A name is judged before it is looked up. The address that comes of it goes to [`Policy::admits_address`].
    pub fn judge(&self, request: &Request<'_>) -> Verdict {
        let verdict = match &request.destination {
            Destination::Name(name) => self.weigh(self.index.by_name(name), request),
            Destination::Address(address) => {
                self.weigh(self.index.by_address(canonical(*address)), request)
            }
        };
        match (verdict, &request.destination) {
            (Ok(allowed), Destination::Name(_)) => Verdict::Allowed(allowed),
            (Ok(allowed), Destination::Address(address)) => {
                match self.admits_address(&allowed, *address) {
                    Ok(()) => Verdict::Allowed(allowed),
                    Err(denied) => Verdict::Denied(denied),
                }
            }
            (Err(miss), _) => Verdict::Denied(self.deny(request, miss)),
        }
    }

    /// Whether some rule could be for this name, on whichever port and for whichever program.
    pub fn admits_name(&self, name: &Name) -> bool {
        self.index.by_name(name).next().is_some()
    }

    /// Whether the policy says something about this name: a rule could be for it, or it has addresses here. What another list
    /// of names says about it then does not count.
    pub fn decides_by_name(&self, name: &Name) -> bool {
        !name.is_localhost() && (self.hosts.contains_key(name) || self.admits_name(name))
    }

    /// Whether some rule for this name could let a connection go to `address`, on whichever port and for whichever
    /// program. Where none could, the name is better shown without that address.
    pub fn admits_name_at(&self, name: &Name, address: IpAddr) -> Result<(), Denied> {
        let destination = Destination::Name(name.clone());
        let mut slots = self.index.by_name(name).peekable();
        let Some(first) = slots.peek() else {
            return Err(self.deny_host(&Request {
                destination,
                port: DEFAULT_PORT,
                identity: &Identity::Unobservable,
            }));
        };
        let most = Allowed {
            rule: self.rules[first.rule].name.clone(),
            enforcement: first.endpoint.enforcement,
            destination,
            endpoints: slots.map(|slot| Arc::clone(&slot.endpoint)).collect(),
        };
        self.admits_address(&most, address)
    }

    /// Whether an allowed connection may be made to this very address, whatever its spelling.
    pub fn admits_address(&self, allowed: &Allowed, address: IpAddr) -> Result<(), Denied> {
        let address = canonical(address);
        let class = Class::of(address);
        let given = match &allowed.destination {
            Destination::Name(name) => self
                .hosts
                .get(name)
                .is_some_and(|list| list.contains(&address)),
            Destination::Address(_) => false,
        };
        if allowed
            .endpoints
            .iter()
            .any(|endpoint| admits(endpoint, address, class, given))
        {
            return Ok(());
        }
        let reason = match class {
            Class::Loopback | Class::Public | Class::Private if restricted(allowed) => {
                Reason::AddressNotListed
            }
            Class::Private => Reason::AddressPrivate,
            Class::Public
            | Class::Loopback
            | Class::LinkLocal
            | Class::Metadata
            | Class::Multicast
            | Class::Unspecified
            | Class::Broadcast
            | Class::Reserved => Reason::AddressRefused,
        };
        let hint = hint::for_address(allowed, address, class, reason);
        Err(Denied {
            reason,
            nearest: Some(allowed.rule.clone()),
            hint,
        })
    }

    /// The endpoints that match in port and program, or how close the others came.
    fn weigh<'s>(
        &self,
        slots: impl Iterator<Item = &'s Slot>,
        request: &Request<'_>,
    ) -> Result<Allowed, Miss<'s>> {
        let mut miss = Miss::Host;
        let mut first = None;
        let mut endpoints = Vec::new();
        for slot in slots {
            if !slot.endpoint.ports.contains(request.port) {
                miss = miss.or(Miss::Port(slot));
            } else if !self.rules[slot.rule].is_for(request.identity) {
                miss = miss.or(Miss::Binary(slot));
            } else {
                first = first.or(Some(slot));
                endpoints.push(Arc::clone(&slot.endpoint));
            }
        }
        let Some(slot) = first else { return Err(miss) };
        Ok(Allowed {
            rule: self.rules[slot.rule].name.clone(),
            enforcement: slot.endpoint.enforcement,
            destination: request.destination.clone(),
            endpoints,
        })
    }

    fn deny(&self, request: &Request<'_>, miss: Miss<'_>) -> Denied {
        let (reason, slot) = match (miss, request.identity) {
            (Miss::Host, _) => return self.deny_host(request),
            (Miss::Port(slot), _) => (Reason::PortNotAllowed, slot),
            (Miss::Binary(slot), Identity::Observed { .. }) => (Reason::BinaryNotAllowed, slot),
            (Miss::Binary(slot), Identity::Unobservable) => (Reason::IdentityUnobservable, slot),
        };
        let rule = &self.rules[slot.rule];
        let hint = hint::for_rule(rule, &slot.endpoint, request, reason);
        Denied {
            reason,
            nearest: Some(rule.name.clone()),
            hint,
        }
    }

    fn deny_host(&self, request: &Request<'_>) -> Denied {
        if let Destination::Address(address) = request.destination {
            let address = canonical(address);
            let class = Class::of(address);
            if is_synthetic(address) {
                let hint = format!(
                    "{address} stands for no name that was looked up in this sandbox: look it up again"
                );
                return Denied {
                    reason: Reason::HostNotAllowed,
                    nearest: None,
                    hint,
                };
            }
            if class.is_refused_always() {
                let hint = hint::for_refused(address, class);
                return Denied {
                    reason: Reason::AddressRefused,
                    nearest: None,
                    hint,
                };
            }
        }
        let nearest = match &request.destination {
            Destination::Name(name) => self.index.nearest(name),
            Destination::Address(_) => None,
        };
        let nearest = nearest.map(|slot| (&self.rules[slot.rule], &*slot.endpoint));
        let hint = hint::for_host(nearest, request);
        Denied {
            reason: Reason::HostNotAllowed,
            nearest: nearest.map(|(rule, _)| rule.name.clone()),
            hint,
        }
    }
}

/// How close the rules came; the later ones are closer.
#[derive(Clone, Copy)]
enum Miss<'s> {
    Host,
    Port(&'s Slot),
    Binary(&'s Slot),
}

impl Miss<'_> {
    /// The closer of both, the earlier one if they are as close.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Host, _) | (Self::Port(_), Self::Binary(_)) => other,
            (Self::Port(_) | Self::Binary(_), _) => self,
        }
    }
}

/// Whether `endpoint` lets its connections go to `address`. `given`: the policy itself gives it to the name.
fn admits(endpoint: &Endpoint, address: IpAddr, class: Class, given: bool) -> bool {
    let listed = endpoint.lists(address);
    if !endpoint.allowed_ips.is_empty() && !listed {
        return false;
    }
    match class {
        Class::Public => true,
        Class::Private => listed || given || endpoint.is_exact(),
        Class::Loopback => listed || given,
        Class::LinkLocal
        | Class::Metadata
        | Class::Multicast
        | Class::Unspecified
        | Class::Broadcast
        | Class::Reserved => false,
    }
}

/// Whether all of its endpoints list addresses.
fn restricted(allowed: &Allowed) -> bool {
    allowed
        .endpoints
        .iter()
        .all(|endpoint| !endpoint.allowed_ips.is_empty())
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
