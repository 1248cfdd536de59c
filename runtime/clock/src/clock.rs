//! Where moments come from.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::Moment;

/// Tells the time. Cheap to clone; all clones agree.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Manual(ManualClock),
    #[cfg(feature = "tokio")]
    Tokio,
}

impl Clock {
    /// The machine's monotonic clock.
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// The clock of the tokio runtime: the machine's own, except in a test that paused it
    /// (`tokio::time::pause`), where it moves as the test says.
    #[cfg(feature = "tokio")]
    pub const fn tokio() -> Self {
        Self(Source::Tokio)
    }

    /// The present moment.
    pub fn now(&self) -> Moment {
        match &self.0 {
            Source::System => Moment::after_origin(instant().saturating_duration_since(origin())),
            Source::Manual(clock) => clock.now(),
            #[cfg(feature = "tokio")]
            Source::Tokio => {
                Moment::after_origin(tokio_instant().saturating_duration_since(origin()))
            }
        }
    }

    /// The date, for people and records. It may jump; never subtract two of them.
    pub fn wall(&self) -> SystemTime {
        match &self.0 {
            Source::System => SystemTime::now(),
            Source::Manual(clock) => clock.wall(),
            #[cfg(feature = "tokio")]
            Source::Tokio => SystemTime::now(),
        }
    }

    /// The date at which it will be `moment`, in milliseconds since 1970.
    pub fn date_ms(&self, moment: Moment) -> i64 {
        let Some(date) = self.wall().checked_add(moment.since(self.now())) else {
            return i64::MAX;
        };
        let since = date.duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| {
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        })
    }
}

/// Ticks every `period`: at once, and then when whole periods have passed since this process began. So whatever has the same period, or a
/// multiple of it, is woken together, which costs an idle process one wake-up and not several. A tick that is missed is left out.
#[cfg(feature = "tokio")]
pub fn every(period: Duration) -> tokio::time::Interval {
    let since = tokio_instant().saturating_duration_since(origin());
    let into = since.as_nanos() % period.as_nanos().max(1);
    let into = Duration::from_nanos(u64::try_from(into).unwrap_or_default());
    let last = origin() + since.saturating_sub(into);
    let mut ticks = tokio::time::interval_at(last.into(), period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    ticks
}

/// A clock that moves only when told to. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<Hands>>);

#[derive(Debug)]
struct Hands {
    now: Moment,
    wall: SystemTime,
}

impl ManualClock {
    /// A clock that stands at [`Moment::ORIGIN`], on the first of January 1970.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Hands {
            now: Moment::ORIGIN,
            wall: SystemTime::UNIX_EPOCH,
        })))
    }

    /// What to hand to the code under test.
    pub fn clock(&self) -> Clock {
        Clock(Source::Manual(self.clone()))
    }

    /// Moves both the moment and the date forward.
    pub fn advance(&self, by: Duration) {
        self.with(|hands| {
            hands.now += by;
            hands.wall += by;
        });
    }

    /// Sets the date alone, as an administrator would.
    pub fn set_wall(&self, wall: SystemTime) {
        self.with(|hands| hands.wall = wall);
    }

    /// The moment it stands at.
    pub fn now(&self) -> Moment {
        self.with(|hands| hands.now)
    }

    /// The date it shows.
    pub fn wall(&self) -> SystemTime {
        self.with(|hands| hands.wall)
    }

    fn with<T>(&self, turn: impl FnOnce(&mut Hands) -> T) -> T {
        turn(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

/// One origin for the whole process, and for what it forks: `CLOCK_MONOTONIC` is the machine's, not the process's.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(instant)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that asks the machine for the time"
)]
fn instant() -> Instant {
    Instant::now()
}

#[cfg(feature = "tokio")]
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that asks the runtime for the time"
)]
fn tokio_instant() -> Instant {
    // The origin must not be later than a time that was read before it.
    origin();
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_clock_moves_forward() {
        let clock = Clock::system();
        let before = clock.now();
        while clock.now() == before {}
        assert!(clock.now() > before);
    }

    #[cfg(feature = "tokio")]
    #[test]
    fn what_has_the_same_period_is_due_at_the_same_moments_whenever_it_began() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let (short, long) = (Duration::from_millis(10), Duration::from_millis(20));
            let mut early = every(short);
            early.tick().await;
            early.tick().await;
            let mut late = every(long);

            let (one, other) = (early.tick().await, late.tick().await);

            let apart = one.max(other) - one.min(other);
            assert_eq!(apart.as_nanos() % short.as_nanos(), 0, "{apart:?}");
        });
    }

    #[test]
    fn a_manual_clock_stands_still_until_it_is_told() {
        let hand = ManualClock::new();
        let clock = hand.clock();
        assert_eq!(clock.now(), Moment::ORIGIN);
        hand.advance(Duration::from_secs(3));
        assert_eq!(clock.now() - Moment::ORIGIN, Duration::from_secs(3));
        assert_eq!(
            clock.wall(),
            SystemTime::UNIX_EPOCH + Duration::from_secs(3)
        );
    }

    #[test]
    fn a_jump_of_the_date_leaves_the_moment_alone() {
        let hand = ManualClock::new();
        hand.advance(Duration::from_secs(100));
        hand.set_wall(SystemTime::UNIX_EPOCH);
        assert_eq!(hand.now() - Moment::ORIGIN, Duration::from_secs(100));
        assert_eq!(hand.wall(), SystemTime::UNIX_EPOCH);
    }

    #[test]
    fn a_moment_to_come_has_a_date_and_a_past_one_is_now() {
        let hands = ManualClock::new();
        hands.advance(Duration::from_secs(7));
        let clock = hands.clock();

        assert_eq!(clock.date_ms(clock.now() + Duration::from_millis(5)), 7005);
        assert_eq!(clock.date_ms(Moment::ORIGIN), 7000);
        assert_eq!(clock.date_ms(Moment::NEVER), i64::MAX);
    }
}
