//! `holdfast doctor`: what this host can enforce, and how to fix what it cannot.
//!
//! The kernel is asked by trying (`holdfast_kernel::probe`); here it is said what each answer means. Text and JSON
//! are two prints of the same checks.

use std::fmt::Write as _;
use std::process::ExitCode;

use holdfast_kernel::probe::Findings;
use serde::Serialize;

use crate::failure::{Failure, Kind};
use crate::output::{self, Format};
use host::Host;

mod features;
mod host;
mod settings;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Check {
    /// Its name, for people and scripts.
    name: &'static str,
    /// Whether it is there.
    present: bool,
    /// Whether Holdfast can do without it.
    required: bool,
    /// What was seen: a version, a number, an errno.
    detail: String,
    /// What it is needed for.
    needed_for: &'static str,
    /// How to get it; empty when it is there.
    remedy: String,
}

/// What all checks together say.
#[derive(Debug, Serialize)]
struct Diagnosis {
    ok: bool,
    version: &'static str,
    kernel: String,
    checks: Vec<Check>,
}

/// Looks at everything and says so.
pub(crate) fn doctor(format: Format) -> Result<ExitCode, Failure> {
    let host = Host::read();
    let diagnosis = Diagnosis::of(&Findings::take(), &host);
    match format {
        Format::Text => output::text(&diagnosis.text())?,
        Format::Json => output::document(&diagnosis)?,
    }
    Ok(if diagnosis.ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(Kind::HostUnsupported.exit())
    })
}

impl Diagnosis {
    fn of(findings: &Findings, host: &Host) -> Self {
        let mut checks = features::checks(findings, host);
        checks.extend(settings::checks(host));
        Self {
            ok: checks.iter().all(|check| check.present || !check.required),
            version: env!("CARGO_PKG_VERSION"),
            kernel: host.kernel.clone(),
            checks,
        }
    }

    fn text(&self) -> String {
        let mut text = format!("holdfast {} on Linux {}\n\n", self.version, self.kernel);
        let width = self.checks.iter().map(|check| check.name.len()).max();
        let width = width.unwrap_or_default();
        for check in &self.checks {
            let mark = match (check.present, check.required) {
                (true, _) => "ok     ",
                (false, true) => "MISSING",
                (false, false) => "absent ",
            };
            let line = format!("{mark}  {:width$}  {}", check.name, check.detail);
            let _infallible = writeln!(text, "{}", line.trim_end());
            if !check.present {
                let _infallible = writeln!(text, "{:9}needed for {}", "", check.needed_for);
                let _infallible = writeln!(text, "{:9}fix: {}", "", check.remedy);
            }
        }
        let _infallible = writeln!(text, "\n{}", self.verdict());
        text
    }

    fn verdict(&self) -> String {
        let missing = |required| {
            let missing = |check: &&Check| !check.present && check.required == required;
            self.checks.iter().filter(missing).count()
        };
        match (missing(true), missing(false)) {
            (0, 0) => "Everything is here: this host can enforce every policy.".into(),
            (0, optional) => format!(
                "Everything required is here; {optional} optional, listed as absent, would be better."
            ),
            (required, _) => {
                format!("{required} required, listed as MISSING: no sandbox can start here.")
            }
        }
    }
}

#[cfg(test)]
mod tests;
