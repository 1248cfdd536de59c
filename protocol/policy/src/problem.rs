//! What is wrong with a policy document, where, and what to write instead.

use std::fmt;

use serde::Serialize;

use crate::document::{Mark, Place};

/// A policy document that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Invalid {
    /// At least one, in the order of the document.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file as it was named to [`crate::Policy::parse`].
    pub file: String,
    /// From 1; 0 where the document as a whole is meant.
    pub line: u32,
    /// From 1, in characters; 0 where the document as a whole is meant.
    pub column: u32,
    /// Where in the policy: `network_policies.origin.endpoints[0].port`. Empty for the document itself.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub suggestion: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: ", self.file)?,
            line => write!(f, "{}:{line}:{}: ", self.file, self.column)?,
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; {suggestion}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.problems.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Invalid {}

/// The problems found so far in one document.
pub(crate) struct Findings {
    file: String,
    problems: Vec<Problem>,
}

impl Findings {
    pub(crate) fn new(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            problems: Vec::new(),
        }
    }

    /// Notes a problem with the value at `place`.
    pub(crate) fn add(&mut self, place: &Place<'_>, complaint: impl Into<Complaint>) {
        self.add_at(place.mark(), place.path(), complaint);
    }

    /// Notes a problem that has a place in the text, but no value.
    pub(crate) fn add_at(&mut self, mark: Mark, path: &str, complaint: impl Into<Complaint>) {
        let Complaint {
            message,
            suggestion,
        } = complaint.into();
        self.problems.push(Problem {
            file: self.file.clone(),
            line: mark.line,
            column: mark.column,
            path: printable(path),
            message: printable(&message),
            suggestion: Some(printable(&suggestion)),
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// `built`, if nothing was found.
    pub(crate) fn settle<T>(mut self, built: Option<T>) -> Result<T, Invalid> {
        match built {
            Some(built) if self.problems.is_empty() => Ok(built),
            _ => {
                self.problems.sort_by_key(|p| (p.line, p.column));
                let more = self.problems.len().saturating_sub(MAX_PROBLEMS);
                self.problems.truncate(MAX_PROBLEMS);
                if let (1.., Some(last)) = (more, self.problems.last_mut()) {
                    let message = format!("{} (and {more} more problems)", last.message);
                    last.message = message;
                }
                Err(Invalid {
                    problems: self.problems,
                })
            }
        }
    }
}

/// What is wrong with a value, without its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    message: String,
    suggestion: String,
}

impl Complaint {
    /// A complaint with what to write instead.
    pub(crate) fn new(message: impl Into<String>, suggestion: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            suggestion: suggestion.into(),
        }
    }
}

/// The one of `known` that was probably meant by `written`: a few slips away, or a longer form of it.
pub(crate) fn nearest<'k>(
    written: &str,
    known: impl IntoIterator<Item = &'k str>,
) -> Option<&'k str> {
    let written = written.to_lowercase().replace('-', "_");
    // A third of the letters may be wrong: more is another word.
    let bound = (written.chars().count() / 3).max(1);
    let slips = |known: &str| {
        let close = known.len().abs_diff(written.len()) <= bound;
        close
            .then(|| strsim::osa_distance(&written, known))
            .filter(|slips| *slips <= bound)
    };
    let known: Vec<&str> = known.into_iter().collect();
    let close = known
        .iter()
        .filter_map(|k| Some((slips(k)?, *k)))
        .min_by_key(|(slips, _)| *slips);
    let longer = known
        .iter()
        .copied()
        .filter(|k| written.len() >= 4 && k.starts_with(&written));
    close
        .map(|(_, k)| k)
        .or_else(|| longer.min_by_key(|k| k.len()))
}

/// What a terminal shows and does not obey, and no more of it than fits on one.
fn printable(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    if shown.contains(char::is_control) {
        shown = shown
            .chars()
            .flat_map(|c| {
                if c.is_control() {
                    c.escape_default().collect()
                } else {
                    vec![c]
                }
            })
            .collect();
    }
    shown
}

const MAX_SHOWN: usize = 1_000;
/// Nobody reads more at once.
const MAX_PROBLEMS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_document_says_does_not_reach_the_terminal_as_a_command() {
        assert_eq!(printable("a\u{1b}[2J\n"), "a\\u{1b}[2J\\n");
        assert_eq!(printable(&"x".repeat(5_000)).chars().count(), 1_001);
    }

    #[test]
    fn the_nearest_word_is_the_one_that_was_probably_meant() {
        let known = ["host", "port", "ports", "allowed_ips"];
        assert_eq!(nearest("prot", known), Some("port"));
        assert_eq!(nearest("Allowed-IPs", known), Some("allowed_ips"));
        assert_eq!(nearest("colour", known), None);
    }
}
