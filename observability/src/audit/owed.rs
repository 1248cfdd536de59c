//! What was allowed and has no record yet, kept where it outlives the process that owes it.
//!
//! ```text
//! allowed ──note──▶ NAME.owed.ID ──dial──▶ outcome ──▶ record in NAME ──settle──▶ (place is free)
//!                        │ the process was killed
//!                        └──collect, by the next one──▶ record in NAME, outcome "unknown"
//! ```
//!
//! The outcome of a dial stands in its record, so the record can only follow the dial; the note goes before it. A note and its
//! record have the same decision id: when the process dies between the record and the settling, the note says nothing new.
//! Each process has a file of its own and holds its lock as long as it lives, so nobody collects what is still to be settled.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Place;
use super::lines::say;
use crate::{Decision, Record, older};

/// The notes of this process.
#[derive(Debug)]
pub(super) struct Owed {
    path: PathBuf,
    file: File,
    open: HashMap<Place, Decision>,
    text: Vec<u8>,
}

impl Owed {
    /// Begins notes beside the trail at `trail`.
    pub(super) fn begin(trail: &Path) -> io::Result<Self> {
        let mut path = prefix(trail).unwrap_or_default();
        path.push(Decision::new(SystemTime::now()).to_string());
        let path = trail.with_file_name(path);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        // Nobody can have it but one who collects at this very moment: then it is tried again at the next note.
        file.try_lock()?;
        Ok(Self {
            path,
            file,
            open: HashMap::new(),
            text: Vec::new(),
        })
    }

    /// The kernel has the note when this returns.
    pub(super) fn note(&mut self, place: Place, record: Record) -> io::Result<()> {
        let decision = self.open.get(&place).copied();
        let decision = decision.unwrap_or(record.decision);
        let mut record = Record { decision, ..record };
        self.say(&record);
        if self.text.len() > PLACE {
            record.ancestors.clear();
            self.say(&record);
        }
        if self.text.len() > PLACE {
            record.binary = None;
            self.say(&record);
        }
        if self.text.len() > PLACE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.file.write_all_at(&self.text, at(place))?;
        self.open.insert(place, decision);
        Ok(())
    }

    /// The decision of the note at this place.
    pub(super) fn decision(&self, place: Place) -> Option<Decision> {
        self.open.get(&place).copied()
    }

    /// The record is written, or nothing came of it.
    pub(super) fn settle(&mut self, place: Place) {
        if self.open.remove(&place).is_some() {
            // Left behind it says nothing new: its decision is in the trail.
            let _ = self.file.write_all_at(b"\n", at(place));
        }
    }

    /// Whether a note could stand here now; one that does is left alone.
    pub(super) fn try_place(&self, place: Place) -> io::Result<()> {
        if self.open.contains_key(&place) {
            return Ok(());
        }
        self.file.write_all_at(b"\n", at(place))
    }

    /// Nothing more comes; a file without notes is no use.
    pub(super) fn end(self) {
        if self.open.is_empty() {
            let _ = fs::remove_file(&self.path);
        }
    }

    fn say(&mut self, record: &Record) {
        self.text.clear();
        say(&mut self.text, record);
    }
}

/// The records that processes which are gone owe to the trail at `trail`, and what has to be removed once they are written.
pub(super) fn collect(trail: &Path) -> io::Result<Vec<(Claim, Vec<Record>)>> {
    let (Some(prefix), Some(directory)) = (prefix(trail), trail.parent()) else {
        return Ok(Vec::new());
    };
    let mut claims = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let named = path.file_name().is_some_and(|name| {
            let prefix = prefix.as_encoded_bytes();
            name.as_encoded_bytes().starts_with(prefix)
        });
        if !named {
            continue;
        }
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        if file.try_lock().is_err() {
            // Its process lives, or another collects it.
            continue;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let mut records = notes(&bytes);
        if !records.is_empty() {
            // Read anew for each: what was owed to the one before may stand there by now.
            let mut missing: HashSet<Decision> = records.iter().map(|it| it.decision).collect();
            strike_told(trail, &mut missing)?;
            records.retain(|record| missing.contains(&record.decision));
        }
        claims.push((Claim { path, _file: file }, records));
    }
    Ok(claims)
}

/// Notes that are being collected by this process alone.
#[derive(Debug)]
pub(super) struct Claim {
    path: PathBuf,
    _file: File,
}

impl Claim {
    /// They are in the trail.
    pub(super) fn settle(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

fn notes(bytes: &[u8]) -> Vec<Record> {
    bytes
        .chunks(PLACE)
        .filter_map(|place| place.split(|byte| *byte == b'\n').next())
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

/// Takes those away that the trail tells of, and reads it once for all of them.
fn strike_told(trail: &Path, missing: &mut HashSet<Decision>) -> io::Result<()> {
    for path in [older(trail), trail.to_owned()] {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read?,
        };
        for line in String::from_utf8_lossy(&bytes).lines() {
            let Some(decision) = named(line).filter(|named| missing.contains(named)) else {
                continue;
            };
            // A process that is killed inside its write leaves half of a line, which tells nothing.
            if serde_json::from_str::<Record>(line).is_ok() {
                missing.remove(&decision);
            }
        }
    }
    Ok(())
}

/// The decision of a line, found without reading the rest of it: a trail has many. Within a text the quotes would be escaped.
fn named(line: &str) -> Option<Decision> {
    let (_, rest) = line.split_once("\"decision\":\"")?;
    let (id, _) = rest.split_once('"')?;
    id.parse().ok()
}

fn prefix(trail: &Path) -> Option<OsString> {
    let mut name = trail.file_name()?.to_owned();
    name.push(".owed.");
    Some(name)
}

fn at(place: Place) -> u64 {
    u64::from(place.0) * PLACE as u64
}

/// One page: a note is written wholly or not at all, whenever the process is killed.
const PLACE: usize = 4096;
