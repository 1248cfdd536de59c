//! What a sandbox may do: the policy document, its validation and its judge.
//!
//! Nothing here touches a file, a socket or a clock. [`Policy::parse`] makes a [`Policy`] of a text or says everything
//! that is wrong with it; [`Policy::judge`] answers whether a connection may be made, and [`Policy::admits_address`]
//! whether it may go to the address that its name turned out to have.
//!
//! The invariant: whatever no rule names is denied, and a rule that could never take effect is no policy.

mod address;
mod cidr;
mod document;
mod expand;
mod explain;
mod filesystem;
mod glob;
mod hint;
mod host;
mod index;
mod judge;
#[cfg(test)]
mod manual;
mod name;
mod network;
mod policy;
mod problem;
mod process;
mod request;
mod resolver;
mod rule;
#[cfg(test)]
mod sample;
mod verdict;

pub use address::{Class, canonical, is_synthetic};
pub use cidr::{BadCidr, Cidr};
pub use explain::{Considered, Explanation, Judged};
pub use filesystem::{Compatibility, Filesystem};
pub use glob::{BadGlob, Glob};
pub use host::{Host, Wildcard};
pub use name::{BadName, Fault, Name};
pub use network::{DEFAULT_PORT, MOST_PORTS};
pub use policy::{Captured, OnLinkLoss, Policy};
pub use problem::{Invalid, Problem};
pub use process::{Account, Limits, Process};
pub use request::{Destination, Identity, Request};
pub use rule::{Endpoint, Enforcement, Ports, Rule};
pub use verdict::{Allowed, Denied, Reason, Verdict};
