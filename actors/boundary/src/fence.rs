//! Where policy meets kernel: what the fence around a sandbox is made of.
//!
//! The plan is made before anything starts. Whatever the policy demands and this host cannot give is refused here, with
//! the reason; a step of the building that fails later refuses in the same form.

mod account;
pub(crate) mod build;
pub(crate) mod calls;
pub mod names;
pub mod view;

use std::fmt;
use std::path::{Path, PathBuf};

use holdfast_kernel::descriptors::is_exhausted;
use holdfast_kernel::{landlock, look};
use holdfast_policy::{Cidr, Compatibility, OnLinkLoss, Policy};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{Gid, Uid};

use crate::sweeper::Sweeper;
use view::{Access, BARRED, MISSING, View};

/// What the fence is made of.
#[derive(Clone, Debug)]
pub struct Fence {
    /// Which files are seen.
    pub view: View,
    /// Whom the workload runs as, if not as the caller.
    pub user: Option<(Uid, Gid)>,
    /// Whether the caller is root.
    pub as_root: bool,
    /// What each process may use.
    pub limits: Limits,
    /// What the sandbox does without, since this host does not give it.
    pub lacking: Vec<Lack>,
    /// Ports that are listened on from the start.
    pub ports: Vec<u16>,
    /// Addresses that are listened for on every port, once somebody connects to it, though they may be the sandbox's own.
    pub listed: Vec<Cidr>,
    /// Whether connections to every port are captured, also of those whom nobody may look at.
    pub every_port: bool,
    /// Whether Landlock is in force.
    pub landlock: bool,
    /// What becomes of the workload while the keeper is silent.
    pub on_link_loss: OnLinkLoss,
}

/// What each workload process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open descriptors, soft.
    pub descriptors: u64,
    /// Open descriptors, hard.
    pub descriptors_hard: u64,
    /// Processes of the user.
    pub processes: Option<u64>,
    /// Bytes of private memory that can be written, of one process: reservations that are not used do not count.
    pub memory: Option<u64>,
}

/// A limit of the policy that is above the hard limit here, which nobody but root of the host can raise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("process.limits.{key} is {wanted}, and the hard limit here is {most}")]
pub struct Exceeding {
    key: &'static str,
    wanted: u64,
    most: u64,
}

/// What a sandbox does without on this host, as it is told to whoever starts it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    /// A limit of the policy is above the one here.
    #[error("{0}: that holds")]
    Limit(Exceeding),
    /// There is no Landlock.
    #[error(
        "this host gives no Landlock: the mount view alone guards the files; `landlock: {{compatibility: hard_requirement}}` starts nothing without it"
    )]
    Landlock,
    /// Landlock is of this version, which has no scopes.
    #[error(
        "this host's Landlock is version {0}, which does not scope signals and abstract sockets: the namespaces alone keep them apart; Linux 6.12 has the version that does"
    )]
    Scopes(i32),
    /// There is no place for the resolver's configuration in a directory that the sandbox may write to.
    #[error(
        "the sandbox has no /etc/resolv.conf, since its root has none and none can be made for it in {} ({told}): make room, or put an empty {} there", .path.parent().unwrap_or(.path).display(), .path.file_name().unwrap_or_default().display()
    )]
    Resolver {
        /// Where it would be, in the sandbox's root.
        path: PathBuf,
        /// The call that failed, and why.
        told: String,
    },
}

/// The host as the caller of `run` sees it.
#[derive(Clone, Debug)]
pub struct Host {
    /// The directory that is seen as `/`.
    pub root: PathBuf,
    /// The working directory that the sandbox starts in.
    pub directory: PathBuf,
    /// The directory that `include_workdir` means: the caller's own, which another start does not change.
    pub workdir: PathBuf,
    /// Who calls.
    pub uid: Uid,
    /// Its group.
    pub gid: Gid,
    /// The caller's own limit of descriptors: soft and hard.
    pub descriptors: (u64, u64),
    /// The hard limits of this process, which no policy can go beyond: of descriptors, processes and memory.
    pub hard: [u64; 3],
    /// Landlock's version; 0 without it.
    pub landlock: i32,
    /// The call without which nobody who connects can be observed, and what this host answers to it, if it refuses one.
    pub unobservable: Option<String>,
    /// Where the runtime keeps files and sockets of its own: no view shows them.
    pub hidden: Vec<PathBuf>,
}

