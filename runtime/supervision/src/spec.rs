//! What a tree is made of, as values.

use std::time::Duration;

use holdfast_clock::Dice;

/// A supervisor and all that stands under it.
///
/// A supervisor under another is one of its children: permanent, and failed when it gives up.
#[derive(Clone, Debug, PartialEq)]
pub struct Supervisor {
    /// Its name among its siblings.
    pub id: String,
    /// Who falls with whom.
    pub strategy: Strategy,
    /// How many restarts it may make before it gives up.
    pub intensity: Intensity,
    /// How its parent paces its restarts.
    pub backoff: Backoff,
    /// Whom it watches, in the order in which they start. A dynamic supervisor begins with none.
    pub children: Vec<Node>,
}

/// What can stand under a supervisor.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A child that does the work.
    Child(Child),
    /// A supervisor with children of its own.
    Supervisor(Supervisor),
}

/// Who falls with whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Each for itself. The first starts are made one after the other; one that waits for another try holds up
    /// nobody.
    OneForOne,
    /// All fall with any of them.
    OneForAll,
    /// What stands later falls with what stands before it.
    RestForOne,
    /// Each for itself, added and removed while it runs. Its shutdown stops all at once. What it had when it
    /// fell is forgotten: whoever added it adds it again.
    Dynamic {
        /// How many it may have at a time.
        most: usize,
    },
}

/// A child as its supervisor knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// Its name among its siblings.
    pub id: String,
    /// When it is started again.
    pub restart: Restart,
    /// How long its start may take; then it is killed, which counts as a failed start.
    pub start: Duration,
    /// How long it may take to stop; then it is killed.
    pub shutdown: Duration,
    /// How its restarts are paced.
    pub backoff: Backoff,
    /// How soon it is found when it does not answer any more. It may think half of this time undisturbed.
    pub ping: Duration,
}

/// When a child is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Always.
    Permanent,
    /// When it failed, not when it ended.
    Transient,
    /// Never.
    Temporary,
}

/// How many restarts a supervisor may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intensity {
    /// No more than so many in any window of this length.
    AtMost {
        /// So many.
        restarts: u32,
        /// In so long.
        within: Duration,
    },
    /// As many as it takes. For what may fail for ever without harm; its backoff is the only limit.
    Unlimited,
}

/// How restarts are paced: a delay drawn evenly between the least and a bound that grows with each failure in a row
/// (full jitter, so that those who fell together do not come back together).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// No delay is shorter.
    pub min: Duration,
    /// No delay is longer.
    pub max: Duration,
    /// What the bound grows by with each failure in a row. After the first it is this many times the least delay.
    pub factor: f64,
    /// A child that was up for so long is taken to be cured: its next failure is a first one.
    pub reset_after: Duration,
}

impl Supervisor {
    /// A supervisor without children yet, with 3 restarts in 60 s.
    pub fn new(id: &str, strategy: Strategy) -> Self {
        Self {
            id: id.to_owned(),
            strategy,
            intensity: Intensity::at_most(3, Duration::from_mins(1)),
            backoff: Backoff::default(),
            children: Vec::new(),
        }
    }

    /// A supervisor of at most so many children, added and removed while it runs.
    pub fn dynamic(id: &str, most: usize) -> Self {
        Self::new(id, Strategy::Dynamic { most })
    }

    /// The same with this intensity.
    #[must_use]
    pub fn intensity(self, restarts: u32, within: Duration) -> Self {
        Self {
            intensity: Intensity::at_most(restarts, within),
            ..self
        }
    }

    /// The same without a limit to its restarts.
    #[must_use]
    pub fn unlimited(self) -> Self {
        Self {
            intensity: Intensity::Unlimited,
            ..self
        }
    }

    /// The same, restarted by its own parent at this pace.
    #[must_use]
    pub fn backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }

    /// The same with this child after the others.
    #[must_use]
    pub fn child(mut self, child: Child) -> Self {
        self.children.push(Node::Child(child));
        self
    }

    /// The same with this supervisor after the others.
    #[must_use]
    pub fn supervisor(mut self, supervisor: Self) -> Self {
        self.children.push(Node::Supervisor(supervisor));
        self
    }
}

impl Strategy {
    /// Its word in a drawing.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OneForOne => "OneForOne",
            Self::OneForAll => "OneForAll",
            Self::RestForOne => "RestForOne",
            Self::Dynamic { .. } => "Dynamic",
        }
    }
}

