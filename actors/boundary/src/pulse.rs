//! The launcher's signs of life: one is asked for every half second, and the silence since the last one is known.
//!
//! ```text
//!  Heard ── TURN: a ping is sent ──> Asked ── a pong ──> Heard
//!                                      └── TURN: the silence grows, nothing is sent
//! ```
//!
//! At most one ping is unanswered, so a launcher that stands still finds no heap of them, however long it was stopped.

use std::time::Duration;

use holdfast_actor::{Clock, Moment};
use holdfast_kernel::Result;
use parking_lot::Mutex;

use crate::sessions::Sessions;
use crate::silence::Silence;

/// How long the launcher has been silent. Nobody is, before it has been asked.
#[derive(Debug, Default)]
pub(crate) struct Pulse(Mutex<State>);

#[derive(Debug)]
struct State {
    silence: Silence,
    asked: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            silence: Silence::new(MOST_AT_ONCE),
            asked: false,
        }
    }
}

impl Pulse {
    /// Whoever asks does so for the first time: what was asked before may have been answered to nobody.
    fn begin(&self, now: Moment) {
        let mut state = self.0.lock();
        state.silence.begin(now);
        state.asked = false;
    }

    /// Time for another ping; false while one is unanswered.
    fn turn(&self, now: Moment) -> bool {
        let mut state = self.0.lock();
        state.silence.look(now);
        !std::mem::replace(&mut state.asked, true)
    }

    /// The launcher has answered.
    pub(crate) fn heard(&self, now: Moment) {
        let mut state = self.0.lock();
        state.silence.heard(now);
        state.asked = false;
    }

    /// Since its last sign of life.
    pub(crate) fn silence(&self, now: Moment) -> Duration {
        self.0.lock().silence.so_far(now)
    }
}

/// Asks the launcher for signs of life. Ends when it cannot be reached any more.
pub(crate) async fn feel(pulse: &Pulse, sessions: &Sessions, clock: &Clock) -> Result<()> {
    pulse.begin(clock.now());
    let mut ticks = tokio::time::interval(TURN);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if pulse.turn(clock.now()) {
            sessions.ping().await?;
        }
    }
}

/// Between two pings.
const TURN: Duration = Duration::from_millis(500);

/// What counts of the time between two looks.
const MOST_AT_ONCE: Duration = Duration::from_millis(600);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::after_origin(Duration::from_millis(millis))
    }

    fn silence(pulse: &Pulse, millis: u64) -> u128 {
        pulse.silence(at(millis)).as_millis()
    }

    #[test]
    fn silence_is_counted_from_the_last_answer_and_one_question_is_open() {
        let pulse = Pulse::default();
        assert_eq!(silence(&pulse, 9000), 0);
        pulse.begin(at(0));

        assert!(pulse.turn(at(0)));
        pulse.heard(at(1));
        assert!(pulse.turn(at(500)));
        assert!(!pulse.turn(at(1000)));
        assert!(!pulse.turn(at(1500)));

        assert_eq!(silence(&pulse, 1700), 1699);
        pulse.heard(at(1701));
        assert_eq!(silence(&pulse, 1701), 0);
        assert!(pulse.turn(at(2000)));
    }

    #[test]
    fn a_standstill_of_ones_own_is_not_the_launchers_silence() {
        let pulse = Pulse::default();
        pulse.begin(at(0));
        pulse.heard(at(1));
        assert!(pulse.turn(at(500)));

        assert!(silence(&pulse, 9000) < 1200);
    }

    #[test]
    fn one_who_asks_anew_does_not_wait_for_an_answer_to_another() {
        let pulse = Pulse::default();
        pulse.begin(at(0));
        assert!(pulse.turn(at(0)));

        pulse.begin(at(700));

        assert!(pulse.turn(at(700)));
        assert_eq!(silence(&pulse, 700), 600);
    }
}
