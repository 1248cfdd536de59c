//! Which part of the host's files a sandbox sees, and how.
//!
//! The plan is made outside, before anything starts, from the policy and from what is really there. It holds resolved
//! paths only: a symbolic link on the way is kept as a link, and its target gets its own mount. Building it is
//! [`build`](super::build)'s work.
//!
//! What may not be changed may lie below what may. A mount keeps its own name, and those of the directories that lead to it
//! only if they are mounts, too: otherwise whoever may rename `.git` puts another `.git/hooks` in the place of the one that
//! is protected. So each directory between the two is *pinned* by a mount of its own.

mod addition;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use holdfast_policy::Name;

use super::names::{self, Unfit};
use crate::placeholder;
pub use addition::Addition;

/// What a sandbox may do with a path and all below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Read and execute.
    Read,
    /// Read, execute and change.
    Write,
}

/// A planned view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The directory whose files are seen as `/`.
    pub root: PathBuf,
    /// Links that stand in the view's own root, by path, with their targets as they are written.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// Real paths below the root that are bound, in the order in which they are: a path before what is below it.
    pub entries: BTreeMap<PathBuf, Access>,
    /// Device nodes beyond the usual ones, and directories of such.
    pub devices: BTreeMap<PathBuf, Access>,
    /// Files of the view's own in the place of the root's, by real path, with their texts.
    pub covers: BTreeMap<PathBuf, String>,
    /// A file of the view's own in a directory of the root that has no such file. The directory is an entry to be read.
    pub addition: Option<Addition>,
    /// The one of `covers` whose place in the root has to be made before it can be covered, or shared with other sandboxes
    /// that have made it.
    pub placeholder: Option<PathBuf>,
    /// Listed paths that are not there.
    pub missing: Vec<PathBuf>,
    /// Listed paths that this user may not reach.
    pub barred: Vec<PathBuf>,
    /// What each entry that is listed for its own sake is called there, by its real path.
    pub listed: BTreeMap<PathBuf, PathBuf>,
    /// Listed paths that lead to one place, first to be read and then to be changed.
    pub contradictory: Vec<(PathBuf, PathBuf)>,
    /// Listed paths that would open the whole root.
    pub boundless: Vec<PathBuf>,
    /// Real paths that a sandbox may change: no link in one of them is followed.
    pub writable: Vec<PathBuf>,
    /// Links in such places on the way to listed paths.
    pub planted: Vec<PathBuf>,
    /// Real paths below the root that are covered up, whatever shows them: the runtime's own.
    pub hidden: Vec<PathBuf>,
}

impl View {
    /// An empty view of the files below `root`; the links in its top directory are kept.
    pub fn of(root: &Path) -> Self {
        let mut view = Self {
            root: root.to_owned(),
            ..Self::default()
        };
        for (name, path) in top_entries(root) {
            if let Ok(target) = fs::read_link(&path)
                && !OWN.contains(&name.as_str())
            {
                view.links.insert(Path::new("/").join(name), target);
            }
        }
        view
    }

    /// Shows `path`, as the sandbox names it. What is not there is noted in `missing`, what may not be reached in `barred`.
    pub fn show(&mut self, path: &Path, access: Access) {
        if path == Path::new("/") {
            return self.show_everything(access);
        }
        if is_own(path) {
            return;
        }
        let Some(real) = self.resolve(path) else {
            let left_out = if self.bars(path) {
                &mut self.barred
            } else {
                &mut self.missing
            };
            left_out.push(path.to_owned());
            return;
        };
        if real == Path::new("/") && access == Access::Write {
            self.boundless.push(path.to_owned());
            return;
        }
        if let Some(link) = self.planted_on(path) {
            self.planted.push(link);
            return;
        }
        if is_own(&real) {
            return;
        }
        if is_device(&real) {
            self.devices.insert(real, access);
        } else if real == Path::new("/") {
            self.show_everything(access);
        } else {
            self.list(real, path, access);
        }
    }

    /// Notes `real`, which is listed as `path`. What is shown only because everything is, another listing changes.
    fn list(&mut self, real: PathBuf, path: &Path, access: Access) {
        if let Some(other) = self.listed.get(&real)
            && self.entries.get(&real) != Some(&access)
        {
            self.contradictory.push((other.clone(), path.to_owned()));
            return;
        }
        self.listed.insert(real.clone(), path.to_owned());
        self.entries.insert(real, access);
    }

    /// Shows every top-level entry of the root but those that a sandbox has of its own and those that hold the runtime's
    /// and other programs' sockets.
    pub fn show_everything(&mut self, access: Access) {
        for (name, path) in top_entries(&self.root) {
            if OWN.contains(&name.as_str()) || HIDDEN.contains(&name.as_str()) || path.is_symlink()
            {
                continue;
            }
            let access = if name == "sys" { Access::Read } else { access };
            self.entries.insert(Path::new("/").join(name), access);
        }
    }

