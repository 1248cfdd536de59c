//! Audit records as a reader of the file sees them.

use serde_json::Value;
use std::path::Path;

/// One line of the audit file.
#[derive(Clone, Debug)]
pub struct Record(pub Value);

impl Record {
    /// A text field, empty when it is absent.
    pub fn text(&self, field: &str) -> &str {
        self.0.get(field).and_then(Value::as_str).unwrap_or("")
    }

    /// A number field.
    pub fn number(&self, field: &str) -> Option<i64> {
        self.0.get(field).and_then(Value::as_i64)
    }

    /// Whether something was allowed.
    pub fn allowed(&self) -> bool {
        self.text("verdict") == "allowed"
    }

    /// Whether it is about this name (or, without a name, this address) and port.
    pub fn is_about(&self, host: &str, port: u16) -> bool {
        let same_port = self.number("port") == Some(i64::from(port));
        same_port && (self.text("host") == host || self.text("address") == host)
    }
}

/// Every record of a file; a line that is no JSON object is a fault of the product.
pub fn read(file: &Path) -> Vec<Record> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .map(|line| {
            let value: Value = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("an audit line is not JSON ({error}): {line}"));
            assert!(value.is_object(), "an audit line is not an object: {line}");
            Record(value)
        })
        .collect()
}
