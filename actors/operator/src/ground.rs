//! What a sandbox stands on: the fence planned for it, and its boundary forked, for a program in the foreground and for a
//! sandbox that lasts.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use holdfast_boundary::Boundary;
use holdfast_boundary::fence::{self, Broken, Fence, Host, Unplanned};
use holdfast_keeper::Unbuilt;
use holdfast_keeper::link::Approach;
use holdfast_kernel::handoff::Socket;
use holdfast_policy::{OnLinkLoss, Policy};

use crate::failure::{Failure, Kind};
use crate::shortage;

/// What a fence is planned from.
#[derive(Debug)]
pub(crate) struct Ground<'a> {
    /// The links of its binaries are followed.
    pub(crate) policy: &'a Policy,
    /// What the view starts from.
    pub(crate) root: &'a Path,
    /// Where sessions start, as it is called in the view.
    pub(crate) directory: &'a Path,
    /// What `include_workdir` means.
    pub(crate) workdir: &'a Path,
    pub(crate) on_link_loss: OnLinkLoss,
    /// The limit of descriptors, soft and hard, that the workload gets; this process's own if there is none.
    pub(crate) descriptors: Option<(u64, u64)>,
    /// The runtime's own places, which no view shows.
    pub(crate) hidden: Vec<PathBuf>,
}

impl Ground<'_> {
    /// Plans the fence. Nothing is started; directories of the runtime's own that the sandbox could make are made.
    pub(crate) fn plan(&self) -> Result<Fence, Failure> {
        let (root, directory) = (self.root.to_owned(), self.directory.to_owned());
        let host = Host::look(root, directory, self.workdir.to_owned());
        let host = Host {
            descriptors: self.descriptors.unwrap_or(host.descriptors),
            hidden: self.hidden.clone(),
            ..host
        };
        for path in fence::exposed(self.policy, &host) {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(|error| {
                let what = format!("make {} before the sandbox could", path.display());
                Failure::caused(Kind::Unreadable, what, &error).hint(
                    "make room, or name another directory with HOLDFAST_STATE_DIR and HOLDFAST_RUNTIME_DIR",
                )
            })?;
        }
        let planned = fence::plan(self.policy, &host).map_err(|unplanned| {
            let why = match &unplanned {
                Unplanned::Directory(directory) => self.not_shown(directory),
                Unplanned::Missing(_)
                | Unplanned::Barred(_)
                | Unplanned::Planted(_)
                | Unplanned::Contradictory { .. }
                | Unplanned::Boundless(_)
                | Unplanned::OwnFiles(_)
                | Unplanned::OwnMissing(_)
                | Unplanned::Unfit(_)
                | Unplanned::Root(_)
                | Unplanned::Landlock
                | Unplanned::Unobservable { .. }
                | Unplanned::Processes
                | Unplanned::Exceeding(_)
                | Unplanned::User { .. }
                | Unplanned::NoGroup(_)
                | Unplanned::UnknownUser { .. } => unplanned.to_string(),
            };
            let kind = match unplanned {
                Unplanned::Barred(_) => Kind::Barred,
                Unplanned::Missing(_)
                | Unplanned::Planted(_)
                | Unplanned::Directory(_)
                | Unplanned::OwnFiles(_)
                | Unplanned::OwnMissing(_)
                | Unplanned::Unfit(_)
                | Unplanned::Root(_) => Kind::Unreadable,
                // What is one and the same here, by links, may be two elsewhere.
                Unplanned::Contradictory { .. }
                | Unplanned::Boundless(_)
                | Unplanned::Landlock
                | Unplanned::Unobservable { .. }
                | Unplanned::Processes
                | Unplanned::Exceeding(_)
                | Unplanned::User { .. }
                | Unplanned::NoGroup(_)
                | Unplanned::UnknownUser { .. } => Kind::HostUnsupported,
            };
            Failure::new(kind, format!("start the sandbox: {why}"))
        });
        planned.map(|fence| Fence {
            on_link_loss: self.on_link_loss,
            ..fence
        })
    }
}

impl Ground<'_> {
    /// Why sessions cannot start in `directory`: it is gone, or no view shows it, and what would.
    fn not_shown(&self, directory: &Path) -> String {
        let below = directory.strip_prefix("/").unwrap_or(directory);
        let looked = fs::metadata(self.root.join(below));
        let directory = directory.display();
        match looked {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return format!(
                    "the working directory {directory} does not exist, or not any more; make it again, or choose another with --cwd"
                );
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return format!(
                    "the working directory {directory} cannot be reached (permission denied); choose another with --cwd"
                );
            }
            Ok(found) if !found.is_dir() => {
                return format!(
                    "the working directory {directory} is not a directory; choose another with --cwd"
                );
            }
            Ok(_) | Err(_) => {}
        }
        if let Some(real) = self.leads(below) {
            let real = real.display();
            return format!(
                "the working directory {directory} is behind a link that the sandbox's view does not show; choose {real} with --cwd, and list it in filesystem_policy"
            );
        }
        let files = self.policy.filesystem();
        let is_included = files.is_none_or(|files| files.include_workdir);
        // What it would include is the caller's directory, whatever `--cwd` says.
        let included = if is_included || self.workdir != self.directory {
            ""
        } else {
            ", set include_workdir"
        };
        format!(
            "the working directory {directory} is not in the sandbox's view; list it in filesystem_policy{included}, or choose another with --cwd"
        )
    }

    /// Where in the root the path `below` it leads, if that is somewhere else.
    fn leads(&self, below: &Path) -> Option<PathBuf> {
        let root = fs::canonicalize(self.root).ok()?;
        let real = fs::canonicalize(root.join(below)).ok()?;
        let real = real.strip_prefix(&root).ok()?;
        (real != below).then(|| Path::new("/").join(real))
    }
}

/// The way to a boundary that has just been forked, if it has been.
pub(crate) fn approach(
    forked: Result<(Boundary, Socket), Broken>,
) -> Result<(Boundary, Approach), Failure> {
    let (boundary, socket) = forked.map_err(|broken| unsupported(&broken.to_string()))?;
    let approach = Approach {
        socket,
        pid: boundary.pid(),
        pidfd: boundary.pidfd(),
    };
    Ok((boundary, approach))
}

/// Why there is no sandbox.
pub(crate) fn unbuilt(unbuilt: &Unbuilt) -> Failure {
    match unbuilt {
        Unbuilt::Fence { step, message } => unsupported(&format!("{step}: {message}")),
        Unbuilt::Gone | Unbuilt::Keeper(_) | Unbuilt::Link(_) => {
            let failure = Failure::new(Kind::Internal, format!("start the sandbox: {unbuilt}"));
            match shortage::told(&unbuilt.to_string()) {
                Some(remedy) => failure.hint(remedy),
                None => failure,
            }
        }
    }
}

fn unsupported(why: &str) -> Failure {
    if let Some(remedy) = shortage::told(why) {
        return Failure::new(Kind::Internal, format!("build the fence: {why}")).hint(remedy);
    }
    Failure::new(Kind::HostUnsupported, format!("build the fence: {why}"))
        .hint("`holdfast doctor` says what this host lacks and how to get it")
}