    /// Lets the resolver's configuration lead to `nameserver`, keeping the root's search domains and options.
    pub fn set_resolver(&mut self, nameserver: &str) -> Result<(), Unfit> {
        let path = Path::new("/etc/resolv.conf");
        let real = self.resolve_missing(path);
        let source = self.source(&real);
        let access = self.covering(&real).map(|(_, access)| access);
        // What a file is put into is the view's alone, and the kernel's or a device's nowhere.
        if is_own(&real) || is_device(&real) {
            let path = path.to_owned();
            return Err(Unfit::Own { path, real });
        }
        if source.is_symlink() {
            return Err(Unfit::Circle(path.to_owned()));
        }
        if source.is_dir() && (access.is_some() || self.is_above_entry(&real)) {
            return Err(Unfit::Directory(path.to_owned()));
        }
        let text = names::resolver(path, &source, nameserver)?;
        match access {
            // A mount needs something to be mounted on: in a bound directory only a file that is there.
            Some(access) if !source.exists() => self.add(&real, access, text),
            Some(_) | None => {
                let found = source.metadata();
                if access.is_some() && found.is_ok_and(|found| placeholder::is_one(&found)) {
                    self.placeholder = Some(real.clone());
                }
                self.covers.insert(real, text);
            }
        }
        Ok(())
    }

    /// Leaves out of the hosts file that is shown, if one is, the names that `decided` is true for.
    pub fn set_hosts(&mut self, decided: impl Fn(&Name) -> bool) -> Result<(), Unfit> {
        let path = Path::new("/etc/hosts");
        let real = self.resolve_missing(path);
        if self.covering(&real).is_some()
            && let Some(text) = names::hosts(path, &self.source(&real), decided)?
        {
            self.covers.insert(real, text);
        }
        Ok(())
    }

    /// Covers up `path` of the host where the view shows it. Refused where something below it is shown for its own sake.
    pub fn hide(&mut self, path: &Path) -> Result<(), PathBuf> {
        let real = |path: &Path| path.canonicalize().ok();
        let (Some(path), Some(root)) = (real(path), real(&self.root)) else {
            // What is not there cannot be seen.
            return Ok(());
        };
        let Ok(below) = path.strip_prefix(root) else {
            return Ok(());
        };
        let below = Path::new("/").join(below);
        if let Some(shown) = self.entries.keys().find(|entry| entry.starts_with(&below)) {
            return Err(shown.clone());
        }
        if self.covering(&below).is_some() {
            self.hidden.push(below);
        }
        Ok(())
    }

    /// Whether `path` of the host is not there, and a sandbox could make it.
    pub fn lets_make(&self, path: &Path) -> bool {
        let real = |path: &Path| path.canonicalize().ok();
        let (None, Some(root)) = (real(path), real(&self.root)) else {
            return false;
        };
        let standing = path.ancestors().find_map(real).unwrap_or_default();
        let below = standing
            .strip_prefix(root)
            .map(|it| Path::new("/").join(it));
        below.is_ok_and(|below| matches!(self.covering(&below), Some((_, Access::Write))))
    }

    /// The entry that shows `real`, if one does.
    pub fn covering(&self, real: &Path) -> Option<(&Path, Access)> {
        real.ancestors()
            .find_map(|path| self.entries.get_key_value(path))
            .map(|(path, access)| (path.as_path(), *access))
    }

    /// Whether the sandbox can make `path` its working directory: it has the place, and every link on the way to it.
    pub fn reaches(&self, path: &Path) -> bool {
        let has = |real: &Path| {
            let hidden = self.hidden.iter().any(|hidden| real.starts_with(hidden));
            is_own(real) || (self.covering(real).is_some() && !hidden)
        };
        let mut met = Vec::new();
        let real = self.follow(path, &mut met);
        self.resolve(path).is_some()
            && (real == Path::new("/") || has(&real) || self.is_above_entry(&real))
            && met
                .iter()
                .all(|link| self.links.contains_key(link) || has(link))
    }

    /// Listed paths that are not shown, and why.
    pub fn left_out(&self) -> impl Iterator<Item = (&Path, &'static str)> {
        let missing = self.missing.iter().map(|path| (path, MISSING));
        let barred = self.barred.iter().map(|path| (path, BARRED));
        missing
            .chain(barred)
            .map(|(path, why)| (path.as_path(), why))
    }

