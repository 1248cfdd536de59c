//! `holdfast status`: for people in paragraphs, for programs as one document, and with `--watch` again at each change.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use holdfast_wire::v1;
use holdfast_wire::v1::Truth;
use holdfast_wire::v1::exit::How;
use holdfast_wire::words::unnumbered;

use super::{document, request, words};
use crate::cli::sandboxes::Status;
use crate::client::{self, Client, refused};
use crate::config::Config;
use crate::failure::{Failure, Kind};
use crate::output::{self, Format};
use crate::table::{self, Table, fitting, one_line};
use crate::times::{age, now_ms, rfc3339};

/// Says how a sandbox stands.
pub(crate) fn status(arguments: &Status, config: &Config) -> Result<ExitCode, Failure> {
    let width = table::width(config);
    client::with(config, async |mut client| {
        if arguments.watch {
            return watch(client, &arguments.name, arguments.output.output, width).await;
        }
        let answer = client.get(request(&arguments.name)).await;
        let status = answer.map_err(|status| refused(&status))?.into_inner();
        match arguments.output.output {
            Format::Json => output::document(&document::status(&status))?,
            Format::Text => output::text(&text(&status, now_ms(), width))?,
        }
        Ok(ExitCode::SUCCESS)
    })
    .or_else(|failure| {
        if arguments.watch {
            quietly(failure)
        } else {
            Err(failure)
        }
    })
}

/// One who watches ends it by a signal: that is no failure worth a line.
pub(super) fn quietly(failure: Failure) -> Result<ExitCode, Failure> {
    if let Kind::Interrupted(_) = failure.kind() {
        Ok(ExitCode::from(failure.kind().exit()))
    } else {
        Err(failure)
    }
}

