//! The directory that gateway and keeper share: what a keeper is given, and what it leaves.
//!
//! ```text
//! gateway: spec.new locked ─▶ renamed to spec ─▶ keeper started with the lock ─▶ lets go of its own descriptor
//! keeper:                                        └─────────── execve ─▶ keeper.pid written ─▶ lets go
//! ```
//!
//! A spec that is locked is one whose keeper is about to start, or has started and has not written itself down. The lock is
//! the open file's, so the keeper has it from the instant at which it is forked, and the kernel lets go of it when whoever
//! has it dies, however that comes. So of a spec that nobody has locked either `keeper.pid` tells who its keeper was, or it
//! never had one that did anything: another gateway may begin anew and doubles nobody.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use holdfast_kernel::fork::Ended;
use holdfast_kernel::identity::Identity;
use holdfast_wire::shared::{BOUNDARY_PID, FAILED, KEEPER_PID, KEEPER_SOCKET, LAST, SPEC, exit};
use holdfast_wire::v1;
use prost::Message as _;

use crate::life::{End, Why};
use crate::places;
use crate::registry::row::Process;

/// The runtime directory of one sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Ground(pub(crate) PathBuf);

impl Ground {
    /// Ready for the keeper of this spec. The first one of a generation finds nothing of another one. The spec is locked for
    /// as long as what is answered, or a duplicate of it, is open.
    pub(crate) fn prepare(&self, spec: &v1::Spec) -> io::Result<File> {
        if spec.epoch == 1 {
            removed(fs::remove_dir_all(&self.0))?;
        }
        places::own(&self.0).map_err(|why| io::Error::other(crate::chain(&why)))?;
        removed(fs::remove_file(self.0.join(LAST)))?;
        removed(fs::remove_file(self.0.join(FAILED)))?;
        let fresh = self.0.join(SPEC).with_added_extension("new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)?;
        file.try_lock()?;
        file.write_all(&spec.encode_to_vec())?;
        fs::rename(fresh, self.0.join(SPEC))?;
        Ok(file)
    }

    /// Whether a keeper of the spec that is there may have been started and not have written itself down yet.
    pub(crate) fn is_locked(&self) -> io::Result<bool> {
        match File::open(self.0.join(SPEC)) {
            Ok(spec) => match spec.try_lock_shared() {
                Ok(()) => Ok(false),
                Err(TryLockError::WouldBlock) => Ok(true),
                Err(TryLockError::Error(error)) => Err(error),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether somebody has removed it, with every socket in it.
    pub(crate) fn is_removed(&self) -> bool {
        matches!(self.0.try_exists(), Ok(false))
    }

    /// The generation whose keeper was given what it needs.
    pub(crate) fn generation(&self) -> Option<u64> {
        let spec = v1::Spec::decode(&*fs::read(self.0.join(SPEC)).ok()?).ok()?;
        Some(spec.generation)
    }

    /// What the keeper said last, when it had the time.
    pub(crate) fn last(&self) -> Option<v1::Status> {
        v1::Status::decode(&*fs::read(self.0.join(LAST)).ok()?).ok()
    }

    /// Whether a keeper has said anything since the spec was written.
    pub(crate) fn has_words(&self) -> bool {
        self.last().is_some() || self.failed().is_some()
    }

    fn failed(&self) -> Option<v1::Problem> {
        v1::Problem::decode(&*fs::read(self.0.join(FAILED)).ok()?).ok()
    }

    /// The keeper that runs here, as it wrote it down itself.
    pub(crate) fn keeper(&self) -> io::Result<Option<Process>> {
        self.written(KEEPER_PID)
    }

    /// The boundary that runs here, as its first keeper wrote it down before it let it begin.
    pub(crate) fn boundary(&self) -> io::Result<Option<Process>> {
        self.written(BOUNDARY_PID)
    }

    fn written(&self, name: &str) -> io::Result<Option<Process>> {
        let written = Identity::read(&self.0.join(name))?;
        Ok(written.map(|Identity { pid, start }| Process { pid, start }))
    }

    pub(crate) fn keeper_socket(&self) -> PathBuf {
        self.0.join(KEEPER_SOCKET)
    }

    /// What the end of a keeper means. `boundary`: whether its boundary lives.
    pub(crate) fn end(&self, ended: Option<Ended>, boundary: bool) -> End {
        let last = self.last();
        let failed = self.failed();
        let code = match ended {
            Some(Ended::Exited(code)) => u8::try_from(code).ok(),
            Some(Ended::Signalled(_)) | None => None,
        };
        let told = ended.is_some();
        match (code, &last) {
            (Some(exit::OVER), last) => over(last.as_ref()),
            (Some(exit::LOST), last) => End::BoundaryLost(lost(last.as_ref())),
            (Some(exit::REFUSED), _) => End::Refused(problem(failed, "it was refused")),
            // Not our child: what it wrote is all there is to know.
            (None, Some(last)) if !told && last.phase() == v1::Phase::Stopped => over(Some(last)),
            (None, Some(last)) if !told && last.reason == "BoundaryLost" => {
                End::BoundaryLost(lost(Some(last)))
            }
            (None, None)
                if !told && failed.as_ref().is_some_and(|why| why.reason != "Internal") =>
            {
                End::Refused(problem(failed, "it was refused"))
            }
            (Some(_) | None, _) => End::Crashed {
                boundary,
                why: crashed(ended, failed),
            },
        }
    }
}

/// Thirty-two bytes that nobody can foretell.
pub(crate) fn token() -> io::Result<Vec<u8>> {
    let mut token = vec![0; 32];
    File::open("/dev/urandom")?.read_exact(&mut token)?;
    Ok(token)
}

/// Removes everything of a sandbox.
pub(crate) fn clear(directories: [&Path; 2]) -> io::Result<()> {
    for directory in directories {
        removed(fs::remove_dir_all(directory))?;
    }
    Ok(())
}

fn removed(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// How a sandbox ended, if its keeper says in its report that it did.
pub(crate) fn told_over(status: &v1::Status) -> Option<End> {
    match status.phase() {
        v1::Phase::Stopped => Some(over(Some(status))),
        v1::Phase::Failed => Some(End::BoundaryLost(lost(Some(status)))),
        v1::Phase::Unspecified
        | v1::Phase::Pending
        | v1::Phase::Ready
        | v1::Phase::Degraded
        | v1::Phase::Deleting => None,
    }
}

/// How a sandbox ended in good order, when these are its keeper's last words.
pub(crate) fn ended_well(last: Option<&v1::Status>) -> Option<End> {
    last.filter(|last| last.phase() == v1::Phase::Stopped)
        .map(|last| over(Some(last)))
}

fn over(last: Option<&v1::Status>) -> End {
    match last.and_then(|last| last.main.as_ref().map(|main| (last, main))) {
        Some((last, main)) if last.reason != "Halted" => End::MainExited {
            success: main.exit.as_ref().and_then(|exit| exit.how.clone())
                == Some(v1::exit::How::Code(0)),
            // In its keeper's own words: who saw the end says it once, for every surface.
            why: Why::new("MainExited", said(last, "the main process ended")),
        },
        Some(_) | None => End::Halted,
    }
}

fn lost(last: Option<&v1::Status>) -> Why {
    let otherwise = "the boundary died, and everything inside with it";
    let told = last.map_or(otherwise, |last| said(last, otherwise));
    Why::new("BoundaryLost", told)
}

/// A keeper's last sentence, if it had one.
fn said<'a>(last: &'a v1::Status, otherwise: &'a str) -> &'a str {
    match &*last.message {
        "" => otherwise,
        message => message,
    }
}

fn problem(failed: Option<v1::Problem>, otherwise: &str) -> Why {
    let Some(failed) = failed else {
        return Why::new("FenceRefused", otherwise);
    };
    let said = |name: &str| failed.details.get(name).filter(|text| !text.is_empty());
    let message = said("message").map_or(otherwise, |text| text);
    let message = match said("hint") {
        Some(hint) => format!("{message}; {hint}"),
        None => message.to_owned(),
    };
    Why::new(&failed.reason, message)
}

fn crashed(ended: Option<Ended>, failed: Option<v1::Problem>) -> Why {
    let how = match ended {
        Some(Ended::Exited(code)) => format!("the keeper ended with status {code}"),
        Some(Ended::Signalled(signal)) => format!("the keeper was killed by signal {signal}"),
        None => "the keeper died".to_owned(),
    };
    match failed {
        Some(failed) => {
            let why = problem(Some(failed), "it did not say why");
            Why::new("KeeperLost", format!("{how}: {}", why.message))
        }
        None => Why::new("KeeperLost", how),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ground() -> (tempfile::TempDir, Ground) {
        let base = tempfile::tempdir().expect("a directory");
        let ground = Ground(base.path().join("01J"));
        ground
            .prepare(&v1::Spec {
                epoch: 1,
                ..v1::Spec::default()
            })
            .expect("prepared");
        (base, ground)
    }

    fn write(ground: &Ground, name: &str, message: &impl prost::Message) {
        fs::write(ground.0.join(name), message.encode_to_vec()).expect("written");
    }

    #[test]
    fn the_end_of_the_main_process_is_told_with_its_status() {
        let (_base, ground) = ground();
        let exit = v1::Exit {
            how: Some(v1::exit::How::Code(3)),
        };
        let status = v1::Status {
            phase: v1::Phase::Stopped.into(),
            reason: "MainExited".to_owned(),
            message: "the main process exited with status 3".to_owned(),
            main: Some(v1::Ending {
                exit: Some(exit),
                ..v1::Ending::default()
            }),
            ..v1::Status::default()
        };
        write(&ground, LAST, &status);

        let why = Why::new("MainExited", "the main process exited with status 3");
        let expected = End::MainExited {
            success: false,
            why,
        };
        assert_eq!(ground.end(Some(Ended::Exited(0)), false), expected);
        assert_eq!(ground.end(None, false), expected);
        assert_eq!(ended_well(ground.last().as_ref()), Some(expected));
    }

    #[test]
    fn words_of_a_sandbox_that_runs_or_has_failed_are_no_good_end() {
        for phase in [v1::Phase::Ready, v1::Phase::Degraded, v1::Phase::Failed] {
            let status = v1::Status {
                phase: phase.into(),
                ..v1::Status::default()
            };
            assert_eq!(ended_well(Some(&status)), None);
        }
        assert_eq!(ended_well(None), None);
    }

    #[test]
    fn a_refusal_is_told_with_its_sentence_and_the_hint() {
        let (_base, ground) = ground();
        let details = [("message", "make a user namespace"), ("hint", "allow it")];
        let problem = v1::Problem {
            reason: "HostUnsupported".to_owned(),
            details: details
                .map(|(name, text)| (name.to_owned(), text.to_owned()))
                .into(),
            ..v1::Problem::default()
        };
        write(&ground, FAILED, &problem);

        let End::Refused(why) = ground.end(Some(Ended::Exited(4)), false) else {
            panic!("not refused");
        };
        assert_eq!(
            why,
            Why::new("HostUnsupported", "make a user namespace; allow it")
        );
    }

    #[test]
    fn a_death_is_told_with_its_signal_and_the_next_keeper_finds_no_old_words() {
        let (_base, ground) = ground();
        write(&ground, FAILED, &v1::Problem::default());

        ground
            .prepare(&v1::Spec {
                epoch: 2,
                ..v1::Spec::default()
            })
            .expect("prepared");

        let expected = End::Crashed {
            boundary: true,
            why: Why::new("KeeperLost", "the keeper was killed by signal 9"),
        };
        assert_eq!(ground.end(Some(Ended::Signalled(9)), true), expected);
    }
}
