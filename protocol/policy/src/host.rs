//! Which hosts an endpoint means: one name, a wildcard over names, one address, or addresses alone.

use std::fmt;
use std::net::IpAddr;

use crate::address::canonical;
use crate::glob::Glob;
use crate::name::{BadName, Fault, MAX_NAME, Name};
use crate::problem::Complaint;

/// The hosts of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// One name, written exactly.
    Exact(Name),
    /// Names under a domain, never that domain itself.
    Wildcard(Wildcard),
    /// One address in canonical form, for connections to the address itself.
    Address(IpAddr),
    /// No host is written: connections to addresses themselves, within `allowed_ips`.
    Addresses,
}

/// `*.cdn.test`, `**.cdn.test`, `node-?.cdn.test`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wildcard {
    head: Head,
    /// The domain above, without wildcards.
    domain: Name,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Head {
    /// `**`: one label or more.
    Deep,
    /// One label that matches.
    Label(Glob),
}

impl Host {
    /// The name that is written, or the domain above its wildcard.
    pub(crate) fn domain(&self) -> Option<&Name> {
        match self {
            Self::Exact(name) => Some(name),
            Self::Wildcard(wildcard) => Some(&wildcard.domain),
            Self::Address(_) | Self::Addresses => None,
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Complaint> {
        if text.is_empty() {
            return Err(Complaint::new(
                "host is empty: it would match nothing",
                "name the host",
            ));
        }
        if let Some((_, rest)) = text.split_once("://") {
            let host = rest.split(['/', ':']).next().unwrap_or(rest);
            let fix = format!("write `host: {host}` and the port under `port`");
            return Err(Complaint::new(format!("{text:?} is a URL"), fix));
        }
        if let Some(address) = literal(text) {
            return Ok(Self::Address(canonical(address)));
        }
        if text.contains(['*', '?', '[', ']']) {
            return Wildcard::parse(text).map(Self::Wildcard);
        }
        if let Some((host, port)) = text.split_once(':') {
            return Err(with_port(text, host, port));
        }
        let name: Name = text.parse().map_err(|bad| complain(text, &bad))?;
        if name.is_localhost() {
            let fix = "to reach the host's loopback choose another name and give it `127.0.0.1` under `resolver.hosts`";
            return Err(Complaint::new(
                "`localhost` is the sandbox's own loopback and needs no rule",
                fix,
            ));
        }
        Ok(Self::Exact(name))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => name.fmt(f),
            Self::Wildcard(wildcard) => wildcard.fmt(f),
            Self::Address(address) => address.fmt(f),
            Self::Addresses => f.pad("(addresses)"),
        }
    }
}

impl Wildcard {
    /// The domain whose names it means.
    pub fn domain(&self) -> &Name {
        &self.domain
    }

    /// Whether it means `name`: what is left of it matches, and no registry lies between it and the domain.
    pub fn matches(&self, name: &Name) -> bool {
        let under = name
            .as_str()
            .strip_suffix(self.domain.as_str())
            .and_then(|n| n.strip_suffix('.'));
        let fits = under.is_some_and(|labels| match &self.head {
            Head::Deep => true,
            Head::Label(glob) => !labels.contains('.') && glob.matches(labels),
        });
        fits && belongs(name.as_str(), &self.domain)
    }

    fn parse(text: &str) -> Result<Self, Complaint> {
        let text = text.to_ascii_lowercase();
        let everything = || {
            let fix = "name the hosts, or a domain: `*.example.com`";
            Complaint::new(format!("{text:?} would cover every host"), fix)
        };
        let (head, rest) = text
            .split_once('.')
            .filter(|(_, rest)| !rest.is_empty())
            .ok_or_else(everything)?;
        if rest.contains(['*', '?', '[', ']']) {
            let fix = "list the hosts, or use one rule for each domain: `*.example.com`";
            return Err(Complaint::new(
                "a wildcard stands in the first label only",
                fix,
            ));
        }
        let domain: Name = rest.parse().map_err(|bad| complain(rest, &bad))?;
        if registry(domain.as_str()) == domain.as_str() {
            let message =
                format!("{text:?} covers `{domain}`, under which anybody can have a name");
            return Err(Complaint::new(message, OWNED));
        }
        if domain.as_str().len() > MAX_NAME - 2 {
            let message = format!("no name under `{domain}` is short enough: this never matches");
            return Err(Complaint::new(message, "name the host"));
        }
        // Where not even a name that no list has belongs to the domain, none does.
        if !belongs(&format!("{UNLISTED}.{domain}"), &domain) {
            let message = format!(
                "{text:?} covers only domains under which anybody can have a name: this never matches"
            );
            return Err(Complaint::new(message, OWNED));
        }
        if domain.is_localhost() {
            return Err(Complaint::new(
                "`localhost` is the sandbox's own loopback and needs no rule",
                "remove it",
            ));
        }
        let head = if head == "**" {
            Head::Deep
        } else {
            Head::Label(label(head)?)
        };
        Ok(Self { head, domain })
    }
}

impl fmt::Display for Wildcard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.head {
            Head::Deep => write!(f, "**.{}", self.domain),
            Head::Label(glob) => write!(f, "{glob}.{}", self.domain),
        }
    }
}

