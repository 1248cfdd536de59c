//! Reads a scenario from YAML: every key known, every value in its place, every mistake with a line and a suggestion.

use std::time::Duration;

use serde::Deserialize;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{Location, Spanned};

use crate::scenario::{Checks, Descriptors, Load, Probe, Problem, Scenario, Shuffle};

mod fault;
#[cfg(test)]
mod tests;
mod words;

use words::duration;
pub(crate) use words::{nearest, span};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: Spanned<String>,
    description: String,
    duration: Spanned<String>,
    settle: Option<Spanned<String>>,
    #[serde(default)]
    load: WrittenLoad,
    probe: Option<WrittenProbe>,
    #[serde(default)]
    roots: Vec<u64>,
    nofile: Option<Spanned<u64>>,
    faults: Option<Vec<Spanned<fault::Written>>>,
    shuffle: Option<WrittenShuffle>,
    checks: Option<WrittenChecks>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenLoad {
    execs: u32,
    connections: u32,
    flood: u32,
    lives: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenProbe {
    every: Option<Spanned<String>>,
    limit: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenShuffle {
    times: Spanned<u32>,
    rest: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenChecks {
    false_ready: Option<Spanned<String>>,
    told: Option<Spanned<String>>,
    sessions: Option<bool>,
    connections: Option<bool>,
    restarts: Option<u64>,
    backoff: Option<Spanned<String>>,
    descriptors: Option<WrittenDescriptors>,
    leftovers: Option<bool>,
    verdicts: Option<bool>,
    recovery: Option<Spanned<String>>,
    acknowledged: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenDescriptors {
    above: Option<u64>,
    settled: Option<u64>,
    keeper: Option<u64>,
    boundary: Option<u64>,
    spread: Option<u64>,
}

/// What is wrong, and where, without the file's name.
struct Complaint {
    at: Location,
    message: String,
    suggestion: Option<String>,
}

pub(crate) fn read(file: &str, text: &str) -> Result<Scenario, Problem> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: MOST_NODES,
            max_events: 4 * MOST_NODES,
            max_depth: 16,
            max_documents: 1,
            max_aliases: 0,
            max_anchors: 0,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    let located = |(line, column), message, suggestion| Problem {
        file: file.to_owned(),
        line,
        column,
        message,
        suggestion,
    };
    let written: Written = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let place = error
            .location()
            .map_or((0, 0), |at| (at.line(), at.column()));
        let (message, suggestion) = explain(&error);
        located(place, message, suggestion)
    })?;
    scenario(written).map_err(|complaint| {
        let place = (complaint.at.line(), complaint.at.column());
        located(place, complaint.message, complaint.suggestion)
    })
}

fn scenario(written: Written) -> Result<Scenario, Complaint> {
    let name = named(&written.name)?;
    let within = some_time("duration", &written.duration)?;
    let shuffle = written.shuffle.as_ref().map(shuffle).transpose()?;
    let faults = written
        .faults
        .unwrap_or_default()
        .iter()
        .map(|written| fault::read(written, shuffle, within))
        .collect::<Result<Vec<_>, _>>()?;
    if let (Some(shuffle), true) = (&written.shuffle, faults.is_empty()) {
        return Err(complain(
            shuffle.times.referenced,
            "a shuffle needs faults to draw from",
            Some("give a list of `faults`".into()),
        ));
    }
    let probe = Probe::default();
    Ok(Scenario {
        name,
        description: written.description.trim().to_owned(),
        duration: within,
        settle: optional(written.settle.as_ref())?.unwrap_or(SETTLE),
        load: Load {
            execs: written.load.execs,
            connections: written.load.connections,
            flood: written.load.flood,
            lives: written.load.lives,
        },
        probe: match &written.probe {
            None => probe,
            Some(given) => Probe {
                every: optional(given.every.as_ref())?.unwrap_or(probe.every),
                limit: match &given.limit {
                    Some(limit) => some_time("limit", limit)?,
                    None => probe.limit,
                },
            },
        },
        roots: written.roots,
        nofile: written.nofile.as_ref().map(bearable).transpose()?,
        faults,
        shuffle,
        checks: checks(written.checks.as_ref())?,
    })
}

fn named(name: &Spanned<String>) -> Result<String, Complaint> {
    let sound = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.value.is_empty() || !name.value.bytes().all(sound) {
        let message = format!("`{}` is no name", name.value);
        let suggestion = "write small letters, digits and dashes".to_owned();
        return Err(complain(name.referenced, message, Some(suggestion)));
    }
    Ok(name.value.clone())
}

fn bearable(limit: &Spanned<u64>) -> Result<u64, Complaint> {
    if limit.value < LEAST_DESCRIPTORS {
        let message = format!("nothing runs with {} descriptors", limit.value);
        let suggestion = format!("write {LEAST_DESCRIPTORS} or more");
        return Err(complain(limit.referenced, message, Some(suggestion)));
    }
    Ok(limit.value)
}

fn shuffle(written: &WrittenShuffle) -> Result<Shuffle, Complaint> {
    if written.times.value == 0 {
        let suggestion = "write how many faults are drawn".to_owned();
        let place = written.times.referenced;
        return Err(complain(place, "`times` is 0", Some(suggestion)));
    }
    Ok(Shuffle {
        times: written.times.value,
        rest: optional(written.rest.as_ref())?.unwrap_or(REST),
    })
}

fn checks(written: Option<&WrittenChecks>) -> Result<Checks, Complaint> {
    let usual = Checks::default();
    let Some(written) = written else {
        return Ok(usual);
    };
    let bounds = Descriptors::default();
    Ok(Checks {
        false_ready: optional(written.false_ready.as_ref())?.or(usual.false_ready),
        told: optional(written.told.as_ref())?.or(usual.told),
        sessions: written.sessions.unwrap_or(usual.sessions),
        connections: written.connections.unwrap_or(usual.connections),
        restarts: written.restarts.or(usual.restarts),
        backoff: optional(written.backoff.as_ref())?.or(usual.backoff),
        descriptors: Some(
            written
                .descriptors
                .as_ref()
                .map_or(bounds, |given| Descriptors {
                    above: given.above.unwrap_or(bounds.above),
                    settled: given.settled,
                    keeper: given.keeper,
                    boundary: given.boundary,
                    spread: given.spread,
                }),
        ),
        leftovers: written.leftovers.unwrap_or(usual.leftovers),
        verdicts: written.verdicts.unwrap_or(usual.verdicts),
        recovery: optional(written.recovery.as_ref())?.or(usual.recovery),
        acknowledged: written.acknowledged.unwrap_or(usual.acknowledged),
    })
}

/// A duration that is not zero.
fn some_time(key: &str, written: &Spanned<String>) -> Result<Duration, Complaint> {
    let time = duration(written)?;
    if time.is_zero() {
        let message = format!("`{key}` needs some time");
        let suggestion = "write `500ms`, `30s` or `5m`".to_owned();
        return Err(complain(written.referenced, message, Some(suggestion)));
    }
    Ok(time)
}

fn optional(written: Option<&Spanned<String>>) -> Result<Option<Duration>, Complaint> {
    written.map(duration).transpose()
}

fn complain(at: Location, message: impl Into<String>, suggestion: Option<String>) -> Complaint {
    Complaint {
        at,
        message: message.into(),
        suggestion,
    }
}

/// What the parser says, in the words of a scenario's author.
fn explain(error: &serde_saphyr::Error) -> (String, Option<String>) {
    use serde_saphyr::Error;
    let error = error.without_snippet();
    if let Error::SerdeUnknownField {
        field, expected, ..
    } = error
    {
        return (
            format!("unknown key `{field}`"),
            Some(meant(field, expected)),
        );
    }
    if let Error::SerdeMissingField { field, .. } = error {
        return (
            format!("`{field}` is missing"),
            Some(format!("write `{field}: …`")),
        );
    }
    if let Error::DuplicateMappingKey { key, .. } = error {
        let key = key.as_deref().unwrap_or("a key");
        return (
            format!("`{key}` is given twice"),
            Some("keep one of them".into()),
        );
    }
    if let Error::SerdeInvalidType {
        unexpected,
        expected,
        ..
    } = error
    {
        return (format!("expected {expected}, found {unexpected}"), None);
    }
    if let Some((expected, example)) = wanted(error) {
        let suggestion = format!("write {example}");
        return (format!("{expected} is expected here"), Some(suggestion));
    }
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let bare = first.split(" at line ").next().unwrap_or(first);
    (format!("not readable: {bare}"), None)
}

/// What should stand where something else does, and how it is written.
fn wanted(error: &serde_saphyr::Error) -> Option<(&'static str, &'static str)> {
    use serde_saphyr::Error;
    if let Error::Unexpected { expected, .. } = error {
        return match *expected {
            "sequence start" => Some(("a list", "`[…]`, also around a single one")),
            "mapping start" => Some(("a key with its value", "`{key: value}`")),
            "string scalar" | "scalar" => Some(("a single value", "it without brackets")),
            _ => None,
        };
    }
    if let Error::InvalidScalar { ty, .. } = error {
        return match *ty {
            "u32" | "u64" => Some(("a whole number", "digits only, such as `8`")),
            "i64" => Some(("a whole number", "`8`, or `-8`")),
            _ => None,
        };
    }
    if let Error::InvalidBooleanStrict { .. } = error {
        return Some(("yes or no", "`true` or `false`"));
    }
    None
}

/// The word that was probably meant, or all there are.
fn meant(written: &str, known: &[&str]) -> String {
    match nearest(written, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("known are `{}`", known.join("`, `")),
    }
}

const SETTLE: Duration = Duration::from_secs(5);
const REST: Duration = Duration::from_secs(2);
const MOST_NODES: usize = 5_000;
const LEAST_DESCRIPTORS: u64 = 64;