/// Why a sandbox is not started.
#[derive(Debug, thiserror::Error)]
pub enum Unplanned {
    /// A listed path is not there.
    #[error("filesystem_policy lists {}, which {MISSING}; remove it, create it, or write `landlock: {{compatibility: best_effort}}` to leave out what is missing", paths(.0))]
    Missing(Vec<PathBuf>),
    /// A listed path may not be reached by whoever starts the sandbox.
    #[error("filesystem_policy lists {}, which {BARRED}; remove it, start as somebody who may, or write `landlock: {{compatibility: best_effort}}` to leave out what cannot be reached", paths(.0))]
    Barred(Vec<PathBuf>),
    /// A link stands where the sandbox may have made it.
    #[error("filesystem_policy leads through the link {}, which lies in a directory that the sandbox may write to and may have put there itself; list the directory that is meant", paths(.0))]
    Planted(Vec<PathBuf>),
    /// One place is listed both to be read and to be changed.
    #[error("filesystem_policy lists {} in read_only and {} in read_write, which are one and the same; keep one of them", .read_only.display(), .read_write.display())]
    Contradictory {
        /// The path in `read_only`.
        read_only: PathBuf,
        /// The path in `read_write`.
        read_write: PathBuf,
    },
    /// A path in `read_write` leads to the root.
    #[error("filesystem_policy lists {} in read_write, which leads to /; the whole root cannot be writable: list the directories that are written to", .0.display())]
    Boundless(PathBuf),
    /// The working directory is not in the view.
    #[error("the working directory {} is not in the sandbox's view; list it in filesystem_policy, set include_workdir, or choose another with --cwd", .0.display())]
    Directory(PathBuf),
    /// Something of the runtime's own is demanded.
    #[error("the policy or the working directory shows {}, where the runtime keeps files of its own; name another directory, or move the runtime's with HOLDFAST_STATE_DIR and HOLDFAST_RUNTIME_DIR", .0.display())]
    OwnFiles(PathBuf),
    /// A directory of the runtime's own is not there, and the sandbox could make it: see [`exposed`].
    #[error("the sandbox could make {}, where the runtime keeps files of its own; make it first", .0.display())]
    OwnMissing(PathBuf),
    /// A file that the view has to cover is none.
    #[error(transparent)]
    Unfit(#[from] names::Unfit),
    /// `--rootfs` is no directory.
    #[error("--rootfs {} is not a directory", .0.display())]
    Root(PathBuf),
    /// Landlock is demanded and not there.
    #[error(
        "landlock.compatibility is hard_requirement and this kernel has no Landlock; boot with `lsm=landlock,…` or write best_effort"
    )]
    Landlock,
    /// A rule is for some programs only, and nobody can be told apart.
    #[error(
        "network_policies.{key} names binaries, and this host lets nobody be observed ({told}); allow that call (in a container: in its seccomp profile), or remove `binaries` to allow every program"
    )]
    Unobservable {
        /// The key of the rule.
        key: String,
        /// The call that is refused.
        told: String,
    },
    /// A limit that is not to be had.
    #[error(
        "{0}; raise that, write less, or write `landlock: {{compatibility: best_effort}}` to make do with it"
    )]
    Exceeding(Exceeding),
    /// Another user is demanded.
    #[error(
        "process.{key} is {wanted}, but only root can run a workload as somebody else; remove it or start as root"
    )]
    User {
        /// The key.
        key: &'static str,
        /// Who is wanted.
        wanted: u32,
    },
    /// A limit that the kernel does not keep for root.
    #[error(
        "process.limits.nproc does not bind root; run the workload as somebody else with process.run_as_user, or remove the limit"
    )]
    Processes,
    /// A user who is not in the sandbox's `/etc/passwd` has no group of his own.
    #[error(
        "process.run_as_user is {0}, for whom /etc/passwd of the sandbox's root names no group; write process.run_as_group, too"
    )]
    NoGroup(String),
    /// A user or group is not known.
    #[error(
        "process.{key} names {wanted}, which {file} of the sandbox's root does not have; write a number"
    )]
    UnknownUser {
        /// The key.
        key: &'static str,
        /// Its value.
        wanted: String,
        /// Where it was looked up.
        file: &'static str,
    },
}

/// A step of the fence that failed.
#[derive(Debug)]
pub struct Broken {
    step: String,
    message: String,
}

