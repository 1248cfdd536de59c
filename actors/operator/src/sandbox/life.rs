//! `holdfast stop`, `start`, `restart` and `delete`.

use std::process::ExitCode;
use std::time::Duration;

use holdfast_wire::v1;

use super::request;
use crate::cli::sandboxes::{Delete, Name, Stop};
use crate::client::{self, unanswered};
use crate::config::Config;
use crate::failure::Failure;

/// Answers when it is stopped.
pub(crate) fn stop(arguments: &Stop, config: &Config) -> Result<ExitCode, Failure> {
    client::with(config, async |mut client| {
        done(client.stop(stopping(arguments)).await, &arguments.name)
    })
}

/// Answers when it is about to start.
pub(crate) fn start(arguments: &Name, config: &Config) -> Result<ExitCode, Failure> {
    client::with(config, async |mut client| {
        let name = &arguments.name;
        done(client.start(request(name)).await, name)
    })
}

/// Answers when it is stopped and about to start.
pub(crate) fn restart(arguments: &Stop, config: &Config) -> Result<ExitCode, Failure> {
    client::with(config, async |mut client| {
        done(client.restart(stopping(arguments)).await, &arguments.name)
    })
}

/// Answers when nothing of it is left.
pub(crate) fn delete(arguments: &Delete, config: &Config) -> Result<ExitCode, Failure> {
    client::with(config, async |mut client| {
        let request = v1::DeleteRequest {
            sandbox: arguments.name.clone(),
            force: arguments.force,
            ..v1::DeleteRequest::default()
        };
        done(client.delete(request).await, &arguments.name)
    })
}

fn stopping(arguments: &Stop) -> v1::StopRequest {
    v1::StopRequest {
        sandbox: arguments.name.clone(),
        grace_ms: milliseconds(arguments.timeout),
    }
}

fn done<T>(
    answer: Result<tonic::Response<T>, tonic::Status>,
    name: &str,
) -> Result<ExitCode, Failure> {
    answer.map_err(|status| unanswered(&status, look(name)))?;
    Ok(ExitCode::SUCCESS)
}

/// Where it is seen what became of a sandbox.
pub(crate) fn look(name: &str) -> String {
    format!("`holdfast status {name}` shows where it is, and `holdfast list` whether it is there")
}

/// A duration as messages have it.
pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
