//! Reads `resolver`: names whose addresses the policy gives itself.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::address::{Class, canonical};
use crate::document::{Keys, Place};
use crate::host::{complain, literal};
use crate::name::{Fault, Name};
use crate::problem::{Complaint, Findings};

/// Names with their addresses in canonical form.
pub(crate) type Hosts = BTreeMap<Name, Vec<IpAddr>>;

pub(crate) fn read(place: &Place<'_>, findings: &mut Findings) -> Option<Hosts> {
    let field = place.fields(&KEYS, findings)?.get("hosts")?;
    let mut hosts = Hosts::new();
    for named in field.named("`hosts`", findings)? {
        let key = named.name;
        let name = match name(key) {
            Ok(name) => name,
            Err(complaint) => {
                named.complain(complaint, findings);
                continue;
            }
        };
        if name.is_localhost() {
            let message = format!("{key:?} is the sandbox's own loopback: this never takes effect");
            named.complain(Complaint::new(message, "choose another name"), findings);
        }
        let addresses = addresses(&named.place, findings);
        let compared = name.to_string();
        if hosts.insert(name, addresses).is_some() {
            let message = format!("{key:?} is in the list twice: it is the name `{compared}`");
            named.complain(Complaint::new(message, "keep one of them"), findings);
        }
    }
    Some(hosts)
}

/// A key is a name: what it stands for is its value.
fn name(key: &str) -> Result<Name, Complaint> {
    if let Some(address) = literal(key) {
        let message = format!("{key:?} is an address, and a key of `hosts` is a name");
        let fix = format!("write the name first: `name.test: [\"{address}\"]`");
        return Err(Complaint::new(message, fix));
    }
    key.parse::<Name>().map_err(|bad| match bad.fault {
        Fault::Numeric => {
            let message = format!("{key:?} ends in a number, and a key of `hosts` is a name");
            Complaint::new(message, "write a name that no program takes for an address")
        }
        Fault::Empty
        | Fault::EmptyLabel
        | Fault::LongLabel
        | Fault::Long
        | Fault::NotAscii
        | Fault::Nul
        | Fault::Escape
        | Fault::Character => complain(key, &bad),
    })
}

fn addresses(place: &Place<'_>, findings: &mut Findings) -> Vec<IpAddr> {
    let places = place
        .list("a list of addresses", findings)
        .unwrap_or_default();
    if place.is_empty_list() {
        findings.add(
            place,
            Complaint::new("the list is empty", "add an address or remove the name"),
        );
    }
    let mut addresses = Vec::new();
    for place in places {
        let Some(text) = place.text("an address", findings) else {
            continue;
        };
        let Some(address) = literal(text).map(canonical) else {
            let fix = "write `127.0.0.1` or `::1`";
            findings.add(
                &place,
                Complaint::new(format!("{text:?} is not an address"), fix),
            );
            continue;
        };
        match Class::of(address) {
            Class::Public | Class::Private | Class::Loopback if addresses.contains(&address) => {
                findings.add(
                    &place,
                    Complaint::new(
                        format!("{address} is in the list twice"),
                        "keep one of them",
                    ),
                );
            }
            Class::Public | Class::Private | Class::Loopback => addresses.push(address),
            class @ (Class::LinkLocal
            | Class::Metadata
            | Class::Multicast
            | Class::Unspecified
            | Class::Broadcast
            | Class::Reserved) => {
                let message = format!(
                    "{address} is {} {class} address, which is never reachable",
                    class.article()
                );
                findings.add(&place, Complaint::new(message, "remove it"));
            }
        }
    }
    addresses
}

pub(crate) const KEYS: Keys = Keys {
    what: "`resolver`",
    known: &["hosts"],
    refused: &[],
};
