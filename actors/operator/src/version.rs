//! `holdfast version`

use std::process::ExitCode;

use serde_json::json;

use crate::failure::Failure;
use crate::output::{self, Format};

/// Says which version this is.
pub(crate) fn version(format: Format) -> Result<ExitCode, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    match format {
        Format::Text => output::text(&format!("holdfast {version}\n"))?,
        Format::Json => output::document(&json!({"name": "holdfast", "version": version}))?,
    }
    Ok(ExitCode::SUCCESS)
}
