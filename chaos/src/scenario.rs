//! What a siege does: its load, its faults and what must hold. Read strictly from YAML by [`Scenario::parse`].

use std::fmt;
use std::time::Duration;

use crate::document;

/// One siege, as it was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scenario {
    /// What it is called on the command line.
    pub(crate) name: String,
    /// What it is there to show, for people.
    pub(crate) description: String,
    /// How long its faults go on.
    pub(crate) duration: Duration,
    /// How long all is left alone afterwards before the last look.
    pub(crate) settle: Duration,
    /// What the sandbox has to do meanwhile.
    pub(crate) load: Load,
    /// How Ready is tried.
    pub(crate) probe: Probe,
    /// One sandbox for each of these, with so many entries at the top of its root; none for one sandbox on the host's root.
    pub(crate) roots: Vec<u64>,
    /// The descriptor limit that our own gateway and all below it are started with.
    pub(crate) nofile: Option<u64>,
    /// The faults, in the order in which they were written.
    pub(crate) faults: Vec<Breakage>,
    /// How many faults are drawn from the list one after another; `None`: each has times of its own.
    pub(crate) shuffle: Option<Shuffle>,
    /// What must hold.
    pub(crate) checks: Checks,
}

/// What a sandbox has to do while it is attacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Programs started a second.
    pub(crate) execs: u32,
    /// Connections that are held open from inside.
    pub(crate) connections: u32,
    /// Connections made a second from inside.
    pub(crate) flood: u32,
    /// Sandboxes that are created, used and deleted over and over, so many at a time.
    pub(crate) lives: u32,
}

/// How Ready is tried: an exec that connects to an allowed server, started again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// The time between two starts; zero for one after another.
    pub(crate) every: Duration,
    /// One that takes longer has failed.
    pub(crate) limit: Duration,
}

/// Faults drawn at random, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shuffle {
    /// How many at most; the duration may end it earlier.
    pub(crate) times: u32,
    /// The time between the undoing of one and the next.
    pub(crate) rest: Duration,
}

/// A fault with its times.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Breakage {
    /// What is broken.
    pub(crate) fault: Fault,
    /// For how long: at least and at most.
    pub(crate) lasts: (Duration, Duration),
    /// When.
    pub(crate) when: When,
}

/// When a fault is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// At these times from the start.
    At(Vec<Duration>),
    /// Again and again.
    Every(Duration),
    /// So many times, at moments that the seed chooses.
    Random(u32),
    /// When the shuffle draws it.
    Drawn,
}

/// One of our processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Process {
    Gateway,
    Keeper,
    Boundary,
    Launcher,
}

/// What can be broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The soft limit of descriptors becomes what is in use and `spare` more; fewer than are in use when negative.
    Emfile {
        /// Whose.
        process: Process,
        /// How many more than are in use.
        spare: i64,
    },
    /// The host's table of files bears `spare` more than are open; fewer when negative.
    Enfile {
        /// How many more.
        spare: i64,
    },
    /// SIGKILL.
    Kill(Process),
    /// SIGSTOP, later SIGCONT.
    Stop(Process),
    /// An actor panics.
    Panic(Actor),
    /// An actor answers nothing any more.
    Hang(Actor),
    /// So many connections are held from inside.
    FdFlood(u32),
    /// So many programs are started at once, again and again.
    ExecStorm(u32),
    /// So many clients read nothing of a session that writes without end.
    SlowReader(u32),
    /// Nothing more can be written to the state directory.
    DiskFull,
    /// The host's clock is set forward by so much.
    ClockJump(Duration),
}

/// An actor: one by its path, or any of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Actor {
    /// "keeper/egress".
    Named(String),
    /// Any that runs when its time comes.
    AnyOf(Process),
}

/// The kind of a fault; two of one kind never overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Emfile,
    Enfile,
    Kill,
    Stop,
    Panic,
    Hang,
    FdFlood,
    ExecStorm,
    SlowReader,
    DiskFull,
    ClockJump,
}

/// What must hold, with its bounds; `None` is not asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a question of its own"
)]
pub(crate) struct Checks {
    /// The longest time at which Ready was shown and was not true.
    pub(crate) false_ready: Option<Duration>,
    /// How soon Ready must be gone after a death; what is stopped has four times as long.
    pub(crate) told: Option<Duration>,
    /// Whether every session needs a status or a reason.
    pub(crate) sessions: bool,
    /// Whether no connection that is held from inside may be closed.
    pub(crate) connections: bool,
    /// Nothing is given up, no process ends by itself, and at most so many restarts are counted.
    pub(crate) restarts: Option<u64>,
    /// The shortest time in which one actor may be restarted twice.
    pub(crate) backoff: Option<Duration>,
    /// How far the use of descriptors may lie above what it was before.
    pub(crate) descriptors: Option<Descriptors>,
    /// Whether nothing may be left behind: a fault, and of our own gateway anything at all.
    pub(crate) leftovers: bool,
    /// Whether every connection that arrived needs a record (our own server only).
    pub(crate) verdicts: bool,
    /// How soon after the end of the last fault the sandbox is Ready again.
    pub(crate) recovery: Option<Duration>,
    /// Whether what was acknowledged must be there, and what was deleted must not.
    pub(crate) acknowledged: bool,
}

