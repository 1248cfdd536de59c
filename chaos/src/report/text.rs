//! The result for people, as text.

use std::fmt::Write as _;

use super::spared;
use crate::run::Report;

/// A line for each check, its violations below it, and what could not be made.
pub(crate) fn table(report: &Report) -> String {
    let mut text = String::new();
    let verdict = if report.passed() { "passed" } else { "FAILED" };
    let made = report.timeline.broken().len();
    let _infallible = writeln!(
        text,
        "{} (seed {}): {verdict}, {made} of {} faults made in {:.0} s",
        report.scenario.name,
        report.seed.number(),
        report.planned,
        report.timeline.end().as_secs_f64()
    );
    for finding in &report.findings {
        let mark = if finding.passed { "ok  " } else { "FAIL" };
        let _infallible = writeln!(text, "  {mark}  {:<27}  {}", finding.check, finding.summary);
        for violation in finding.violations.iter().take(MOST_LINES) {
            let _infallible = writeln!(text, "          {}", violation.replace('\n', " "));
        }
        let more = finding.violations.len().saturating_sub(MOST_LINES);
        if more > 0 {
            let _infallible = writeln!(text, "          and {more} more");
        }
    }
    for (what, times) in spared(report) {
        let _infallible = writeln!(text, "  not made  {what} ({times}×)");
    }
    if report.timeline.missed() > 0 {
        let _infallible = writeln!(text, "  {} facts found no room", report.timeline.missed());
    }
    text
}

const MOST_LINES: usize = 10;
