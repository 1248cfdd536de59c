//! Reads `network_policies`, and refuses what could never take effect.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::document::{Fields, Named, Place};
use crate::expand::scalar;
use crate::filesystem::normal;
use crate::glob::Glob;
use crate::host::Host;
use crate::problem::{Complaint, Findings, nearest};
use crate::resolver::Hosts;
use crate::rule::{Endpoint, Enforcement, Ports, Rule};

pub(crate) mod keys;
mod reach;

use keys::{BINARY, ENDPOINT, INSPECTION, RULE};
use reach::{allowed_ips, reachable};

/// The port of an endpoint that names none.
pub const DEFAULT_PORT: u16 = 443;

/// The rules, in the order of their keys. `hosts`: the addresses that the policy itself gives to names.
pub(crate) fn read(place: &Place<'_>, hosts: &Hosts, findings: &mut Findings) -> Vec<Rule> {
    let named = place
        .named("`network_policies`", findings)
        .unwrap_or_default();
    let mut rules = Vec::new();
    let mut ports = BTreeSet::new();
    let mut exceeding = None;
    for named in named {
        let Some(rule) = rule(&named, hosts, findings) else {
            continue;
        };
        ports.extend(rule.endpoints.iter().flat_map(|e| e.ports.listed()));
        if ports.len() > MOST_PORTS {
            exceeding.get_or_insert(named.place);
        }
        rules.push(rule);
    }
    if let Some(place) = exceeding {
        let message = format!(
            "the rules name {} ports, and {MOST_PORTS} can be listened on",
            ports.len()
        );
        let fix = "name fewer, or write `port: \"*\"` where host and program say enough";
        findings.add(&place, Complaint::new(message, fix));
    }
    rules.sort_by(|a, b| a.key.cmp(&b.key));
    rules
}

fn rule(named: &Named<'_>, hosts: &Hosts, findings: &mut Findings) -> Option<Rule> {
    let key = named.name;
    if let Err(complaint) = label(key) {
        named.complain(complaint, findings);
    }
    let fields = named.place.fields(&RULE, findings)?;
    let name = fields.get("name").and_then(|place| {
        let text = place.text("a name", findings)?;
        label(text)
            .map_err(|complaint| findings.add(&place, complaint))
            .ok()?;
        Some(text)
    });
    let endpoints = endpoints(&fields, hosts, findings);
    let binaries = binaries(&fields, findings);
    Some(Rule {
        key: key.to_owned(),
        name: name.unwrap_or(key).to_owned(),
        endpoints,
        binaries,
        link_targets: Vec::new(),
    })
}

/// What records and metrics call a rule has to be short and printable.
fn label(text: &str) -> Result<(), Complaint> {
    if text.is_empty() || text.len() > MAX_LABEL || text.chars().any(char::is_control) {
        let message = format!("the name of a rule has 1 to {MAX_LABEL} printable characters");
        return Err(Complaint::new(message, "choose another"));
    }
    Ok(())
}

fn endpoints(fields: &Fields<'_>, hosts: &Hosts, findings: &mut Findings) -> Vec<Arc<Endpoint>> {
    let Some(place) = fields.get("endpoints") else {
        if fields.lacks("endpoints") {
            let fix = "add `endpoints: [{host: example.com, port: 443}]`";
            findings.add(
                fields.place(),
                Complaint::new("the rule has no `endpoints`: it would allow nothing", fix),
            );
        }
        return Vec::new();
    };
    let places = place
        .list("a list of endpoints", findings)
        .unwrap_or_default();
    if place.is_empty_list() {
        let fix = "add an endpoint or remove the rule";
        findings.add(
            &place,
            Complaint::new("the list is empty: the rule would allow nothing", fix),
        );
    }
    let mut read: Vec<(Arc<Endpoint>, String)> = Vec::new();
    for place in places {
        let Some(endpoint) = endpoint(&place, hosts, findings) else {
            continue;
        };
        let same = read.iter().find_map(|(other, path)| {
            (other.host == endpoint.host && other.host != Host::Addresses).then_some(())?;
            Some((other.ports.shared(&endpoint.ports)?, path))
        });
        if let Some((port, path)) = same {
            let message = format!("port {port} of `{}` is already in {path}", endpoint.host);
            findings.add(&place, Complaint::new(message, "keep one of them"));
        }
        read.push((Arc::new(endpoint), place.path().to_owned()));
    }
    read.into_iter().map(|(endpoint, _)| endpoint).collect()
}