    /// What needs a mount, in order: the entries that nothing above shows in the same way, and what pins them.
    pub fn mounts(&self) -> BTreeMap<&Path, Access> {
        // An overlay is another file system: it shows no sockets and pipes of the host.
        let is_overlay = |path: &Path| {
            self.addition
                .as_ref()
                .is_some_and(|it| it.directory == path)
        };
        let shown = |path: &Path, access: Access| {
            let above = path.parent().and_then(|parent| self.covering(parent));
            is_overlay(path) || above.is_none_or(|(above, its)| its != access || is_overlay(above))
        };
        let entries = self.entries.iter();
        let mut mounts: BTreeMap<&Path, Access> = entries
            .map(|(path, access)| (path.as_path(), *access))
            .filter(|(path, access)| shown(path, *access))
            .collect();
        let fixed = mounts.iter().filter(|(_, access)| **access == Access::Read);
        let fixed: Vec<&Path> = fixed.map(|(path, _)| *path).collect();
        for path in self.hidden.iter().map(PathBuf::as_path).chain(fixed) {
            for above in path.ancestors().skip(1) {
                if let Some((_, Access::Write)) = self.covering(above) {
                    mounts.entry(above).or_insert(Access::Write);
                }
            }
        }
        mounts
    }

    /// Where `real` is found on the host.
    pub fn source(&self, real: &Path) -> PathBuf {
        self.root.join(real.strip_prefix("/").unwrap_or(real))
    }

    fn is_above_entry(&self, real: &Path) -> bool {
        self.entries.keys().any(|entry| entry.starts_with(real))
    }

    /// The first link on the way to `path` that an earlier run of the same sandbox may have put there.
    fn planted_on(&self, path: &Path) -> Option<PathBuf> {
        let mut met = Vec::new();
        self.follow(path, &mut met);
        met.into_iter().find(|link| {
            let parent = link.parent().unwrap_or(link);
            self.writable
                .iter()
                .any(|writable| parent.starts_with(writable))
        })
    }

    /// The real path behind `path` below the root; `None` if there is nothing, or links that lead in a circle.
    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        let real = self.resolve_missing(path);
        let found = self.source(&real).symlink_metadata();
        found.is_ok_and(|found| !found.is_symlink()).then_some(real)
    }

    /// Whether this user may not even look whether `path` is there.
    fn bars(&self, path: &Path) -> bool {
        let found = self.source(&self.resolve_missing(path)).symlink_metadata();
        found.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Follows every link of `path` below the root; what is not there is taken as it is written.
    pub(super) fn resolve_missing(&self, path: &Path) -> PathBuf {
        self.follow(path, &mut Vec::new())
    }

    /// Follows every link of `path` below the root, and notes the links it meets.
    fn follow(&self, path: &Path, met: &mut Vec<PathBuf>) -> PathBuf {
        let mut todo: Vec<PathBuf> = components(path);
        let mut real = PathBuf::from("/");
        while let Some(component) = todo.pop() {
            if component == Path::new("..") {
                real.pop();
                continue;
            }
            let next = real.join(&component);
            match fs::read_link(self.source(&next)) {
                Ok(target) if met.len() < MAX_LINKS => {
                    met.push(next);
                    if target.is_absolute() {
                        real = PathBuf::from("/");
                    }
                    todo.extend(components(&target));
                }
                _ => real = next,
            }
        }
        real
    }
}

/// The names in the top directory of `root`, sorted.
fn top_entries(root: &Path) -> Vec<(String, PathBuf)> {
    let mut entries: Vec<_> = fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect();
    entries.sort();
    entries
}

/// The components of a path, last one first, without the root.
fn components(path: &Path) -> Vec<PathBuf> {
    path.components()
        .rev()
        .filter(|component| matches!(component, Component::Normal(_) | Component::ParentDir))
        .map(|component| PathBuf::from(component.as_os_str()))
        .collect()
}

/// Whether `path` is where devices are.
fn is_device(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

/// Whether `path` is the sandbox's own, whatever the host has there.
fn is_own(path: &Path) -> bool {
    let device = path.strip_prefix("/dev").map(Path::to_string_lossy);
    path.starts_with("/proc")
        || path == Path::new("/tmp")
        || device.is_ok_and(|name| {
            name.is_empty()
                || DEVICES.contains(&&*name)
                || OWN_DEVICES.contains(&&*name)
                || OWN_MOUNTS.iter().any(|own| name.starts_with(own))
        })
}

/// The device nodes that every sandbox has.
pub const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Names in `/dev` that are directories or links of the sandbox's own.
const OWN_DEVICES: [&str; 9] = [
    "shm", "mqueue", "pts", "ptmx", "fd", "stdin", "stdout", "stderr", "console",
];

/// What lies below these of them is the sandbox's own, too.
const OWN_MOUNTS: [&str; 2] = ["pts/", "mqueue/"];

/// Top-level names that a sandbox has of its own.
const OWN: [&str; 3] = ["proc", "dev", "tmp"];

/// Top-level names that are only seen when the policy lists something in them: the sockets of the host's services and
/// the runtime's own directories are in `/run`.
const HIDDEN: [&str; 1] = ["run"];

/// Why a listed path is not shown.
pub(super) const MISSING: &str = "is not there or a link that leads nowhere";

/// The same.
pub(super) const BARRED: &str = "cannot be reached (permission denied)";

/// As many links as the kernel follows in one path (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

#[cfg(test)]
mod tests;
