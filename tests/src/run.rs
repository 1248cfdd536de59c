//! Running the real binary, with a deadline on everything.

use crate::area::Area;
use crate::artefacts::holdfast;
use crate::finished::Finished;
use crate::gathered::Gathered;
use crate::leaks::Mark;
use crate::policy::Policy;
use crate::record::{self, Record};
use crate::wait::{LONG, now};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

/// [`Run::under`] a shell that has more open than a program should get.
pub const MORE_OPEN: [&str; 4] = [
    "/bin/sh",
    "-c",
    "exec \"$@\" 7</etc/passwd 8</ 9</etc/passwd",
    "sh",
];

/// What the command is fed.
#[derive(Debug, Default)]
enum Input {
    /// Nothing: `/dev/null`.
    #[default]
    Null,
    /// These bytes, then the end.
    Bytes(Vec<u8>),
    /// A pipe that the test holds.
    Held,
    /// A descriptor of the test's choice.
    File(std::fs::File),
}

/// One start of the binary, being described.
#[must_use = "a run that is not started tests nothing"]
#[derive(Debug)]
pub struct Run<'a> {
    area: &'a Area,
    before: Vec<OsString>,
    options: Vec<OsString>,
    command: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    directory: PathBuf,
    input: Input,
    audit: Option<PathBuf>,
    limit: Duration,
    stays_myself: bool,
}

impl<'a> Run<'a> {
    /// `holdfast run --policy … --audit …`.
    pub fn new(area: &'a Area, policy: &Policy) -> Self {
        Self::with_text(area, &policy.text())
    }

    /// `holdfast run` with a policy written out.
    pub fn with_text(area: &'a Area, policy: &str) -> Self {
        let file = area.file(&area.fresh("policy.yaml"), policy);
        let audit = area.fresh("audit.jsonl");
        let mut run = Self::plain(area, ["run", "--policy"])
            .option(file)
            .option("--audit");
        run.options.push(audit.clone().into());
        run.audit = Some(audit);
        run
    }

