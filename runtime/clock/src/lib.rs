//! Time and chance as arguments: whoever asks for them can be tested without waiting or luck.
//!
//! This is the one home of the machine's clocks. A [`Clock`] is made once, at the top of a process, and handed
//! down; pure code gets a [`Moment`] per call. Chance works alike: one [`Seed`] per process, and every part
//! derives its own from its path, so that what one part draws never shifts what another sees.

mod chance;
mod clock;
mod moment;

pub use chance::{Dice, Seed};
#[cfg(feature = "tokio")]
pub use clock::every;
pub use clock::{Clock, ManualClock};
pub use moment::Moment;
