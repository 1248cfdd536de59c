//! Reads `allowed_ips`, and refuses addresses to which no connection is ever let.

use crate::address::{Class, Overlap, SYNTHETIC, canonical, refused_overlap};
use crate::cidr::{BadCidr, Cidr};
use crate::document::{Fields, Place};
use crate::host::Host;
use crate::problem::{Complaint, Findings};

pub(super) fn allowed_ips(fields: &Fields<'_>, findings: &mut Findings) -> Vec<Cidr> {
    let Some(place) = fields.get("allowed_ips") else {
        return Vec::new();
    };
    let places = place
        .list("a list of addresses and ranges", findings)
        .unwrap_or_default();
    if places.is_empty() && place.is_list() {
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
        let fix =
            (bad == BadCidr::Malformed).then(|| "write `10.1.2.3` or `10.0.0.0/8`".to_owned());
        Complaint::plain(format!("{text:?}: {bad}"), fix)
    })?;
    let plain = canonical(range.base());
    match refused_overlap(&range) {
        // The host's own loopback is opened by naming it.
        None | Some((Overlap::Inside, Class::Loopback)) => {}
        Some((Overlap::Inside, class)) if plain == range.base() => {
            return Err(Complaint::new(
                format!("{range} is {class}, which is never reachable"),
                "remove it",
            ));
        }
        Some((Overlap::Around, class)) => {
            let message = format!("{range} takes in {class} addresses, which are never reachable");
            return Err(Complaint::new(message, "name the ranges that are meant"));
        }
        Some((Overlap::Inside, _)) => {}
    }
    if plain != range.base() {
        let fix = format!("write `{plain}` or its range");
        return Err(Complaint::new(
            format!("{range} is another spelling of IPv4, in which nothing is compared"),
            fix,
        ));
    }
    Ok(range)
}

/// Refuses a literal address that no connection could be let to.
pub(super) fn reachable(
    host: &Host,
    allowed_ips: &[Cidr],
    place: &Place<'_>,
    findings: &mut Findings,
) {
    let Host::Address(address) = *host else {
        return;
    };
    let listed = allowed_ips.iter().any(|range| range.contains(address));
    let class = Class::of(address);
    if SYNTHETIC.iter().any(|range| range.contains(address)) {
        let fix = "name the host instead";
        findings.add(
            place,
            Complaint::new(
                format!("{address} stands for a name inside the sandbox"),
                fix,
            ),
        );
    } else if !allowed_ips.is_empty() && !listed {
        let fix = format!("add `{address}` to `allowed_ips` or remove them");
        findings.add(
            place,
            Complaint::new(
                format!("{address} is not in `allowed_ips`: this never matches"),
                fix,
            ),
        );
    } else if class == Class::Loopback && !listed {
        let fix = format!(
            "to mean the host's own loopback add `allowed_ips: [{}]`",
            Cidr::host(address)
        );
        let message = format!("{address} is a loopback address: it is the sandbox's own");
        findings.add(place, Complaint::new(message, fix));
    } else if class.is_refused_always() && class != Class::Loopback {
        let message = format!("{address} is a {class} address, which is never reachable");
        findings.add(place, Complaint::new(message, "remove the endpoint"));
    }
}
