//! What a policy is asked: where to, and by whom.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::Serialize;

use crate::host::literal;
use crate::name::{BadName, Name};

/// A connection that somebody wants to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Where to.
    pub destination: Destination,
    /// TCP port.
    pub port: u16,
    /// By which program.
    pub identity: &'a Identity,
}

/// Where a connection goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum Destination {
    /// To a host that was looked up by name.
    Name(Name),
    /// To an address itself.
    Address(IpAddr),
}

/// Which program asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// Seen by the broker.
    Observed {
        /// The path of the program's file.
        executable: String,
        /// Those of its parent, its parent's parent, and so on.
        ancestors: Vec<String>,
    },
    /// The kernel does not let anybody look: the program's file is not readable, or it has made itself opaque.
    Unobservable,
}

impl Identity {
    /// The identity of a program without known ancestors.
    pub fn of(executable: &str) -> Self {
        Self::Observed {
            executable: executable.to_owned(),
            ancestors: Vec::new(),
        }
    }

    /// The path of the program's file, if it is known.
    pub fn executable(&self) -> Option<&str> {
        match self {
            Self::Observed { executable, .. } => Some(executable),
            Self::Unobservable => None,
        }
    }
}

impl FromStr for Destination {
    type Err = BadName;

    /// An address in plain form, IPv6 with or without brackets, or else a name.
    fn from_str(text: &str) -> Result<Self, BadName> {
        match literal(text) {
            Some(address) => Ok(Self::Address(address)),
            None => text.parse().map(Self::Name),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}