/// Bounds on descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// How many more than before the siege may be open after it.
    pub(crate) above: u64,
    /// How many each process may have open when all has settled.
    pub(crate) settled: Option<u64>,
    /// The most that the keeper may ever have.
    pub(crate) keeper: Option<u64>,
    /// The most that the boundary may ever have.
    pub(crate) boundary: Option<u64>,
    /// How far the high-water marks of sandboxes with different roots may differ.
    pub(crate) spread: Option<u64>,
}

impl Scenario {
    /// Reads a scenario; `file` is what messages call it.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, Problem> {
        document::read(file, text)
    }

    /// Those that come with the program.
    pub(crate) fn built_in() -> impl Iterator<Item = (&'static str, &'static str)> {
        BUILT_IN.iter().copied()
    }
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            every: Duration::from_millis(150),
            limit: Duration::from_secs(5),
        }
    }
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            false_ready: Some(Duration::from_millis(500)),
            told: Some(Duration::from_millis(500)),
            sessions: true,
            connections: false,
            restarts: None,
            backoff: Some(Duration::from_millis(10)),
            descriptors: Some(Descriptors::default()),
            leftovers: true,
            verdicts: true,
            recovery: Some(Duration::from_secs(30)),
            acknowledged: true,
        }
    }
}

impl Default for Descriptors {
    fn default() -> Self {
        Self {
            above: 8,
            settled: None,
            keeper: None,
            boundary: None,
            spread: None,
        }
    }
}

impl Fault {
    /// Its kind.
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::Emfile { .. } => Kind::Emfile,
            Self::Enfile { .. } => Kind::Enfile,
            Self::Kill(_) => Kind::Kill,
            Self::Stop(_) => Kind::Stop,
            Self::Panic(_) => Kind::Panic,
            Self::Hang(_) => Kind::Hang,
            Self::FdFlood(_) => Kind::FdFlood,
            Self::ExecStorm(_) => Kind::ExecStorm,
            Self::SlowReader(_) => Kind::SlowReader,
            Self::DiskFull => Kind::DiskFull,
            Self::ClockJump(_) => Kind::ClockJump,
        }
    }
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Self; 11] = [
        Self::Emfile,
        Self::Enfile,
        Self::Kill,
        Self::Stop,
        Self::Panic,
        Self::Hang,
        Self::FdFlood,
        Self::ExecStorm,
        Self::SlowReader,
        Self::DiskFull,
        Self::ClockJump,
    ];

    /// The word that scenarios use.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Emfile => "emfile",
            Self::Enfile => "enfile",
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Panic => "panic",
            Self::Hang => "hang",
            Self::FdFlood => "fd-flood",
            Self::ExecStorm => "exec-storm",
            Self::SlowReader => "slow-reader",
            Self::DiskFull => "disk-full",
            Self::ClockJump => "clock-jump",
        }
    }
}

impl Process {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Gateway, Self::Keeper, Self::Boundary, Self::Launcher];

    /// Its name in scenarios and in the status.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Keeper => "keeper",
            Self::Boundary => "boundary",
            Self::Launcher => "launcher",
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(path) => f.write_str(path),
            Self::AnyOf(process) => write!(f, "any actor of the {process}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind().word())?;
        match self {
            Self::Emfile { process, spare } => write!(f, " {process} {spare:+}"),
            Self::Enfile { spare } => write!(f, " {spare:+}"),
            Self::Kill(process) | Self::Stop(process) => write!(f, " {process}"),
            Self::Panic(actor) | Self::Hang(actor) => write!(f, " {actor}"),
            Self::FdFlood(count) | Self::ExecStorm(count) | Self::SlowReader(count) => {
                write!(f, " {count}")
            }
            Self::DiskFull => Ok(()),
            Self::ClockJump(by) => write!(f, " +{by:?}"),
        }
    }
}

/// What is wrong with a scenario, where, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The file as it was named.
    pub(crate) file: String,
    /// From 1; 0 for the document as a whole.
    pub(crate) line: u64,
    /// From 1; 0 for the document as a whole.
    pub(crate) column: u64,
    /// What is wrong.
    pub(crate) message: String,
    /// What to write instead.
    pub(crate) suggestion: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            column,
            message,
            suggestion,
        } = self;
        write!(f, "{file}:{line}:{column}: {message}")?;
        match suggestion {
            Some(suggestion) => write!(f, "; {suggestion}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}

const BUILT_IN: [(&str, &str); 7] = [
    ("breakages", include_str!("../scenarios/breakages.yaml")),
    ("crash", include_str!("../scenarios/crash.yaml")),
    (
        "emfile-proxy",
        include_str!("../scenarios/emfile-proxy.yaml"),
    ),
    ("exec-storm", include_str!("../scenarios/exec-storm.yaml")),
    ("host", include_str!("../scenarios/host.yaml")),
    (
        "landlock-1000",
        include_str!("../scenarios/landlock-1000.yaml"),
    ),
    ("quick", include_str!("../scenarios/quick.yaml")),
];
