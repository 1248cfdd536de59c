//! The control plane of one host: which sandboxes there are, who keeps them, and how they stand.
//!
//! ```text
//! operators ── gRPC ──▶ api ──▶ roster ──▶ sandboxes: one actor each ──▶ registry ──▶ disk
//! probes ─── HTTP ──▶ http           │
//! keepers ── Uplink ──▶ api ─────────┘ each sandbox has a keeper, a process of its own, which outlives the gateway
//! ```
//!
//! Nothing that is acknowledged is lost, whenever the process is killed: it is on disk before it is acknowledged, and the
//! next gateway finds the living keepers again.

mod accept;
mod api;
mod clock;
mod dial;
mod directory;
mod gateway;
mod host;
mod http;
mod life;
mod lock;
mod logs;
mod notify;
mod places;
mod processes;
mod refused;
mod registry;
mod roster;
mod sandbox;
mod shortage;
mod standing;
mod tree;

pub use gateway::{Gateway, Settings, Tls, Unstarted};
pub use lock::Untaken;
pub use notify::{News, notify};
pub use places::{Misplaced, Places};
pub use registry::store::Unopened;

use gateway::chain;
