//! The log: lines for operators on stderr, text or JSON, set up once.
//!
//! A terminal that belongs to a program gets no line of ours: [`Journal::hold`] keeps lines back (bounded) until
//! [`Journal::release`].

use std::io::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::Rotating;

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// From which level on lines are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing at all.
    Off,
    /// An operator must act.
    Error,
    /// Something ran out or broke and is being dealt with.
    #[default]
    Warn,
    /// What happens, in order.
    Info,
    /// Everyday races too.
    Debug,
    /// Everything.
    Trace,
}

/// A word that is neither a level nor a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {expected}")]
pub struct Unknown {
    expected: &'static str,
}

impl FromStr for Level {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        match text {
            "off" => Ok(Self::Off),
            "error" => Ok(Self::Error),
            "warn" => Ok(Self::Warn),
            "info" => Ok(Self::Info),
            "debug" => Ok(Self::Debug),
            "trace" => Ok(Self::Trace),
            _ => Err(Unknown {
                expected: "off, error, warn, info, debug, trace",
            }),
        }
    }
}

impl FromStr for Format {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(Unknown {
                expected: "text, json",
            }),
        }
    }
}

/// Where log lines go: stderr, unless it is held, or a file.
#[derive(Debug, Clone, Default)]
pub struct Journal(Arc<Mutex<Desk>>);

#[derive(Debug, Default)]
enum Desk {
    #[default]
    Open,
    Held {
        lines: Vec<u8>,
        dropped: u64,
    },
    File(Rotating),
}

impl Journal {
    /// Sets up the log of this process. A second call changes nothing: the first one's journal stays in force.
    pub fn start(level: Level, format: Format) -> Self {
        Self::default().set_up(level, format)
    }

    /// Sets up the log of a process that has a file for it, one JSON object per line.
    pub fn start_in(level: Level, file: Rotating) -> Self {
        Self(Arc::new(Mutex::new(Desk::File(file)))).set_up(level, Format::Json)
    }

    fn set_up(self, level: Level, format: Format) -> Self {
        let journal = self;
        let lines = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::from(level))
            .with_writer(journal.clone())
            .with_ansi(false)
            // A stderr that cannot be written to is nobody's death.
            .log_internal_errors(false);
        // Libraries speak up only for what their users would call a warning.
        let ours = Targets::new()
            .with_target("holdfast", LevelFilter::from(level))
            .with_default(LevelFilter::from(level.min(Level::Warn)));
        let _already_set = match format {
            Format::Text => tracing::subscriber::set_global_default(lines.finish().with(ours)),
            Format::Json => {
                let lines = lines.json().flatten_event(true);
                tracing::subscriber::set_global_default(lines.finish().with(ours))
            }
        };
        journal
    }

    /// Keeps lines back from now on, up to 64 KiB; more are counted.
    pub fn hold(&self) {
        let mut desk = self.0.lock();
        if matches!(*desk, Desk::Open) {
            *desk = Desk::Held {
                lines: Vec::new(),
                dropped: 0,
            };
        }
    }

    /// Writes what was kept back, and writes at once from now on.
    pub fn release(&self) {
        self.release_to(&mut io::stderr().lock());
    }

    fn release_to(&self, out: &mut impl Write) {
        let mut desk = self.0.lock();
        if matches!(*desk, Desk::File(_)) {
            return;
        }
        if let Desk::Held { lines, dropped } = std::mem::take(&mut *desk) {
            let _stderr_is_gone = out.write_all(&lines);
            if dropped > 0 {
                let _stderr_is_gone =
                    writeln!(out, "{dropped} more log lines had no room while held");
            }
        }
    }

    fn write_to(&self, line: &[u8], out: &mut impl Write) -> io::Result<()> {
        match &mut *self.0.lock() {
            Desk::Open => out.write_all(line),
            Desk::File(file) => file.write_lines(line),
            Desk::Held { lines, .. } if lines.len() + line.len() <= HELD => {
                lines.extend_from_slice(line);
                Ok(())
            }
            Desk::Held { dropped, .. } => {
                *dropped += 1;
                Ok(())
            }
        }
    }
}

impl<'a> MakeWriter<'a> for Journal {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for Journal {
    /// The formatter hands over whole lines.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.write_to(line, &mut io::stderr().lock())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> Self {
        match level {
            Level::Off => Self::OFF,
            Level::Error => Self::ERROR,
            Level::Warn => Self::WARN,
            Level::Info => Self::INFO,
            Level::Debug => Self::DEBUG,
            Level::Trace => Self::TRACE,
        }
    }
}

/// How many bytes of lines are kept back.
const HELD: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_lines_come_out_in_order_when_they_are_released() {
        let journal = Journal::default();
        let mut terminal = Vec::new();
        let write = |journal: &Journal, line: &[u8], terminal: &mut Vec<u8>| {
            journal.write_to(line, terminal).expect("memory takes it");
        };

        journal.hold();
        write(&journal, b"one\n", &mut terminal);
        write(&journal, b"two\n", &mut terminal);
        let held = terminal.clone();
        journal.release_to(&mut terminal);
        write(&journal, b"three\n", &mut terminal);

        assert!(held.is_empty());
        assert_eq!(terminal, b"one\ntwo\nthree\n");
    }

    #[test]
    fn what_is_held_is_bounded_and_the_rest_is_counted() {
        let journal = Journal::default();
        journal.hold();
        let line = [b'x'; 1024];
        for _ in 0..100 {
            let _taken = journal.write_to(&line, &mut io::sink());
        }

        let mut out = Vec::new();
        journal.release_to(&mut out);

        assert!(out.len() < HELD + 100);
        assert!(out.ends_with(b"36 more log lines had no room while held\n"));
    }

    #[test]
    fn words_are_levels_and_formats_or_named_errors() {
        assert_eq!("warn".parse(), Ok(Level::Warn));
        assert_eq!("json".parse(), Ok(Format::Json));
        let error = "loud".parse::<Level>().expect_err("no level");
        assert_eq!(
            error.to_string(),
            "expected one of off, error, warn, info, debug, trace"
        );
    }
}
