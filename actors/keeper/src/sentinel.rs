//! What the canary asks for: a name and a port that lead nowhere but to the keeper itself.
//!
//! ```text
//!  expect ──> Expected ── asked ──> Asked ── announced ──> Announced ── arrives ──> Arrived: the word
//!     ▲                                                                                │
//!     └───────────────────────────── the next canary ◀─────────────────────────────────┘
//! ```
//!
//! The resolver answers the name whatever the policy says, the broker announces the connect, the listener accepts it, and the
//! desk gives the word that was agreed on instead of dialling: it leaves no record, for it is nobody's wish and leads
//! nowhere. Only a connection that was announced for the canary's own program, by the cookie of its socket, gets the word.
//! Whatever else asks for it is judged as if there were no sentinel.
//!
//! How far a canary came is kept here, so that one that never comes back can still be said to have got so far.

use std::num::NonZeroU64;

use holdfast_clock::Seed;
use holdfast_kernel::canary::EXECUTABLE;
use holdfast_policy::Name;
use parking_lot::Mutex;

/// The canary's destination in one sandbox.
#[derive(Debug)]
pub struct Sentinel {
    name: Name,
    state: Mutex<State>,
}

/// How far the present canary has come, as the keeper sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reached {
    /// Nothing has been heard of it.
    #[default]
    Nothing,
    /// Its question for the name has come.
    Asked,
    /// The broker has announced its connect.
    Announced,
    /// Its connection has come.
    Arrived,
}

#[derive(Debug, Default)]
struct State {
    word: Vec<u8>,
    cookie: Option<NonZeroU64>,
    reached: Reached,
}

impl Sentinel {
    /// One whose name nobody can guess.
    ///
    /// # Panics
    ///
    /// Never: the name is a host name by its form.
    pub fn new(seed: Seed) -> Self {
        let label = seed.derive("sentinel").number();
        let name = format!("c-{label:016x}.{DOMAIN}");
        let name = name.parse().unwrap_or_else(|error| panic!("{error}"));
        Self {
            name,
            state: Mutex::default(),
        }
    }

    /// The name to ask for.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// From now on `word` is what the canary gets; what came before it is over.
    pub(crate) fn expect(&self, word: Vec<u8>) {
        *self.state.lock() = State {
            word,
            ..State::default()
        };
    }

    /// How far the present canary has come.
    pub(crate) fn reached(&self) -> Reached {
        self.state.lock().reached
    }

    /// Its name has been asked for.
    pub(crate) fn asked(&self) {
        self.state.lock().note(Reached::Asked);
    }

    /// The program `executable` connects to the sentinel: whether it is the canary, whose connection is now awaited.
    pub(crate) fn announced(&self, executable: &str, cookie: Option<NonZeroU64>) -> bool {
        let mut state = self.state.lock();
        if executable != EXECUTABLE || cookie.is_none() || state.word.is_empty() {
            return false;
        }
        state.cookie = cookie;
        state.note(Reached::Announced);
        true
    }

    /// A connection to the sentinel: the word, if it is the canary's.
    pub(crate) fn arrives(&self, cookie: Option<NonZeroU64>) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        if cookie.is_none() || state.cookie != cookie {
            return None;
        }
        state.cookie = None;
        state.note(Reached::Arrived);
        Some(std::mem::take(&mut state.word))
    }
}

impl State {
    fn note(&mut self, reached: Reached) {
        self.reached = self.reached.max(reached);
    }
}

/// The port to connect to: one that no program of this century listens on (RFC 1078).
pub const PORT: u16 = 1;

/// Reserved for private use (ICANN, 2024): no name of the world ends in it.
const DOMAIN: &str = "holdfast.internal";

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie(number: u64) -> Option<NonZeroU64> {
        NonZeroU64::new(number)
    }

    #[test]
    fn only_the_canarys_own_connection_gets_the_word_and_once() {
        let sentinel = Sentinel::new(Seed::new(1));
        sentinel.expect(b"word".to_vec());
        sentinel.asked();

        assert!(!sentinel.announced("/usr/bin/curl", cookie(7)));
        assert_eq!(sentinel.reached(), Reached::Asked);
        assert!(sentinel.announced(EXECUTABLE, cookie(8)));

        assert_eq!(sentinel.arrives(cookie(7)), None);
        assert_eq!(sentinel.arrives(None), None);
        assert_eq!(sentinel.arrives(cookie(8)), Some(b"word".to_vec()));
        assert_eq!(sentinel.arrives(cookie(8)), None);
        assert_eq!(sentinel.reached(), Reached::Arrived);
    }

    #[test]
    fn an_unexpected_canary_is_none() {
        let sentinel = Sentinel::new(Seed::new(1));

        assert!(!sentinel.announced(EXECUTABLE, cookie(8)));
        assert_eq!(sentinel.arrives(cookie(8)), None);
    }

    #[test]
    fn sandboxes_have_sentinels_of_their_own() {
        let names = [1, 2].map(|number| Sentinel::new(Seed::new(number)).name().clone());

        assert_ne!(names[0], names[1]);
        assert!(names[0].as_str().ends_with(".holdfast.internal"));
    }
}