    /// `holdfast ARGUMENT…`, as it is.
    pub fn plain<A: Into<OsString>>(
        area: &'a Area,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        Self {
            area,
            before: Vec::new(),
            options: arguments.into_iter().map(Into::into).collect(),
            command: Vec::new(),
            environment: Vec::new(),
            directory: area.work(),
            input: Input::Null,
            audit: None,
            limit: LONG,
            stays_myself: false,
        }
    }

    /// One more option.
    pub fn option(mut self, option: impl Into<OsString>) -> Self {
        self.options.push(option.into());
        self
    }

    /// What stands after `--`.
    pub fn command<A: Into<OsString>>(mut self, words: impl IntoIterator<Item = A>) -> Self {
        self.command = words.into_iter().map(Into::into).collect();
        self
    }

    /// A line for `/bin/sh`.
    pub fn shell(self, line: &str) -> Self {
        self.command(["/bin/sh", "-c", line])
    }

    /// One attempt of the probe: its name and arguments, parted by blanks.
    pub fn attempt(self, words: &str) -> Self {
        let probe = crate::probe::probe().expect("the test asked for the probe before");
        let words = words.split(' ').map(OsString::from);
        self.command(std::iter::once(probe.into()).chain(words))
    }

    /// A program that runs the binary instead of the test: `setsid`, `unshare`, `prlimit` and their arguments.
    pub fn under<A: Into<OsString>>(mut self, words: impl IntoIterator<Item = A>) -> Self {
        self.before = words.into_iter().map(Into::into).collect();
        self
    }

    /// One more program in front of all.
    pub(crate) fn led_by<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.before.splice(0..0, words.map(OsString::from));
        self
    }

    /// Does not become the caller at the start: what stands before the binary does that itself.
    pub fn as_root_first(mut self) -> Self {
        self.stays_myself = true;
        self
    }

    /// A variable of the binary's own environment.
    pub fn environment(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Where it is started.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = directory.into();
        self
    }

    /// Bytes for its input.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Input::Bytes(bytes.into());
        self
    }

    /// Keeps its input open.
    pub fn held_input(mut self) -> Self {
        self.input = Input::Held;
        self
    }

    /// A file as its input.
    pub fn input_from(mut self, file: std::fs::File) -> Self {
        self.input = Input::File(file);
        self
    }

    /// A word in the environment of every process of this run, inside and outside.
    pub fn marked(self, mark: &Mark) -> Self {
        let given = format!("{}={}", Mark::NAME, mark.value());
        self.environment(Mark::NAME, mark.value())
            .option("--env")
            .option(given)
    }

    /// Where this run writes its audit.
    pub fn audit(&self) -> Option<&Path> {
        self.audit.as_deref()
    }

    /// Another deadline.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Starts it, waits for its end and gathers what it left.
    pub fn finish(self) -> Finished {
        self.start().finish()
    }

    /// The words and the environment, without streams.
    pub fn describe(&self) -> Command {
        let mut words = heeding();
        words.extend(self.before.iter().cloned());
        words.push(holdfast().into());
        words.extend(self.options.iter().cloned());
        if !self.command.is_empty() {
            words.push("--".into());
            words.extend(self.command.iter().cloned());
        }
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .current_dir(&self.directory)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", self.area.home())
            .env("LANG", "C.UTF-8")
            .env("HOLDFAST_RUNTIME_DIR", self.area.runtime())
            .env("HOLDFAST_STATE_DIR", self.area.state())
            .envs(self.environment.iter().cloned());
        let uid = self.area.caller().uid();
        if uid != nix::unistd::geteuid().as_raw() && !self.stays_myself {
            // The standard library clears the supplementary groups as well when root becomes someone else.
            command.uid(uid).gid(uid);
        }
        command
    }

    /// Starts it.
    pub fn start(mut self) -> Running {
        let mut command = self.describe();
        let input = std::mem::take(&mut self.input);
        let stdin = match &input {
            Input::Null => Stdio::null(),
            Input::Bytes(_) | Input::Held => Stdio::piped(),
            Input::File(file) => file.try_clone().expect("duplicate the input").into(),
        };
        command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("start holdfast");
        let mut stdin = child.stdin.take();
        if let Input::Bytes(bytes) = input {
            feed(stdin.take().expect("stdin is a pipe"), bytes);
        }
        let stdout = Gathered::from(child.stdout.take().expect("stdout is a pipe"));
        let stderr = Gathered::from(child.stderr.take().expect("stderr is a pipe"));
        let pid = i32::try_from(child.id()).expect("a pid fits");
        Running {
            who: format!("{} as {}", self.words(), self.area.caller()),
            pid: Pid::from_raw(pid),
            stdin,
            stdout,
            stderr,
            end: end_of(child),
            ended: false,
            audit: self.audit.take(),
            limit: self.limit,
            began: now(),
        }
    }

    fn words(&self) -> String {
        let all = self.options.iter().chain(&self.command);
        all.map(|word| word.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// A run that has not ended yet.
#[derive(Debug)]
pub struct Running {
    who: String,
    pid: Pid,
    stdin: Option<ChildStdin>,
    stdout: Gathered,
    stderr: Gathered,
    end: mpsc::Receiver<ExitStatus>,
    ended: bool,
    audit: Option<PathBuf>,
    limit: Duration,
    began: std::time::Instant,
}

impl Running {
    /// The process that was started.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits until the output so far contains this; answers the output.
    pub fn expect(&self, text: &str) -> String {
        self.stdout
            .wait_for(text, self.limit)
            .unwrap_or_else(|so_far| {
                panic!(
                    "{}: no {text:?} in its output: {so_far:?}\n{}",
                    self.who,
                    self.stderr.text()
                )
            })
    }

    /// The output so far.
    pub fn output(&self) -> String {
        self.stdout.text()
    }

    /// Writes to its input.
    pub fn send(&mut self, bytes: &[u8]) {
        let pipe = self.stdin.as_mut().expect("the input is held");
        pipe.write_all(bytes).expect("write to the input");
        pipe.flush().expect("flush the input");
    }

    /// Ends its input.
    pub fn end_input(&mut self) {
        self.stdin = None;
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid, signal).expect("signal holdfast");
    }

    /// The audit records so far.
    pub fn records(&self) -> Vec<Record> {
        self.audit.as_deref().map(record::read).unwrap_or_default()
    }

    /// Waits for its end and gathers what it left.
    pub fn finish(mut self) -> Finished {
        let left = self.limit.saturating_sub(self.began.elapsed());
        let status = match self.end.recv_timeout(left) {
            Ok(status) => status,
            Err(error) => panic!(
                "{}: still running after {:?} ({error})\nstdout: {}\nstderr: {}",
                self.who,
                self.limit,
                self.stdout.text(),
                self.stderr.text()
            ),
        };
        self.ended = true;
        let took = self.began.elapsed();
        let closed = self.stdout.wait_for_end() && self.stderr.wait_for_end();
        assert!(
            closed,
            "{}: ended, but something still holds its output",
            self.who
        );
        Finished {
            who: std::mem::take(&mut self.who),
            status,
            stdout: self.stdout.bytes(),
            stderr: self.stderr.text(),
            records: self.records(),
            took,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            let _ = kill(self.pid, Signal::SIGKILL);
        }
    }
}

/// What is put in front where we were started to ignore signals ourselves (`nohup`, a job of a script): the binary would too.
fn heeding() -> Vec<OsString> {
    static IGNORES: OnceLock<bool> = OnceLock::new();
    let ignores = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("our own status");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = u64::from_str_radix(mask.expect("a mask").trim(), 16).expect("a number");
        let heeded = [
            Signal::SIGHUP,
            Signal::SIGINT,
            Signal::SIGQUIT,
            Signal::SIGTERM,
        ];
        heeded
            .iter()
            .any(|signal| mask >> (*signal as u32 - 1) & 1 == 1)
    };
    if *IGNORES.get_or_init(ignores) {
        return ["env", "--default-signal=HUP,INT,QUIT,TERM"]
            .map(OsString::from)
            .into();
    }
    Vec::new()
}

/// Feeds a pipe from a thread: a command that does not read its input must not stop the test.
fn feed(mut pipe: ChildStdin, bytes: Vec<u8>) {
    std::thread::spawn(move || drop(pipe.write_all(&bytes)));
}

/// Hears of the end of a process.
pub(crate) fn end_of(mut child: Child) -> mpsc::Receiver<ExitStatus> {
    let (say, hear) = mpsc::channel();
    std::thread::spawn(move || {
        if let Ok(status) = child.wait() {
            let _ = say.send(status);
        }
    });
    hear
}