async fn watch(
    mut client: Client,
    name: &str,
    format: Format,
    width: Option<usize>,
) -> Result<ExitCode, Failure> {
    let opened = client.watch(request(name)).await;
    let mut changes = opened.map_err(|status| refused(&status))?.into_inner();
    let redraws = io::stdout().is_terminal();
    while let Some(status) = output::while_read(changes.message())
        .await?
        .map_err(|status| refused(&status))?
    {
        match format {
            Format::Json => output::document(&document::status(&status))?,
            Format::Text if redraws => {
                output::text(&format!("{CLEAR}{}", text(&status, now_ms(), width)))?;
            }
            Format::Text => output::text(&line(&status, now_ms()))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One change on one line.
fn line(status: &v1::Status, now_ms: i64) -> String {
    let phase = words::phase(status.phase());
    let because = words::because(&status.reason, &status.message);
    let moment = rfc3339(now_ms).unwrap_or_default();
    let line = format!("{moment} {} {phase} {}", status.name, one_line(&because));
    format!("{}\n", line.trim_end())
}

/// The whole status for people.
fn text(status: &v1::Status, now_ms: i64, width: Option<usize>) -> String {
    let mut text = String::new();
    let phase = words::phase(status.phase());
    line_of(
        &mut text,
        &status.name,
        &format!("{phase} for {}", age(status.since_ms, now_ms)),
        width,
    );
    let because = words::because(&status.reason, &status.message);
    if !because.is_empty() {
        line_of(&mut text, "  because", &because, width);
    }
    for (name, value) in facts(status, now_ms) {
        line_of(&mut text, &format!("  {name}"), &value, width);
    }
    text.push('\n');
    let mut conditions = Table::new(["CONDITION", "STATUS", "SINCE", "SEEN", "REASON"]);
    for condition in &status.conditions {
        conditions.row([
            words::condition(condition.r#type()).to_owned(),
            words::truth(condition.status()).to_owned(),
            age(condition.since_ms, now_ms),
            age(condition.observed_ms, now_ms),
            words::because(&condition.reason, &condition.message),
        ]);
    }
    text.push_str(&conditions.text(width));
    text
}

fn line_of(text: &mut String, name: &str, value: &str, width: Option<usize>) {
    let line = format!("{name:<14} {}", one_line(value));
    let line = fitting(line.trim_end(), width.unwrap_or(usize::MAX));
    let _infallible = writeln!(text, "{line}");
}

fn facts(status: &v1::Status, now_ms: i64) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        (
            "id",
            format!("{} generation {}", status.id, status.generation),
        ),
        ("age", age(status.created_ms, now_ms)),
    ];
    if let Some(sessions) = &status.sessions {
        let v1::SessionCounts {
            running,
            total,
            failed,
        } = sessions;
        facts.push((
            "sessions",
            format!("{running} running, {total} in all, {failed} failed"),
        ));
    }
    if let Some(egress) = &status.egress {
        facts.push((
            "egress",
            format!(
                "{} open, {} allowed, {} denied",
                egress.open, egress.allowed, egress.denied
            ),
        ));
    }
    if let Some(policy) = &status.policy {
        let mut said = format!("revision {}", policy.enforced);
        if policy.desired != policy.enforced {
            let _infallible = write!(said, ", {} is wanted", policy.desired);
        }
        if !policy.error.is_empty() {
            let _infallible = write!(said, ": {}", policy.error);
        }
        facts.push(("policy", said));
    }
    if let Some(link) = &status.link {
        let linked = if link.connected { "connected" } else { "lost" };
        let epoch = link.epoch;
        facts.push((
            "link",
            format!("{linked}, epoch {epoch}, {} reconnects", link.reconnects),
        ));
    }
    facts.extend(processes(status));
    let restarts: u64 = status.restarts.values().sum();
    if restarts > 0 {
        facts.push(("restarts", restarts.to_string()));
    }
    if let Some(main) = &status.main {
        let ago = age(main.ended_ms, now_ms);
        facts.push(("main", format!("{}, {ago}", ended(main))));
    }
    facts
}

/// How the main process ended, in words.
fn ended(main: &v1::Ending) -> String {
    let how = match main.exit.as_ref().and_then(|exit| exit.how.as_ref()) {
        Some(How::Code(code)) => format!("exited with status {code}"),
        Some(How::Signal(signal)) => format!("was ended by signal {signal}"),
        Some(How::Unknown(why)) if !why.is_empty() => {
            let why = unnumbered(why);
            match &*main.reason {
                "" => format!("ended, nobody knows how: {why}"),
                "BoundaryLost" => format!("ended: {why}"),
                _ => format!("not started: {why}"),
            }
        }
        Some(How::Unknown(_)) | None => "ended, nobody knows how".to_owned(),
    };
    match &*main.reason {
        "" => how,
        reason => format!("{how} ({reason})"),
    }
}

fn processes(status: &v1::Status) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    for process in ["keeper", "boundary"] {
        if let Some(of) = status.descriptors.get(process) {
            let pid = status.pids.get(process).copied().unwrap_or_default();
            facts.push((
                process,
                format!(
                    "pid {pid}, {} of {} descriptors, most {}",
                    of.used, of.limit, of.high_water
                ),
            ));
        }
    }
    facts
}

/// Home, and nothing below: the picture is drawn again.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Why it is where it is, for whoever waits for it to be elsewhere; nothing of one whose conditions all hold.
pub(super) fn first_false(status: &v1::Status) -> String {
    let failing = status
        .conditions
        .iter()
        .find(|condition| condition.status() != Truth::True);
    match failing {
        _ if !status.reason.is_empty() => words::because(&status.reason, &status.message),
        Some(condition) => {
            let name = words::condition(condition.r#type());
            let because = words::because(&condition.reason, &condition.message);
            format!("{name} is {}: {because}", words::truth(condition.status()))
        }
        None if status.conditions.is_empty() => "nothing was reported yet".to_owned(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unicode_width::UnicodeWidthStr as _;

    #[test]
    fn the_end_of_the_main_process_is_told_in_words() {
        let told = |how, reason: &str| {
            let exit = Some(v1::Exit { how });
            let reason = reason.to_owned();
            ended(&v1::Ending {
                exit,
                reason,
                ..v1::Ending::default()
            })
        };

        assert_eq!(told(Some(How::Code(3)), ""), "exited with status 3");
        assert_eq!(
            told(Some(How::Signal(9)), "OutOfMemory"),
            "was ended by signal 9 (OutOfMemory)"
        );
        assert_eq!(
            told(
                Some(How::Unknown("find x: no (os error 2)".to_owned())),
                "ProgramNotFound"
            ),
            "not started: find x: no (ProgramNotFound)"
        );
        assert_eq!(
            told(
                Some(How::Unknown("the boundary died".to_owned())),
                "BoundaryLost"
            ),
            "ended: the boundary died (BoundaryLost)"
        );
        assert_eq!(told(None, ""), "ended, nobody knows how");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_none_can_be_forged() {
        let status = v1::Status {
            name: "qa".into(),
            phase: v1::Phase::Degraded.into(),
            reason: "LinkLost".into(),
            message: "x\n\x1b[2J".repeat(50),
            conditions: vec![v1::Condition::default()],
            ..v1::Status::default()
        };

        let shown = text(&status, 0, Some(40));

        assert!(
            shown.starts_with("qa             Degraded for -\n"),
            "{shown}"
        );
        assert!(!shown.contains('\x1b'));
        for line in shown.lines() {
            assert!(line.width() <= 40, "{line}");
        }
        assert_eq!(line(&status, 1_000).lines().count(), 1);
    }
}
