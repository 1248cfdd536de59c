//! One line of a log: what it says, when, and how loud.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_wire::v1;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// From the loudest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// A line that was read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) line: v1::LogLine,
    pub(crate) level: Level,
}

impl Level {
    /// The level that somebody asks for; nothing is everything.
    pub(crate) fn wanted(word: &str) -> Option<Self> {
        if word.is_empty() {
            return Some(Self::Trace);
        }
        Self::named(word)
    }

    fn named(word: &str) -> Option<Self> {
        match &*word.to_ascii_lowercase() {
            "error" => Some(Self::Error),
            "warn" => Some(Self::Warn),
            "info" => Some(Self::Info),
            "debug" => Some(Self::Debug),
            "trace" => Some(Self::Trace),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Reads a line. One that is no JSON, as a panic's last words are, is an error of that moment.
pub(crate) fn read(source: &str, bytes: &[u8], before_ms: i64) -> Read {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let parsed = serde_json::from_slice::<Map<String, Value>>(bytes);
    let (time_ms, level, text, json) = if let Ok(fields) = parsed {
        (
            time(&fields).unwrap_or(before_ms),
            level(&fields),
            text(source, &fields, bytes),
            String::from_utf8_lossy(bytes).into_owned(),
        )
    } else {
        let text = String::from_utf8_lossy(bytes);
        let json = serde_json::json!({ "level": "error", "message": text }).to_string();
        (before_ms, Level::Error, bytes.to_vec(), json)
    };
    Read {
        line: v1::LogLine {
            time_ms,
            source: source.to_owned(),
            level: level.name().to_owned(),
            text,
            json,
        },
        level,
    }
}

fn time(fields: &Map<String, Value>) -> Option<i64> {
    let text = fields
        .get("time")
        .or_else(|| fields.get("timestamp"))?
        .as_str()?;
    Some(text.parse::<Timestamp>().ok()?.as_millisecond())
}

fn level(fields: &Map<String, Value>) -> Level {
    let word = fields.get("level").and_then(Value::as_str);
    word.and_then(Level::named).unwrap_or(Level::Info)
}

fn text(source: &str, fields: &Map<String, Value>, bytes: &[u8]) -> Vec<u8> {
    let word = |name: &str| fields.get(name).and_then(Value::as_str);
    if source == "workload" {
        if let Some(text) = word("text") {
            return text.as_bytes().to_vec();
        }
        if let Some(decoded) = word("base64").and_then(|text| STANDARD.decode(text).ok()) {
            return decoded;
        }
    }
    let Some(message) = word("message") else {
        return bytes.to_vec();
    };
    let mut text = message.to_owned();
    for (name, value) in fields {
        if KNOWN.contains(&&**name) {
            continue;
        }
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        text = format!("{text} {name}={value}");
    }
    text.into_bytes()
}

/// Fields that are not repeated behind the message.
const KNOWN: [&str; 5] = ["time", "timestamp", "level", "target", "message"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_workload_come_as_they_were() {
        let line = br#"{"time":"2026-11-29T12:00:00Z","stream":"stdout","base64":"/wA="}"#;

        let read = read("workload", line, 0);

        assert_eq!(read.line.text, [0xff, 0]);
        assert_eq!(read.line.level, "info");
    }

    #[test]
    fn the_fields_of_a_line_stand_behind_its_message() {
        let line = br#"{"timestamp":"2026-11-29T12:00:00Z","level":"WARN","message":"full","port":80,"target":"x"}"#;

        let read = read("keeper", line, 0);

        assert_eq!(read.line.text, b"full port=80");
        assert_eq!(read.level, Level::Warn);
    }

    #[test]
    fn what_is_no_json_is_an_error_of_that_moment() {
        let read = read("keeper", b"thread 'x' panicked\n", 77);

        assert_eq!((read.line.time_ms, read.level), (77, Level::Error));
        assert!(read.line.json.contains("panicked"));
    }
}
