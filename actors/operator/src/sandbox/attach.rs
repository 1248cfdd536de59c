//! `holdfast attach`: goes on with a session that somebody left, or that lost us.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use holdfast_wire::v1;
use holdfast_wire::v1::session_input::Kind as Said;

use super::exec::{Attended, standard};
use super::request;
use crate::cli::sandboxes::Attach;
use crate::client;
use crate::config::Config;
use crate::failure::{Failure, Kind};
use crate::session::Bond;
use crate::session::remote::Manner;
use crate::session::terminal::{self, Share};

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
                bond: Bond::Guest,
                screen: io::stdout().is_terminal(),
            },
            limit: None,
            raw: match share(person) {
                Some(share) if has_terminal(arguments, config).await? => Some(share),
                Some(_) | None => None,
            },
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

/// What of our terminal a session with one would get.
fn share(person: bool) -> Option<Share> {
    if person {
        return Some(Share::Whole);
    }
    io::stdout().is_terminal().then_some(Share::Screen)
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
