//! The trusted half of a sandbox: policy, names, egress, sessions, health.

mod arrivals;
pub mod board;
mod canary;
mod capture;
pub mod egress;
pub mod health;
pub mod keeper;
pub mod link;
pub mod pressure;
pub mod resolver;
mod rulebook;
pub mod sentinel;
pub mod sessions;
pub mod status;
mod tree;
mod uplink;
mod works;

pub use arrivals::Unbuilt;
pub use keeper::Keeper;
pub use works::{Arguments, Held, Tenure};
