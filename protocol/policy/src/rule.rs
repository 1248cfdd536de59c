//! The network rules: which programs may reach which endpoints.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;

use crate::cidr::Cidr;
use crate::glob::Glob;
use crate::host::Host;
use crate::request::Identity;

/// One entry of `network_policies`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its key in the policy.
    pub key: String,
    /// What records call it: its `name`, or else the key.
    pub name: String,
    /// At least one, in the order of the document.
    pub endpoints: Vec<Arc<Endpoint>>,
    /// The programs that it is for; `None` is every program, even one that cannot be observed.
    pub binaries: Option<Vec<Glob>>,
    /// The files that its binaries turned out to be links to.
    pub(crate) link_targets: Vec<String>,
}

/// Hosts and ports that may be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Which hosts.
    pub host: Host,
    /// Which TCP ports.
    pub ports: Ports,
    /// Where its addresses have to lie; empty is anywhere that is public.
    pub allowed_ips: Vec<Cidr>,
    /// Whether its connections are marked in the record.
    pub enforcement: Enforcement,
}

/// TCP ports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ports {
    /// `"*"`
    Any,
    /// These.
    Listed(BTreeSet<u16>),
}

/// What `enforcement` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// The usual.
    #[default]
    Enforce,
    /// The connection is allowed and marked for a look.
    Audit,
}

impl Rule {
    /// Whether the rule is for this program, or says so little that it is for every one.
    pub fn is_for(&self, identity: &Identity) -> bool {
        match (&self.binaries, identity) {
            (None, _) => true,
            (Some(_), Identity::Unobservable) => false,
            (
                Some(globs),
                Identity::Observed {
                    executable,
                    ancestors,
                },
            ) => {
                let is_one = |path: &String| {
                    globs.iter().any(|glob| glob.matches(path)) || self.link_targets.contains(path)
                };
                is_one(executable) || ancestors.iter().any(is_one)
            }
        }
    }
}

impl Endpoint {
    /// Whether `allowed_ips` names the canonical `address`.
    pub fn lists(&self, address: IpAddr) -> bool {
        self.allowed_ips.iter().any(|range| range.contains(address))
    }

    /// The addresses that it is for as such, and not by a name.
    pub fn addresses(&self) -> Vec<Cidr> {
        match self.host {
            Host::Address(address) if self.lists(address) => vec![Cidr::host(address)],
            Host::Addresses => self.allowed_ips.clone(),
            Host::Address(_) | Host::Exact(_) | Host::Wildcard(_) => Vec::new(),
        }
    }

    /// Whether the host is written without a wildcard.
    pub fn is_exact(&self) -> bool {
        match self.host {
            Host::Exact(_) | Host::Address(_) => true,
            Host::Wildcard(_) | Host::Addresses => false,
        }
    }
}

impl Ports {
    /// Whether `port` is one of them.
    pub fn contains(&self, port: u16) -> bool {
        match self {
            Self::Any => port != 0,
            Self::Listed(ports) => ports.contains(&port),
        }
    }

    /// Those that are written one by one.
    pub(crate) fn listed(&self) -> impl Iterator<Item = u16> {
        let listed = match self {
            Self::Any => None,
            Self::Listed(ports) => Some(ports),
        };
        listed.into_iter().flatten().copied()
    }

    /// The lowest port that is in both.
    pub(crate) fn shared(&self, other: &Self) -> Option<u16> {
        match (self, other) {
            (Self::Any, Self::Any) => Some(1),
            (Self::Any, Self::Listed(ports)) | (Self::Listed(ports), Self::Any) => {
                ports.first().copied()
            }
            (Self::Listed(a), Self::Listed(b)) => a.intersection(b).next().copied(),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Listed(ports) => {
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                f.write_str(&ports.join(", "))
            }
        }
    }
}

impl Enforcement {
    /// As it is written in a policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Audit => "audit",
        }
    }
}
