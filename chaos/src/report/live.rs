//! The table that is shown while a siege goes on: how far it is, what is broken, what the sandbox says.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use holdfast_clock::Seed;
use tokio::time::interval;

use crate::journal::Journal;
use crate::schedule::Planned;
use crate::timeline::{Fact, Outcome, Timeline};

/// Draws on standard error; on a terminal as a table in one place, else a line for each fault.
pub(crate) struct Live {
    pub(crate) scenario: String,
    pub(crate) seed: Seed,
    pub(crate) duration: Duration,
    pub(crate) quiet: bool,
}

impl Live {
    /// Draws until it is dropped.
    pub(crate) async fn draw(&self, journal: &Journal, plan: &[Planned]) {
        if self.quiet {
            return std::future::pending().await;
        }
        let terminal = io::stderr().is_terminal();
        let mut ticks = interval(EVERY);
        let (mut lines, mut seen) = (0, 0);
        loop {
            ticks.tick().await;
            let text = journal.read(|timeline| {
                if terminal {
                    self.table(timeline, plan, journal.now())
                } else {
                    let new = told(timeline, seen);
                    seen = timeline.entries().len();
                    new
                }
            });
            let mut out = io::stderr().lock();
            if terminal && lines > 0 {
                let _nobody_looks = write!(out, "\x1b[{lines}A\x1b[J");
            }
            let _nobody_looks = out.write_all(text.as_bytes());
            lines = text.lines().count();
        }
    }

    fn table(&self, timeline: &Timeline, plan: &[Planned], now: Duration) -> String {
        let mut text = String::new();
        let broken: Vec<String> = open(timeline);
        let shown = timeline
            .shown()
            .last()
            .map(|(_, shown)| shown.clone())
            .unwrap_or_default();
        let (mut tried, mut failed, mut sessions, mut without) = (0_u64, 0_u64, 0_u64, 0_u64);
        for entry in timeline.entries() {
            if let Fact::Probed(probed) = &entry.fact {
                tried += 1;
                failed += u64::from(probed.failure.is_some());
            } else if let Fact::Session(session) = &entry.fact {
                sessions += 1;
                without += u64::from(matches!(
                    session.outcome,
                    Outcome::Closed | Outcome::Lost(_)
                ));
            }
        }
        let (done, all) = (timeline.broken().len(), plan.len());
        let (now, end) = (now.as_secs(), self.duration.as_secs());
        let _infallible = writeln!(
            text,
            "{}  seed {}  {now} s of {end} s  {done} of {all} faults",
            self.scenario,
            self.seed.number()
        );
        let names = if broken.is_empty() {
            "nothing".to_owned()
        } else {
            broken.join(", ")
        };
        let _infallible = writeln!(text, "  broken    {names}");
        let _infallible = writeln!(
            text,
            "  shown     {} {}  generation {} epoch {}",
            shown.phase.word(),
            shown.reason,
            shown.generation,
            shown.epoch
        );
        let failing: Vec<String> = shown
            .failing
            .iter()
            .map(|(name, reason)| format!("{name}/{reason}"))
            .collect();
        let _infallible = writeln!(
            text,
            "  failing   {}",
            if failing.is_empty() {
                "none".to_owned()
            } else {
                failing.join(" ")
            }
        );
        for (process, of) in &shown.descriptors {
            let _infallible = writeln!(
                text,
                "  {process:<9} {} of {} descriptors, most {}, shed {}, waiting {}",
                of.used, of.limit, of.high_water, of.shed, of.waiting
            );
        }
        let _infallible = writeln!(
            text,
            "  probes    {tried}, {failed} failed   sessions {sessions}, {without} without a status"
        );
        text
    }
}

/// What is broken now.
fn open(timeline: &Timeline) -> Vec<String> {
    let mut open: Vec<(usize, String)> = Vec::new();
    for entry in timeline.entries() {
        if let Fact::Broken {
            number,
            fault,
            victim,
        } = &entry.fact
        {
            open.push((*number, format!("{fault} ({victim})")));
        } else if let Fact::Mended { number } = &entry.fact {
            open.retain(|(broken, _)| broken != number);
        }
    }
    open.into_iter().map(|(_, text)| text).collect()
}

/// A line for each fault, phase and note since then.
fn told(timeline: &Timeline, seen: usize) -> String {
    let mut text = String::new();
    let mut phase = None;
    for (index, entry) in timeline.entries().iter().enumerate() {
        let at = entry.at.as_secs_f64();
        let line = match &entry.fact {
            Fact::Shown(shown) => {
                let new = (shown.phase, shown.reason.clone());
                if phase.as_ref() == Some(&new) {
                    None
                } else {
                    phase = Some(new);
                    Some(format!("shown {} {}", shown.phase.word(), shown.reason))
                }
            }
            Fact::Broken {
                number,
                fault,
                victim,
            } => Some(format!("fault {number}: {fault} ({victim})")),
            Fact::Mended { number } => Some(format!("fault {number} undone")),
            Fact::Spared { number, fault, why } => {
                Some(format!("fault {number}: {fault}: not made: {why}"))
            }
            Fact::Noted(note) | Fact::Lost(note) => Some(note.clone()),
            Fact::Stage(stage) => Some(format!("{stage:?}")),
            Fact::Cut => Some("a held connection was closed".to_owned()),
            Fact::Left(what) => Some(format!("left behind: {what}")),
            Fact::Probed(_)
            | Fact::Session(_)
            | Fact::Tree(_)
            | Fact::Life(_)
            | Fact::Counted { .. } => None,
        };
        if let (true, Some(line)) = (index >= seen, line) {
            let _infallible = writeln!(text, "{at:9.3}  {line}");
        }
    }
    text
}

const EVERY: Duration = Duration::from_millis(500);
