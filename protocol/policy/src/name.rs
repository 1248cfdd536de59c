//! A host name in the one form in which names are compared.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use thiserror::Error;

/// A host name: lower case, no trailing dot, ASCII (a name in another script is written in its `xn--` form).
///
/// Equal names are equal strings. A text that a resolver of another kind could take for an address (`127.1`,
/// `0x7f000001`) is no name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// Why and where a text is not a host name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{fault} (at byte {at})")]
pub struct BadName {
    /// Bytes before the fault.
    pub at: usize,
    /// What is wrong there.
    pub fault: Fault,
}

/// What a host name may not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// Nothing, or nothing but a dot.
    #[error("host name is empty")]
    Empty,
    /// Two dots in a row, or one at the start.
    #[error("host name has an empty label")]
    EmptyLabel,
    /// RFC 1035 §2.3.4.
    #[error("label is longer than {MAX_LABEL} bytes")]
    LongLabel,
    /// RFC 1035 §2.3.4.
    #[error("host name is longer than {MAX_NAME} bytes")]
    Long,
    /// A name in another script.
    #[error("host name is not ASCII: write its `xn--` form")]
    NotAscii,
    /// A zero byte, at which C programs stop reading.
    #[error("host name has a NUL")]
    Nul,
    /// `%2e` and the like.
    #[error("host name has a `%`: escapes are not decoded here")]
    Escape,
    /// Anything else that no host name has.
    #[error("host name has a character that is not a letter, a digit, `-` or `_`")]
    Character,
    /// `127.1`, `0x7f.1`, `2130706433`.
    #[error(
        "host name ends in a number and would be taken for an IPv4 address: write four decimal numbers"
    )]
    Numeric,
}

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the sandbox's own loopback (RFC 6761).
    pub(crate) fn is_localhost(&self) -> bool {
        &*self.0 == "localhost" || self.0.ends_with(".localhost")
    }

    /// The names above it, nearest first: for `a.b.test` these are `b.test` and `test`.
    pub fn parents(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('.').map(|(dot, _)| &self.0[dot + 1..])
    }
}

impl FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let bad = |at, fault| Err(BadName { at, fault });
        let bare = text.strip_suffix('.').unwrap_or(text);
        if bare.is_empty() {
            return bad(0, Fault::Empty);
        }
        if let Some((at, fault)) = bare
            .char_indices()
            .find_map(|(at, c)| Some((at, fault_of(c)?)))
        {
            return bad(at, fault);
        }
        if bare.len() > MAX_NAME {
            return bad(MAX_NAME, Fault::Long);
        }
        let mut at = 0;
        for label in bare.split('.') {
            match label.len() {
                0 => return bad(at, Fault::EmptyLabel),
                1..=MAX_LABEL => at += label.len() + 1,
                _ => return bad(at, Fault::LongLabel),
            }
        }
        let last = bare.rsplit('.').next().unwrap_or(bare);
        if is_number(last) {
            return bad(bare.len() - last.len(), Fault::Numeric);
        }
        Ok(Self(bare.to_ascii_lowercase().into()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

fn fault_of(c: char) -> Option<Fault> {
    match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' | '.' => None,
        '\0' => Some(Fault::Nul),
        '%' => Some(Fault::Escape),
        c if c.is_ascii() => Some(Fault::Character),
        _ => Some(Fault::NotAscii),
    }
}

/// What `inet_aton` takes for a part of an address: decimal, octal or hexadecimal.
fn is_number(label: &str) -> bool {
    let hex = label
        .strip_prefix("0x")
        .or_else(|| label.strip_prefix("0X"));
    match hex {
        Some(digits) => digits.bytes().all(|b| b.is_ascii_hexdigit()),
        None => label.bytes().all(|b| b.is_ascii_digit()),
    }
}

const MAX_LABEL: usize = 63;
/// As long as a name may be.
pub(crate) const MAX_NAME: usize = 253;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn fault(text: &str) -> Fault {
        text.parse::<Name>().expect_err(text).fault
    }

    // PX-19
    #[test]
    fn case_and_one_trailing_dot_do_not_tell_names_apart() {
        assert_eq!(name("Allowed.TEST."), name("allowed.test"));
        assert_eq!(name("allowed.test").as_str(), "allowed.test");
    }

    // PX-19
    #[test]
    fn what_is_not_a_host_name_is_refused_with_its_place() {
        assert_eq!(fault(""), Fault::Empty);
        assert_eq!(fault("."), Fault::Empty);
        assert_eq!(fault("denied.test.."), Fault::EmptyLabel);
        assert_eq!(fault(".test"), Fault::EmptyLabel);
        assert_eq!(fault("all%6fwed.test"), Fault::Escape);
        assert_eq!(fault("allowed.test\0.evil.test"), Fault::Nul);
        assert_eq!(fault("ａllowed.test"), Fault::NotAscii);
        assert_eq!(fault("bücher.test"), Fault::NotAscii);
        assert_eq!(fault("a b.test"), Fault::Character);
        let bad = "allowed.test%00".parse::<Name>().expect_err("an escape");
        assert_eq!(bad.at, "allowed.test".len());
    }

    // PX-13
    #[test]
    fn a_name_that_other_resolvers_take_for_an_address_is_refused() {
        for text in [
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "127.1",
            "1.2.3.4",
            "0x7f000001",
            "a.0x",
        ] {
            assert_eq!(fault(text), Fault::Numeric, "{text}");
        }
        assert_eq!(name("0x7f.test").as_str(), "0x7f.test");
    }

    #[test]
    fn labels_of_63_bytes_and_names_of_253_are_the_longest() {
        let label = "a".repeat(63);
        let long = format!("{label}.{label}.{label}.{}", "a".repeat(61));
        assert_eq!(name(&long).as_str().len(), 253);
        assert_eq!(fault(&format!("a{label}.test")), Fault::LongLabel);
        assert_eq!(fault(&format!("{long}a")), Fault::Long);
    }

    #[test]
    fn the_parents_of_a_name_come_nearest_first() {
        assert_eq!(
            name("a.b.test").parents().collect::<Vec<_>>(),
            ["b.test", "test"]
        );
        assert_eq!(name("test").parents().count(), 0);
    }

    proptest! {
        #[test]
        fn a_name_read_again_is_the_same_name(text in "\\PC{0,80}") {
            if let Ok(once) = text.parse::<Name>() {
                prop_assert_eq!(&once.as_str().parse::<Name>(), &Ok(once.clone()));
                prop_assert!(!once.as_str().bytes().any(|b| b.is_ascii_uppercase()));
            }
        }
    }
}
