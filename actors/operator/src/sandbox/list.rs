//! `holdfast list`

use std::process::ExitCode;

use holdfast_wire::v1;
use serde_json::Value;

use super::{document, words};
use crate::cli::sandboxes::{List, Listing};
use crate::client::{self, refused};
use crate::config::Config;
use crate::failure::Failure;
use crate::output;
use crate::table::{self, Table};
use crate::times::{age, now_ms};

/// Lists sandboxes by name.
pub(crate) fn list(arguments: &List, config: &Config) -> Result<ExitCode, Failure> {
    client::with(config, async |mut client| {
        let request = v1::ListRequest {
            labels: arguments.label.iter().cloned().collect(),
        };
        let answer = client.list(request).await;
        let mut sandboxes = answer
            .map_err(|status| refused(&status))?
            .into_inner()
            .sandboxes;
        sandboxes.sort_by(|one, other| one.name.cmp(&other.name));
        let now = now_ms();
        match arguments.output {
            Listing::Json => {
                let rows = sandboxes.iter().map(|status| document::row(status, now));
                output::document(&rows.collect::<Vec<Value>>())?;
            }
            Listing::Table => output::text(&table_of(&sandboxes, now).text(table::width(config)))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn table_of(sandboxes: &[v1::Status], now_ms: i64) -> Table {
    let mut table = Table::new([
        "NAME", "PHASE", "REASON", "AGE", "SESSIONS", "POLICY", "RESTARTS",
    ]);
    for status in sandboxes {
        table.row([
            status.name.clone(),
            words::phase(status.phase()).to_owned(),
            status.reason.clone(),
            age(status.created_ms, now_ms),
            status.sessions.unwrap_or_default().running.to_string(),
            status
                .policy
                .as_ref()
                .map_or(0, |policy| policy.enforced)
                .to_string(),
            status.restarts.values().sum::<u64>().to_string(),
        ]);
    }
    table
}
