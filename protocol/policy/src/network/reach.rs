//! Reads `allowed_ips`, and refuses addresses to which no connection is ever let.

use std::net::IpAddr;

use crate::address::{Class, Overlap, SYNTHETIC, canonical, is_synthetic, refused_overlap};
use crate::cidr::{BadCidr, Cidr};
use crate::document::Fields;
use crate::host::Host;
use crate::name::Name;
use crate::problem::{Complaint, Findings};
use crate::resolver::Hosts;

pub(super) fn allowed_ips(fields: &Fields<'_>, findings: &mut Findings) -> Vec<Cidr> {
    let Some(place) = fields.get("allowed_ips") else {
        return Vec::new();
    };
    let places = place
        .list("a list of addresses and ranges", findings)
        .unwrap_or_default();
    if place.is_empty_list() {
        let fix = "add a range or remove the key";
        findings.add(
            &place,
            Complaint::new("the list is empty: no address would be allowed", fix),
        );
    }
    let mut ranges = Vec::new();
    for place in places {
        let Some(text) = place.text("an address or a range", findings) else {
            continue;
        };
        match range(text) {
            Ok(range) => ranges.push(range),
            Err(complaint) => findings.add(&place, complaint),
        }
    }
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}

fn range(text: &str) -> Result<Cidr, Complaint> {
    let range: Cidr = text.parse().map_err(|bad: BadCidr| {
        let fix = match bad {
            BadCidr::Malformed => "write `10.1.2.3` or `10.0.0.0/8`".to_owned(),
            BadCidr::Length(most) => format!("write a length from 0 to {most} after the `/`"),
            BadCidr::HostBits(range, address) => {
                format!("write `{range}` for the whole range or `{address}` for the one address")
            }
        };
        Complaint::new(format!("{text:?}: {bad}"), fix)
    })?;
    let plain = canonical(range.base());
    if plain != range.base() {
        let message = format!("{range} is a disguise of IPv4, in which nothing is compared");
        return Err(Complaint::new(
            message,
            format!("write it as IPv4, from {plain} on"),
        ));
    }
    match refused_overlap(&range) {
        // The host's own loopback is opened by naming it.
        None | Some((Overlap::Inside, Class::Loopback)) => Ok(range),
        Some((Overlap::Inside, class)) => Err(Complaint::new(
            format!("{range} is {class}, which is never reachable"),
            "remove it",
        )),
        Some((Overlap::Around, class)) => {
            let message = format!("{range} takes in {class} addresses, which are never reachable");
            Err(Complaint::new(message, "name the ranges that are meant"))
        }
    }
}

/// Refuses addresses to which no connection is ever let.
pub(super) fn reachable(
    host: &Host,
    allowed_ips: &[Cidr],
    hosts: &Hosts,
    fields: &Fields<'_>,
    findings: &mut Findings,
) {
    match *host {
        Host::Wildcard(_) => {}
        Host::Exact(ref name) => {
            let given = hosts.get(name).map_or(&[][..], Vec::as_slice);
            if let (Some(place), Some(complaint)) = (
                fields.get("allowed_ips"),
                unlisted(name, given, allowed_ips),
            ) {
                findings.add(&place, complaint);
            }
        }
        Host::Address(address) => {
            if let (Some(place), Err(complaint)) =
                (fields.get("host"), admissible(address, allowed_ips))
            {
                findings.add(&place, complaint);
            }
        }
        Host::Addresses => {
            let hidden = |range: &&Cidr| SYNTHETIC.iter().any(|synthetic| synthetic.covers(range));
            if let (Some(place), Some(range)) =
                (fields.get("allowed_ips"), allowed_ips.iter().find(hidden))
            {
                let message =
                    format!("the addresses of {range} stand for names inside the sandbox");
                findings.add(&place, Complaint::new(message, "name the host"));
            }
        }
    }
}

/// For a name that has addresses under `resolver.hosts`, and `allowed_ips` lists none of them.
fn unlisted(name: &Name, given: &[IpAddr], allowed_ips: &[Cidr]) -> Option<Complaint> {
    let address = given.first()?;
    let listed = |range: &Cidr| given.iter().any(|address| range.contains(*address));
    if allowed_ips.is_empty() || allowed_ips.iter().any(listed) {
        return None;
    }
    let message = format!(
        "`{name}` is at {address} by `resolver.hosts`, which `allowed_ips` does not list: this never matches"
    );
    let fix = format!("add `{address}` to `allowed_ips` or remove them");
    Some(Complaint::new(message, fix))
}

fn admissible(address: IpAddr, allowed_ips: &[Cidr]) -> Result<(), Complaint> {
    let listed = allowed_ips.iter().any(|range| range.contains(address));
    let class = Class::of(address);
    if is_synthetic(address) {
        let message = format!("{address} stands for a name inside the sandbox");
        return Err(Complaint::new(message, "name the host"));
    }
    if !allowed_ips.is_empty() && !listed {
        let fix = format!("add `{address}` to `allowed_ips` or remove them");
        let message = format!("{address} is not in `allowed_ips`: this never matches");
        return Err(Complaint::new(message, fix));
    }
    if class == Class::Loopback && !listed {
        let own = Cidr::host(address);
        let fix = format!("to mean the host's own loopback add `allowed_ips: [{own}]`");
        let message = format!("{address} is a loopback address: it is the sandbox's own");
        return Err(Complaint::new(message, fix));
    }
    if class.is_refused_always() && class != Class::Loopback {
        let message = format!(
            "{address} is {} {class} address, which is never reachable",
            class.article()
        );
        return Err(Complaint::new(message, "remove the endpoint"));
    }
    Ok(())
}
