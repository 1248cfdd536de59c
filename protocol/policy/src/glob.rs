//! The one glob dialect: host labels and file paths are matched alike.
//!
//! `*` stands for any run of characters within one label or path segment, `**` for any run across them, `?` for one
//! character within, `[a-z]` for one of a set (`[!a-z]`: one that is not in it), `\` takes the next character as it is.
//!
//! Matching follows all possibilities at once, so its time is bounded by the length of the text times the length of
//! the pattern, whatever both say.

use std::fmt;
use std::hash::{Hash, Hasher};

use thiserror::Error;

/// A pattern, ready to match.
#[derive(Clone, Debug)]
pub struct Glob {
    source: Box<str>,
    separator: char,
    /// What the text starts with, before the first wildcard.
    prefix: Box<str>,
    tokens: Box<[Token]>,
}

/// Why a text is not a glob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadGlob {
    /// A `[` without its `]`.
    #[error("`[` is never closed")]
    Open,
    /// `[]` or `[!]`.
    #[error("`[]` matches nothing")]
    EmptySet,
    /// `[z-a]`.
    #[error("range in `[…]` runs backwards")]
    Backwards,
    /// A `\` at the end.
    #[error("`\\` has nothing after it")]
    Escape,
    /// `a**` or `***`.
    #[error("`**` has to be a whole segment; within one write `*`")]
    PartialCrossing,
    /// A bound on the work that one match may cost.
    #[error("pattern is longer than {MAX_TOKENS} characters after its first wildcard")]
    Long,
}

impl BadGlob {
    /// What to write instead.
    pub(crate) fn fix(self) -> &'static str {
        match self {
            Self::Open => "close it, as in `[a-z]`; in a path `\\[` is the character itself",
            Self::EmptySet => "name the characters, as in `[a-z]`",
            Self::Backwards => "write the lower end first, as in `[a-z]`",
            Self::Escape => "remove it, or write `\\\\` for a backslash",
            Self::PartialCrossing => "write `*`, or `**` between two separators",
            Self::Long => "shorten it: one `*` or `**` stands for many characters",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Literal(char),
    /// `?`
    One,
    /// `*`
    Within,
    /// `**`
    Across,
    Set {
        negated: bool,
        ranges: Box<[(char, char)]>,
    },
}

impl Glob {
    /// Reads a pattern whose segments are parted by `separator`.
    pub fn new(source: &str, separator: char) -> Result<Self, BadGlob> {
        let mut tokens = parse(source, separator)?;
        let literal = tokens
            .iter()
            .take_while(|t| matches!(t, Token::Literal(_)))
            .count();
        let prefix: String = tokens
            .drain(..literal)
            .filter_map(|t| {
                if let Token::Literal(c) = t {
                    Some(c)
                } else {
                    None
                }
            })
            .collect();
        if tokens.len() > MAX_TOKENS {
            return Err(BadGlob::Long);
        }
        Ok(Self {
            source: source.into(),
            separator,
            prefix: prefix.into(),
            tokens: tokens.into(),
        })
    }

    /// Whether the whole of `text` matches.
    pub fn matches(&self, text: &str) -> bool {
        let Some(rest) = text.strip_prefix(&*self.prefix) else {
            return false;
        };
        if self.tokens.is_empty() {
            return rest.is_empty();
        }
        let mut states = States::default();
        self.enter(&mut states, 0);
        for c in rest.chars() {
            let mut next = States::default();
            for at in states.iter() {
                let Some(token) = self.tokens.get(at) else {
                    continue;
                };
                match token {
                    Token::Within if c != self.separator => self.enter(&mut next, at),
                    Token::Across => self.enter(&mut next, at),
                    Token::Within => {}
                    Token::Literal(_) | Token::One | Token::Set { .. } => {
                        if token.takes(c, self.separator) {
                            self.enter(&mut next, at + 1);
                        }
                    }
                }
            }
            if next.is_empty() {
                return false;
            }
            states = next;
        }
        states.has(self.tokens.len())
    }

    /// The pattern that matches `text` and nothing else.
    pub(crate) fn of_literal(text: &str) -> String {
        let mut pattern = String::with_capacity(text.len());
        for c in text.chars() {
            if matches!(c, '*' | '?' | '[' | '\\') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern
    }

    /// The one text that matches, if there is only one.
    pub fn literal(&self) -> Option<&str> {
        self.tokens.is_empty().then_some(&*self.prefix)
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.source
    }

    /// Stands before token `at`, and, as a run may be empty, behind the runs that start there.
    fn enter(&self, states: &mut States, mut at: usize) {
        states.set(at);
        while let Some(Token::Within | Token::Across) = self.tokens.get(at) {
            at += 1;
            states.set(at);
        }
    }
}

impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source && self.separator == other.separator
    }
}

impl Eq for Glob {}

impl Hash for Glob {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.source.hash(state);
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.source)
    }
}

impl Token {
    /// Whether a token of one character takes `c`.
    fn takes(&self, c: char, separator: char) -> bool {
        match self {
            Self::Literal(own) => *own == c,
            Self::One => c != separator,
            Self::Set { negated, ranges } => {
                c != separator
                    && ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) != *negated
            }
            Self::Within | Self::Across => false,
        }
    }
}

fn parse(source: &str, separator: char) -> Result<Vec<Token>, BadGlob> {
    let mut tokens = Vec::new();
    let mut rest = source.chars().peekable();
    let mut segment_start = true;
    while let Some(c) = rest.next() {
        let token = match c {
            '*' if rest.peek() == Some(&'*') => {
                rest.next();
                if !segment_start || rest.peek().is_some_and(|next| *next != separator) {
                    return Err(BadGlob::PartialCrossing);
                }
                Token::Across
            }
            '*' => Token::Within,
            '?' => Token::One,
            '[' => set(&mut rest)?,
            '\\' => Token::Literal(rest.next().ok_or(BadGlob::Escape)?),
            c => Token::Literal(c),
        };
        segment_start = token == Token::Literal(separator);
        tokens.push(token);
    }
    Ok(tokens)
}

fn set(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Token, BadGlob> {
    let negated = rest.next_if(|c| matches!(c, '!' | '^')).is_some();
    let mut ranges = Vec::new();
    loop {
        let from = match rest.next().ok_or(BadGlob::Open)? {
            ']' if ranges.is_empty() => return Err(BadGlob::EmptySet),
            ']' => break,
            '\\' => rest.next().ok_or(BadGlob::Escape)?,
            c => c,
        };
        // A `-` before the closing bracket stands for itself.
        let mut ahead = rest.clone();
        let to = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(to)) if to != ']' => {
                *rest = ahead;
                if to == '\\' {
                    rest.next().ok_or(BadGlob::Escape)?
                } else {
                    to
                }
            }
            _ => from,
        };
        if to < from {
            return Err(BadGlob::Backwards);
        }
        ranges.push((from, to));
    }
    Ok(Token::Set {
        negated,
        ranges: ranges.into(),
    })
}

/// The places in the pattern that some reading of the text so far has come to.
#[derive(Clone, Copy, Default)]
struct States([u64; WORDS]);

impl States {
    fn set(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    fn has(&self, at: usize) -> bool {
        self.0[at / 64] & (1 << (at % 64)) != 0
    }

    fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                let low = bits.trailing_zeros();
                bits &= bits.checked_sub(1)?;
                Some(word * 64 + low as usize)
            })
        })
    }
}

const WORDS: usize = 4;
/// One state more than tokens has to fit.
const MAX_TOKENS: usize = WORDS * 64 - 1;

#[cfg(test)]
mod tests;
