//! One policy: read, checked and ready to judge.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::cidr::Cidr;
use crate::document::{self, Fields, Keys, Place};
use crate::filesystem::{self, Compatibility, Filesystem};
use crate::glob::Glob;
use crate::index::Index;
use crate::name::Name;
use crate::network;
use crate::problem::{Complaint, Findings, Invalid};
use crate::process::{self, Process};
use crate::resolver;
use crate::rule::{Ports, Rule};

/// What a sandbox may do. A value of this type has no contradictions and no rule without effect.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(crate) filesystem: Option<Filesystem>,
    pub(crate) compatibility: Compatibility,
    pub(crate) process: Process,
    pub(crate) rules: Vec<Rule>,
    pub(crate) hosts: BTreeMap<Name, Vec<IpAddr>>,
    pub(crate) on_link_loss: OnLinkLoss,
    pub(crate) index: Index,
}

/// What happens to the workload while the keeper is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLinkLoss {
    /// It goes on computing; connections wait.
    #[default]
    Continue,
    /// It is stopped until the keeper is back.
    Freeze,
}

/// The ports on which connections have to be captured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// The ports that rules name.
    pub named: BTreeSet<u16>,
    /// The addresses that rules for every port list themselves: where one is a loopback address, the host's own is meant at
    /// every port.
    pub listed: Vec<Cidr>,
    /// Whether a rule is for every port.
    pub every_port: bool,
}

impl Policy {
    /// Reads a document. `file` is what problems call it.
    pub fn parse(file: &str, text: &str) -> Result<Self, Invalid> {
        let mut findings = Findings::new(file);
        let built = document::read(text, &mut findings)
            .and_then(|node| read(&Place::root(&node), &mut findings));
        findings.settle(built)
    }

    /// The policy of a sandbox for which none is given: the system's directories can be read, the working directory
    /// and a private `/tmp` written, and there is no network.
    pub fn standard() -> Self {
        let paths = |list: &[&str]| list.iter().map(Into::into).collect();
        Self::new(Document {
            filesystem: Some(Filesystem {
                include_workdir: true,
                read_only: paths(&["/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr"]),
                read_write: paths(&["/tmp"]),
            }),
            ..Document::default()
        })
    }

    /// The view of the file system; `None` is the baseline.
    pub fn filesystem(&self) -> Option<&Filesystem> {
        self.filesystem.as_ref()
    }

    /// What happens where the kernel cannot enforce.
    pub fn compatibility(&self) -> Compatibility {
        self.compatibility
    }

    /// As whom the workload runs, and within which bounds.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The network rules in the order of their keys.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Names that are not looked up, with their addresses in canonical form.
    pub fn hosts(&self) -> &BTreeMap<Name, Vec<IpAddr>> {
        &self.hosts
    }

    /// What happens to the workload while the keeper is away.
    pub fn on_link_loss(&self) -> OnLinkLoss {
        self.on_link_loss
    }

    /// The sections in which it differs from `other` and that a fence is built from: they are what they are until the next
    /// start.
    pub fn fence_changes(&self, other: &Self) -> Vec<&'static str> {
        let changed = [
            ("filesystem_policy", self.filesystem() != other.filesystem()),
            ("landlock", self.compatibility() != other.compatibility()),
            ("process", self.process() != other.process()),
            ("on_link_loss", self.on_link_loss() != other.on_link_loss()),
        ];
        let changed = changed.into_iter().filter(|(_, changed)| *changed);
        changed.map(|(section, _)| section).collect()
    }

    /// The ports on which connections have to be captured.
    pub fn captured_ports(&self) -> Captured {
        let mut captured = Captured::default();
        for endpoint in self.rules.iter().flat_map(|rule| &rule.endpoints) {
            match &endpoint.ports {
                // Captured when somebody connects to them.
                Ports::Any => {
                    captured.every_port = true;
                    captured.listed.extend(endpoint.addresses());
                }
                Ports::Listed(ports) => captured.named.extend(ports),
            }
        }
        captured
    }

    /// The same policy for a world in which `target` says where symbolic links end: a rule for `/usr/bin/python3` is
    /// then also for the file that this is a link to, as the kernel reports programs by their files. What the policy
    /// says, and so its hash, stays the same.
    #[must_use]
    pub fn with_links(self, target: impl Fn(&str) -> Option<String>) -> Self {
        let mut rules = self.rules;
        for rule in &mut rules {
            let named = rule.binaries.iter().flatten().filter_map(Glob::literal);
            rule.link_targets = named.filter_map(&target).collect();
        }
        Self { rules, ..self }
    }

    /// The keys of the document itself.
    pub(crate) const KEYS: Keys = Keys {
        what: "a policy",
        known: &[
            "version",
            "filesystem_policy",
            "landlock",
            "process",
            "network_policies",
            "resolver",
            "on_link_loss",
        ],
        refused: &[(
            "network_middlewares",
            "it needs inspection, which this version does not have",
        )],
    };

    fn new(document: Document) -> Self {
        let Document {
            filesystem,
            compatibility,
            process,
            rules,
            hosts,
            on_link_loss,
        } = document;
        let index = Index::new(&rules);
        Self {
            filesystem,
            compatibility,
            process,
            rules,
            hosts,
            on_link_loss,
            index,
        }
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.expanded() == other.expanded()
    }
}

