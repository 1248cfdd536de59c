//! `holdfast sessions` and `holdfast kill`.

use std::process::ExitCode;

use holdfast_wire::v1;
use holdfast_wire::v1::exit::How;
use serde_json::{Value, json};

use super::{document, request, words};
use crate::cli::sandboxes::{Kill, Named};
use crate::client::{self, refused, unanswered};
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::table::{self, Table};
use crate::times::{age, now_ms, rfc3339};

/// Lists the sessions that run, and the last that are over.
pub(crate) fn sessions(arguments: &Named, config: &Config) -> Result<ExitCode, Failure> {
    client::with(config, async |mut client| {
        let answer = client.sessions(request(&arguments.name)).await;
        let rows = answer
            .map_err(|status| refused(&status))?
            .into_inner()
            .sessions;
        match arguments.output.output {
            Format::Json => output::document(&rows.iter().map(row).collect::<Vec<Value>>())?,
            Format::Text => output::text(&table_of(&rows, now_ms()).text(table::width(config)))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Sends a signal to a session's process group.
pub(crate) fn kill(arguments: &Kill, config: &Config) -> Result<ExitCode, Failure> {
    client::with(config, async |mut client| {
        let request = v1::KillRequest {
            sandbox: arguments.name.clone(),
            session: arguments.session,
            signal: arguments.signal,
        };
        let answer = client.kill(request).await;
        answer.map_err(|status| {
            let look = format!(
                "`holdfast sessions {}` shows whether it has ended",
                arguments.name
            );
            unanswered(&status, look)
        })?;
        Ok(ExitCode::SUCCESS)
    })
}

fn row(row: &v1::SessionRow) -> Value {
    let arguments = row
        .arguments
        .iter()
        .map(|word| String::from_utf8_lossy(word));
    json!({
        "session": row.session,
        "kind": row.kind,
        "command": arguments.collect::<Vec<_>>(),
        "terminal": row.terminal,
        "startedAt": rfc3339(row.started_ms),
        "running": row.ending.is_none(),
        "attended": row.attended,
        "from": row.from,
        "to": row.to,
        "ending": row.ending.as_ref().map(document::ending),
    })
}

fn table_of(rows: &[v1::SessionRow], now_ms: i64) -> Table {
    let mut table = Table::new(["SESSION", "KIND", "STATE", "AGE", "OUTPUT", "COMMAND"]);
    for row in rows {
        let command = words::command(&row.arguments);
        table.row([
            row.session.to_string(),
            row.kind.clone(),
            state(row),
            age(row.started_ms, now_ms),
            row.to.to_string(),
            command,
        ]);
    }
    table
}

fn state(row: &v1::SessionRow) -> String {
    let Some(ending) = &row.ending else {
        return if row.attended { "attended" } else { "running" }.to_owned();
    };
    let how = match ending.exit.as_ref().and_then(|exit| exit.how.as_ref()) {
        Some(How::Code(code)) => format!("exit {code}"),
        Some(How::Signal(signal)) => format!("signal {signal}"),
        Some(How::Unknown(_)) | None => "unknown".to_owned(),
    };
    let reason = document::reason(ending);
    if reason.is_empty() {
        how
    } else {
        format!("{how} ({reason})")
    }
}
