//! A place with sandboxes that last, driven by the command line alone. The gateway is the one that the first command starts.

use crate::area::Area;
use crate::finished::Finished;
use crate::run::Run;
use crate::stat;
use crate::wait::{LONG, holds_within, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// An area whose sandboxes and gateway end with it.
#[derive(Debug)]
pub struct Host<'a> {
    area: &'a Area,
}

impl<'a> Host<'a> {
    /// Nothing runs yet.
    pub fn new(area: &'a Area) -> Self {
        Self { area }
    }

    /// The place.
    pub fn area(&self) -> &'a Area {
        self.area
    }

    /// `holdfast WORD…`, words parted by blanks.
    pub fn say(&self, line: &str) -> Run<'a> {
        Run::plain(self.area, line.split_whitespace())
    }

    /// The same, to its end.
    pub fn said(&self, line: &str) -> Finished {
        self.say(line).finish()
    }

    /// The same, which has to succeed.
    pub fn done(&self, line: &str) -> Finished {
        let finished = self.said(line);
        assert_eq!(finished.code(), Some(0), "{finished}");
        finished
    }

    /// A sandbox that is ready. `options` stand before `--`.
    pub fn ready(&self, name: &str, options: &str) {
        self.done(&format!("create {name} --wait {options}"));
    }

    /// A program in a sandbox, before its start.
    pub fn exec(&self, options: &str, command: &[&str]) -> Run<'a> {
        self.say(&format!("exec {options}"))
            .command(command.iter().copied())
    }

    /// A line for the sandbox's shell.
    pub fn shell(&self, name: &str, line: &str) -> Finished {
        self.exec(name, &["sh", "-c", line]).finish()
    }

    /// The document that a command prints, with its exit code.
    pub fn document(&self, line: &str) -> (Option<i32>, Value) {
        document(&self.said(line))
    }

    /// The gateway that serves here.
    pub fn gateway(&self) -> Option<Pid> {
        pid(&self.area.runtime().join("gateway.pid"))
    }

    /// Ends the gateway; its sandboxes go on.
    pub fn end_gateway(&self, signal: Signal) {
        let Some(gateway) = self.gateway() else {
            return;
        };
        let _gone = kill(gateway, signal);
        until("the gateway has ended", LONG, || has_ended(gateway));
    }
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        let Some(gateway) = self.gateway() else {
            return;
        };
        if std::thread::panicking() {
            // The test has failed already, and whatever panics now would hide why. The area kills what is left.
            let _gone = kill(gateway, Signal::SIGKILL);
            holds_within(LONG, || has_ended(gateway));
            return;
        }
        let (_, list) = self.document("list -o json");
        for sandbox in list.as_array().into_iter().flatten() {
            let name = sandbox["name"].as_str().unwrap_or_default();
            self.said(&format!("delete {name} --force"));
        }
        self.end_gateway(Signal::SIGTERM);
    }
}

/// The one document that a command printed, and its exit code.
pub fn document(finished: &Finished) -> (Option<i32>, Value) {
    let document = serde_json::from_slice(&finished.stdout);
    let document = document.unwrap_or_else(|error| panic!("{finished}: {error}"));
    (finished.code(), document)
}

fn pid(file: &Path) -> Option<Pid> {
    let text = fs::read_to_string(file).ok()?;
    let number = text.split_whitespace().next()?.parse().ok()?;
    Some(Pid::from_raw(number))
}

/// Gone, or a zombie: our own orphans may go to a parent that is in no hurry to reap them.
fn has_ended(process: Pid) -> bool {
    !stat::runs(process.as_raw())
}
