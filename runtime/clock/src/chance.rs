//! Chance that can be played again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Where chance starts. The same seed and path give the same throws in every run and on every machine.
///
/// ```
/// let seed = holdfast_clock::Seed::new(7);
/// assert_eq!(seed.derive("keeper/egress"), seed.derive("keeper").derive("egress"));
/// assert_ne!(seed.derive("keeper/egress"), seed.derive("keeper/link"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seed(u64);

impl Seed {
    /// A known seed, as printed by a failing run.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// A seed nobody can foretell, for production. Not for secrets.
    pub fn fresh() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }

    /// The number to print and to pass to [`Seed::new`].
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The seed of the part with this path: one step of derivation for each of its segments.
    #[must_use]
    pub fn derive(self, path: &str) -> Self {
        path.split('/').fold(self, |seed, segment| {
            let start = mix(seed.0 ^ GOLDEN);
            Self(mix(segment.bytes().fold(start, |sum, byte| {
                (sum ^ u64::from(byte)).wrapping_mul(FNV_PRIME)
            })))
        })
    }

    /// Dice that start here.
    pub const fn dice(self) -> Dice {
        Dice(self.0)
    }
}

/// Throws, one after the other (splitmix64: Steele, Lea and Flood, OOPSLA 2014). Not for secrets.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Any number.
    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number smaller than `bound`; zero when `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The upper half of a widening product is uniform up to bound / 2^64, which nothing here can notice.
        let product = u128::from(self.throw()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or(u64::MAX)
    }

    /// True in `hits` of `of` throws.
    pub fn chance(&mut self, hits: u64, of: u64) -> bool {
        self.below(of) < hits
    }

    /// A duration from `least` to `most`, both possible; `least` when they are the wrong way round.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = u64::try_from(most.saturating_sub(least).as_nanos()).unwrap_or(u64::MAX - 1);
        least + Duration::from_nanos(self.below(span.saturating_add(1)))
    }
}

/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_throws_the_same() {
        let throws = |seed: Seed| {
            let mut dice = seed.dice();
            [dice.throw(), dice.throw(), dice.throw()]
        };
        assert_eq!(throws(Seed::new(1)), throws(Seed::new(1)));
        assert_ne!(throws(Seed::new(1)), throws(Seed::new(2)));
    }

    #[test]
    fn splitmix64_agrees_with_its_reference() {
        // The first outputs for seed 1234567 as given with the reference implementation.
        let mut dice = Seed::new(1_234_567).dice();
        assert_eq!(dice.throw(), 6_457_827_717_110_365_317);
        assert_eq!(dice.throw(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn throws_stay_in_range_and_reach_both_ends() {
        let mut dice = Seed::new(3).dice();
        let mut seen = [false; 6];
        for _ in 0..200 {
            seen[usize::try_from(dice.below(6)).expect("small")] = true;
        }
        assert_eq!(seen, [true; 6]);
        assert_eq!(dice.below(0), 0);

        let (least, most) = (Duration::from_nanos(5), Duration::from_nanos(7));
        let mut lengths: Vec<_> = (0..100).map(|_| dice.between(least, most)).collect();
        lengths.sort();
        lengths.dedup();
        assert_eq!(
            lengths,
            [5, 6, 7].map(Duration::from_nanos),
            "every length in the range is drawn"
        );
    }

    #[test]
    fn siblings_draw_independently() {
        let seed = Seed::new(9);
        assert_ne!(seed.derive("a"), seed.derive("b"));
        assert_ne!(seed.derive("a/b"), seed.derive("b/a"));
        assert_ne!(seed.derive("ab"), seed.derive("a/b"));
    }
}
