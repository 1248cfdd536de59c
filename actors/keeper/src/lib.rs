//! The trusted half of a sandbox: policy, names, egress, sessions, health.

pub mod resolver;
