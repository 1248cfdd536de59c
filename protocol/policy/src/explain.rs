//! Shows how a verdict comes about: what was asked, which endpoints were compared, and where each differs.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use crate::address::{Class, canonical};
use crate::policy::Policy;
use crate::request::{Destination, Request};
use crate::rule::{Endpoint, Enforcement, Rule};
use crate::verdict::{Allowed, Denied, Verdict};

/// One request, its verdict and the reasons for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The destination in the form in which it was compared.
    pub host: Destination,
    /// TCP port.
    pub port: u16,
    /// The program, if it is known.
    pub binary: Option<String>,
    /// What comes of it: a host that is allowed, and at none of whose known addresses a connection may be made, is denied.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// What the policy itself says about the addresses of the host.
    pub addresses: Vec<Judged>,
    /// The endpoints for this host, in the order in which they count.
    pub considered: Vec<Considered>,
}

/// An address that the policy gives to a name, or that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// In canonical form.
    pub address: IpAddr,
    /// What it is for.
    pub class: Class,
    /// Whether a connection could go there; `None` if there is none in the first place.
    pub denied: Option<Denied>,
}

/// One endpoint that is for the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Considered {
    /// The name of its rule.
    pub rule: String,
    /// Its host as the policy writes it.
    pub host: String,
    /// Its ports.
    pub ports: String,
    /// Whether the port is one of them.
    pub port_matches: bool,
    /// The programs of its rule; empty is every program.
    pub binaries: Vec<String>,
    /// Whether the program is one of them.
    pub binary_matches: bool,
}

impl Policy {
    /// Judges a request and says how the verdict comes about.
    pub fn explain(&self, request: &Request<'_>) -> Explanation {
        let host = match &request.destination {
            Destination::Name(name) => Destination::Name(name.clone()),
            Destination::Address(address) => Destination::Address(canonical(*address)),
        };
        let judged = self.judge(request);
        let addresses = match &host {
            Destination::Name(name) => self.hosts.get(name).cloned().unwrap_or_default(),
            Destination::Address(address) => vec![*address],
        };
        let denied = |address| match &judged {
            Verdict::Allowed(allowed) => self.admits_address(allowed, address).err(),
            Verdict::Denied(_) => None,
        };
        let addresses: Vec<Judged> = addresses
            .into_iter()
            .map(|address| Judged {
                address,
                class: Class::of(address),
                denied: denied(address),
            })
            .collect();
        let verdict = settled(judged, &addresses);
        let slots: Vec<_> = match &host {
            Destination::Name(name) => self.index.by_name(name).collect(),
            Destination::Address(address) => self.index.by_address(*address).collect(),
        };
        let considered = slots
            .into_iter()
            .map(|slot| consider(&self.rules[slot.rule], &slot.endpoint, request))
            .collect();
        let binary = request.identity.executable().map(str::to_owned);
        Explanation {
            host,
            port: request.port,
            binary,
            verdict,
            addresses,
            considered,
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = self
            .binary
            .as_deref()
            .unwrap_or("a program that cannot be observed");
        write!(f, "{} port {} by {binary}: ", self.host, self.port)?;
        match &self.verdict {
            Verdict::Allowed(Allowed {
                rule,
                enforcement: Enforcement::Enforce,
                ..
            }) => {
                writeln!(f, "allowed by rule `{rule}`")?;
            }
            Verdict::Allowed(Allowed {
                rule,
                enforcement: Enforcement::Audit,
                ..
            }) => {
                writeln!(f, "allowed by rule `{rule}`, marked for audit")?;
            }
            Verdict::Denied(Denied {
                reason,
                nearest,
                hint,
            }) => {
                writeln!(f, "denied ({reason})")?;
                if let Some(nearest) = nearest {
                    writeln!(f, "  nearest rule: {nearest}")?;
                }
                writeln!(f, "  hint: {hint}")?;
            }
        }
        for judged in &self.addresses {
            write!(f, "  address {} ({})", judged.address, judged.class)?;
            match &judged.denied {
                Some(denied) => writeln!(f, ": denied ({}); {}", denied.reason, denied.hint)?,
                None => writeln!(f)?,
            }
        }
        for entry in &self.considered {
            writeln!(f, "  compared with {entry}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Considered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tick = |matches| if matches { "matches" } else { "differs" };
        write!(f, "rule `{}`: host {} matches", self.rule, self.host)?;
        write!(f, ", port {} {}", self.ports, tick(self.port_matches))?;
        let binaries = if self.binaries.is_empty() {
            "any".to_owned()
        } else {
            self.binaries.join(", ")
        };
        write!(f, ", binary {binaries} {}", tick(self.binary_matches))
    }
}

/// The verdict on the host, or that on its first address where each of them is denied.
fn settled(verdict: Verdict, addresses: &[Judged]) -> Verdict {
    let denied: Option<Vec<&Denied>> = addresses.iter().map(|a| a.denied.as_ref()).collect();
    match denied.as_deref() {
        Some([first, ..]) => Verdict::Denied((*first).clone()),
        Some([]) | None => verdict,
    }
}

fn consider(rule: &Rule, endpoint: &Endpoint, request: &Request<'_>) -> Considered {
    Considered {
        rule: rule.name.clone(),
        host: endpoint.host.to_string(),
        ports: endpoint.ports.to_string(),
        port_matches: endpoint.ports.contains(request.port),
        binaries: rule
            .binaries
            .iter()
            .flatten()
            .map(ToString::to_string)
            .collect(),
        binary_matches: rule.is_for(request.identity),
    }
}

#[cfg(test)]
mod tests;
