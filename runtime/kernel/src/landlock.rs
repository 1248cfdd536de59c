//! Landlock: what a process may do to files, built once and applied to each session.
//!
//! Rules are streamed: one path is opened, its rule is added, the descriptor is dropped. However many paths there are, one
//! descriptor is open at a time.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};

use crate::descriptors::noted;
use crate::error::{Called, Error, Result, answered};

/// What a rule grants on a path and on all below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Names in directories.
    List,
    /// Reading and executing.
    Read,
    /// Reading, executing, writing, making, removing, moving.
    Write,
}

/// A ruleset under construction.
#[derive(Debug)]
pub struct Builder {
    ruleset: RulesetCreated,
    abi: ABI,
}

/// A finished ruleset.
#[derive(Debug)]
pub struct Rules(OwnedFd);

/// The first version that scopes signals and abstract sockets.
pub const SCOPES: i32 = 6;

/// The version of Landlock's interface that this kernel has; 0 without Landlock.
pub fn abi() -> i32 {
    const LANDLOCK_CREATE_RULESET_VERSION: libc::c_uint = 1;
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: with the version flag the kernel wants no attributes and reads none.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            nothing,
            0usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    i32::try_from(answer).unwrap_or(0).max(0)
}

impl Builder {
    /// Starts a ruleset that handles every right on files that this kernel knows: what no rule grants is refused.
    pub fn new() -> Result<Self> {
        let abi = ABI::from(abi());
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(abi))
            .and_then(Ruleset::create)
            .map_err(|error| named("landlock_create_ruleset", &error))?;
        Ok(Self { ruleset, abi })
    }

    /// Adds a rule for `path`. Rights that make no sense for its type (reading a file as a directory) are left out.
    pub fn grant(self, path: &Path, grant: Grant) -> Result<Self> {
        let Self { ruleset, abi } = self;
        let entry = PathFd::new(path).map_err(|error| named("open O_PATH", &error))?;
        let file = noted(entry.as_fd().try_clone_to_owned().called("dup")?);
        let is_directory = File::from(file).metadata().called("fstat")?.is_dir();
        let rights: BitFlags<AccessFs> = match grant {
            Grant::List => AccessFs::ReadDir.into(),
            Grant::Read => AccessFs::from_read(abi),
            Grant::Write => AccessFs::from_all(abi),
        };
        let rights = if is_directory {
            rights
        } else {
            rights & AccessFs::from_file(abi)
        };
        if rights.is_empty() {
            return Ok(Self { ruleset, abi });
        }
        let ruleset = ruleset
            .add_rule(PathBeneath::new(entry, rights))
            .map_err(|error| named("landlock_add_rule", &error))?;
        Ok(Self { ruleset, abi })
    }

    /// The finished ruleset.
    pub fn finish(self) -> Result<Rules> {
        Option::<OwnedFd>::from(self.ruleset)
            .map(Rules)
            .ok_or_else(|| Error::new("landlock_create_ruleset", libc::EOPNOTSUPP))
    }
}

impl Rules {
    /// Applies the rules to the calling thread and all its later children, for good.
    pub fn restrict(&self) -> Result<()> {
        // SAFETY: the call takes a descriptor, which is borrowed for its time, and a number.
        let answer =
            unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.0.as_raw_fd(), 0) };
        answered("landlock_restrict_self", answer).map(drop)
    }
}

impl AsFd for Rules {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Bars the calling thread and all its later children from signalling processes and from reaching abstract sockets outside
/// of them. Answers false where the kernel is too old for it ([`SCOPES`]).
///
/// It also handles `REFER` and grants it everywhere: a layer that does not would forbid every move between directories.
pub fn restrict_scope() -> Result<bool> {
    let abi = ABI::from(abi());
    let scopes = Scope::from_all(abi);
    if scopes.is_empty() {
        return Ok(false);
    }
    let root = PathFd::new("/").map_err(|error| named("open O_PATH", &error))?;
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::Refer)
        .and_then(|ruleset| ruleset.scope(scopes))
        .and_then(Ruleset::create)
        .and_then(|ruleset| ruleset.add_rule(PathBeneath::new(root, AccessFs::Refer)))
        .map_err(|error| named("landlock_create_ruleset", &error))?;
    let rules = Option::<OwnedFd>::from(ruleset).map(Rules);
    rules.map_or(Ok(()), |rules| rules.restrict())?;
    Ok(true)
}

