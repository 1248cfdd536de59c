//! The trusted half of a sandbox: policy, names, egress, sessions, health.

mod arrivals;
pub mod board;
mod canary;
mod capture;
mod coverage;
pub mod egress;
pub mod health;
pub mod keeper;
mod lasting;
pub mod link;
pub mod pressure;
pub mod resolver;
mod rulebook;
pub mod sentinel;
mod service;
pub mod sessions;
pub mod status;
mod tree;
mod trees;
mod uplink;
mod workload;
mod works;

pub use arrivals::Unbuilt;
pub use keeper::Keeper;
pub use lasting::{Assignment, Lasting, Over};
pub use rulebook::{Read, Unread};
pub use sessions::errand::Home;
pub use works::{Arguments, Held, Tenure};
