//! `holdfast keeper DIR`: keeps one sandbox, for the gateway that has prepared the directory.
//!
//! ```text
//! spec ── epoch 1 ──> the fence planned, the boundary forked ──┐
//!   └──── epoch N ──> boundary.sock ───────────────────────────┴──> serving ──> an exit
//! ```
//!
//! How it ends is told twice: by its exit, for whoever waits for the process, and by a file in the directory, for whoever
//! comes later. Each file is written whole or not at all.
//!
//! | exit | what | file |
//! |---|---|---|
//! | 0 | the sandbox is over: halted, or its main process has ended | `last`, a `Status` |
//! | 3 | the boundary is gone, and with it everything inside | `last`, a `Status` |
//! | 4 | the fence was refused: nothing was started | `failed`, a `Problem` |
//! | 5 | another keeper holds the boundary | |
//! | 125 | a failure of our own; the sandbox goes on if it had begun | `failed`, a `Problem` |

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use holdfast_boundary as boundary;
use holdfast_keeper::link::{self, Approach};
use holdfast_keeper::sentinel::PORT as SENTINEL;
use holdfast_keeper::{Lasting, Over, Tenure, Unbuilt};
use holdfast_kernel::fork::signal_by;
use holdfast_kernel::identity::Identity;
use holdfast_kernel::{descriptors, execute};
use holdfast_observability::{Audit, Journal, Level, MOST_LOGGED, Rotating, older};
use holdfast_wire::shared::exit::{BROKEN, FENCED, LOST, OVER, REFUSED};
use holdfast_wire::shared::{FAILED, KEEPER_PID, LAST, log};
use holdfast_wire::v1;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, umask};
use prost::Message;

use crate::failure::{Failure, Kind};
use crate::ground::{self, Ground};
use crate::threads;

mod spec;

use spec::Sandbox;

/// Keeps the sandbox whose spec is in `directory`.
///
/// Up to the fork of the boundary this process has one thread and no runtime.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the form of a command; its failures are told in a file, nobody reads its output"
)]
pub(crate) fn keeper(directory: &Path) -> Result<ExitCode, Failure> {
    let code = match keep(directory) {
        Ok(code) => code,
        Err(failure) => {
            tracing::error!("{}", failure.message());
            tell(directory, FAILED, &failure.problem());
            match failure.kind() {
                Kind::PolicyInvalid | Kind::Unreadable | Kind::Barred | Kind::HostUnsupported => {
                    REFUSED
                }
                Kind::Usage
                | Kind::ProgramNotFound
                | Kind::ProgramNotExecutable
                | Kind::TimedOut
                | Kind::Interrupted(_)
                | Kind::InputFailed
                | Kind::OutputFailed
                | Kind::OutputClosed
                | Kind::Unreachable
                | Kind::Unsupported
                | Kind::Refused
                | Kind::NotReached
                | Kind::OutcomeUnknown
                | Kind::CopyFailed
                | Kind::Internal => BROKEN,
            }
        }
    };
    Ok(ExitCode::from(code))
}

fn keep(directory: &Path) -> Result<u8, Failure> {
    // The programs inside get it too: theirs may not hang on who happened to start the gateway.
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
    // The workload has the caller's limit; what serves it may need more, and may not inherit that a gateway was short.
    let limit = descriptors::raise()
        .map_err(|error| Failure::caused(Kind::Internal, "raise the descriptor limit", &error))?
        .limit;
    threads::affordable()?;
    let sandbox = Sandbox::read(directory)?;
    Identity::of(std::process::id())
        .and_then(|own| own.write(&sandbox.place.join(KEEPER_PID)))
        .map_err(|error| Failure::caused(Kind::Internal, "write keeper.pid", &error))?;
    // Only now: the lock of the spec is among them, which says that this process is there and not written down.
    execute::close_all_but(&[0, 1, 2])
        .map_err(|error| Failure::caused(Kind::Internal, LET_GO, &error))?;
    let first = sandbox.epoch == FIRST_EPOCH;
    let (_boundary, approach, lacking) = if first {
        let forked = fork(&sandbox);
        if forked.is_err() {
            sandbox.clean();
        }
        let (boundary, approach, lacking) = forked?;
        (Some(boundary), approach, lacking)
    } else {
        match link::connect(&sandbox.door()) {
            Ok(approach) => (None, approach, Vec::new()),
            Err(unreached) => {
                sandbox.clean();
                return Ok(gone(&sandbox, &unreached.to_string()));
            }
        }
    };
    let process = Arc::clone(&approach.pidfd);
    let code = hold(&sandbox, directory, approach, limit, &lacking);
    if matches!(code, Ok(OVER | LOST)) || (code.is_err() && first) {
        // Nothing of it may be left; with the boundary everything inside ends.
        end(&process);
        sandbox.clean();
    }
    code
}