fn endpoint(place: &Place<'_>, hosts: &Hosts, findings: &mut Findings) -> Option<Endpoint> {
    let fields = place.fields(&ENDPOINT, findings)?;
    needs_no_inspection(&fields, findings);
    let ports = ports(&fields, findings);
    let allowed_ips = allowed_ips(&fields, findings);
    let enforcement = fields
        .get("enforcement")
        .and_then(|p| enforcement(&p, findings));
    let host = host(&fields, findings)?;
    reachable(&host, &allowed_ips, hosts, &fields, findings);
    Some(Endpoint {
        host,
        ports: ports?,
        allowed_ips,
        enforcement: enforcement.unwrap_or_default(),
    })
}

fn host(fields: &Fields<'_>, findings: &mut Findings) -> Option<Host> {
    let Some(place) = fields.get("host") else {
        if !fields.lacks("host") {
            return None;
        }
        if fields.has("allowed_ips") {
            return Some(Host::Addresses);
        }
        let fix =
            "add `host: example.com`, or `allowed_ips` for connections to addresses themselves";
        findings.add(
            fields.place(),
            Complaint::new("the endpoint has no `host`", fix),
        );
        return None;
    };
    let text = place.text("a host name or an address", findings)?;
    Host::parse(text)
        .map_err(|complaint| findings.add(&place, complaint))
        .ok()
}

fn ports(fields: &Fields<'_>, findings: &mut Findings) -> Option<Ports> {
    let (one, many) = (fields.get("port"), fields.get("ports"));
    let place = match (one, many) {
        (Some(_), Some(many)) => {
            findings.add(
                &many,
                Complaint::new("`port` and `ports` are both given", "keep `ports`"),
            );
            return None;
        }
        (Some(place), None) | (None, Some(place)) => place,
        (None, None) if fields.has("port") || fields.has("ports") => return None,
        (None, None) => return Some(Ports::Listed(BTreeSet::from([DEFAULT_PORT]))),
    };
    if place.as_text() == Some("*") {
        return Some(Ports::Any);
    }
    if fields.has("port") {
        return Some(Ports::Listed(BTreeSet::from([port(&place, findings)?])));
    }
    let places = place.list("a list of ports", findings)?;
    if place.is_empty_list() {
        findings.add(
            &place,
            Complaint::new("the list is empty: no port would match", "name one"),
        );
        return None;
    }
    let ports: Vec<Option<u16>> = places.iter().map(|place| port(place, findings)).collect();
    ports
        .into_iter()
        .collect::<Option<BTreeSet<u16>>>()
        .map(Ports::Listed)
}

fn port(place: &Place<'_>, findings: &mut Findings) -> Option<u16> {
    let Some(number) = place.as_integer() else {
        let fix = match place.as_text() {
            None if place.is_list() => "list several under `ports`".to_owned(),
            Some(text)
                if text.bytes().all(|b| b.is_ascii_digit()) && text.contains(|c| c != '0') =>
            {
                let number = text.trim_start_matches('0');
                format!("write `{number}`, without quotes and zeros before it")
            }
            Some(text) if text.contains('-') => {
                "list the ports: `ports: [80, 443]`; ranges are not supported".to_owned()
            }
            Some(_) | None => {
                "write a number from 1 to 65535, or `\"*\"` alone for every port".to_owned()
            }
        };
        return place.mistyped("a port", &fix, findings);
    };
    match u16::try_from(number) {
        Ok(0) | Err(_) => {
            let message = format!("there is no port {number}");
            findings.add(
                place,
                Complaint::new(message, "write a number from 1 to 65535"),
            );
            None
        }
        Ok(DNS) => {
            let message =
                "port 53 is answered by the sandbox's own resolver: this never takes effect";
            findings.add(
                place,
                Complaint::new(message, "remove it: allowed names resolve without a rule"),
            );
            None
        }
        Ok(port) => Some(port),
    }
}

