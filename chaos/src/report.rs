//! How a siege is told: while it goes on, as text, as JSON and as a page with a picture.

mod live;
mod page;
mod picture;
mod text;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde::Serialize;

use crate::checks::Finding;
use crate::run::Report;
use crate::timeline::Fact;

pub(crate) use live::Live;
pub(crate) use text::table;

/// The result as one JSON document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Document<'r> {
    passed: bool,
    sieges: Vec<Siege<'r>>,
    /// Why not all that was ordered is here, or stands where it was ordered.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<serde_json::Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Siege<'r> {
    scenario: &'r str,
    seed: u64,
    passed: bool,
    started: String,
    duration_ms: u128,
    planned: usize,
    made: usize,
    /// What could not be made here, with the reason and how often.
    spared: BTreeMap<String, u64>,
    checks: &'r [Finding],
    notes: Vec<&'r str>,
}

impl<'r> Document<'r> {
    pub(crate) fn of(reports: &'r [Report], error: Option<serde_json::Value>) -> Self {
        Self {
            passed: error.is_none() && reports.iter().all(Report::passed),
            sieges: reports.iter().map(Siege::of).collect(),
            error,
        }
    }
}

impl<'r> Siege<'r> {
    fn of(report: &'r Report) -> Self {
        let mut notes = Vec::new();
        for entry in report.timeline.entries() {
            if let Fact::Noted(note) = &entry.fact {
                notes.push(note.as_str());
            }
        }
        notes.truncate(MOST_NOTES);
        Self {
            scenario: &report.scenario.name,
            seed: report.seed.number(),
            passed: report.passed(),
            started: date(report),
            duration_ms: report.timeline.end().as_millis(),
            planned: report.planned,
            made: report.timeline.broken().len(),
            spared: spared(report),
            checks: &report.findings,
            notes,
        }
    }
}

/// What could not be made, one line each, and how often.
fn spared(report: &Report) -> BTreeMap<String, u64> {
    let mut spared = BTreeMap::new();
    for entry in report.timeline.entries() {
        if let Fact::Spared { fault, why, .. } = &entry.fact {
            *spared.entry(format!("{fault}: {why}")).or_default() += 1;
        }
    }
    spared
}

fn date(report: &Report) -> String {
    jiff::Timestamp::try_from(report.date)
        .map(|date| format!("{date:.3}"))
        .unwrap_or_default()
}

/// Makes the directory, and writes and removes as much as a small page has: better known before a siege than after it.
pub(crate) fn try_directory(directory: &Path) -> Result<(), String> {
    let try_it = || {
        fs::create_dir_all(directory)?;
        tempfile::tempfile_in(directory)?.write_all(&vec![b' '; SMALL_PAGE])
    };
    try_it().map_err(|error| {
        let directory = directory.display();
        format!("write a report into {directory}: {error}; give --report a directory with room")
    })
}

/// Writes the page of one siege.
pub(crate) fn write_page(directory: &Path, report: &Report) -> Result<(), String> {
    let name = format!("{}-{}.html", report.scenario.name, report.seed.number());
    let path = directory.join(name);
    let failed = |error| format!("write {}: {error}", path.display());
    fs::create_dir_all(directory).map_err(failed)?;
    fs::write(&path, page::page(report)).map_err(failed)
}

const SMALL_PAGE: usize = 64 << 10;
const MOST_NOTES: usize = 100;
