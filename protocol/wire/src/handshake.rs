//! Which version of the protocol two halves of the runtime speak with each other.

use std::fmt;
use std::str::FromStr;

/// A version of the protocol. Halves with the same major number understand each other; a higher minor one knows more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Changes when old and new no longer understand each other.
    pub major: u32,
    /// Changes when something is added.
    pub minor: u32,
}

/// The version of this build.
pub const VERSION: Version = Version { major: 1, minor: 0 };

/// Why two halves cannot work together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// There is no version that both speak.
    #[error(
        "the keeper speaks protocol {oldest} to {newest}, this boundary {VERSION}: install the same version of both"
    )]
    NoOverlap {
        /// The oldest version that the other half speaks.
        oldest: Version,
        /// Its newest one.
        newest: Version,
    },
    /// A version that is none.
    #[error("{0:?} is not a protocol version: it is written MAJOR.MINOR")]
    NotAVersion(String),
}

/// The version to speak with a half that speaks `oldest` to `newest`.
pub fn agree(oldest: &str, newest: &str) -> Result<String, Mismatch> {
    let parse = |text: &str| {
        text.parse()
            .map_err(|()| Mismatch::NotAVersion(text.to_owned()))
    };
    let (oldest, newest): (Version, Version) = (parse(oldest)?, parse(newest)?);
    let agreed = newest.min(VERSION);
    if agreed < oldest || agreed.major != VERSION.major {
        return Err(Mismatch::NoOverlap { oldest, newest });
    }
    Ok(agreed.to_string())
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Version {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (major, minor) = text.split_once('.').ok_or(())?;
        Ok(Self {
            major: major.parse().map_err(drop)?,
            minor: minor.parse().map_err(drop)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_agree_on_the_newest_version_that_both_speak() {
        assert_eq!(agree("1.0", "1.0"), Ok("1.0".to_owned()));
        assert_eq!(agree("1.0", "1.7"), Ok("1.0".to_owned()));
    }

    /// BD-11: a mixed pair is refused with both versions named.
    #[test]
    fn halves_without_a_common_version_say_so() {
        let refused = agree("2.0", "2.3").expect_err("no overlap");

        assert!(refused.to_string().contains("2.0 to 2.3"));
        assert!(refused.to_string().contains("1.0"));
        assert!(agree("1.3", "1.9").is_err());
        assert!(matches!(agree("one", "1.0"), Err(Mismatch::NotAVersion(_))));
    }
}
