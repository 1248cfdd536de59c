//! Names of sandboxes: `[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`.

/// Why a text is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misnamed {
    /// It is empty or too long.
    #[error("a name has 1 to {MOST} characters")]
    Length,
    /// This character has no place in it.
    #[error("{0:?} cannot stand in a name: use a-z, 0-9 and -")]
    Stranger(char),
    /// It starts or ends with a hyphen.
    #[error("a name starts and ends with a letter or a digit")]
    Ends,
}

/// Whether it is a name.
pub fn check(name: &str) -> Result<(), Misnamed> {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if let Some(stranger) = name.chars().find(|c| !known(*c)) {
        return Err(Misnamed::Stranger(stranger));
    }
    if name.is_empty() || name.len() > MOST {
        return Err(Misnamed::Length);
    }
    if name.starts_with('-') || name.ends_with('-') {
        return Err(Misnamed::Ends);
    }
    Ok(())
}

const MOST: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_labels() {
        let (longest, longer) = ("a".repeat(63), "a".repeat(64));
        for name in ["a", "qa-1", "0", &longest] {
            assert_eq!(check(name), Ok(()));
        }
        for name in ["", "-a", "a-", "A", "a_b", "a.b", "ä", "../x", &longer] {
            assert!(check(name).is_err(), "{name} was taken");
        }
    }
}
