//! The name of one verdict: unique, in order of time, and short enough to paste.
//!
//! A version 7 UUID written as a ULID: 26 characters of Crockford's base 32, so that ids sort as text in the
//! order in which they were given.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::{ContextV7, Timestamp, Uuid};

/// The id of one verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decision(Uuid);

impl Decision {
    /// A new id. Later calls give greater ids within this process, even when the wall clock steps back.
    pub fn new(now: SystemTime) -> Self {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = Timestamp::from_unix(&SEQUENCE, since.as_secs(), since.subsec_nanos());
        Self(Uuid::new_v7(at))
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0.as_u128();
        let text: [u8; LENGTH] = std::array::from_fn(|place| {
            let shift = BITS * (LENGTH - 1 - place);
            ALPHABET[usize::from((bits >> shift).to_le_bytes()[0] & 0x1f)]
        });
        f.pad(std::str::from_utf8(&text).unwrap_or_default())
    }
}

/// Text that is not a decision id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read {0:?} as a decision id: expected 26 characters of 0-9 and A-Z without I, L, O and U")]
pub struct Malformed(String);

impl FromStr for Decision {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let malformed = || Malformed(text.chars().take(LENGTH * 2).collect());
        // The first of 26 digits has only three bits to give.
        if text.len() != LENGTH || text.as_bytes()[0] > b'7' {
            return Err(malformed());
        }
        let bits = text.bytes().try_fold(0_u128, |bits, byte| {
            let digit = ALPHABET
                .iter()
                .position(|known| *known == byte.to_ascii_uppercase())?;
            Some(bits << BITS | digit as u128)
        });
        bits.map(|bits| Self(Uuid::from_u128(bits)))
            .ok_or_else(malformed)
    }
}

impl Serialize for Decision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Decision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const LENGTH: usize = 26;
const BITS: usize = 5;

static SEQUENCE: Mutex<ContextV7> = Mutex::new(ContextV7::new());

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    #[test]
    fn ids_sort_as_text_in_the_order_they_were_given_even_when_the_clock_steps_back() {
        let noon = UNIX_EPOCH + Duration::from_secs(1_795_000_000);

        let given: Vec<String> = (0..2000_u32)
            .map(|n| {
                let now = if n % 3 == 0 {
                    noon - Duration::from_secs(5)
                } else {
                    noon
                };
                Decision::new(now).to_string()
            })
            .collect();

        assert!(given.is_sorted());
        assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), given.len());
    }

    #[test]
    fn an_id_is_26_characters_and_reads_back() {
        let id = Decision::new(UNIX_EPOCH + Duration::from_secs(1_795_000_000));

        let text = id.to_string();

        assert_eq!(text.len(), 26);
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(text.to_lowercase().parse(), Ok(id));
    }

    #[test]
    fn what_is_not_an_id_is_refused() {
        for text in [
            "",
            "01J",
            "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
            "01JILOU0000000000000000000",
            "01Jé0000000000000000000000",
        ] {
            assert!(text.parse::<Decision>().is_err(), "{text} was taken");
        }
    }
}
