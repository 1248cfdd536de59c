//! The main process's output, as lines of JSON in a bounded file.
//!
//! `{"time", "stream", "text" | "base64", "partial"?, "generation", "offset"}`, one line for each line of the output; `partial`
//! says that the output's line goes on in the next one. `offset` is where the output stands behind it. What was lost is a line
//! too: `{"time", "stream": "runtime", "text", "lost", …}`.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_kernel::descriptors;
use holdfast_observability::{MOST_LOGGED, Rotating, older, written};
use holdfast_wire::v1;
use serde::{Deserialize, Serialize};

/// The log and where it stands.
#[derive(Debug)]
pub(super) struct Log {
    file: Rotating,
    generation: u64,
    offset: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    time: &'a str,
    stream: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<u64>,
    generation: u64,
    offset: u64,
}

/// What is read back of a line.
#[derive(Deserialize)]
struct Mark {
    generation: u64,
    offset: u64,
}

impl Log {
    /// Opens the log of `generation`, behind what an earlier keeper has written of it.
    pub(super) fn open(path: &Path, generation: u64) -> io::Result<Self> {
        let offset = [path.to_owned(), older(path)]
            .iter()
            .find_map(|path| last(path))
            .filter(|mark| mark.generation == generation)
            .map_or(0, |mark| mark.offset);
        let mut file = Rotating::open(path, MOST_LOGGED)?;
        if torn(path) {
            file.write_lines(b"\n")?;
        }
        Ok(Self {
            file,
            generation,
            offset,
        })
    }

    /// The first byte that it does not have.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The lines for `chunk`.
    pub(super) fn chunk(&mut self, chunk: &v1::OutputChunk, now: SystemTime) -> Vec<u8> {
        let stream = match chunk.stream() {
            v1::Stream::Stderr => "stderr",
            v1::Stream::Stdout | v1::Stream::Unspecified => "stdout",
        };
        let time = written(now);
        let mut lines = Vec::with_capacity(chunk.data.len().saturating_mul(2));
        for piece in chunk.data.split_inclusive(|byte| *byte == b'\n') {
            self.offset += piece.len() as u64;
            let (piece, partial) = match piece.split_last() {
                Some((b'\n', line)) => (line, false),
                Some(_) | None => (piece, true),
            };
            let text = std::str::from_utf8(piece).ok();
            put(
                &mut lines,
                &Line {
                    time: &time,
                    stream,
                    text,
                    base64: text.is_none().then(|| STANDARD.encode(piece)),
                    partial,
                    lost: None,
                    generation: self.generation,
                    offset: self.offset,
                },
            );
        }
        lines
    }

    /// The line that stands for bytes that nobody could write down in time.
    pub(super) fn lost(&mut self, bytes: u64, now: SystemTime) -> Vec<u8> {
        self.offset += bytes;
        let mut lines = Vec::new();
        put(
            &mut lines,
            &Line {
                time: &written(now),
                stream: "runtime",
                text: Some(&format!(
                    "{bytes} bytes were overwritten before they were read"
                )),
                base64: None,
                partial: false,
                lost: Some(bytes),
                generation: self.generation,
                offset: self.offset,
            },
        );
        lines
    }

    /// Appends them.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.file.write_lines(lines)
    }
}

fn put(lines: &mut Vec<u8>, line: &Line<'_>) {
    // Strings and numbers in memory: this cannot fail.
    if serde_json::to_writer(&mut *lines, line).is_ok() {
        lines.push(b'\n');
    }
}

/// The last whole line's mark.
fn last(path: &Path) -> Option<Mark> {
    let bytes = descriptors::read(path).ok()?;
    bytes
        .rsplit(|byte| *byte == b'\n')
        .find_map(|line| serde_json::from_slice(line).ok())
}

/// Whether a writer was killed inside a line.
fn torn(path: &Path) -> bool {
    descriptors::read(path).is_ok_and(|bytes| bytes.last().is_some_and(|byte| *byte != b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(stream: v1::Stream, data: &'static [u8]) -> v1::OutputChunk {
        v1::OutputChunk {
            stream: stream.into(),
            offset: 0,
            data: data.into(),
        }
    }

    fn values(lines: &[u8]) -> Vec<serde_json::Value> {
        let lines = lines
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_slice(line).expect("a document"))
            .collect()
    }

    #[test]
    fn each_line_is_a_document_and_what_is_no_text_is_whole() {
        let place = tempfile::tempdir().expect("a directory");
        let mut log = Log::open(&place.path().join("log"), 1).expect("opened");
        let now = SystemTime::UNIX_EPOCH;

        let lines = log.chunk(&chunk(v1::Stream::Stdout, b"one\ntwo\npart"), now);
        let bytes = log.chunk(&chunk(v1::Stream::Stderr, b"\xff\n"), now);

        let lines = values(&lines);
        assert_eq!(lines.len(), 3);
        assert_eq!(
            (lines[1]["text"].as_str(), lines[1]["offset"].as_u64()),
            (Some("two"), Some(8))
        );
        assert_eq!(lines[2]["partial"], true);
        let bytes = values(&bytes);
        assert_eq!(
            (bytes[0]["stream"].as_str(), bytes[0]["base64"].as_str()),
            (Some("stderr"), Some("/w=="))
        );
    }

    #[test]
    fn the_next_keeper_goes_on_behind_the_last_byte_and_the_next_generation_at_the_first() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("log");
        let mut log = Log::open(&path, 1).expect("opened");
        let lines = log.chunk(&chunk(v1::Stream::Stdout, b"one\n"), SystemTime::UNIX_EPOCH);
        log.write(&lines).expect("written");
        let lost = log.lost(100, SystemTime::UNIX_EPOCH);
        log.write(&lost).expect("written");
        log.write(b"{\"time\":\"torn").expect("written");

        assert_eq!(Log::open(&path, 1).expect("opened").offset(), 104);
        assert_eq!(Log::open(&path, 2).expect("opened").offset(), 0);
    }
}
