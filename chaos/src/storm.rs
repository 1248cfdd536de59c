//! Storms: seeded simulations of supervision trees in which everything fails that can.
//!
//! ```text
//!  seed ─▶ forest: a tree ─▶ world: obeys it, badly ─▶ history ─▶ checks: one invariant a file
//! ```
//!
//! A storm has no clock, no threads and no luck: the same seed gives the same history on every machine, so a seed that is
//! printed by a failing run is the whole bug report.

pub mod checks;
mod forest;
mod history;
mod weather;
mod world;

use std::fmt;

use holdfast_clock::Seed;
use holdfast_supervision::Supervisor;

pub use forest::grow;
pub use history::{Entry, Fact, History};
pub use weather::Weather;
pub use world::World;

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub check: &'static str,
    /// What was seen, and when.
    pub what: String,
}

/// What came of one storm.
#[derive(Debug)]
pub struct Storm {
    /// The tree that stood in it.
    pub spec: Supervisor,
    /// All that happened.
    pub history: History,
    /// What should not have.
    pub violations: Vec<Violation>,
}

/// Runs the storm of this seed.
pub fn storm(seed: Seed) -> Storm {
    let spec = grow(seed.derive("forest"));
    run(spec, Weather::of(seed.derive("weather")), seed)
}

/// Runs a storm over this tree in this weather.
pub fn run(spec: Supervisor, weather: Weather, seed: Seed) -> Storm {
    let history = World::new(&spec, weather, seed).run();
    let violations = checks::all(&spec, &history);
    Storm {
        spec,
        history,
        violations,
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.check, self.what)
    }
}
