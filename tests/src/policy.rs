//! Policies as text, written the way a user would.

use crate::probe::probe;
use std::fmt::Write as _;
use std::path::Path;

/// Where programs and their libraries lie.
const SYSTEM: [&str; 6] = ["/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc"];

/// A policy under construction.
#[must_use = "a policy means nothing before a run has it"]
#[derive(Clone, Debug, Default)]
pub struct Policy {
    read_only: Vec<String>,
    read_write: Vec<String>,
    rules: Vec<String>,
    hosts: Vec<String>,
    rest: String,
    without_workdir: bool,
}

impl Policy {
    /// The system and the probe to read, the working directory to write, no network.
    pub fn offline() -> Self {
        let mut policy = Self::default();
        for path in SYSTEM {
            if Path::new(path).exists() {
                policy = policy.read_only(path);
            }
        }
        match probe().and_then(Path::parent) {
            Some(directory) => policy.read_only(directory),
            None => policy,
        }
    }

    /// As `offline`, and `origin.test` at 127.0.0.1 may be asked on this port by anyone.
    pub fn origin(port: u16) -> Self {
        Self::offline()
            .host("origin.test", &["127.0.0.1"])
            .rule("origin", "origin.test", port)
    }

    /// As `origin`, at every port.
    pub fn any_port() -> Self {
        Self::offline()
            .host("origin.test", &["127.0.0.1"])
            .rule_in_full("any", "{host: origin.test, port: \"*\"}", &[])
    }

    /// Without the working directory.
    pub fn without_workdir(mut self) -> Self {
        self.without_workdir = true;
        self
    }

    /// One more path to read.
    pub fn read_only(mut self, path: impl AsRef<Path>) -> Self {
        self.read_only.push(quoted(path.as_ref()));
        self
    }

    /// One more path to write.
    pub fn read_write(mut self, path: impl AsRef<Path>) -> Self {
        self.read_write.push(quoted(path.as_ref()));
        self
    }

    /// A rule for one host and port, for any binary.
    pub fn rule(self, name: &str, host: &str, port: u16) -> Self {
        self.rule_in_full(name, &format!("{{host: {host:?}, port: {port}}}"), &[])
    }

    /// A rule for one host and port, for these binaries.
    pub fn rule_for(self, name: &str, (host, port): (&str, u16), binaries: &[&Path]) -> Self {
        self.rule_in_full(name, &format!("{{host: {host:?}, port: {port}}}"), binaries)
    }

    /// A rule whose endpoint is written out.
    pub fn rule_in_full(mut self, name: &str, endpoint: &str, binaries: &[&Path]) -> Self {
        let mut rule = format!("  {name}:\n    endpoints: [{endpoint}]\n");
        if !binaries.is_empty() {
            let paths: Vec<_> = binaries
                .iter()
                .map(|path| format!("{{path: {}}}", quoted(path)))
                .collect();
            writeln!(rule, "    binaries: [{}]", paths.join(", ")).expect("write to a string");
        }
        self.rules.push(rule);
        self
    }

    /// A static name.
    pub fn host(mut self, name: &str, addresses: &[&str]) -> Self {
        let addresses: Vec<_> = addresses
            .iter()
            .map(|address| format!("{address:?}"))
            .collect();
        self.hosts
            .push(format!("    {name:?}: [{}]\n", addresses.join(", ")));
        self
    }

    /// Further lines at the top level.
    pub fn with(mut self, lines: &str) -> Self {
        self.rest.push_str(lines);
        self.rest.push('\n');
        self
    }

    /// The document.
    pub fn text(&self) -> String {
        let mut text = format!(
            "version: 1\nfilesystem_policy:\n  include_workdir: {}\n  read_only: [{}]\n  read_write: [{}]\n",
            !self.without_workdir,
            self.read_only.join(", "),
            self.read_write.join(", ")
        );
        if !self.rules.is_empty() {
            text.push_str("network_policies:\n");
            text.extend(self.rules.iter().map(String::as_str));
        }
        if !self.hosts.is_empty() {
            text.push_str("resolver:\n  hosts:\n");
            text.extend(self.hosts.iter().map(String::as_str));
        }
        text + &self.rest
    }
}

fn quoted(path: &Path) -> String {
    format!("{:?}", path.to_str().expect("paths of tests are text"))
}
