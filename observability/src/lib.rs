//! What can be seen: audit records, races, logs.
//!
//! ```text
//! a decision      -> Record -> Audit     one JSON line per verdict
//! a harmless race -> Races               counted, one summary line per minute
//! anything else   -> exhausted! transport! fault!   a log line whose level follows from its class
//! ```
//!
//! Nothing here waits for a reader: every buffer is bounded, and what does not fit is counted. Only what a file is told is
//! written by the one who reports.

mod audit;
mod class;
mod decision;
mod limiter;
mod log;
mod races;
mod record;
mod rotating;

pub use audit::{Audit, Place, Slot, Tally, Unopened, Unwritten};
pub use class::Class;
pub use decision::{Decision, Malformed};
pub use limiter::Limiter;
pub use log::{Format, Journal, Level};
pub use races::Races;
pub use record::{Activity, Record, Ruling, written};
pub use rotating::{MOST_LOGGED, Rotating, older};

#[doc(hidden)]
pub use tracing as __tracing;
