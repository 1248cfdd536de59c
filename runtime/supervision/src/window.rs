//! Restarts in a sliding window.

use std::collections::VecDeque;

use holdfast_clock::Moment;

use crate::Intensity;

/// The moments of the latest restarts, never more than the intensity allows.
///
/// A restart is claimed when it is decided and made when it is carried out, which backoff may put much later.
/// Claims count like restarts made, so that no window ever holds too many of either.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    made: VecDeque<Moment>,
}

impl Window {
    /// Whether one more restart fits, beside those of the window that ends now and `claimed` ones to come.
    pub(crate) fn admits(&mut self, limit: Intensity, claimed: usize, now: Moment) -> bool {
        let Intensity::AtMost { restarts, within } = limit else {
            return true;
        };
        while self.made.front().is_some_and(|&made| now - made >= within) {
            self.made.pop_front();
        }
        self.made.len() + claimed < restarts as usize
    }

    /// A restart is made now.
    pub(crate) fn note(&mut self, limit: Intensity, now: Moment) {
        if limit != Intensity::Unlimited {
            self.made.push_back(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_restart_leaves_the_window_when_it_is_as_old_as_the_window_is_long() {
        let limit = Intensity::at_most(2, Duration::from_secs(10));
        let at = |seconds| Moment::ORIGIN + Duration::from_secs(seconds);
        let mut window = Window::default();
        for second in [0, 5] {
            assert!(window.admits(limit, 0, at(second)));
            window.note(limit, at(second));
        }
        assert!(!window.admits(limit, 0, at(9)));
        assert!(window.admits(limit, 0, at(10)));
        assert!(
            !window.admits(limit, 1, at(10)),
            "a claim counts like a restart"
        );
    }
}
