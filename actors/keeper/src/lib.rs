//! The trusted half of a sandbox: policy, names, egress, sessions, health.

mod arrivals;
mod capture;
pub mod egress;
pub mod keeper;
pub mod link;
pub mod resolver;
pub mod sessions;
mod tree;

pub use arrivals::Unbuilt;
pub use keeper::{Arguments, Keeper};
