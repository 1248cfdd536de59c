//! `holdfast tree`: who watches whom in gateway, keeper and boundary, and how each stands.

use std::process::ExitCode;

use holdfast_wire::v1;
use serde_json::{Value, json};

use super::request;
use crate::cli::sandboxes::Named;
use crate::client::{self, refused};
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::table::{self, Table};
use crate::times::{now_ms, rfc3339, span};

/// Draws the trees.
pub(crate) fn tree(arguments: &Named, config: &Config) -> Result<ExitCode, Failure> {
    client::with(config, async |mut client| {
        let answer = client.trees(request(&arguments.name)).await;
        let trees = answer
            .map_err(|status| refused(&status))?
            .into_inner()
            .trees;
        match arguments.output.output {
            Format::Json => output::document(&trees.iter().map(document).collect::<Vec<Value>>())?,
            Format::Text => output::text(&drawn(&trees, now_ms()).text(table::width(config)))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn document(tree: &v1::Tree) -> Value {
    let rows = tree.rows.iter().map(|row| {
        json!({
            "path": row.path,
            "strategy": row.strategy,
            "state": row.state,
            "restarts": row.restarts,
            "lastReason": row.last_reason,
            "nextAttempt": rfc3339(row.next_ms),
        })
    });
    json!({"process": tree.process, "actors": rows.collect::<Vec<_>>()})
}

fn drawn(trees: &[v1::Tree], now_ms: i64) -> Table {
    let mut table = Table::new(["ACTOR", "STATE", "RESTARTS", "NEXT", "LAST REASON"]);
    for tree in trees {
        for row in &tree.rows {
            let next = row.next_ms.saturating_sub(now_ms);
            let next = match (row.next_ms, u64::try_from(next)) {
                (0, _) => String::new(),
                (_, Ok(ms)) if ms > 0 => format!("in {}", span(ms)),
                (_, Ok(_) | Err(_)) => "now".to_owned(),
            };
            table.row([
                branch(row),
                row.state.clone(),
                row.restarts.to_string(),
                next,
                row.last_reason.clone(),
            ]);
        }
    }
    table
}

/// The last part of its path, as far in as it is deep; a supervisor says its strategy.
fn branch(row: &v1::TreeRow) -> String {
    let depth = row.path.matches('/').count();
    let name = row.path.rsplit('/').next().unwrap_or_default();
    let strategy = if row.strategy.is_empty() {
        String::new()
    } else {
        format!("  {}", row.strategy)
    };
    format!("{:indent$}{name}{strategy}", "", indent = depth * 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_drawn_with_its_troubles() {
        let row = |path: &str, strategy: &str, next_ms| v1::TreeRow {
            path: path.into(),
            strategy: strategy.into(),
            state: if next_ms == 0 { "Running" } else { "Waiting" }.into(),
            restarts: u64::from(next_ms > 0),
            last_reason: if next_ms == 0 { "" } else { "EMFILE" }.into(),
            next_ms,
        };
        let tree = v1::Tree {
            process: "keeper".into(),
            rows: vec![
                row("keeper", "RestForOne", 0),
                row("keeper/outside", "OneForOne", 0),
                row("keeper/outside/uplink", "", 6_000),
            ],
        };

        assert_eq!(
            drawn(&[tree], 1_000).text(None),
            "ACTOR                 STATE    RESTARTS  NEXT   LAST REASON\n\
             keeper  RestForOne    Running  0\n\
             \u{20} outside  OneForOne  Running  0\n\
             \u{20}   uplink            Waiting  1         in 5s  EMFILE\n"
        );
    }
}
