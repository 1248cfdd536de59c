//! What the workload may see of the file system.

use std::path::PathBuf;

use crate::document::{Fields, Keys, Place};
use crate::problem::{Complaint, Findings};

/// The paths of the view. Whatever is not under one of them is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filesystem {
    /// Whether the sandbox's working directory is in the view, read-write.
    pub include_workdir: bool,
    /// Absolute, normal, sorted; none is also in `read_write`.
    pub read_only: Vec<PathBuf>,
    /// Absolute, normal, sorted; never `/`.
    pub read_write: Vec<PathBuf>,
}

/// What happens where the kernel cannot enforce, or a path is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compatibility {
    /// Do what can be done, and say in the status what was skipped.
    #[default]
    BestEffort,
    /// Refuse to start.
    HardRequirement,
}

impl Compatibility {
    /// As it is written in a policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BestEffort => "best_effort",
            Self::HardRequirement => "hard_requirement",
        }
    }
}

pub(crate) fn read(place: &Place<'_>, findings: &mut Findings) -> Option<Filesystem> {
    let fields = place.fields(&KEYS, findings)?;
    let include_workdir = match fields.get("include_workdir") {
        Some(place) => place.boolean(findings),
        None => fields.lacks("include_workdir").then_some(false),
    };
    let read_only = paths(&fields, "read_only", findings);
    let read_write = paths(&fields, "read_write", findings);
    for (path, at) in &read_write {
        if path == "/" {
            let fix = "list the directories that are written to, or leave out `filesystem_policy`";
            findings.add(at, Complaint::new("the whole root cannot be writable", fix));
        }
        if read_only.iter().any(|(other, _)| other == path) {
            let message = format!("`{path}` is in both `read_only` and `read_write`");
            findings.add(at, Complaint::new(message, "keep it in one of them"));
        }
    }
    let grants_nothing =
        |key| fields.lacks(key) || fields.get(key).is_some_and(|place| place.is_empty_list());
    // What is wrong has been told, and may be meant to grant something.
    if include_workdir == Some(false) && grants_nothing("read_only") && grants_nothing("read_write")
    {
        let fix = "list at least what programs need, such as `read_only: [/usr, /lib, /lib64, /bin, /etc]`";
        findings.add(
            place,
            Complaint::new("no path is granted: no program could start", fix),
        );
    }
    Some(Filesystem {
        include_workdir: include_workdir.unwrap_or(false),
        read_only: sorted(read_only),
        read_write: sorted(read_write),
    })
}

pub(crate) fn read_compatibility(
    place: &Place<'_>,
    findings: &mut Findings,
) -> Option<Compatibility> {
    let field = place
        .fields(&LANDLOCK_KEYS, findings)?
        .get("compatibility")?;
    match field.text("`best_effort` or `hard_requirement`", findings)? {
        "best_effort" => Some(Compatibility::BestEffort),
        "hard_requirement" => Some(Compatibility::HardRequirement),
        other => {
            let fix = "write `best_effort` or `hard_requirement`";
            findings.add(
                &field,
                Complaint::new(format!("unknown compatibility {other:?}"), fix),
            );
            None
        }
    }
}

/// A path without `//`, `/.` and a `/` at its end.
pub(crate) fn normal(text: &str) -> Result<String, Complaint> {
    if text.is_empty() {
        return Err(Complaint::new(
            "path is empty",
            "write an absolute path or remove the entry",
        ));
    }
    if !text.starts_with('/') {
        let fix = "write it from `/` on; `~` and variables are not expanded";
        return Err(Complaint::new(
            format!("path {text:?} is not absolute"),
            fix,
        ));
    }
    if text.contains('\0') {
        return Err(Complaint::new("path has a NUL", "remove it"));
    }
    if text.len() > MAX_PATH {
        let message = format!("path is longer than {MAX_PATH} bytes");
        let fix = "shorten it: no longer path can be opened";
        return Err(Complaint::new(message, fix));
    }
    let mut parts = text
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .peekable();
    if parts.peek().is_none() {
        return Ok("/".to_owned());
    }
    let mut path = String::with_capacity(text.len());
    for part in parts {
        if part == ".." {
            let fix = "write the path that is meant";
            return Err(Complaint::new(format!("path {text:?} has a `..`"), fix));
        }
        path.push('/');
        path.push_str(part);
    }
    Ok(path)
}

fn paths<'d>(fields: &Fields<'d>, key: &str, findings: &mut Findings) -> Vec<(String, Place<'d>)> {
    let list = fields
        .get(key)
        .and_then(|place| place.list("a list of paths", findings));
    let mut paths = Vec::new();
    for place in list.unwrap_or_default() {
        let Some(text) = place.text("a path", findings) else {
            continue;
        };
        match normal(text) {
            Ok(path) if path.contains(['*', '?']) => {
                let fix = "name the directory: everything under it is granted";
                findings.add(
                    &place,
                    Complaint::new("paths of the view are not globs", fix),
                );
            }
            Ok(path) if path.contains("/~") => {
                let fix = "write the path that is meant";
                findings.add(&place, Complaint::new("`~` in paths is not expanded", fix));
            }
            Ok(path) if has_variable(&path) => {
                let fix = "write the path that is meant";
                findings.add(
                    &place,
                    Complaint::new("variables in paths are not expanded", fix),
                );
            }
            Ok(path) => paths.push((path, place)),
            Err(complaint) => findings.add(&place, complaint),
        }
    }
    paths
}

/// Whether a shell would take a part of it for a variable: `$NAME`, `${NAME}`.
fn has_variable(path: &str) -> bool {
    let mut after = path.split('$').skip(1);
    after.any(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '{'))
}

fn sorted(paths: Vec<(String, Place<'_>)>) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = paths.into_iter().map(|(path, _)| path.into()).collect();
    paths.sort();
    paths.dedup();
    paths
}

pub(crate) const KEYS: Keys = Keys {
    what: "`filesystem_policy`",
    known: &["include_workdir", "read_only", "read_write"],
    refused: &[],
};
pub(crate) const LANDLOCK_KEYS: Keys = Keys {
    what: "`landlock`",
    known: &["compatibility"],
    refused: &[],
};
/// `PATH_MAX` of Linux.
const MAX_PATH: usize = 4096;
