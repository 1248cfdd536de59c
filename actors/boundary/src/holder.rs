//! Who holds the boundary: one keeper at a time.
//!
//! ```text
//!  New ── the first attach, over the socket of the fork ──> Held ── its socket closes ──> Vacant
//!   └── that socket closes before it ──> the boundary ends
//!                                                            │  ▲                           │
//!                                       a higher epoch takes over └── a higher epoch ───────┘
//! ```
//!
//! The first keeper comes over the socket that it forked the boundary with, and what it presents is the token from then
//! on: the launcher, which was forked before, has never had it. Whoever comes through the named door has to present it
//! again. An epoch counts once: one that is not higher than every one before is refused, whether or not its holder lives.
//! A keeper whose successor has come is *fenced*: nothing it asks is answered any more.

/// Who holds the boundary.
#[derive(Debug, Default)]
pub(crate) struct Holder {
    token: Option<Vec<u8>>,
    epoch: Option<u64>,
    seat: Option<u64>,
    /// How many have had it.
    holders: u64,
}

/// One keeper's connection, numbered in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    /// Its number; never used again.
    pub(crate) number: u64,
    /// How it came.
    pub(crate) origin: Origin,
}

/// How a keeper's socket came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It is the other end of the one that the boundary was forked with.
    Forked,
    /// Somebody knocked at the named door.
    Named,
}

/// Why a keeper is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// Others were there with this epoch or a later one.
    #[error("epoch {asked} is fenced: the boundary was taken with epoch {held}")]
    Epoch { asked: u64, held: u64 },
    /// The token is not the boundary's.
    #[error("the launch token is not this boundary's")]
    Token,
    /// Nobody has presented a token yet over the socket of the fork.
    #[error("the keeper that started this boundary has not attached yet")]
    Early,
    /// Another has taken over meanwhile.
    #[error("fenced: the boundary was taken over with epoch {held}")]
    Fenced { held: u64 },
    /// Everything but attaching comes after it.
    #[error("attach first")]
    Unattached,
}

impl Holder {
    /// Gives the boundary to `seat`. Answers the seat that is fenced thereby, if one held it.
    pub(crate) fn attach(
        &mut self,
        seat: Seat,
        epoch: u64,
        token: &[u8],
    ) -> Result<Option<u64>, Refusal> {
        match (&self.token, seat.origin) {
            (None, Origin::Forked) => {}
            (None, Origin::Named) => return Err(Refusal::Early),
            (Some(known), Origin::Forked | Origin::Named) if is_same(known, token) => {}
            (Some(_), Origin::Forked | Origin::Named) => return Err(Refusal::Token),
        }
        if let Some(held) = self.epoch.filter(|held| *held >= epoch) {
            return Err(Refusal::Epoch { asked: epoch, held });
        }
        self.token.get_or_insert_with(|| token.to_vec());
        self.epoch = Some(epoch);
        self.holders += 1;
        // One that attaches anew with a higher epoch does not fence itself.
        let before = self.seat.replace(seat.number);
        Ok(before.filter(|number| *number != seat.number))
    }

    /// How often it went from one to the next.
    pub(crate) fn takeovers(&self) -> u64 {
        self.holders.saturating_sub(1)
    }

    /// Whether nobody has ever attached.
    pub(crate) fn is_new(&self) -> bool {
        self.token.is_none()
    }

    /// The socket of the seat `number` is closed. Answers whether it held the boundary until now.
    pub(crate) fn vacate(&mut self, number: u64) -> bool {
        let held = self.seat == Some(number);
        if held {
            self.seat = None;
        }
        held
    }

    /// Whether the seat `number` holds the boundary.
    pub(crate) fn check(&self, number: u64, attached: bool) -> Result<(), Refusal> {
        if self.seat == Some(number) {
            return Ok(());
        }
        match self.epoch.filter(|_| attached) {
            Some(held) => Err(Refusal::Fenced { held }),
            None => Err(Refusal::Unattached),
        }
    }
}

/// Compares without telling by its duration how much was right.
fn is_same(known: &[u8], shown: &[u8]) -> bool {
    let differences = known
        .iter()
        .zip(shown)
        .fold(0, |sum, (one, other)| sum | (one ^ other));
    known.len() == shown.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Seat = Seat {
        number: 1,
        origin: Origin::Forked,
    };

    fn named(number: u64) -> Seat {
        Seat {
            number,
            origin: Origin::Named,
        }
    }

    fn held() -> Holder {
        let mut holder = Holder::default();
        let fenced = holder.attach(FIRST, 1, b"token").expect("the first");
        assert_eq!(fenced, None);
        holder
    }

    /// BD-03: a keeper that comes back does not meet its own past as a holder.
    #[test]
    fn a_higher_epoch_takes_over_and_fences_the_old_holder() {
        let mut holder = held();

        assert_eq!(holder.attach(named(2), 2, b"token"), Ok(Some(1)));

        assert_eq!(holder.check(2, true), Ok(()));
        assert_eq!(holder.check(1, true), Err(Refusal::Fenced { held: 2 }));
        assert!(!holder.vacate(1), "the old one's end is late news");
        assert_eq!(holder.check(2, true), Ok(()));
    }

    #[test]
    fn a_holder_may_raise_its_own_epoch() {
        let mut holder = held();

        assert_eq!(holder.attach(FIRST, 4, b"token"), Ok(None));
        assert_eq!(holder.check(1, true), Ok(()));
    }

    #[test]
    fn an_epoch_counts_once_even_when_its_holder_is_gone() {
        let mut holder = held();
        assert!(holder.vacate(1));

        let refused = holder.attach(named(2), 1, b"token");

        assert_eq!(refused, Err(Refusal::Epoch { asked: 1, held: 1 }));
        assert_eq!(holder.attach(named(3), 2, b"token"), Ok(None));
    }

    #[test]
    fn whoever_knocks_needs_the_token_that_the_first_one_brought() {
        let mut holder = Holder::default();
        assert_eq!(holder.attach(named(2), 9, b""), Err(Refusal::Early));
        assert!(holder.is_new());
        let mut holder = held();
        assert!(!holder.is_new());

        for wrong in [&b""[..], b"toke", b"token.", b"Token"] {
            assert_eq!(holder.attach(named(2), 9, wrong), Err(Refusal::Token));
        }

        assert_eq!(holder.check(1, true), Ok(()), "a refusal changes nothing");
    }

    #[test]
    fn nothing_is_answered_before_the_attach() {
        assert_eq!(held().check(2, false), Err(Refusal::Unattached));
        assert_eq!(Holder::default().check(1, false), Err(Refusal::Unattached));
    }
}