impl Host {
    /// The host as the calling process sees it, with `root` as `/`, `directory` to start in and `workdir` to include.
    pub fn look(root: PathBuf, directory: PathBuf, workdir: PathBuf) -> Self {
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
        let hard = |resource| getrlimit(resource).map_or(u64::MAX, |(_, hard)| hard);
        Self {
            root,
            directory,
            workdir,
            uid: Uid::effective(),
            gid: Gid::effective(),
            descriptors,
            hard: [
                hard(Resource::RLIMIT_NOFILE),
                hard(Resource::RLIMIT_NPROC),
                hard(Resource::RLIMIT_DATA),
            ],
            landlock: landlock::abi(),
            unobservable: unobservable(),
            hidden: Vec::new(),
        }
    }
}

impl Fence {
    /// Makes the place that a file of the view's own has to be mounted on, if one has to be made or shared. Where that
    /// cannot be done the sandbox does without the file.
    pub(crate) fn make_place(&mut self) -> Option<Sweeper> {
        let path = self.view.placeholder.take()?;
        match Sweeper::start(&self.view.source(&path)) {
            Ok(sweeper) => sweeper,
            Err(error) => {
                self.view.covers.remove(&path);
                let told = error.told();
                self.lacking.push(Lack::Resolver { path, told });
                None
            }
        }
    }

    /// The same, listening on `port` from the start whatever the policy names.
    #[must_use]
    pub fn listening_on(mut self, port: u16) -> Self {
        if !self.ports.contains(&port) {
            self.ports.push(port);
        }
        self
    }
}

/// The directories of the runtime's own that are not there and that a sandbox under `policy` could make. Whoever comes first
/// has them, and only what is there can be covered up: they have to be made before the fence is planned.
pub fn exposed(policy: &Policy, host: &Host) -> Vec<PathBuf> {
    let missing: Vec<_> = host.hidden.iter().filter(|path| !path.exists()).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    let view = plan_view(policy, host);
    let exposed = missing.into_iter().filter(|path| view.lets_make(path));
    exposed.cloned().collect()
}

/// Plans the fence that `policy` asks for on `host`.
pub fn plan(policy: &Policy, host: &Host) -> Result<Fence, Unplanned> {
    if !host.root.is_dir() {
        return Err(Unplanned::Root(host.root.clone()));
    }
    let demanded = policy.compatibility() == Compatibility::HardRequirement;
    if demanded && host.landlock == 0 {
        return Err(Unplanned::Landlock);
    }
    is_judgeable(policy, host.unobservable.as_deref())?;
    let mut view = plan_view(policy, host);
    for path in &host.hidden {
        if view.lets_make(path) {
            return Err(Unplanned::OwnMissing(path.clone()));
        }
        view.hide(path).map_err(Unplanned::OwnFiles)?;
    }
    if let Some((read_only, read_write)) = view.contradictory.pop() {
        return Err(Unplanned::Contradictory {
            read_only,
            read_write,
        });
    }
    if let Some(path) = view.boundless.pop() {
        return Err(Unplanned::Boundless(path));
    }
    if !view.planted.is_empty() {
        return Err(Unplanned::Planted(view.planted));
    }
    if demanded {
        is_whole(&view)?;
    }
    cover_names(&mut view, policy)?;
    if !view.reaches(&host.directory) {
        return Err(Unplanned::Directory(host.directory.clone()));
    }
    let limits = &policy.process().limits;
    let user = account::user(policy, host)?;
    let uid = user.map_or(host.uid, |(uid, _)| uid);
    if uid.is_root() && limits.nproc.is_some() {
        return Err(Unplanned::Processes);
    }
    let exceeding = exceeding(policy, host);
    if let Some(first) = exceeding.first().filter(|_| demanded) {
        return Err(Unplanned::Exceeding(*first));
    }
    let lacking = exceeding.into_iter().map(Lack::Limit);
    let captured = policy.captured_ports();
    Ok(Fence {
        view,
        user,
        as_root: host.uid.is_root(),
        limits: Limits {
            descriptors: limits.nofile.unwrap_or(host.descriptors.0),
            descriptors_hard: limits.nofile.unwrap_or(host.descriptors.1),
            processes: limits.nproc,
            memory: limits.memory,
        },
        lacking: lacking.chain(of_landlock(host.landlock)).collect(),
        ports: captured.named.into_iter().collect(),
        listed: captured.listed,
        every_port: captured.every_port,
        landlock: host.landlock > 0,
        on_link_loss: policy.on_link_loss(),
    })
}

/// Whether those whom the rules of a revision tell apart can be told apart on this host.
pub fn admit(policy: &Policy) -> Result<(), Unplanned> {
    is_judgeable(policy, unobservable().as_deref())
}

/// The call without which nobody who connects can be observed, and what this host answers to it, if it refuses one.
fn unobservable() -> Option<String> {
    // What is short now is told where it is needed.
    look::attempt()
        .err()
        .filter(|error| !is_exhausted(error.errno()))
        .map(|error| error.told())
}

