//! Policy files: read, parsed, and made ready for the programs of this host.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use holdfast_policy::{Invalid, Policy, Problem};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;
use serde_json::json;

use crate::failure::{Failure, Kind};

/// Why a file is no policy.
#[derive(Debug)]
pub(super) enum Refused {
    /// It cannot be read.
    Unreadable(Failure),
    /// What it says is wrong.
    Invalid(Invalid),
}

impl Refused {
    /// All of it in one failure. `path` is what messages call the file.
    fn told(self, path: &Path) -> Failure {
        let invalid = match self {
            Self::Unreadable(failure) => return failure,
            Self::Invalid(invalid) => invalid,
        };
        let count = invalid.problems.len();
        let noun = if count == 1 { "problem" } else { "problems" };
        let message = format!("policy {} has {count} {noun}", path.display());
        Failure::new(Kind::PolicyInvalid, message)
            .lines(invalid.problems.iter().map(ToString::to_string))
            .details(json!({"problems": invalid.problems}))
    }
}

/// Reads a policy file. Links are left as they are.
pub(super) fn read(path: &Path) -> Result<Policy, Refused> {
    let text = written(path)?;
    Policy::parse(&path.to_string_lossy(), &text).map_err(Refused::Invalid)
}

/// Reads a policy file, or says in one failure all that is wrong with it.
pub(crate) fn load(path: &Path) -> Result<Policy, Failure> {
    read(path).map_err(|refused| refused.told(path))
}

/// The text of a policy file.
pub(crate) fn text(path: &Path) -> Result<String, Failure> {
    written(path).map_err(|refused| refused.told(path))
}

/// The policy that a text is, or all that is wrong with it in one failure. `path` is what messages call it.
pub(crate) fn parse(path: &Path, text: &str) -> Result<Policy, Failure> {
    let parsed = Policy::parse(&path.to_string_lossy(), text);
    parsed.map_err(|invalid| Refused::Invalid(invalid).told(path))
}

/// The policy with the ends of all symbolic links that its `binaries` name, seen from `root`: the kernel reports a
/// program by its file.
pub(crate) fn follow_links(policy: Policy, root: Option<&Path>) -> Policy {
    policy.with_links(|path| end_of_link(path, root))
}

/// The file that a program's path leads to.
pub(super) fn end_of_link(path: &str, root: Option<&Path>) -> Option<String> {
    let end = match root {
        None => fs::canonicalize(path).ok()?,
        Some(root) => {
            let root = fs::canonicalize(root).ok()?;
            let end = end_under(path, &root)?;
            Path::new("/").join(end.strip_prefix(&root).ok()?)
        }
    };
    let end = end.into_os_string().into_string().ok()?;
    (end != path).then_some(end)
}

/// The host's path of the file that `path` leads to when `root` is `/`.
fn end_under(path: &str, root: &Path) -> Option<PathBuf> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let root = open(root, flags | OFlag::O_DIRECTORY, Mode::empty()).ok()?;
    let how = OpenHow::new()
        .flags(flags)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let file = openat2(&root, path, how).ok()?;
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

/// What a file says, as text.
fn written(path: &Path) -> Result<String, Refused> {
    let bytes = bytes_of(path).map_err(|error| Refused::Unreadable(unreadable(path, &error)))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let (text, wrong) = error.as_bytes().split_at(valid);
        let line = text.split(|byte| *byte == b'\n').count();
        let before = text
            .rsplit(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        let column = String::from_utf8_lossy(before).chars().count() + 1;
        let wrong = wrong.first().copied().unwrap_or_default();
        Refused::Invalid(Invalid {
            problems: vec![Problem {
                file: path.display().to_string(),
                line: u32::try_from(line).unwrap_or(u32::MAX),
                column: u32::try_from(column).unwrap_or(u32::MAX),
                path: String::new(),
                message: format!("byte {valid} (0x{wrong:02x}) is not UTF-8 text"),
                suggestion: Some("write it as UTF-8: `iconv -t UTF-8`".to_owned()),
            }],
        })
    })
}

/// At most one byte more than any policy has: an endless file is refused by its length. `-` is our input.
fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let file: &mut dyn Read = if path == Path::new("-") {
        &mut io::stdin()
    } else {
        &mut File::open(path)?
    };
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let message = format!("read policy {}", path.display());
    let failure = Failure::caused(Kind::Unreadable, message, error);
    let hint = match error.raw_os_error() {
        Some(libc::ENOENT) => "check the path; a relative one starts where you are",
        Some(libc::EACCES | libc::EPERM) => "make it readable for you, or run as its owner",
        Some(libc::EISDIR) => "name a file in it",
        Some(libc::ENOTDIR) => "check the path: a part of it before the last `/` is a file",
        Some(libc::ELOOP) => "check the path: links lead in a circle",
        Some(libc::ENAMETOOLONG) => {
            "check the path: a part of it has 255 bytes at most, the whole 4095"
        }
        // A socket, a device, what `/proc` shows of a process.
        Some(_) | None => "name a file that holds a policy",
    };
    // What was short has its own.
    match failure.advice() {
        Some(_) => failure,
        None => failure.hint(hint),
    }
}

/// Longer than what the parser takes.
const LONGEST: u64 = 16 << 20;
