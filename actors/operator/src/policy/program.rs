//! Which program the kernel would report for a path: behind a link its file, for a script its interpreter.
//!
//! ```text
//! path ── link ──▶ file ── `#!` ──▶ interpreter ── `#!` ──▶ …  ── at most five ──▶ the program
//!                                        └─ `env NAME` ── PATH ──▶ the program that replaces it
//! ```

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use holdfast_policy::Policy;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access, geteuid};

use super::source;

/// What is executed when a path is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// The file that the kernel reports.
    pub(super) file: String,
    /// What is executed in the place of a script, in that order; the last one is the file. Empty for any other.
    pub(super) interpreters: Vec<String>,
    /// Whether the kernel lets anybody look at a process that executes it.
    pub(super) is_observable: bool,
    /// What the asker should know about it.
    pub(super) note: Option<String>,
}

/// Where it would be executed.
#[derive(Debug)]
pub(super) struct Surroundings<'a> {
    /// The program's `PATH`.
    pub(super) path: &'a OsStr,
    /// The directories that the program sees; `None`: all.
    pub(super) view: Option<Vec<PathBuf>>,
}

impl Program {
    /// The program that `path`, which is absolute, leads to.
    pub(super) fn at(path: &str, surroundings: &Surroundings<'_>) -> Self {
        let mut program = Self {
            file: end(path),
            interpreters: Vec::new(),
            is_observable: true,
            note: None,
        };
        program.follow(surroundings);
        if let Some(last) = program.interpreters.last() {
            program.file.clone_from(last);
        }
        program.is_observable = is_observable(Path::new(&program.file));
        program.note = program.told(path);
        program
    }

    fn follow(&mut self, surroundings: &Surroundings<'_>) {
        let mut at = self.file.clone();
        while let Some(Line {
            interpreter,
            argument,
        }) = Line::of(Path::new(&at))
        {
            if self.interpreters.len() >= MOST {
                return;
            }
            at = end(&interpreter);
            self.interpreters.push(at.clone());
            if Path::new(&interpreter).file_name() == Some(OsStr::new("env"))
                && let Some(replacement) = started_by_env(&argument, surroundings)
            {
                at = end(&replacement);
                self.interpreters.push(at.clone());
            }
        }
    }

    fn told(&self, path: &str) -> Option<String> {
        let Some((last, before)) = self.interpreters.split_last() else {
            return (!self.is_observable).then(|| {
                format!("{path} cannot be read by you: the kernel lets nobody look at a process that executes it, and only rules without `binaries` serve it")
            });
        };
        let mut told = format!("{path} is a script: what connects is its interpreter, {last}");
        if !before.is_empty() {
            let _infallible = write!(told, ", by way of {}", before.join(", "));
        }
        if !Path::new(last).exists() {
            told += ", which is not there";
        } else if self.interpreters.len() >= MOST && Line::of(Path::new(last)).is_some() {
            told += ", which is a script, too: the kernel follows no more of them, and executes nothing";
        } else if Path::new(last).file_name() == Some(OsStr::new("env")) {
            told += ", which another program replaces: ask with --binary what the policy says about that one";
        } else if !self.is_observable {
            told += ", which cannot be read by you: only rules without `binaries` serve it";
        }
        Some(told)
    }
}

impl<'a> Surroundings<'a> {
    /// Those of a run under `policy`, started `here`.
    pub(super) fn of(policy: &Policy, path: &'a OsStr, here: Option<PathBuf>) -> Self {
        let view = policy.filesystem().map(|files| {
            let listed = files.read_only.iter().chain(&files.read_write).cloned();
            // The sandbox has one of its own.
            let listed = listed.filter(|path| path != Path::new("/tmp"));
            listed
                .chain(here.filter(|_| files.include_workdir))
                .collect()
        });
        Self { path, view }
    }

    fn shows(&self, file: &Path) -> bool {
        let listed = |view: &Vec<PathBuf>| view.iter().any(|listed| file.starts_with(listed));
        self.view.as_ref().is_none_or(listed)
    }

    /// The file that a name without a `/` means.
    fn find(&self, name: &str) -> Option<String> {
        let places = std::env::split_paths(self.path).map(|place| place.join(name));
        let is_program = |file: &PathBuf| {
            let found = fs::metadata(file);
            self.shows(file)
                && found
                    .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        let found = places.into_iter().find(is_program)?;
        found.into_os_string().into_string().ok()
    }
}

/// Whether a boundary of ours could look at a process that executes `file`: for root every one can. What is not there is taken for readable.
fn is_observable(file: &Path) -> bool {
    geteuid().is_root() || access(file, AccessFlags::R_OK) != Err(Errno::EACCES)
}

/// The first line of a script.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    interpreter: String,
    /// All that follows, as one.
    argument: String,
}

impl Line {
    /// That of `file`; `None` for what is no script, and for what we may not read.
    fn of(file: &Path) -> Option<Self> {
        // A pipe would be waited for.
        if !fs::metadata(file).ok()?.is_file() {
            return None;
        }
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(file);
        let mut head = Vec::new();
        opened.ok()?.take(LONGEST).read_to_end(&mut head).ok()?;
        Self::read(&head)
    }

    /// As `binfmt_script` of the kernel reads it.
    fn read(head: &[u8]) -> Option<Self> {
        let line = head.strip_prefix(b"#!")?;
        let is_cut = head.len() as u64 >= LONGEST && !line.contains(&b'\n');
        let line = line.split(|byte| *byte == b'\n').next()?;
        let line = String::from_utf8_lossy(line);
        let line = line.trim_matches([' ', '\t']);
        let Some((interpreter, argument)) = line.split_once([' ', '\t', '\0']) else {
            // One that is cut off is another one's name.
            let is_whole = !line.is_empty() && !is_cut;
            return is_whole.then(|| Self {
                interpreter: line.to_owned(),
                argument: String::new(),
            });
        };
        Some(Self {
            interpreter: interpreter.to_owned(),
            argument: argument.trim_start_matches([' ', '\t']).to_owned(),
        })
    }
}

