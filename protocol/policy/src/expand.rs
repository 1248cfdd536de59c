//! Writes a policy out in full: every default said, every list sorted. Two documents that mean the same read the same.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::host::Host;
use crate::policy::Policy;
use crate::process::{Account, Process};
use crate::rule::{Endpoint, Ports, Rule};

impl Policy {
    /// The policy as a document of its own, with every default written out. It reads back as the same policy.
    pub fn expanded(&self) -> String {
        let mut out = String::from("version: 1\n");
        // Writing to a `String` cannot go wrong.
        let _ = self.write(&mut out);
        out
    }

    /// A digest of what the policy means: `sha256:` and 64 hexadecimal digits. Comments, the order of keys and
    /// whether a default is written out make no difference.
    pub fn hash(&self) -> String {
        let digest = Sha256::digest(self.expanded());
        let hex: String = digest.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        format!("sha256:{hex}")
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        if let Some(view) = &self.filesystem {
            writeln!(
                out,
                "filesystem_policy:\n  include_workdir: {}",
                view.include_workdir
            )?;
            for (key, paths) in [
                ("read_only", &view.read_only),
                ("read_write", &view.read_write),
            ] {
                writeln!(
                    out,
                    "  {key}: [{}]",
                    list(paths.iter().map(|p| quoted(&p.to_string_lossy())))
                )?;
            }
        }
        writeln!(
            out,
            "landlock: {{compatibility: {}}}",
            self.compatibility.as_str()
        )?;
        process(out, &self.process)?;
        if self.rules.is_empty() {
            out.push_str("network_policies: {}\n");
        } else {
            out.push_str("network_policies:\n");
        }
        for entry in &self.rules {
            rule(out, entry)?;
        }
        let hosts = self.hosts.iter().map(|(name, addresses)| {
            let addresses = addresses.iter().map(|a| quoted(&a.to_string()));
            format!("{}: [{}]", quoted(name.as_str()), list(addresses))
        });
        writeln!(out, "resolver: {{hosts: {{{}}}}}", list(hosts))?;
        writeln!(out, "on_link_loss: {}", self.on_link_loss.as_str())
    }
}

fn process(out: &mut String, process: &Process) -> std::fmt::Result {
    let account = |account: &Account| match account {
        Account::Id(id) => quoted(&id.to_string()),
        Account::Name(name) => quoted(name),
    };
    let limits = process.limits;
    let limits = [
        ("nofile", limits.nofile),
        ("nproc", limits.nproc),
        ("memory", limits.memory),
    ];
    let limits = limits
        .into_iter()
        .filter_map(|(key, value)| Some(format!("{key}: {}", value?)));
    let mut entries = Vec::new();
    entries.extend(
        process
            .run_as_user
            .as_ref()
            .map(|a| format!("run_as_user: {}", account(a))),
    );
    entries.extend(
        process
            .run_as_group
            .as_ref()
            .map(|a| format!("run_as_group: {}", account(a))),
    );
    entries.push(format!("limits: {{{}}}", list(limits)));
    writeln!(out, "process: {{{}}}", list(entries))
}

fn rule(out: &mut String, rule: &Rule) -> std::fmt::Result {
    writeln!(
        out,
        "  {}:\n    name: {}\n    endpoints:",
        quoted(&rule.key),
        quoted(&rule.name)
    )?;
    let mut endpoints: Vec<String> = rule.endpoints.iter().map(|e| endpoint(e)).collect();
    endpoints.sort();
    for endpoint in endpoints {
        writeln!(out, "      - {endpoint}")?;
    }
    match &rule.binaries {
        Some(globs) => {
            let globs = globs
                .iter()
                .map(|glob| format!("{{path: {}}}", quoted(glob.as_str())));
            writeln!(out, "    binaries: [{}]", list(globs))
        }
        None => Ok(()),
    }
}

fn endpoint(endpoint: &Endpoint) -> String {
    let mut entries = Vec::new();
    if endpoint.host != Host::Addresses {
        entries.push(format!("host: {}", quoted(&endpoint.host.to_string())));
    }
    entries.push(match &endpoint.ports {
        Ports::Any => "ports: \"*\"".to_owned(),
        Ports::Listed(_) => format!("ports: [{}]", endpoint.ports),
    });
    if !endpoint.allowed_ips.is_empty() {
        let ranges = endpoint
            .allowed_ips
            .iter()
            .map(|range| quoted(&range.to_string()));
        entries.push(format!("allowed_ips: [{}]", list(ranges)));
    }
    entries.push(format!("enforcement: {}", endpoint.enforcement.as_str()));
    format!("{{{}}}", list(entries))
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    items.into_iter().collect::<Vec<_>>().join(", ")
}

/// A YAML scalar, quoted if it has to be.
pub(crate) fn scalar(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'_' | b'-' | b'+');
    if text.starts_with('/') && text.bytes().all(plain) {
        text.to_owned()
    } else {
        quoted(text)
    }
}

/// A double-quoted YAML scalar.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            c => {
                let _ = write!(out, "\\U{:08x}", u32::from(c));
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests;
