//! `holdfast why`: one verdict in full.

use std::fmt::Write as _;
use std::process::ExitCode;

use holdfast_wire::v1;
use serde_json::{Value, json};

use crate::cli::sandboxes::Why;
use crate::client::{self, refused};
use crate::config::Config;
use crate::failure::{Failure, Kind};
use crate::output::{self, Format};
use crate::table::one_line;

/// Prints the record of one decision.
pub(crate) fn why(arguments: &Why, config: &Config) -> Result<ExitCode, Failure> {
    client::with(config, async |mut client| {
        let request = v1::WhyRequest {
            decision: arguments.decision.clone(),
        };
        let answer = client.why(request).await;
        let reply = answer.map_err(|status| refused(&status))?.into_inner();
        let record: Value = serde_json::from_str(&reply.record)
            .map_err(|error| Failure::caused(Kind::Internal, "read the record", &error))?;
        match arguments.output.output {
            Format::Json => output::document(&json!({"sandbox": reply.sandbox, "record": record}))?,
            Format::Text => output::text(&text(&reply.sandbox, &record))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Every field of the record on a line of its own.
fn text(sandbox: &str, record: &Value) -> String {
    let mut text = format!("sandbox: {}\n", one_line(sandbox));
    lines(&mut text, record, 0);
    text
}

fn lines(text: &mut String, value: &Value, depth: usize) {
    let indent = depth * 2;
    let entries: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (format!("{}:", one_line(name)), value))
            .collect(),
        Value::Array(items) => items.iter().map(|item| ("-".to_owned(), item)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
    };
    for (name, value) in entries {
        match value {
            Value::Null => {}
            Value::Object(_) | Value::Array(_) => {
                let _infallible = writeln!(text, "{:indent$}{name}", "");
                lines(text, value, depth + 1);
            }
            Value::String(word) => {
                let _infallible = writeln!(text, "{:indent$}{name} {}", "", one_line(word));
            }
            Value::Bool(_) | Value::Number(_) => {
                let _infallible = writeln!(text, "{:indent$}{name} {value}", "");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_line_by_line_and_cannot_forge_one() {
        let record = json!({"decision": "d1", "dst": {"host": "x\ny", "port": 443}, "binaries": ["/bin/a"], "none": null});

        assert_eq!(
            text("qa", &record),
            "sandbox: qa\nbinaries:\n  - /bin/a\ndecision: d1\ndst:\n  host: x y\n  port: 443\n"
        );
    }
}
