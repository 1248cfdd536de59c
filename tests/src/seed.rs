//! Chance that can be had again: a seed, and numbers drawn from it.

/// Draws numbers: `SplitMix64`.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// The same seed draws the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, below this one.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (bits ^ (bits >> 31)) % bound
    }
}

/// The number that a variable of the environment holds, if there is one.
#[expect(
    clippy::disallowed_methods,
    reason = "what is repeated, and how thoroughly, is said by the environment"
)]
pub fn told(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

/// The seed that the variable holds, or one that nobody can foretell.
pub fn seed(name: &str) -> u64 {
    told(name).unwrap_or_else(|| {
        let time = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        u64::from(time.subsec_nanos())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same() {
        let drawn = |seed| {
            let mut draw = Draw::new(seed);
            [(); 8].map(|()| draw.below(1_000))
        };

        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }
}