/// Prepares what serving needs, and serves to the end.
fn hold(
    sandbox: &Sandbox,
    directory: &Path,
    approach: Approach,
    limit: u64,
    lacking: &[boundary::fence::Lack],
) -> Result<u8, Failure> {
    let first = sandbox.epoch == FIRST_EPOCH;
    // Nobody reads our input or writes to our output.
    let spares = descriptors::Spares::hold(&[0, 1])
        .map_err(|error| Failure::caused(Kind::Internal, "hold spare descriptors", &error))?;
    // From here on there may be threads.
    let journal = Rotating::open(&sandbox.log(log::KEEPER), MOST_LOGGED)
        .map_err(internal("open keeper.log"))?;
    Journal::start_in(Level::Info, journal);
    for lack in lacking {
        tracing::warn!("{lack}");
    }
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    let audit = Audit::rotating(&sandbox.log(log::AUDIT), MOST_LOGGED)
        .map_err(|error| Failure::caused(Kind::Internal, "keep the audit trail", &error))?;
    audit
        .start()
        .map_err(|error| threads::refused("start the audit writer", &error))?;
    let told_to = directory.to_owned();
    let forked = first.then(|| Arc::clone(&approach.pidfd));
    let runtime = threads::runtime(WORKERS, BESIDE, move |failure| {
        tracing::error!("{}", failure.message());
        tell(&told_to, FAILED, &failure.problem());
        if let Some(process) = forked {
            end(&process);
        }
    })?;
    runtime.spawn(boundary::settle());
    let code = runtime.block_on(serve(sandbox, approach, audit.clone(), limit, spares));
    audit.close(FLUSH);
    code
}

/// Plans the fence and forks the boundary.
///
/// Answers, too, what the sandbox does without on this host.
fn fork(
    sandbox: &Sandbox,
) -> Result<(boundary::Boundary, Approach, Vec<boundary::fence::Lack>), Failure> {
    let rootfs = sandbox.rootfs.as_deref();
    let mut fence = Ground {
        policy: &sandbox.policy,
        root: rootfs.unwrap_or(Path::new("/")),
        directory: &sandbox.directory,
        workdir: &sandbox.workdir,
        on_link_loss: sandbox.on_link_loss,
        descriptors: sandbox.descriptors,
        hidden: sandbox.own_places(),
    }
    .plan()?
    .listening_on(SENTINEL);
    let append = |path: &Path| {
        OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)
            .map_err(internal("open boundary.log"))
    };
    let path = sandbox.log(log::BOUNDARY);
    let lasting = boundary::Lasting {
        door: sandbox.door(),
        pid: sandbox.boundary_pid(),
        log: append(&path)?,
        older: older_log(&older(&path)).map_err(internal("open boundary.log.1"))?,
        grace: boundary::GRACE,
    };
    let (boundary, approach) = ground::approach(boundary::start_lasting(&mut fence, lasting))?;
    Ok((boundary, approach, fence.lacking))
}

