//! What a policy answers.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::request::Destination;
use crate::rule::{Endpoint, Enforcement};

/// Whether a connection may be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// It may, to an address that [`crate::Policy::admits_address`] admits.
    Allowed(Allowed),
    /// It may not.
    Denied(Denied),
}

/// A connection that may be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Allowed {
    /// The rule that allows it.
    pub rule: String,
    /// Whether it is marked for a look.
    pub enforcement: Enforcement,
    #[serde(skip)]
    pub(crate) destination: Destination,
    /// The endpoints that match, each with its own say about addresses.
    #[serde(skip)]
    pub(crate) endpoints: Vec<Arc<Endpoint>>,
}

/// A connection that may not be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Denied {
    /// Why.
    pub reason: Reason,
    /// The rule that came closest to allowing it.
    pub nearest: Option<String>,
    /// What to write to allow it, in one sentence; or why nothing can be written.
    pub hint: String,
}

/// Why a connection may not be made. The names are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// No rule is for this host.
    HostNotAllowed,
    /// A rule is for this host, but none for this port of it.
    PortNotAllowed,
    /// A rule is for this host and port, but none for this program.
    BinaryNotAllowed,
    /// A rule is for this host and port, but it names programs, and this one cannot be observed.
    IdentityUnobservable,
    /// The address is of a class that is never reachable.
    AddressRefused,
    /// The address is private, and the rule neither writes the host exactly nor lists the address.
    AddressPrivate,
    /// The rule lists addresses, and this is none of them.
    AddressNotListed,
}

impl Verdict {
    /// Whether it is allowed.
    pub fn is_allowed(&self) -> bool {
        match self {
            Self::Allowed(_) => true,
            Self::Denied(_) => false,
        }
    }
}

impl Allowed {
    /// Where the connection goes.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }
}

impl Reason {
    /// As it stands in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HostNotAllowed => "host_not_allowed",
            Self::PortNotAllowed => "port_not_allowed",
            Self::BinaryNotAllowed => "binary_not_allowed",
            Self::IdentityUnobservable => "identity_unobservable",
            Self::AddressRefused => "address_refused",
            Self::AddressPrivate => "address_private",
            Self::AddressNotListed => "address_not_listed",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
