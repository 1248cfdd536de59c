//! Prometheus text (exposition format 0.0.4) of what the sandboxes' statuses hold.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use holdfast_wire::{v1, words};

/// Metrics, gathered by name.
#[derive(Debug, Default)]
pub(super) struct Page(BTreeMap<&'static str, Family>);

#[derive(Debug)]
struct Family {
    kind: Kind,
    help: &'static str,
    samples: String,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Gauge,
    Counter,
}

impl Page {
    /// A number that goes up and down.
    pub(super) fn gauge(
        &mut self,
        (name, help): (&'static str, &'static str),
        labels: &[(&str, &str)],
        value: f64,
    ) {
        self.sample(Kind::Gauge, (name, help), labels, value);
    }

    /// A number that only grows.
    #[expect(
        clippy::cast_precision_loss,
        reason = "Prometheus counts in floating point"
    )]
    pub(super) fn counter(
        &mut self,
        (name, help): (&'static str, &'static str),
        labels: &[(&str, &str)],
        value: u64,
    ) {
        self.sample(Kind::Counter, (name, help), labels, value as f64);
    }

    fn sample(
        &mut self,
        kind: Kind,
        (name, help): (&'static str, &'static str),
        labels: &[(&str, &str)],
        value: f64,
    ) {
        let family = self.0.entry(name).or_insert_with(|| Family {
            kind,
            help,
            samples: String::new(),
        });
        let labels: Vec<_> = labels
            .iter()
            .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
            .collect();
        let _infallible = writeln!(family.samples, "{name}{{{}}} {value}", labels.join(","));
    }

    /// As a scraper reads it.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (name, family) in &self.0 {
            let kind = match family.kind {
                Kind::Gauge => "gauge",
                Kind::Counter => "counter",
            };
            let help = family.help;
            let _infallible = write!(
                text,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{}",
                family.samples
            );
        }
        text
    }

    /// Everything that a sandbox's status tells.
    pub(super) fn sandbox(&mut self, status: &v1::Status) {
        let name = &*status.name;
        let own = [("sandbox", name)];
        let ready = f64::from(u8::from(status.phase() == v1::Phase::Ready));
        self.gauge(
            ("holdfast_sandbox_ready", "Whether the sandbox is Ready."),
            &own,
            ready,
        );
        for condition in &status.conditions {
            let labels = [
                ("sandbox", name),
                ("type", words::condition(condition.r#type())),
                ("reason", &condition.reason),
            ];
            let holds = f64::from(u8::from(condition.status() == v1::Truth::True));
            let told = ("holdfast_sandbox_condition", "Whether the condition holds.");
            self.gauge(told, &labels, holds);
        }
        for (process, descriptors) in &status.descriptors {
            self.descriptors(name, process, descriptors);
        }
        for (actor, count) in &status.restarts {
            let told = (
                "holdfast_actor_restarts_total",
                "Restarts of actors and processes.",
            );
            self.counter(told, &[("sandbox", name), ("actor", actor)], *count);
        }
        self.work(status);
    }

    /// The descriptors of one process.
    #[expect(
        clippy::cast_precision_loss,
        reason = "Prometheus counts in floating point"
    )]
    pub(super) fn descriptors(&mut self, sandbox: &str, process: &str, of: &v1::Descriptors) {
        let labels = [("sandbox", sandbox), ("process", process), ("class", "all")];
        let limit = (
            "holdfast_descriptors_limit",
            "How many descriptors the process may have.",
        );
        self.gauge(limit, &labels, of.limit as f64);
        let used = (
            "holdfast_descriptors_used",
            "How many descriptors the process has.",
        );
        self.gauge(used, &labels, of.used as f64);
        let most = (
            "holdfast_descriptors_high_water",
            "The most descriptors it was seen to have.",
        );
        self.gauge(most, &labels, of.high_water as f64);
        let shed = (
            "holdfast_descriptors_shed_total",
            "Refused for want of descriptors.",
        );
        self.counter(shed, &labels, of.shed);
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "Prometheus counts in floating point"
    )]
    fn work(&mut self, status: &v1::Status) {
        let own = [("sandbox", &*status.name)];
        if let Some(sessions) = &status.sessions {
            let running = ("holdfast_sessions_running", "Sessions that run.");
            self.gauge(running, &own, sessions.running as f64);
            self.counter(
                ("holdfast_sessions_total", "Sessions so far."),
                &own,
                sessions.total,
            );
            let failed = (
                "holdfast_sessions_failed_total",
                "Sessions that did not start, or ended unknown.",
            );
            self.counter(failed, &own, sessions.failed);
        }
        if let Some(egress) = &status.egress {
            let open = ("holdfast_egress_open", "Connections that are open.");
            self.gauge(open, &own, egress.open as f64);
            for (verdict, count) in [
                ("allowed", egress.allowed),
                ("denied", egress.denied),
                ("refused_upstream", egress.refused_upstream),
            ] {
                let told = (
                    "holdfast_egress_connections_total",
                    "Connections by verdict.",
                );
                self.counter(told, &[own[0], ("verdict", verdict)], count);
            }
        }
        if let Some(broker) = &status.broker {
            let told = (
                "holdfast_broker_notifications_total",
                "Calls that the broker has looked at.",
            );
            self.counter(told, &own, broker.notifications);
            for (race, count) in &broker.races {
                let (call, errno) = race.split_once('/').unwrap_or((race, ""));
                let labels = [own[0], ("syscall", call), ("errno", errno)];
                let told = (
                    "holdfast_broker_races_total",
                    "Harmless races, by call and errno.",
                );
                self.counter(told, &labels, *count);
            }
        }
        if let Some(canary) = &status.canary {
            let took = (
                "holdfast_canary_last_duration_seconds",
                "How long the last canary took.",
            );
            self.gauge(took, &own, canary.duration_us as f64 / 1e6);
            let failed = (
                "holdfast_canary_failures_total",
                "Canaries that did not come through.",
            );
            self.counter(failed, &own, canary.failures);
        }
        if let Some(link) = &status.link {
            let told = (
                "holdfast_link_reconnects_total",
                "Links to the boundary after the first.",
            );
            self.counter(told, &own, link.reconnects);
        }
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_told_once_with_all_its_samples() {
        let mut page = Page::default();
        for name in ["a", "b"] {
            page.sandbox(&v1::Status {
                name: name.to_owned(),
                phase: v1::Phase::Ready.into(),
                ..v1::Status::default()
            });
        }

        let expected = "# HELP holdfast_sandbox_ready Whether the sandbox is Ready.\n\
            # TYPE holdfast_sandbox_ready gauge\n\
            holdfast_sandbox_ready{sandbox=\"a\"} 1\n\
            holdfast_sandbox_ready{sandbox=\"b\"} 1\n";
        assert_eq!(page.text(), expected);
    }

    #[test]
    fn what_a_label_may_not_hold_is_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