/// The boundary replaces it as a whole.
fn older_log(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

async fn serve(
    sandbox: &Sandbox,
    approach: Approach,
    audit: Audit,
    limit: u64,
    spares: descriptors::Spares,
) -> Result<u8, Failure> {
    let token = sandbox.token().map_err(internal("read the spec again"))?;
    let arguments = holdfast_keeper::Arguments {
        sandbox: sandbox.name.clone(),
        policy: Arc::new(sandbox.policy.clone()),
        audit,
        descriptors: limit,
        tenure: Some(Tenure {
            epoch: sandbox.epoch,
            token,
            names: sandbox.names(),
            reconnects: sandbox.reconnects,
        }),
    };
    let lasting =
        match Lasting::start(&arguments, sandbox.assignment(Arc::new(spares)), approach).await {
            Ok(lasting) => lasting,
            Err(Unbuilt::Link(link::Unlinked::Refused(why))) if sandbox.epoch > FIRST_EPOCH => {
                tracing::error!(why, "the boundary refuses this keeper");
                return Ok(FENCED);
            }
            Err(Unbuilt::Gone) if sandbox.epoch > FIRST_EPOCH => {
                return Ok(gone(sandbox, "the boundary has ended"));
            }
            Err(unbuilt) => return Err(ground::unbuilt(&unbuilt)),
        };
    tracing::info!(
        sandbox = sandbox.name,
        id = sandbox.id,
        generation = sandbox.generation,
        epoch = sandbox.epoch,
        "serving"
    );
    let over = lasting
        .serve(|status| tell(&sandbox.place, LAST, status))
        .await;
    match over {
        Over::Ended(status) => {
            tracing::info!(
                reason = status.reason,
                "the sandbox is over: {}",
                status.message
            );
            Ok(OVER)
        }
        Over::Lost(status) => {
            tracing::error!("the boundary is lost: {}", status.message);
            Ok(LOST)
        }
        Over::Fenced(why) => {
            tracing::error!(why, "another keeper has the boundary");
            Ok(FENCED)
        }
        Over::GaveUp(why) => {
            tracing::error!(why, "this keeper gives up");
            Ok(BROKEN)
        }
    }
}

/// There is no boundary to take over: says so, and answers the exit.
fn gone(sandbox: &Sandbox, why: &str) -> u8 {
    let mut status = v1::Status {
        name: sandbox.name.clone(),
        id: sandbox.id.clone(),
        generation: sandbox.generation,
        reason: "BoundaryLost".to_owned(),
        message: why.to_owned(),
        ..v1::Status::default()
    };
    status.set_phase(v1::Phase::Failed);
    tell(&sandbox.place, LAST, &status);
    LOST
}

/// Waits a little for the boundary to end by itself, then kills it.
fn end(process: &OwnedFd) {
    let over = || {
        let mut process = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        let patience = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::ZERO);
        matches!(poll(&mut process, patience), Ok(1))
    };
    if !over() {
        // One that has just ended needs no signal.
        let _ = signal_by(process, libc::SIGKILL);
        over();
    }
}

/// Writes a message for the gateway: whole or not at all.
fn tell(directory: &Path, name: &str, message: &impl Message) {
    let (place, fresh) = (directory.join(name), directory.join(format!("{name}.new")));
    let written = File::create(&fresh)
        .and_then(|mut file| {
            file.write_all(&message.encode_to_vec())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&fresh, &place));
    if let Err(error) = written {
        tracing::error!(%error, name, "leave a word for the gateway");
    }
}

fn internal(what: &'static str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::caused(Kind::Internal, what, &error)
}

/// What whoever started it had open is no business of a process that stays.
const LET_GO: &str = "let go of inherited descriptors";

/// The epoch of a generation's first keeper.
const FIRST_EPOCH: u64 = 1;

/// Threads that relay.
const WORKERS: usize = 2;

/// Threads that carry verdicts and do what blocks.
const BESIDE: usize = 2;

/// How long the last audit records may take to be written.
const FLUSH: Duration = Duration::from_secs(5);

/// How long the boundary may take to end.
const PATIENCE: Duration = Duration::from_secs(2);