fn enforcement(place: &Place<'_>, findings: &mut Findings) -> Option<Enforcement> {
    match place.text("`enforce` or `audit`", findings)? {
        "enforce" => Some(Enforcement::Enforce),
        "audit" => Some(Enforcement::Audit),
        other => {
            let fix = match nearest(other, ["enforce", "audit"]) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "write `enforce` or `audit`".to_owned(),
            };
            findings.add(
                place,
                Complaint::new(format!("unknown enforcement {other:?}"), fix),
            );
            None
        }
    }
}

/// `protocol: tcp` and `tls: skip` say what is done here anyway. Whatever else they say needs inspection.
fn needs_no_inspection(fields: &Fields<'_>, findings: &mut Findings) {
    for (key, plain) in [("protocol", "tcp"), ("tls", "skip")] {
        let Some(place) = fields.get(key) else {
            continue;
        };
        let Some(text) = place.text("text", findings) else {
            continue;
        };
        let said = format!("`{key}: {text}`");
        let complaint = match text.to_ascii_lowercase() {
            _ if text == plain => continue,
            lower if lower == plain => Complaint::new(
                format!("{said} is unknown"),
                format!("did you mean `{plain}`?"),
            ),
            lower if lower == "udp" => Complaint::new(
                format!("{said} is not supported by this version: only TCP is let out"),
                "remove the endpoint",
            ),
            _ => Complaint::new(
                format!("{said} is not supported by this version: {INSPECTION}"),
                format!("remove `{key}`"),
            ),
        };
        findings.add(&place, complaint);
    }
}

fn binaries(fields: &Fields<'_>, findings: &mut Findings) -> Option<Vec<Glob>> {
    let place = fields.get("binaries")?;
    let places = place.list("a list of binaries", findings)?;
    if place.is_empty_list() {
        let fix = "name one, or remove `binaries` to allow every program";
        findings.add(
            &place,
            Complaint::new("the list is empty: no program would match", fix),
        );
    }
    let mut globs = Vec::new();
    for place in places {
        if let Some(text) = place.as_text() {
            let fix = format!("write `{{path: {}}}`", scalar(text));
            let _: Option<()> = place.mistyped("a binary (a mapping)", &fix, findings);
            continue;
        }
        let Some(fields) = place.fields(&BINARY, findings) else {
            continue;
        };
        let Some(path) = fields.get("path") else {
            if fields.lacks("path") {
                let fix = "add `path: /usr/bin/curl`";
                findings.add(&place, Complaint::new("the binary has no `path`", fix));
            }
            continue;
        };
        let Some(text) = path.text("a path", findings) else {
            continue;
        };
        match binary(text) {
            Ok(glob) => globs.push(glob),
            Err(complaint) => findings.add(&path, complaint),
        }
    }
    globs.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    globs.dedup();
    Some(globs)
}

fn binary(text: &str) -> Result<Glob, Complaint> {
    if text.ends_with('/') {
        let fix = format!("name the program, or write `{text}*` for all in that directory");
        return Err(Complaint::new(format!("{text:?} is a directory"), fix));
    }
    let path = normal(text)?;
    Glob::new(&path, '/').map_err(|bad| Complaint::new(format!("{text:?}: {bad}"), bad.fix()))
}

/// The port of the sandbox's own resolver.
pub(crate) const DNS: u16 = 53;
/// How many ports the rules of a policy may name together: each is a socket that is listened on, with three descriptors.
pub const MOST_PORTS: usize = 8_000;
/// As long as a metric's label may be.
const MAX_LABEL: usize = 128;

#[cfg(test)]
mod tests;
