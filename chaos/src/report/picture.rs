//! The timeline as a picture: faults, what was shown, which conditions failed, the probes, the descriptors.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use holdfast_wire::words;

use super::page::escape;
use crate::run::Report;
use crate::timeline::{Fact, Phase, Timeline};

/// An SVG with a lane for each thing, all over the same time.
pub(super) fn picture(report: &Report) -> String {
    let timeline = &report.timeline;
    let mut canvas = Canvas::over(timeline.end());
    canvas.seconds();
    canvas.faults(timeline);
    canvas.phases(timeline);
    canvas.conditions(timeline);
    canvas.probes(timeline);
    canvas.descriptors(timeline);
    canvas.finish()
}

struct Canvas {
    end: f64,
    /// Where the next lane begins.
    y: f64,
    body: String,
}

impl Canvas {
    fn over(end: Duration) -> Self {
        Self {
            end: end.as_secs_f64().max(1.0),
            y: 20.0,
            body: String::new(),
        }
    }

    fn x(&self, at: Duration) -> f64 {
        LEFT + at.as_secs_f64() / self.end * WIDTH
    }

    fn text(&mut self, x: f64, y: f64, text: &str) {
        let _infallible = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
            escape(text)
        );
    }

    fn bar(&mut self, (from, until): (Duration, Duration), height: f64, colour: &str, title: &str) {
        let (x, wide) = (self.x(from), (self.x(until) - self.x(from)).max(0.7));
        let _infallible = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{height}\" fill=\"{colour}\"><title>{}</title></rect>",
            self.y,
            escape(title)
        );
    }

    fn lane(&mut self, name: &str, height: f64) {
        self.text(4.0, self.y + height - 2.0, name);
    }

    fn next(&mut self, height: f64) {
        self.y += height + 4.0;
    }

    /// A line every so many seconds, about twelve of them.
    fn seconds(&mut self) {
        let steps = [
            1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 86_400.0,
        ];
        let step = steps
            .into_iter()
            .find(|step| self.end / step <= 14.0)
            .unwrap_or(86_400.0);
        let mut at = 0.0;
        while at <= self.end {
            let x = LEFT + at / self.end * WIDTH;
            let _infallible = writeln!(
                self.body,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"16\" y2=\"100%\" stroke=\"#ddd\"/>"
            );
            self.text(x + 2.0, 12.0, &format!("{at:.0} s"));
            at += step;
        }
    }

    /// One lane for each kind of fault.
    fn faults(&mut self, timeline: &Timeline) {
        let spans = timeline.broken();
        let mut lanes: BTreeMap<String, Vec<(usize, String)>> = BTreeMap::new();
        for entry in timeline.entries() {
            if let Fact::Broken {
                number,
                fault,
                victim,
            } = &entry.fact
            {
                let kind = fault.split(' ').next().unwrap_or_default().to_owned();
                lanes
                    .entry(kind)
                    .or_default()
                    .push((*number, format!("{number}: {fault} ({victim})")));
            }
        }
        for (kind, faults) in lanes {
            self.lane(&kind, 12.0);
            for (number, title) in faults {
                let of_it = spans.iter().filter(|(broken, ..)| *broken == number);
                for (_, from, until) in of_it.copied().collect::<Vec<_>>() {
                    self.bar((from, until), 12.0, "#e8a33d", &title);
                }
            }
            self.next(12.0);
        }
    }

    fn phases(&mut self, timeline: &Timeline) {
        self.lane("shown", 18.0);
        let shown: Vec<_> = timeline.shown().collect();
        for (index, (at, of)) in shown.iter().enumerate() {
            let until = shown
                .get(index + 1)
                .map_or(timeline.end(), |(next, _)| *next);
            let title = format!(
                "{} {} at {:.3} s",
                of.phase.word(),
                of.reason,
                at.as_secs_f64()
            );
            self.bar((*at, until), 18.0, colour(of.phase), &title);
        }
        self.next(18.0);
    }

    fn conditions(&mut self, timeline: &Timeline) {
        let shown: Vec<_> = timeline.shown().collect();
        for condition in words::CONDITIONS.map(words::condition) {
            self.lane(condition, 8.0);
            for (index, (at, of)) in shown.iter().enumerate() {
                let Some(reason) = of.failing.get(condition) else {
                    continue;
                };
                let until = shown
                    .get(index + 1)
                    .map_or(timeline.end(), |(next, _)| *next);
                self.bar(
                    (*at, until),
                    8.0,
                    "#c0232c",
                    &format!("{condition}: {reason}"),
                );
            }
            self.next(8.0);
        }
    }

    fn probes(&mut self, timeline: &Timeline) {
        self.lane("probes", 12.0);
        for entry in timeline.entries() {
            if let Fact::Probed(probed) = &entry.fact {
                let span = (probed.started, probed.started + Duration::from_millis(30));
                match &probed.failure {
                    Some(why) => self.bar(span, 12.0, "#c0232c", why),
                    None => self.bar(span, 6.0, "#8fc9a0", "succeeded"),
                }
            }
        }
        self.next(12.0);
    }

    /// A curve of use and one of the highest use for each process.
    fn descriptors(&mut self, timeline: &Timeline) {
        let mut curves: BTreeMap<&str, Vec<(Duration, u64, u64)>> = BTreeMap::new();
        for (at, shown) in timeline.shown() {
            for (process, of) in &shown.descriptors {
                curves
                    .entry(process)
                    .or_default()
                    .push((at, of.used, of.high_water));
            }
        }
        for (process, points) in curves {
            let most = points
                .iter()
                .map(|(_, used, high)| (*used).max(*high))
                .max()
                .unwrap_or(1)
                .max(1);
            self.lane(&format!("{process} fds, to {most}"), 60.0);
            for (which, colour) in [(false, "#2563a8"), (true, "#b8cbe0")] {
                let mut path = String::new();
                for (at, used, high) in &points {
                    let value =
                        u32::try_from(if which { *high } else { *used }).unwrap_or(u32::MAX);
                    let top = u32::try_from(most).unwrap_or(u32::MAX);
                    let y = self.y + 60.0 - f64::from(value) / f64::from(top) * 58.0;
                    let _infallible = write!(path, "{:.1},{y:.1} ", self.x(*at));
                }
                let _infallible = writeln!(
                    self.body,
                    "<polyline fill=\"none\" stroke=\"{colour}\" points=\"{path}\"/>"
                );
            }
            self.next(60.0);
        }
    }

    fn finish(self) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} {:.0}\" font-size=\"10\" font-family=\"sans-serif\">\n{}</svg>\n",
            LEFT + WIDTH + 10.0,
            self.y + 10.0,
            self.body
        )
    }
}

const fn colour(phase: Phase) -> &'static str {
    match phase {
        Phase::Ready => "#4caf6d",
        Phase::Degraded => "#e9c46a",
        Phase::Failed => "#c0232c",
        Phase::Pending => "#9db4d0",
        Phase::Silent => "#bbbbbb",
        Phase::Stopped | Phase::Deleting => "#777777",
    }
}

const LEFT: f64 = 130.0;
const WIDTH: f64 = 1_060.0;
