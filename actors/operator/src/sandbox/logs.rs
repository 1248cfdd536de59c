//! `holdfast logs`: lines as they were logged; what a workload wrote, byte for byte.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use holdfast_wire::v1;
use serde_json::{Value, json};

use super::status::quietly;
use crate::cli::sandboxes::{Level, Logs, Source};
use crate::client::{self, refused};
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::times::{now_ms, rfc3339};

/// Prints what was logged, and with `-f` what is logged from now on.
pub(crate) fn logs(arguments: &Logs, config: &Config) -> Result<ExitCode, Failure> {
    let follow = arguments.follow;
    let format = arguments.output.output;
    // One source alone needs no name before each line.
    let named = arguments.source.len() != 1;
    // On a terminal a workload's bytes would be its commands to the reader's terminal; elsewhere they are left as they are.
    let shown = io::stdout().is_terminal();
    let outcome = client::with(config, async |mut client| {
        let opened = client.logs(request(arguments, now_ms())).await;
        let mut lines = opened.map_err(|status| refused(&status))?.into_inner();
        while let Some(line) = output::while_read(lines.message())
            .await?
            .map_err(|status| refused(&status))?
        {
            match format {
                Format::Json => output::document(&document(&line))?,
                Format::Text if shown => output::written(&text(&escaped(line), named))?,
                Format::Text => output::written(&text(&line, named))?,
            }
        }
        Ok(ExitCode::SUCCESS)
    });
    outcome.or_else(|failure| {
        if follow {
            quietly(failure)
        } else {
            Err(failure)
        }
    })
}

fn request(arguments: &Logs, now_ms: i64) -> v1::LogsRequest {
    let since = arguments
        .since
        .map(|span| i64::try_from(span.as_millis()).unwrap_or(i64::MAX));
    v1::LogsRequest {
        sandbox: arguments.name.clone(),
        sources: arguments
            .source
            .iter()
            .map(|source| word(*source).to_owned())
            .collect(),
        follow: arguments.follow,
        since_ms: since.map_or(0, |span| now_ms.saturating_sub(span).max(1)),
        level: arguments.level.map_or("", level).to_owned(),
    }
}

/// A line for people: when, who, how bad, what. The workload's own bytes are left as they are.
fn text(line: &v1::LogLine, named: bool) -> Vec<u8> {
    if line.source == "workload" && !named {
        return ended(line.text.clone());
    }
    let mut text = rfc3339(line.time_ms).unwrap_or_default().into_bytes();
    if named {
        text.extend_from_slice(format!(" {:<8}", line.source).as_bytes());
    }
    if !line.level.is_empty() {
        text.extend_from_slice(format!(" {:<5}", line.level.to_uppercase()).as_bytes());
    }
    text.push(b' ');
    text.extend_from_slice(&line.text);
    ended(text)
}

/// The line with every byte written out that is no text: what moves a cursor, colours, rings or is no character at all.
fn escaped(line: v1::LogLine) -> v1::LogLine {
    let mut text = String::new();
    for chunk in line.text.utf8_chunks() {
        text.push_str(&output::harmless(chunk.valid()));
        for byte in chunk.invalid() {
            let _infallible = write!(text, "\\x{byte:02x}");
        }
    }
    let text = text.into_bytes();
    v1::LogLine { text, ..line }
}

/// Lines are recorded without their end.
fn ended(mut line: Vec<u8>) -> Vec<u8> {
    if line.last() != Some(&b'\n') {
        line.push(b'\n');
    }
    line
}

/// The line as it was recorded, with its source; a document in any case.
fn document(line: &v1::LogLine) -> Value {
    let recorded: Option<Value> = serde_json::from_str(&line.json).ok();
    let mut document = match recorded {
        Some(Value::Object(fields)) => Value::Object(fields),
        _ => json!({
            "time": rfc3339(line.time_ms),
            "level": line.level,
            "text": String::from_utf8_lossy(&line.text),
        }),
    };
    if let Some(fields) = document.as_object_mut() {
        fields.insert("source".into(), line.source.as_str().into());
    }
    document
}

fn word(source: Source) -> &'static str {
    match source {
        Source::Keeper => "keeper",
        Source::Boundary => "boundary",
        Source::Workload => "workload",
        Source::Audit => "audit",
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(source: &str, bytes: &[u8]) -> v1::LogLine {
        v1::LogLine {
            time_ms: 1_795_953_600_000,
            source: source.into(),
            level: "warn".into(),
            text: bytes.to_vec(),
            json: String::new(),
        }
    }

    #[test]
    fn what_a_workload_wrote_is_left_as_it_is() {
        assert_eq!(
            text(&line("workload", b"\xff\x00\r\n"), false),
            b"\xff\x00\r\n"
        );
    }

    #[test]
    fn on_a_terminal_nothing_a_workload_wrote_is_a_command() {
        let hostile = escaped(line(
            "workload",
            "é\t\x1b[2J\r\u{9b}31m\x07\u{202e}".as_bytes(),
        ));
        let broken = escaped(line("workload", b"a\xff\x00b"));

        assert_eq!(
            String::from_utf8_lossy(&text(&hostile, false)),
            "é\t\\u{1b}[2J\\r\\u{9b}31m\\u{7}\\u{202e}\n"
        );
        assert_eq!(text(&broken, false), b"a\\xff\\u{0}b\n");
    }

    #[test]
    fn a_line_of_ours_says_when_who_and_how_bad() {
        assert_eq!(
            String::from_utf8_lossy(&text(&line("keeper", b"link lost"), true)),
            "2026-11-29T12:00:00.000Z keeper   WARN  link lost\n"
        );
    }

    #[test]
    fn a_document_is_what_was_recorded_and_who_recorded_it() {
        let recorded = v1::LogLine {
            json: r#"{"a":1}"#.into(),
            ..line("audit", b"")
        };

        assert_eq!(document(&recorded), json!({"a": 1, "source": "audit"}));
        assert_eq!(document(&line("keeper", b"x"))["text"], "x");
    }
}
