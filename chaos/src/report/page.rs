//! A siege as one page that needs nothing but itself.

use std::fmt::Write as _;

use super::{date, picture, spared};
use crate::run::Report;
use crate::timeline::{Fact, Outcome};

pub(super) fn page(report: &Report) -> String {
    let mut html = String::new();
    let name = escape(&report.scenario.name);
    let verdict = if report.passed() { "passed" } else { "failed" };
    let _infallible = write!(
        html,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{name}: {verdict}</title><style>{STYLE}</style></head><body>\n\
         <h1>{name} <span class=\"{verdict}\">{verdict}</span></h1>\n<p>{}</p>\n\
         <p>seed {} · {} · {:.0} s · {} of {} faults made</p>\n",
        escape(&report.scenario.description),
        report.seed.number(),
        escape(&date(report)),
        report.timeline.end().as_secs_f64(),
        report.timeline.broken().len(),
        report.planned,
    );
    html.push_str("<h2>Checks</h2>\n<table>\n");
    for finding in &report.findings {
        let class = if finding.passed { "passed" } else { "failed" };
        let _infallible = write!(
            html,
            "<tr><td class=\"{class}\">{class}</td><td>{}</td><td>{}",
            escape(finding.check),
            escape(&finding.summary)
        );
        if !finding.violations.is_empty() {
            html.push_str("<ul>");
            for violation in finding.violations.iter().take(MOST) {
                let _infallible = write!(html, "<li>{}</li>", escape(violation));
            }
            html.push_str("</ul>");
        }
        html.push_str("</td></tr>\n");
    }
    html.push_str("</table>\n<h2>Timeline</h2>\n");
    html.push_str(&picture::picture(report));
    html.push_str(&events(report));
    for (what, times) in spared(report) {
        let _infallible = writeln!(html, "<p>not made: {} ({times}×)</p>", escape(&what));
    }
    html.push_str("</body></html>\n");
    html
}

/// What happened, a row each.
fn events(report: &Report) -> String {
    let mut html = "<h2>Events</h2>\n<details><summary>faults, phases, failed probes, sessions without a status</summary>\n<table class=\"small\">\n".to_owned();
    let mut rows = 0;
    for entry in report.timeline.entries() {
        let (class, line) = match &entry.fact {
            Fact::Broken {
                number,
                fault,
                victim,
            } => ("fault", format!("fault {number}: {fault} ({victim})")),
            Fact::Mended { number } => ("", format!("fault {number} undone")),
            Fact::Shown(shown) => {
                let failing: Vec<String> = shown
                    .failing
                    .iter()
                    .map(|(name, why)| format!("{name}/{why}"))
                    .collect();
                (
                    "shown",
                    format!(
                        "{} {} {}",
                        shown.phase.word(),
                        shown.reason,
                        failing.join(" ")
                    ),
                )
            }
            Fact::Probed(probed) => match &probed.failure {
                Some(why) => (
                    "failed",
                    format!(
                        "probe of {:.3} s failed: {why}",
                        probed.started.as_secs_f64()
                    ),
                ),
                None => continue,
            },
            Fact::Session(session) => match &session.outcome {
                Outcome::Closed | Outcome::Lost(_) => (
                    "failed",
                    format!("session {}: {:?}", session.request, session.outcome),
                ),
                Outcome::Exited(_)
                | Outcome::Signalled(_)
                | Outcome::Unknown(_)
                | Outcome::Refused(_) => continue,
            },
            Fact::Cut => ("failed", "a held connection was closed".to_owned()),
            Fact::Left(what) => ("failed", format!("left behind: {what}")),
            Fact::Lost(why) => ("failed", why.clone()),
            Fact::Noted(note) => ("", note.clone()),
            Fact::Stage(stage) => ("", format!("{stage:?}")),
            Fact::Spared { .. } | Fact::Tree(_) | Fact::Life(_) | Fact::Counted { .. } => continue,
        };
        rows += 1;
        if rows > MOST_ROWS {
            html.push_str("<tr><td></td><td>and more</td></tr>\n");
            break;
        }
        let _infallible = writeln!(
            html,
            "<tr><td>{:.3}</td><td class=\"{class}\">{}</td></tr>",
            entry.at.as_secs_f64(),
            escape(&line)
        );
    }
    html.push_str("</table></details>\n");
    html
}

/// Text as HTML shows it and does not obey it.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

const MOST: usize = 200;
const MOST_ROWS: usize = 20_000;
const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1200px;color:#222;padding:0 1em}\
table{border-collapse:collapse}td{padding:.25em .7em;border-top:1px solid #ddd;vertical-align:top}.small{font-size:12px}\
.passed{color:#1a7f37}.failed{color:#c0232c}.fault{color:#9a5b00}svg{width:100%;height:auto;background:#fafafa;border:1px solid #ddd}\
ul{margin:.3em 0;padding-left:1.2em}";

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn what_a_sandbox_says_does_not_become_a_part_of_the_page() {
        assert_eq!(escape("<script>'\"&"), "&lt;script&gt;&#39;&quot;&amp;");
    }
}