impl Node {
    /// Its name among its siblings.
    pub fn id(&self) -> &str {
        match self {
            Self::Child(child) => &child.id,
            Self::Supervisor(supervisor) => &supervisor.id,
        }
    }
}

impl Child {
    /// A child that is always started again.
    pub fn permanent(id: &str) -> Self {
        Self::new(id, Restart::Permanent)
    }

    /// A child that is started again when it failed.
    pub fn transient(id: &str) -> Self {
        Self::new(id, Restart::Transient)
    }

    /// A child that is never started again.
    pub fn temporary(id: &str) -> Self {
        Self::new(id, Restart::Temporary)
    }

    fn new(id: &str, restart: Restart) -> Self {
        Self {
            id: id.to_owned(),
            restart,
            start: Duration::from_secs(10),
            shutdown: Duration::from_secs(5),
            backoff: Backoff::default(),
            ping: Duration::from_secs(5),
        }
    }

    /// The same with this long to start.
    #[must_use]
    pub fn start(self, start: Duration) -> Self {
        Self { start, ..self }
    }

    /// The same with this long to stop.
    #[must_use]
    pub fn shutdown(self, shutdown: Duration) -> Self {
        Self { shutdown, ..self }
    }

    /// The same, restarted at this pace.
    #[must_use]
    pub fn backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }

    /// The same, found this soon when it is stuck.
    #[must_use]
    pub fn ping(self, ping: Duration) -> Self {
        Self { ping, ..self }
    }
}

impl Intensity {
    /// No more than so many restarts in any window of this length.
    pub const fn at_most(restarts: u32, within: Duration) -> Self {
        Self::AtMost { restarts, within }
    }
}

impl Backoff {
    /// Delays between these two, doubled with each failure in a row and reset after a minute.
    pub const fn between(min: Duration, max: Duration) -> Self {
        Self {
            min,
            max,
            factor: 2.0,
            reset_after: Duration::from_mins(1),
        }
    }

    /// The longest delay there can be after so many failures in a row before this one.
    pub fn bound(&self, failures: u32) -> Duration {
        let exponent = i32::try_from(failures.saturating_add(1)).unwrap_or(i32::MAX);
        let grown = self.min.as_secs_f64() * self.factor.powi(exponent);
        Duration::try_from_secs_f64(grown)
            .unwrap_or(self.max)
            .clamp(self.min, self.max.max(self.min))
    }

    /// The delay before the next try.
    pub fn delay(&self, failures: u32, dice: &mut Dice) -> Duration {
        dice.between(self.min, self.bound(failures))
    }
}

impl Default for Backoff {
    /// From 50 ms to 2 s.
    fn default() -> Self {
        Self::between(Duration::from_millis(50), Duration::from_secs(2))
    }
}

#[cfg(test)]
mod tests {
    use holdfast_clock::Seed;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_delay_is_never_shorter_than_the_least_nor_longer_than_the_most(
            min in 0u64..5_000, span in 0u64..100_000, factor in 1.0f64..10.0,
            failures in prop_oneof![0u32..20, any::<u32>()], seed: u64,
        ) {
            let min = Duration::from_millis(min);
            let max = min + Duration::from_millis(span);
            let backoff = Backoff { factor, ..Backoff::between(min, max) };
            let delay = backoff.delay(failures, &mut Seed::new(seed).dice());
            prop_assert!(min <= delay && delay <= max, "{delay:?}");
        }
    }

    #[test]
    fn the_bound_grows_with_each_failure_and_stops_at_the_most() {
        let backoff = Backoff::between(Duration::from_millis(50), Duration::from_secs(1));
        let bounds: Vec<_> = (0..7).map(|n| backoff.bound(n).as_millis()).collect();
        assert_eq!(bounds, [100, 200, 400, 800, 1000, 1000, 1000]);
        assert_eq!(backoff.bound(u32::MAX), Duration::from_secs(1));
    }

    #[test]
    fn those_who_fell_together_come_back_apart() {
        let backoff = Backoff::default();
        let seed = Seed::new(1);
        let mut delays: Vec<_> = (0..50)
            .map(|n| backoff.delay(5, &mut seed.derive(&n.to_string()).dice()))
            .collect();
        delays.sort();
        delays.dedup();
        assert_eq!(delays.len(), 50);
    }
}
