//! What can be seen: audit records, races, logs.
//!
//! ```text
//! a decision      -> Record -> Audit     one JSON line per verdict
//! a harmless race -> Races               counted, one summary line per minute
//! anything else   -> exhausted! transport! fault!   a log line whose level follows from its class
//! ```
//!
//! Nothing here blocks or slows the one who reports: every buffer is bounded, and what does not fit is counted.

mod audit;
mod class;
mod decision;
mod limiter;
mod log;
mod races;
mod record;
mod rotating;

pub use audit::{Audit, Slot, Tally, Unopened};
pub use class::Class;
pub use decision::{Decision, Malformed};
pub use limiter::Limiter;
pub use log::{Format, Journal, Level};
pub use races::Races;
pub use record::{Activity, Record, Ruling, written};
pub use rotating::{MOST_LOGGED, Rotating, older};

#[doc(hidden)]
pub use tracing as __tracing;