/// The first errno in a chain of causes, under the name of the call.
fn named(call: &'static str, error: &(dyn std::error::Error + 'static)) -> Error {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return Error::new(call, io.raw_os_error().unwrap_or(libc::EINVAL));
        }
        cause = error.source();
    }
    Error::new(call, libc::EINVAL)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use super::*;

    /// Runs `attempt` on a thread of its own under `rules`: Landlock restricts one thread.
    fn under<T: Send>(rules: &Rules, attempt: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let confined = scope.spawn(|| {
                crate::privilege::no_new_privileges().expect("no_new_privs");
                rules.restrict().expect("restrict");
                attempt()
            });
            confined.join().expect("join")
        })
    }

    fn scratch(name: &str) -> std::path::PathBuf {
        let directory =
            std::env::temp_dir().join(format!("landlock-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("create");
        directory
    }

    #[test]
    fn what_is_not_granted_is_refused() {
        if abi() == 0 {
            return;
        }
        let directory = scratch("refused");
        fs::write(directory.join("file"), "content").expect("write");
        let rules = Builder::new()
            .and_then(|b| b.grant(&directory, Grant::Read))
            .and_then(Builder::finish);

        let (read, written, outside) = under(&rules.expect("rules"), || {
            (
                fs::read_to_string(directory.join("file")).ok(),
                fs::write(directory.join("file"), "x").map_err(|error| error.raw_os_error()),
                fs::read_to_string("/etc/passwd").map_err(|error| error.raw_os_error()),
            )
        });

        assert_eq!(read.as_deref(), Some("content"));
        assert_eq!(written, Err(Some(libc::EACCES)));
        assert_eq!(outside, Err(Some(libc::EACCES)));
        fs::remove_dir_all(directory).expect("remove");
    }

    /// LL-03: directory rights on a file or a device make the kernel refuse the rule.
    #[test]
    fn a_file_or_a_device_gets_only_the_rights_that_fit_it() {
        if abi() == 0 {
            return;
        }
        let rules = Builder::new()
            .and_then(|builder| builder.grant(Path::new("/etc/passwd"), Grant::Write))
            .and_then(|builder| builder.grant(Path::new("/dev/null"), Grant::Write))
            .and_then(|builder| builder.grant(Path::new("/dev/null"), Grant::List))
            .and_then(Builder::finish);

        let (file, device) = under(&rules.expect("rules"), || {
            (
                fs::read_to_string("/etc/passwd").is_ok(),
                fs::write("/dev/null", "x").is_ok(),
            )
        });

        assert!(file && device);
    }

    /// LL-04: two layers, and both grant it.
    #[test]
    fn moves_between_directories_still_work_under_both_layers() {
        if abi() < 2 {
            return;
        }
        let directory = scratch("refer");
        fs::create_dir_all(directory.join("a")).expect("a");
        fs::create_dir_all(directory.join("b")).expect("b");
        fs::write(directory.join("a/f"), "x").expect("f");
        let rules = Builder::new()
            .and_then(|b| b.grant(&directory, Grant::Write))
            .and_then(Builder::finish);
        let rules = rules.expect("rules");

        let moved = thread::scope(|scope| {
            let confined = scope.spawn(|| {
                crate::privilege::no_new_privileges().expect("no_new_privs");
                restrict_scope().expect("scope");
                rules.restrict().expect("restrict");
                fs::rename(directory.join("a/f"), directory.join("b/f"))
            });
            confined.join().expect("join")
        });

        assert!(moved.is_ok(), "{moved:?}");
        fs::remove_dir_all(directory).expect("remove");
    }

    #[test]
    fn a_missing_path_is_an_error_with_its_errno() {
        if abi() == 0 {
            return;
        }
        let error = Builder::new()
            .and_then(|builder| builder.grant(Path::new("/no/such/path"), Grant::Read))
            .expect_err("missing");

        assert_eq!(error.errno(), libc::ENOENT);
    }
}
