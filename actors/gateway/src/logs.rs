//! Reads the logs of one sandbox: several files, merged by time, followed while they grow and rotate.
//!
//! ```text
//! keeper.log.1 ─▶ keeper.log ──────┐
//! boundary.log.1 ─▶ boundary.log ──┤ the earliest line first
//! workload.log.1 ─▶ workload.log ──┼──▶ wanted? ──▶ a line
//! audit.jsonl.1 ─▶ audit.jsonl ────┘
//! ```

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use holdfast_wire::shared::log;
use holdfast_wire::v1;

mod line;

use line::Level;

/// What is wanted of the logs.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) sources: Vec<Source>,
    pub(crate) since_ms: i64,
    pub(crate) level: Level,
}

/// Where lines come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Keeper,
    Boundary,
    Workload,
    Audit,
}

/// The logs of one sandbox, being read.
#[derive(Debug)]
pub(crate) struct Logs {
    wanted: Wanted,
    tails: Vec<Tail>,
}

/// What is not known to the logs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unknown(pub(crate) &'static str);

impl Wanted {
    pub(crate) fn of(request: &v1::LogsRequest) -> Result<Self, Unknown> {
        let source = |name: &String| match &**name {
            "keeper" => Ok(Source::Keeper),
            "boundary" => Ok(Source::Boundary),
            "workload" => Ok(Source::Workload),
            "audit" => Ok(Source::Audit),
            _ => Err(Unknown("is none of keeper, boundary, workload and audit")),
        };
        let mut sources: Vec<_> = request
            .sources
            .iter()
            .map(source)
            .collect::<Result<_, _>>()?;
        if sources.is_empty() {
            sources = vec![
                Source::Keeper,
                Source::Boundary,
                Source::Workload,
                Source::Audit,
            ];
        }
        sources.dedup();
        Ok(Self {
            sources,
            since_ms: request.since_ms,
            level: Level::wanted(&request.level)
                .ok_or(Unknown("is none of error, warn, info, debug and trace"))?,
        })
    }
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Self::Keeper => "keeper",
            Self::Boundary => "boundary",
            Self::Workload => "workload",
            Self::Audit => "audit",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::Keeper => log::KEEPER,
            Self::Boundary => log::BOUNDARY,
            Self::Workload => log::WORKLOAD,
            Self::Audit => log::AUDIT,
        }
    }
}

impl Logs {
    /// The logs in this directory.
    pub(crate) fn open(directory: &Path, wanted: Wanted) -> Self {
        let tail = |source: &Source| Tail::new(*source, directory);
        Self {
            tails: wanted.sources.iter().map(tail).collect(),
            wanted,
        }
    }

    /// The next lines, in the order of time; none when all that is written was read. Blocks on the disk.
    pub(crate) fn next(&mut self) -> Vec<v1::LogLine> {
        let mut lines = Vec::new();
        for tail in &mut self.tails {
            tail.look();
        }
        // Bounded by what is looked at, so that nobody waits long for a line that is not wanted.
        for _ in 0..BATCH {
            let earliest = self
                .tails
                .iter_mut()
                .filter(|tail| tail.head.is_some())
                .min_by_key(|tail| tail.head.as_ref().map(|head| head.line.time_ms));
            let Some(tail) = earliest else {
                break;
            };
            let Some(head) = tail.head.take() else {
                break;
            };
            // Only who gave a line has a next one to look for: whoever had none is asked again with the next batch.
            tail.look();
            let recent = head.line.time_ms >= self.wanted.since_ms;
            if recent && head.level <= self.wanted.level {
                lines.push(head.line);
            }
        }
        lines
    }

    /// Whether lines wait that were read already.
    pub(crate) fn has_more(&self) -> bool {
        self.tails.iter().any(|tail| tail.head.is_some())
    }
}

/// One source, being read.
#[derive(Debug)]
struct Tail {
    source: Source,
    path: PathBuf,
    file: Option<(BufReader<File>, u64)>,
    /// Whether the older file is still to be read.
    older: bool,
    /// A line that is not whole yet.
    part: Vec<u8>,
    head: Option<line::Read>,
    /// When the line before was written: the time of lines that have none.
    time_ms: i64,
    /// How often it was asked for a line.
    #[cfg(test)]
    looks: u64,
}

impl Tail {
    fn new(source: Source, directory: &Path) -> Self {
        Self {
            source,
            path: directory.join(source.file()),
            file: None,
            older: true,
            part: Vec::new(),
            head: None,
            time_ms: 0,
            #[cfg(test)]
            looks: 0,
        }
    }

    /// Reads the next line, if there is a whole one.
    fn look(&mut self) {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        while self.head.is_none() {
            if self.file.is_none() && !self.open() {
                return;
            }
            let Some((file, inode)) = &mut self.file else {
                return;
            };
            let room = MOST_LINE.saturating_sub(self.part.len()) as u64;
            let read = file
                .take(room)
                .read_until(b'\n', &mut self.part)
                .unwrap_or(0);
            let whole = self.part.last() == Some(&b'\n') || self.part.len() >= MOST_LINE;
            if whole {
                let bytes = std::mem::take(&mut self.part);
                let read = line::read(self.source.name(), &bytes, self.time_ms);
                self.time_ms = read.line.time_ms;
                self.head = Some(read);
            } else if read == 0 {
                let current = fs::metadata(&self.path).map(|found| found.ino()).ok();
                if current == Some(*inode) || current.is_none() {
                    return;
                }
                // What was the current file when we began is the older one now, or was the older one all along.
                self.file = None;
                self.part.clear();
            }
        }
    }

