//! The launcher's signs of life: one is asked for with each beat, and the silence since it was asked is known.
//!
//! ```text
//!  Heard ── a beat: a ping is sent ──> Asked ── a pong ──> Heard
//!                                       └── a beat: the silence grows, nothing is sent
//! ```
//!
//! At most one ping is unanswered, so a launcher that stands still finds no heap of them, however long it was stopped. Nobody wants
//! to know between two beats, so nothing is woken then.

use std::time::Duration;

use holdfast_actor::{Clock, Moment};
use holdfast_kernel::Result;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::sessions::Sessions;
use crate::silence::Silence;

/// How long the launcher has been silent. Nobody is, before it has been asked.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    state: Mutex<State>,
    beaten: Notify,
}

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
    fn begin(&self) {
        self.state.lock().asked = false;
    }

    /// Time for another ping; false while one is unanswered.
    fn turn(&self, now: Moment) -> bool {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.asked, true) {
            state.silence.look(now);
            return false;
        }
        state.silence.heard(now);
        true
    }

    /// The launcher has answered.
    pub(crate) fn heard(&self) {
        self.state.lock().asked = false;
    }

    /// Since the question that it has not answered. Whoever wants to know has the next one asked.
    pub(crate) fn beat(&self, now: Moment) -> Duration {
        self.beaten.notify_one();
        self.silence(now)
    }

    fn silence(&self, now: Moment) -> Duration {
        let state = self.state.lock();
        if state.asked {
            state.silence.so_far(now)
        } else {
            Duration::ZERO
        }
    }
}

/// Asks the launcher for signs of life. Ends when it cannot be reached any more.
pub(crate) async fn feel(pulse: &Pulse, sessions: &Sessions, clock: &Clock) -> Result<()> {
    pulse.begin();
    loop {
        if pulse.turn(clock.now()) {
            sessions.ping().await?;
        }
        pulse.beaten.notified().await;
    }
}

/// What counts of the time between two looks: a little more than two beats are apart.
const MOST_AT_ONCE: Duration = Duration::from_millis(800);

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
    fn silence_is_counted_from_the_question_and_one_is_open() {
        let pulse = Pulse::default();
        assert_eq!(silence(&pulse, 9000), 0);
        pulse.begin();

        assert!(pulse.turn(at(0)));
        pulse.heard();
        assert_eq!(silence(&pulse, 700), 0, "it has answered");
        assert!(pulse.turn(at(700)));
        assert!(!pulse.turn(at(1400)));
        assert!(!pulse.turn(at(1600)));

        assert_eq!(silence(&pulse, 1700), 1000);
        pulse.heard();
        assert_eq!(silence(&pulse, 1701), 0);
        assert!(pulse.turn(at(2100)));
    }

    #[test]
    fn a_standstill_of_ones_own_is_not_the_launchers_silence() {
        let pulse = Pulse::default();
        pulse.begin();
        assert!(pulse.turn(at(0)));

        assert!(silence(&pulse, 9000) < 850);
    }

    #[test]
    fn one_who_asks_anew_does_not_wait_for_an_answer_to_another() {
        let pulse = Pulse::default();
        pulse.begin();
        assert!(pulse.turn(at(0)));

        pulse.begin();

        assert!(pulse.turn(at(700)));
        assert_eq!(silence(&pulse, 700), 0);
    }
}
