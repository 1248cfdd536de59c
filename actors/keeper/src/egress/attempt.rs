//! What is said about one attempt to connect: who, where to, what was judged, what came of it.

use holdfast_policy::{Allowed, Denied, Destination, Identity, Name};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;

/// Names one attempt, or one dial of it, for the lifetime of the keeper. Never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Serial(pub(super) u64);

/// `SO_COOKIE` of the workload's socket: the kernel never gives one out again.
pub type Cookie = NonZeroU64;

/// The kernel's id of a `connect()` that waits for an answer.
pub type Call = u64;

/// Who connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// What the policy judges.
    pub identity: Identity,
    /// Thread-group leader in the sandbox's outer pid namespace; unknown when only the connection was seen.
    pub pid: Option<u32>,
}

impl Caller {
    /// Nobody that could be looked at.
    pub const UNKNOWN: Caller = Caller {
        identity: Identity::Unobservable,
        pid: None,
    };
}

/// A destination, what it stands for, and what the policy says of it.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// The name that a synthetic address was given to; any other address stands for itself.
    pub target: Destination,
    /// The policy's word.
    pub ruling: Ruling,
}

/// What the policy says.
#[derive(Debug, Clone)]
pub enum Ruling {
    /// It may be dialled, as far as the address it resolves to is admitted.
    Allowed(Grant),
    /// It may not.
    Denied(Denied),
}

/// The permission that a dial is made under.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The rule.
    pub allowed: Allowed,
    /// The port is captured only when somebody asks for it: its listener may not stand yet.
    pub on_demand: bool,
}

/// The name, if it is one.
pub(super) fn name_of(target: &Destination) -> Option<Name> {
    match target {
        Destination::Name(name) => Some(name.clone()),
        Destination::Address(_) => None,
    }
}

/// Judges a destination. Pure: the same question has the same answer until the policy is revised.
pub trait Judge {
    /// May this caller connect there?
    fn judge(&self, destination: SocketAddr, identity: &Identity) -> Judgement;

    /// May a connection under this grant lead to this address?
    fn admits(&self, grant: &Grant, address: IpAddr) -> Result<(), Denied>;
}

/// Why a dial brought no connection.
#[derive(Debug, Clone)]
pub enum Failure {
    /// The kernel's, or the one that a failed resolution is told as.
    Errno(i32),
    /// The address that the name stands for may not be reached.
    Denied(Denied),
    /// It is one of the runtime's own listeners.
    Own,
}

/// Why an allowed connect cannot arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unheard {
    /// What the caller is told.
    pub errno: i32,
    /// What stands in the way, for people.
    pub detail: String,
}

impl Failure {
    /// What the caller is told.
    pub fn errno(&self) -> i32 {
        match self {
            Failure::Errno(errno) => *errno,
            Failure::Denied(_) | Failure::Own => libc::EACCES,
        }
    }
}

impl From<Failure> for Fate {
    fn from(failure: Failure) -> Fate {
        match failure {
            Failure::Errno(errno) => Fate::Failed(errno),
            Failure::Denied(denied) => Fate::Denied(denied),
            Failure::Own => Fate::Own,
        }
    }
}

/// How an attempt ended. Each attempt has exactly one.
#[derive(Debug, Clone)]
pub enum Fate {
    /// Refused by the policy: nothing was dialled, or nothing more.
    Denied(Denied),
    /// Refused: it leads to one of the runtime's own listeners.
    Own,
    /// Relayed to this address.
    Connected(SocketAddr),
    /// Allowed, but the upstream could not be reached.
    Failed(i32),
    /// Allowed, but no connection came: the caller was interrupted, or left.
    Abandoned,
    /// Allowed, but no connection can come: nobody can listen where it leads.
    Unheard(Unheard),
    /// Allowed and dialled by a keeper that was killed before it could tell.
    Unknown,
    /// Too many attempts are pending.
    Crowded,
    /// There is no room for the audit record that an allowance would need.
    Unrecorded,
    /// It was open, and a later revision of the policy denies it.
    Withdrawn(Denied),
}

/// One attempt in full, at its end.
#[derive(Debug, Clone)]
pub struct Report {
    /// Who.
    pub caller: Caller,
    /// Where to: what the kernel said, or the caller's word if no connection came. `None`: the caller could not be read and never came.
    pub destination: Option<SocketAddr>,
    /// The name, if the address stands for one.
    pub host: Option<Name>,
    /// The rule that allowed it.
    pub allowed: Option<Allowed>,
    /// How it ended.
    pub fate: Fate,
}
