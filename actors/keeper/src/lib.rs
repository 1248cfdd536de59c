//! The trusted half of a sandbox: policy, names, egress, sessions, health.

pub mod egress;
pub mod resolver;
