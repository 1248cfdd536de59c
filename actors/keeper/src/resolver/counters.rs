//! Counts what became of queries. Plain atomics, read by status and metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// What became of one query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Answered with an address or a name.
    Answered,
    /// The name exists, a record of that type does not.
    NoData,
    /// The name does not exist.
    NoSuchName,
    /// No rule could match the name.
    Denied,
    /// It has addresses, but none that any rule lets be dialled.
    Withheld,
    /// The upstream servers gave no answer.
    Failed,
    /// More names than a sandbox may use.
    Full,
    /// Too many lookups at once.
    Shed,
    /// Not readable as a query.
    Malformed,
    /// An opcode, EDNS version or class that is not served.
    NotImplemented,
    /// Not answered at all: a response, or too short for a header.
    Ignored,
}

impl Outcome {
    /// Every outcome, in the order in which they are counted.
    pub const ALL: [Self; 11] = [
        Self::Answered,
        Self::NoData,
        Self::NoSuchName,
        Self::Denied,
        Self::Withheld,
        Self::Failed,
        Self::Full,
        Self::Shed,
        Self::Malformed,
        Self::NotImplemented,
        Self::Ignored,
    ];

    /// The value of the metric's `outcome` label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::NoData => "no_data",
            Self::NoSuchName => "no_such_name",
            Self::Denied => "denied",
            Self::Withheld => "withheld",
            Self::Failed => "failed",
            Self::Full => "full",
            Self::Shed => "shed",
            Self::Malformed => "malformed",
            Self::NotImplemented => "not_implemented",
            Self::Ignored => "ignored",
        }
    }
}

/// How often each outcome came about, and what the resolver met beside.
#[derive(Debug, Default)]
pub struct Counters {
    outcomes: [AtomicU64; Outcome::ALL.len()],
    /// Denials of a name that was denied shortly before and therefore left no record of their own.
    pub repeated_denials: AtomicU64,
    /// Lookups that were answered from what was known before, because upstream was silent.
    pub stale: AtomicU64,
}

impl Counters {
    /// How many queries ended so.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize].load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, outcome: Outcome) {
        bump(&self.outcomes[outcome as usize]);
    }
}

pub(super) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_is_counted_by_itself() {
        let counters = Counters::default();

        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            (0..=index).for_each(|_| counters.count(outcome));
        }

        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(
                counters.of(outcome),
                index as u64 + 1,
                "{}",
                outcome.label()
            );
        }
    }
}