impl Eq for Policy {}

impl OnLinkLoss {
    /// As it is written in a policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Freeze => "freeze",
        }
    }
}

/// What a document says, before it is made ready to judge.
#[derive(Default)]
struct Document {
    filesystem: Option<Filesystem>,
    compatibility: Compatibility,
    process: Process,
    rules: Vec<Rule>,
    hosts: BTreeMap<Name, Vec<IpAddr>>,
    on_link_loss: OnLinkLoss,
}

fn read(root: &Place<'_>, findings: &mut Findings) -> Option<Policy> {
    if root.is_nothing() {
        findings.add(
            root,
            Complaint::new("the document is empty", "write at least `version: 1`"),
        );
        return None;
    }
    let fields = root.fields(&Policy::KEYS, findings)?;
    version(&fields, findings);
    let filesystem = fields
        .get("filesystem_policy")
        .and_then(|p| filesystem::read(&p, findings));
    let landlock = fields.get("landlock");
    let compatibility = landlock.and_then(|p| filesystem::read_compatibility(&p, findings));
    let process = fields
        .get("process")
        .and_then(|p| process::read(&p, findings));
    let hosts = fields
        .get("resolver")
        .and_then(|p| resolver::read(&p, findings))
        .unwrap_or_default();
    let rules = fields
        .get("network_policies")
        .map(|p| network::read(&p, &hosts, findings));
    let on_link_loss = fields
        .get("on_link_loss")
        .and_then(|p| link_loss(&p, findings));
    let document = Document {
        filesystem,
        compatibility: compatibility.unwrap_or_default(),
        process: process.unwrap_or_default(),
        rules: rules.unwrap_or_default(),
        hosts,
        on_link_loss: on_link_loss.unwrap_or_default(),
    };
    findings.is_empty().then(|| Policy::new(document))
}

fn version(fields: &Fields<'_>, findings: &mut Findings) {
    let Some(place) = fields.get("version") else {
        if fields.lacks("version") {
            findings.add(
                fields.place(),
                Complaint::new("`version` is missing", "add `version: 1`"),
            );
        }
        return;
    };
    match place.as_integer() {
        Some(1) => {}
        Some(other) => {
            findings.add(
                &place,
                Complaint::new(format!("unknown version {other}"), "write `version: 1`"),
            );
        }
        None => {
            let _: Option<()> = place.mistyped("a number", "write `version: 1`", findings);
        }
    }
}

fn link_loss(place: &Place<'_>, findings: &mut Findings) -> Option<OnLinkLoss> {
    match place.text("`continue` or `freeze`", findings)? {
        "continue" => Some(OnLinkLoss::Continue),
        "freeze" => Some(OnLinkLoss::Freeze),
        other => {
            let message = format!("unknown reaction {other:?}");
            findings.add(
                place,
                Complaint::new(message, "write `continue` or `freeze`"),
            );
            None
        }
    }
}

#[cfg(test)]
mod tests;
