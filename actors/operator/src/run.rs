//! `holdfast run`: one sandbox in the foreground; exits with its program's status.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use holdfast_keeper::link::Approach;
use holdfast_kernel::descriptors;
use holdfast_kernel::fork::signal_by;
use holdfast_observability::{Journal, Level};

use crate::cli;
use crate::config::Config;
use crate::failure::{Failure, Kind};
use crate::session::Session;
use crate::session::foreground::{self, Bounds, Ends};
use crate::session::terminal::{Raw, Share};
use crate::threads;
use request::Request;

pub(crate) mod environment;
pub(crate) mod request;
mod sandbox;

/// Runs one program in a sandbox.
///
/// Up to the fork of the boundary this process has one thread and no runtime.
pub(crate) fn run(arguments: cli::Run, config: &Config, quiet: bool) -> Result<ExitCode, Failure> {
    let usual = if quiet {
        Level::Error
    } else {
        Level::default()
    };
    let level = arguments.log_level.unwrap_or(usual);
    let format = arguments.log_format;
    threads::affordable()?;
    let request = Request::assemble(arguments, config)?;
    let mut fence = sandbox::plan(&request)?;
    // The workload has the caller's limit, which the plan holds; what serves it may need more.
    let descriptors = descriptors::raise()
        .map_err(|error| Failure::caused(Kind::Internal, "raise the descriptor limit", &error))?
        .limit;
    let (boundary, approach) = sandbox::start(&mut fence)?;
    // From here on there may be threads.
    let journal = Journal::start(level, format);
    if request.has_policy {
        for (path, why) in fence.view.left_out() {
            let path = path.display();
            tracing::warn!("filesystem_policy lists {path}, which {why}: left out");
        }
    }
    for lack in &fence.lacking {
        tracing::warn!("{lack}");
    }
    let internal = |what: &str, error: io::Error| Failure::caused(Kind::Internal, what, &error);
    request
        .audit
        .start()
        .map_err(|error| threads::refused("start the audit writer", &error))?;
    let runtime = threads::runtime(WORKERS, ATTENDING, move |failure| {
        // The boundary is tied to this process.
        failure.tell(false, quiet);
    })?;
    let ends = Ends::standard().map_err(|error| internal("duplicate the standard files", error))?;
    let raw = request
        .terminal
        .and_then(|_| Raw::enter(Share::Whole, Some(&journal)));
    runtime.spawn(holdfast_boundary::settle());
    let code = runtime.block_on(attended(&request, descriptors, approach, ends, raw));
    // With the boundary everything inside ends; then nothing is left to be recorded.
    drop(boundary);
    request.audit.close(FLUSH);
    code.map(ExitCode::from)
}

/// Attends the program from its start to its end, and stops the keeper behind it.
async fn attended(
    request: &Request,
    descriptors: u64,
    approach: Approach,
    ends: Ends,
    raw: Option<Raw>,
) -> Result<u8, Failure> {
    let mut started = None;
    let boundary = Arc::clone(&approach.pidfd);
    let launching = async {
        let (keeper, session) = sandbox::launch(request, descriptors, approach).await?;
        let stop = keeper.stop();
        let axe = move || {
            // Its own end is no news to the keeper then.
            stop();
            // One that has ended already needs no signal.
            let _ = signal_by(&boundary, libc::SIGKILL);
        };
        let delivery = keeper.finish();
        started = Some(keeper);
        Ok(Session {
            axe: Some(Box::new(axe)),
            delivery: Some(delivery),
            ..session.into()
        })
    };
    let bounds = Bounds {
        limit: request.timeout,
        ..Bounds::default()
    };
    let code = foreground::attend(launching, ends, bounds, raw).await;
    if let Some(keeper) = started {
        keeper.shutdown().await;
    }
    code
}

/// Threads that relay: with one, bulk over many connections reaches three quarters of a bare relay, with two all of it.
const WORKERS: usize = 2;

/// Threads that read our input, write our output and carry verdicts.
const ATTENDING: usize = 3;

/// How long the last audit records may take to be written.
const FLUSH: Duration = Duration::from_secs(5);