/// The program that `env` executes in its own place; `None` where only `env` itself could say.
fn started_by_env(argument: &str, surroundings: &Surroundings<'_>) -> Option<String> {
    let name = match argument.strip_prefix("-S") {
        Some(words) if !words.contains(['\'', '"', '\\', '$']) => {
            words.split_whitespace().find(|word| !word.contains('='))?
        }
        Some(_) => return None,
        // The kernel passes all that follows as one.
        None => argument,
    };
    if name.is_empty() || name.starts_with('-') || name.contains('=') {
        return None;
    }
    if name.contains('/') {
        return Some(name.to_owned());
    }
    surroundings.find(name)
}

/// The file that `path` leads to, or `path` where it leads nowhere.
fn end(path: &str) -> String {
    source::end_of_link(path, None).unwrap_or_else(|| path.to_owned())
}

/// So many scripts one after the other the kernel takes (`exec_binprm`).
const MOST: usize = 5;
/// So much of a file the kernel looks at (`BINPRM_BUF_SIZE`).
const LONGEST: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of a directory of their own.
    struct Shelf(tempfile::TempDir);

    impl Shelf {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a directory"))
        }

        fn path(&self) -> PathBuf {
            self.0.path().canonicalize().expect("is there")
        }

        fn file(&self, name: &str, text: &str) -> String {
            let file = self.path().join(name);
            fs::write(&file, text).expect("writes");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("chmod");
            file.into_os_string().into_string().expect("is text")
        }

        fn asked(&self, path: &str) -> Program {
            let place = self.path();
            let surroundings = Surroundings {
                path: place.as_os_str(),
                view: None,
            };
            Program::at(path, &surroundings)
        }
    }

    #[test]
    fn a_script_is_its_interpreter_and_its_interpreters_interpreter() {
        let shelf = Shelf::new();
        let program = shelf.file("program", "\x7fELF");
        let inner = shelf.file("inner", &format!("#! \t{program} -x y\n"));
        let outer = shelf.file("outer", &format!("#!{inner}"));

        let plain = shelf.asked(&program);
        let script = shelf.asked(&outer);

        assert_eq!(plain.file, program);
        assert_eq!((&plain.interpreters, &plain.note), (&Vec::new(), &None));
        assert_eq!(script.file, program);
        assert_eq!(script.interpreters, [inner, program.clone()]);
        let note = script.note.expect("is told");
        assert!(note.starts_with(&format!("{outer} is a script")), "{note}");
    }

    #[test]
    fn env_is_replaced_by_what_it_finds_on_the_path() {
        let shelf = Shelf::new();
        let program = shelf.file("python", "\x7fELF");
        let env = end("/usr/bin/env");

        for line in ["python", "-S python -u", "-S A=b python", "-Spython"] {
            let script = shelf.file("script", &format!("#!/usr/bin/env {line}\n"));
            let asked = shelf.asked(&script);
            assert_eq!(asked.interpreters, [env.clone(), program.clone()], "{line}");
            assert_eq!(asked.file, program, "{line}");
        }
        for line in ["nosuch", "python -u", "-i python", "-S 'python'", ""] {
            let script = shelf.file("script", &format!("#!/usr/bin/env {line}\n"));
            let asked = shelf.asked(&script);
            assert_eq!(asked.file, env, "{line}");
            let note = asked.note.expect("is told");
            assert!(note.contains("another program replaces"), "{line}: {note}");
        }
    }

    #[test]
    fn a_circle_of_scripts_is_followed_as_far_as_the_kernel_does() {
        let shelf = Shelf::new();
        let itself = shelf.path().join("itself");
        let itself = shelf.file("itself", &format!("#!{}\n", itself.display()));

        let asked = shelf.asked(&itself);

        assert_eq!(asked.interpreters.len(), MOST);
        assert!(asked.note.expect("is told").contains("executes nothing"));
    }

    #[test]
    fn an_interpreter_that_is_not_there_is_told() {
        let shelf = Shelf::new();
        let script = shelf.file("script", "#!/nosuch/sh\n");

        let asked = shelf.asked(&script);

        assert_eq!(asked.file, "/nosuch/sh");
        assert!(asked.note.expect("is told").contains("is not there"));
    }

    #[test]
    fn the_first_line_is_read_as_the_kernel_does() {
        let line = |text: &str| Line::read(text.as_bytes()).map(|l| (l.interpreter, l.argument));
        let read = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));

        assert_eq!(line("#!/bin/sh"), read("/bin/sh", ""));
        assert_eq!(line("#! /bin/sh\t-e  x \nrest"), read("/bin/sh", "-e  x"));
        for text in ["", "#", "#!", "#!  \n/bin/sh", "\x7fELF", "# !/bin/sh"] {
            assert_eq!(line(text), None, "{text:?}");
        }
        let cut = format!("#!/{}", "x".repeat(253));
        assert_eq!(line(&cut), None, "its name goes on");
    }

    #[test]
    fn what_the_program_does_not_see_is_not_found_on_its_path() {
        let shelf = Shelf::new();
        let place = shelf.path();
        let program = shelf.file("program", "\x7fELF");
        let standard = Policy::standard();

        // The view has the system's directories and a private /tmp.
        let within = Surroundings::of(&standard, place.as_os_str(), Some(place.clone()));
        let without = Surroundings::of(&standard, place.as_os_str(), None);

        assert_eq!(within.find("program"), Some(program));
        assert_eq!(without.find("program"), None);
    }
}