    fn open(&mut self) -> bool {
        let mut path = self.path.clone();
        if std::mem::take(&mut self.older) {
            let older = path.with_added_extension("1");
            if older.exists() {
                path = older;
            }
        }
        let Ok(file) = File::open(path) else {
            return false;
        };
        let inode = file.metadata().map(|found| found.ino()).unwrap_or_default();
        self.file = Some((BufReader::new(file), inode));
        true
    }
}

/// The audit record of one decision, looked for in the logs in this directory. Blocks on the disk.
pub(crate) fn decision(directory: &Path, id: &str) -> Option<String> {
    let present = directory.join(log::AUDIT);
    for path in [present.clone(), present.with_added_extension("1")] {
        let Ok(file) = File::open(path) else {
            continue;
        };
        for line in BufReader::new(file).lines().map_while(Result::ok) {
            // Most lines are told apart without being read.
            if !line.contains(id) {
                continue;
            }
            let record: Option<serde_json::Value> = serde_json::from_str(&line).ok();
            if record.is_some_and(|record| record["decision"] == id) {
                return Some(line);
            }
        }
    }
    None
}

/// So many lines are looked at in one go.
const BATCH: usize = 512;

/// A longer line is cut in two.
const MOST_LINE: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;

    use super::*;

    fn wanted(sources: &[&str], level: &str) -> Wanted {
        let request = v1::LogsRequest {
            sources: sources.iter().map(|name| (*name).to_owned()).collect(),
            level: level.to_owned(),
            ..v1::LogsRequest::default()
        };
        Wanted::of(&request).expect("known")
    }

    fn log(directory: &Path, name: &str, second: u32, level: &str, message: &str) {
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(directory.join(name))
            .expect("opened");
        writeln!(
            file,
            r#"{{"time":"2026-11-29T12:00:{second:02}.000Z","level":"{level}","message":"{message}"}}"#
        )
        .expect("written");
    }

    fn texts(lines: &[v1::LogLine]) -> Vec<String> {
        let text = |line: &v1::LogLine| String::from_utf8_lossy(&line.text).into_owned();
        lines.iter().map(text).collect()
    }

    #[test]
    fn lines_of_all_files_come_in_the_order_of_time() {
        let base = tempfile::tempdir().expect("a directory");
        let directory = base.path();
        log(directory, "keeper.log.1", 1, "INFO", "one");
        log(directory, "boundary.log", 2, "INFO", "two");
        log(directory, "keeper.log", 3, "INFO", "three");

        let mut logs = Logs::open(directory, wanted(&[], ""));

        assert_eq!(texts(&logs.next()), ["one", "two", "three"]);
        assert!(logs.next().is_empty());
    }

    #[test]
    fn a_source_that_is_idle_is_asked_once_for_all_lines_of_another() {
        let base = tempfile::tempdir().expect("a directory");
        let directory = base.path();
        for second in 0..50 {
            log(directory, "keeper.log", second, "INFO", "busy");
        }
        let mut logs = Logs::open(directory, wanted(&["keeper", "boundary"], ""));

        assert_eq!(logs.next().len(), 50);

        assert_eq!((logs.tails[0].looks, logs.tails[1].looks), (51, 1));
    }

    #[test]
    fn what_is_written_later_is_read_also_across_a_rotation() {
        let base = tempfile::tempdir().expect("a directory");
        let directory = base.path();
        let mut logs = Logs::open(directory, wanted(&["keeper"], ""));
        assert!(logs.next().is_empty());

        log(directory, "keeper.log", 1, "INFO", "one");
        assert_eq!(texts(&logs.next()), ["one"]);
        log(directory, "keeper.log", 2, "INFO", "two");
        fs::rename(directory.join("keeper.log"), directory.join("keeper.log.1")).expect("rotated");
        log(directory, "keeper.log", 3, "INFO", "three");

        assert_eq!(texts(&logs.next()), ["two", "three"]);
    }

    #[test]
    fn only_the_wanted_levels_and_times_are_told() {
        let base = tempfile::tempdir().expect("a directory");
        let directory = base.path();
        log(directory, "keeper.log", 1, "ERROR", "old");
        log(directory, "keeper.log", 5, "INFO", "small");
        log(directory, "keeper.log", 6, "WARN", "large");
        let since_ms = 1_795_953_603_000;
        let wanted = Wanted {
            since_ms,
            ..wanted(&["keeper"], "warn")
        };

        let lines = Logs::open(directory, wanted).next();

        assert_eq!(texts(&lines), ["large"]);
        assert_eq!(lines[0].time_ms, since_ms + 3_000);
    }

    #[test]
    fn a_decision_is_found_by_its_id() {
        let base = tempfile::tempdir().expect("a directory");
        let record = r#"{"time":"2026-11-29T12:00:00Z","decision":"01JX"}"#;
        fs::write(base.path().join("audit.jsonl"), format!("{{}}\n{record}\n")).expect("written");

        assert_eq!(decision(base.path(), "01JX").as_deref(), Some(record));
        assert_eq!(decision(base.path(), "01JY"), None);
    }
}