/// An address in the form that has one meaning everywhere, in brackets or not.
pub(crate) fn literal(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    match bare {
        Some(v6) => v6.parse().ok().map(IpAddr::V6),
        None => text.parse().ok(),
    }
}

fn label(head: &str) -> Result<Glob, Complaint> {
    let fits = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '*' | '?' | '[' | ']' | '!' | '^')
    };
    if let Some(odd) = head.chars().find(|c| !fits(*c)) {
        let fix = "write letters, digits, `-`, `_` and wildcards";
        return Err(Complaint::new(format!("{odd:?} is in no host name"), fix));
    }
    Glob::new(head, '.').map_err(|bad| Complaint::new(bad.to_string(), bad.fix()))
}

/// Whether `name`, which is under `domain`, belongs to whoever has registered that or a domain above it.
fn belongs(name: &str, domain: &Name) -> bool {
    registry(name).len() < domain.as_str().len()
}

/// The longest part of `name` under which anybody can have a name. Of the Public Suffix List its ICANN section counts,
/// as it does for wildcards in certificates: the private section holds `googleapis.com` beside `github.io`.
fn registry(name: &str) -> &str {
    let mut rest = name;
    while let Some(suffix) = psl::suffix(rest.as_bytes()) {
        let found = &rest[rest.len() - suffix.as_bytes().len()..];
        let private = suffix.typ() == Some(psl::Type::Private);
        match found.split_once('.').filter(|_| private) {
            Some((_, above)) => rest = above,
            None => return found,
        }
    }
    rest
}

fn with_port(text: &str, host: &str, port: &str) -> Complaint {
    if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
        return Complaint::new(
            format!("{text:?} is neither a host name nor an address"),
            "write one of them",
        );
    }
    Complaint::new(
        format!("{text:?} has a port"),
        format!("write `host: {host}` and `port: {port}`"),
    )
}

pub(crate) fn complain(text: &str, bad: &BadName) -> Complaint {
    let fix = match bad.fault {
        Fault::NotAscii => "a name in another script has a form that starts with `xn--`".to_owned(),
        Fault::EmptyLabel => {
            let labels: Vec<&str> = text.split('.').filter(|label| !label.is_empty()).collect();
            format!("did you mean `{}`?", labels.join("."))
        }
        Fault::Character if text.contains('/') => {
            "write the host alone, or a range under `allowed_ips`".to_owned()
        }
        Fault::Character if text.contains(['*', '?', '[']) => {
            "write each name out: wildcards stand under `host` only".to_owned()
        }
        Fault::Character if text.trim() != text => format!("did you mean `{}`?", text.trim()),
        Fault::Character if text.contains(char::is_whitespace) => {
            "write each host in an entry of its own".to_owned()
        }
        Fault::Empty => "name the host".to_owned(),
        Fault::Character | Fault::Nul | Fault::Escape => {
            "write the name as it is looked up, such as `api.example.com`".to_owned()
        }
        Fault::LongLabel | Fault::Long => {
            "write the name that is meant: no longer one can be looked up".to_owned()
        }
        Fault::Numeric => "write it in full, such as `127.0.0.1`".to_owned(),
    };
    Complaint::new(format!("{text:?}: {bad}"), fix)
}

/// A label that the Public Suffix List does not have.
const UNLISTED: &str = "_";
const OWNED: &str = "name the hosts, or the domain of one owner";

#[cfg(test)]
mod tests;
