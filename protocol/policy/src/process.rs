//! As whom the workload runs, and what it may use.

use crate::document::{Fields, Keys, Place};
use crate::problem::{Complaint, Findings};

/// As whom and within which bounds. `None` leaves things as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// The user of the workload's processes.
    pub run_as_user: Option<Account>,
    /// Their group.
    pub run_as_group: Option<Account>,
    /// Bounds of each process.
    pub limits: Limits,
}

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// By number.
    Id(u32),
    /// By name, to be looked up in the sandbox's view.
    Name(String),
}

/// Bounds that the kernel keeps. `None` leaves the limit as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Open descriptors of one process (`RLIMIT_NOFILE`).
    pub nofile: Option<u64>,
    /// Processes and threads of the workload's user (`RLIMIT_NPROC`).
    pub nproc: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
}

pub(crate) fn read(place: &Place<'_>, findings: &mut Findings) -> Option<Process> {
    let fields = place.fields(&KEYS, findings)?;
    let run_as_user = fields
        .get("run_as_user")
        .and_then(|p| account(&p, "user", findings));
    let run_as_group = fields
        .get("run_as_group")
        .and_then(|p| account(&p, "group", findings));
    let limits = fields
        .get("limits")
        .and_then(|p| limits(&p, findings))
        .unwrap_or_default();
    Some(Process {
        run_as_user,
        run_as_group,
        limits,
    })
}

fn limits(place: &Place<'_>, findings: &mut Findings) -> Option<Limits> {
    let fields = place.fields(&LIMIT_KEYS, findings)?;
    Some(Limits {
        nofile: count(&fields, "nofile", MIN_NOFILE, findings),
        nproc: count(&fields, "nproc", 1, findings),
        memory: fields.get("memory").and_then(|place| match memory(&place) {
            Ok(bytes) => Some(bytes),
            Err(complaint) => {
                findings.add(&place, complaint);
                None
            }
        }),
    })
}

fn count(fields: &Fields<'_>, key: &str, least: u64, findings: &mut Findings) -> Option<u64> {
    let place = fields.get(key)?;
    let Some(number) = place.as_integer() else {
        return place.mistyped("a number", "write a number, without quotes", findings);
    };
    let fitting = u64::try_from(number)
        .ok()
        .filter(|n| (least..=MAX_COUNT).contains(n));
    if fitting.is_none() {
        let message = format!("`{key}: {number}` is out of range");
        findings.add(
            &place,
            Complaint::new(message, format!("write {least} to {MAX_COUNT}")),
        );
    }
    fitting
}

fn memory(place: &Place<'_>) -> Result<u64, Complaint> {
    let bytes = match (place.as_text(), place.as_integer()) {
        (Some(text), _) => size(text)?.into(),
        (None, Some(bytes)) => bytes,
        (None, None) => {
            return Err(Complaint::new(
                "expected a size",
                "write `512k`, `64m` or `2g`",
            ));
        }
    };
    if bytes < MIN_MEMORY.into() {
        return Err(Complaint::new(
            format!("{bytes} bytes are too few for a process"),
            "write at least `1m`",
        ));
    }
    u64::try_from(bytes).map_err(|_| too_much(&bytes.to_string()))
}

/// `512k`, `64m`, `2g`: binary multiples, as in the rest of the command line.
fn size(text: &str) -> Result<u64, Complaint> {
    let unknown = || {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        let unit = text[digits.len()..]
            .trim_start()
            .chars()
            .next()
            .map(|c| c.to_ascii_lowercase());
        let fix = match unit {
            Some(unit @ ('k' | 'm' | 'g')) if !digits.is_empty() => {
                format!("did you mean `{digits}{unit}`?")
            }
            _ => "write `512k`, `64m` or `2g`".to_owned(),
        };
        Complaint::new(format!("{text:?} is not a size"), fix)
    };
    let (digits, shift) = match text.as_bytes() {
        [digits @ .., b'k'] => (digits.len(), 10),
        [digits @ .., b'm'] => (digits.len(), 20),
        [digits @ .., b'g'] => (digits.len(), 30),
        _ => return Err(unknown()),
    };
    let digits = &text[..digits];
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(unknown());
    }
    let number: Option<u64> = digits.parse().ok();
    number
        .and_then(|n| n.checked_mul(1 << shift))
        .ok_or_else(|| too_much(text))
}

fn too_much(text: &str) -> Complaint {
    Complaint::new(
        format!("`{text}` is more than any machine has"),
        "write `512k`, `64m` or `2g`",
    )
}

fn account(place: &Place<'_>, what: &str, findings: &mut Findings) -> Option<Account> {
    let number = match (place.as_integer(), place.as_text()) {
        (Some(number), _) => Some(number),
        (None, Some(text)) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        (None, Some(text)) if is_account_name(text) => return Some(Account::Name(text.to_owned())),
        (None, Some(_)) => None,
        (None, None) => {
            return place.mistyped(&format!("a {what}"), "write a number or a name", findings);
        }
    };
    // The highest number stands for "no change" in the kernel's calls.
    let id = number
        .and_then(|n| u32::try_from(n).ok())
        .filter(|id| *id != u32::MAX);
    if id.is_none() {
        let fix = format!(
            "write a number up to {} or a name such as `sandbox`",
            u32::MAX - 1
        );
        findings.add(place, Complaint::new(format!("this is not a {what}"), fix));
    }
    id.map(Account::Id)
}

fn is_account_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'$'))
        && text.len() <= 32
}

pub(crate) const KEYS: Keys = Keys {
    what: "`process`",
    known: &["run_as_user", "run_as_group", "limits"],
    refused: &[],
};
pub(crate) const LIMIT_KEYS: Keys = Keys {
    what: "`limits`",
    known: &["nofile", "nproc", "memory"],
    refused: &[],
};
/// Input, output, errors and what the loader opens.
const MIN_NOFILE: u64 = 8;
/// Of files and of processes Linux can count no more.
const MAX_COUNT: u64 = 1 << 30;
const MIN_MEMORY: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_counts_in_binary_multiples() {
        assert_eq!(size("512k"), Ok(512 << 10));
        assert_eq!(size("64m"), Ok(64 << 20));
        assert_eq!(size("2g"), Ok(2 << 30));
    }

    #[test]
    fn a_size_in_another_spelling_is_refused_with_the_right_one() {
        for text in ["2G", "2Gi", "2GB", "2 g"] {
            assert_eq!(
                size(text).expect_err(text),
                Complaint::new(format!("{text:?} is not a size"), "did you mean `2g`?")
            );
        }
        for text in [
            "",
            "g",
            "-1g",
            "2t",
            "1.5g",
            "99999999999999999999g",
            "18446744073709551615g",
        ] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
