//! The commands about sandboxes that last: each asks the gateway, and prints what it answers.

pub(crate) mod attach;
pub(crate) mod copy;
pub(crate) mod create;
mod document;
pub(crate) mod exec;
pub(crate) mod forward;
pub(crate) mod life;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod sessions;
pub(crate) mod status;
pub(crate) mod tree;
pub(crate) mod wait;
pub(crate) mod why;
mod words;

pub(crate) use document::policy_state;
pub(crate) use life::look;

/// The message that names a sandbox and nothing else.
fn request(name: &str) -> holdfast_wire::v1::SandboxRequest {
    holdfast_wire::v1::SandboxRequest {
        sandbox: name.to_owned(),
    }
}
