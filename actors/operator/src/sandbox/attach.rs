//! `holdfast attach`: goes on with a session that somebody left, or that lost us.

use std::process::ExitCode;

use holdfast_wire::v1;
use holdfast_wire::v1::session_input::Kind as Said;

use super::exec::{Attended, standard};
use super::request;
use crate::cli::sandboxes::Attach;
use crate::client;
use crate::config::Config;
use crate::failure::{Failure, Kind};
use crate::session::remote::Manner;
use crate::session::terminal;

/// Reads a session from an offset on; with a person at our input, or `-i`, writes to it too.
pub(crate) fn attach(
    arguments: &Attach,
    config: &Config,
    quiet: bool,
) -> Result<ExitCode, Failure> {
    client::on_runtime(async {
        let person = terminal::interactive();
        let attended = Attended {
            sandbox: arguments.name.clone(),
            manner: Manner {
                input: arguments.input || person,
                // It was there before us, and may be after us.
                ours: false,
                guest: true,
            },
            limit: None,
            raw: person && has_terminal(arguments, config).await?,
            first: Said::Attach(v1::AttachStart {
                sandbox: arguments.name.clone(),
                session: arguments.session,
                offset: arguments.from,
            }),
            quiet,
        };
        let code = attended.attend(config, standard()?).await.1;
        code.map(ExitCode::from).map_err(|failure| {
            if let Kind::Interrupted(signal @ (libc::SIGTERM | libc::SIGHUP)) = failure.kind() {
                detached(&arguments.name, arguments.session, signal)
            } else {
                failure
            }
        })
    })
}

/// We were told to end, and the session was not.
fn detached(name: &str, session: u64, signal: i32) -> Failure {
    let ended = Failure::interrupted(signal);
    let message = format!("{}; session {session} of {name} goes on", ended.message());
    Failure::new(ended.kind(), message).hint(format!(
        "`holdfast attach {name} {session}` attends it again"
    ))
}

async fn has_terminal(arguments: &Attach, config: &Config) -> Result<bool, Failure> {
    let mut client = client::reach(config).await?;
    let answer = client.sessions(request(&arguments.name)).await;
    let rows = answer
        .map_err(|status| client::refused(&status))?
        .into_inner()
        .sessions;
    Ok(rows
        .iter()
        .any(|row| row.session == arguments.session && row.terminal))
}