fn is_judgeable(policy: &Policy, unobservable: Option<&str>) -> Result<(), Unplanned> {
    let mut rules = policy.rules().iter();
    let choosy = rules.find(|rule| rule.binaries.is_some());
    match (unobservable, choosy) {
        (Some(told), Some(choosy)) => Err(Unplanned::Unobservable {
            key: choosy.key.clone(),
            told: told.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Whether everything that is listed is shown.
fn is_whole(view: &View) -> Result<(), Unplanned> {
    if !view.missing.is_empty() {
        return Err(Unplanned::Missing(view.missing.clone()));
    }
    if !view.barred.is_empty() {
        return Err(Unplanned::Barred(view.barred.clone()));
    }
    Ok(())
}

/// Has names asked of the sandbox's own resolver.
fn cover_names(view: &mut View, policy: &Policy) -> Result<(), names::Unfit> {
    view.set_resolver(NAMESERVER)?;
    if !policy.rules().is_empty() || !policy.hosts().is_empty() {
        view.set_hosts(|name| policy.decides_by_name(name))?;
    }
    Ok(())
}

/// The limits of `policy` that are above those of `host`.
fn exceeding(policy: &Policy, host: &Host) -> Vec<Exceeding> {
    let limits = &policy.process().limits;
    let wanted = [
        ("nofile", limits.nofile),
        ("nproc", limits.nproc),
        ("memory", limits.memory),
    ];
    let above = wanted
        .into_iter()
        .zip(host.hard)
        .filter_map(|((key, wanted), most)| {
            let wanted = wanted.filter(|wanted| *wanted > most)?;
            Some(Exceeding { key, wanted, most })
        });
    above.collect()
}

/// What Landlock of this version lacks of what is asked of it.
fn of_landlock(abi: i32) -> Option<Lack> {
    if abi == 0 {
        Some(Lack::Landlock)
    } else {
        (abi < landlock::SCOPES).then_some(Lack::Scopes(abi))
    }
}

fn plan_view(policy: &Policy, host: &Host) -> View {
    let mut view = View::of(&host.root);
    let workdir = view.resolve_missing(&host.workdir);
    let at_root = workdir == Path::new("/");
    match policy.filesystem() {
        None => {
            view.show_everything(Access::Write);
            // It may be where the sandbox has files of its own, such as below /tmp; but /sys stays read-only.
            let stays = matches!(view.covering(&workdir), Some((_, Access::Read)));
            if !stays && !at_root {
                view.show(&host.workdir, Access::Write);
            }
        }
        Some(files) => {
            let real = |path: &PathBuf| view.resolve_missing(path);
            // The root as a working directory would open everything, which no default may do; and a directory that is
            // listed read-only stays so.
            let stays = at_root || files.read_only.iter().any(|path| real(path) == workdir);
            let included = files.include_workdir && !stays;
            let mut writable: Vec<PathBuf> = files.read_write.iter().map(real).collect();
            writable.extend(included.then_some(workdir));
            view.writable = writable;
            for path in &files.read_only {
                view.show(path, Access::Read);
            }
            for path in &files.read_write {
                view.show(path, Access::Write);
            }
            if included {
                view.show(&host.workdir, Access::Write);
            }
        }
    }
    view
}

impl Broken {
    pub(crate) fn new(
        step: &str,
        object: impl AsRef<Path>,
        source: &holdfast_kernel::Error,
    ) -> Self {
        let step = format!("{step} {}", object.as_ref().display())
            .trim_end()
            .to_owned();
        Self {
            step,
            message: source.told(),
        }
    }

    pub(crate) fn io(step: &str, object: impl AsRef<Path>, error: &std::io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        Self::new(step, object, &holdfast_kernel::Error::new("open", errno))
    }

    /// A step that failed in the launcher, as it told it.
    pub(crate) fn told(step: String, message: String) -> Self {
        Self { step, message }
    }

    /// What was being done to what.
    pub fn step(&self) -> String {
        self.step.clone()
    }

    /// The call that failed, and why.
    pub fn message(&self) -> String {
        self.message.clone()
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.message)
    }
}

impl std::error::Error for Broken {}

fn paths(paths: &[PathBuf]) -> String {
    paths
        .iter()
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

/// The address of the sandbox's own interface, where the keeper's resolver is reached; so it is at any other.
pub const NAMESERVER: &str = "198.18.0.1";

#[cfg(test)]
mod tests;
