//! What the black-box tests share: the real binary, the people who run it, the servers it talks to, and the traces it may not leave.
//!
//! ```text
//! callers() ── who runs it: root and an ordinary user, or only the one we are
//!    └ Area ── a directory of the caller's own: work, home, runtime, state
//!        └ Run ── policy, arguments, input ─▶ Running ─▶ Finished: exit, output, audit records
//! stat, leaks ── what processes are there, how they stand, what they hold
//! servers ── HTTP, HTTPS, TCP that echoes, half-closes, stays silent or refuses, git, DNS; each counts who came
//! daemon ── a gateway of the test's own, and a client of it
//! visit ── one session through a gateway
//! root ── a root of the test's own, which lacks a resolv.conf
//! probe ── one C program with every attempt to get out
//! ```
//!
//! Everything has a deadline; nothing sleeps for luck.

pub mod area;
pub mod artefacts;
pub mod caller;
pub mod daemon;
pub mod finished;
mod gathered;
pub mod host;
pub mod keeping;
pub mod leaks;
pub mod limit;
pub mod policy;
pub mod probe;
pub mod record;
pub mod root;
pub mod run;
pub mod seed;
pub mod servers;
pub mod skip;
pub mod stat;
pub mod status;
pub mod terminal;
pub mod victim;
pub mod visit;
pub mod wait;
pub mod watcher;

pub use area::{Area, everyone};
pub use caller::{Caller, callers};
pub use finished::Finished;
pub use host::Host;
pub use policy::Policy;
pub use record::Record;
pub use run::{Run, Running};
