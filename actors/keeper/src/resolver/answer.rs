//! Decides what a question gets: a reply at once, a denial, or a lookup first. Pure.
//!
//! ```text
//! plan ─┬─ Reply    known without asking anyone
//!       ├─ Deny     no rule could match: NXDOMAIN and one record
//!       └─ Look ──> the name's addresses ──> settle ──> Settled
//! ```
//!
//! The rule behind every negative answer: NXDOMAIN only for a name that exists for no type at all,
//! otherwise an empty NOERROR. Resolvers such as musl's take one NXDOMAIN for the end of the name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use hickory_proto::op::Query as Question;
use hickory_proto::rr::rdata::{A, AAAA, PTR};
use hickory_proto::rr::{Name as Label, RData, RecordType};
use holdfast_clock::Moment;
use holdfast_policy::{Denied, Name};

use super::Admission;
use super::counters::Outcome;
use super::names::{Family, Names};
use super::upstream::{Addresses, NameError};
use super::wire::Reply;

/// What is to be done about a question.
#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    Reply(Reply, Outcome),
    /// The name as it was asked for.
    Deny(String),
    Look(Name, Family),
}

/// What a lookup says about a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Settled {
    /// It has an address that may be dialled; remember that for so many seconds.
    Exists {
        ttl: u32,
    },
    /// It has addresses, and none of them may ever be dialled: the first of them, and why not.
    Withheld(IpAddr, Box<Denied>),
    NoData,
    NoSuchName,
    Failed,
}

/// What is to be done about a question of the IN class.
pub(super) fn plan(question: &Question, admission: &dyn Admission, names: &Names) -> Plan {
    let asked = &question.name;
    if asked.is_root() {
        return Plan::Reply(Reply::NoData, Outcome::NoData);
    }
    if let Some(plan) = reverse(question, names) {
        return plan;
    }
    if asked.is_localhost() {
        return localhost(question.query_type);
    }
    let Some(text) = host(asked) else {
        return Plan::Deny(spelled(asked));
    };
    // An address is no name, neither here nor in the world's DNS.
    if text.parse::<IpAddr>().is_ok() {
        return Plan::Reply(Reply::NoSuchName, Outcome::NoSuchName);
    }
    let admitted = |text: &str| text.parse().ok().filter(|name| admission.admits_name(name));
    match (admitted(&text), family(question.query_type)) {
        (Some(name), Some(family)) => Plan::Look(name, family),
        (Some(_), None) => Plan::Reply(Reply::NoData, Outcome::NoData),
        (None, _) if admitted(bare_host(&text)).is_some() => {
            Plan::Reply(Reply::NoData, Outcome::NoData)
        }
        (None, _) => Plan::Deny(text),
    }
}

/// What one family's lookup says, seen beside the policy.
///
/// Addresses that no rule would let be dialled count as absent: a program told of them would only
/// meet a refusal where it could have used the other family.
pub(super) fn settle(
    name: &Name,
    found: &Result<Addresses, NameError>,
    now: Moment,
    admission: &dyn Admission,
) -> Settled {
    match found {
        Ok(addresses) => {
            let mut refused = Settled::NoData;
            for ip in addresses.ips.iter().copied() {
                match admission.admits_address(name, ip) {
                    Ok(()) => return exists(addresses.valid_until - now),
                    Err(why) if refused == Settled::NoData => {
                        refused = Settled::Withheld(ip, Box::new(why));
                    }
                    Err(_) => {}
                }
            }
            refused
        }
        Err(NameError::NoAddress) => Settled::NoData,
        Err(NameError::NoSuchName) => Settled::NoSuchName,
        Err(NameError::Unavailable(_)) => Settled::Failed,
    }
}

/// What to say of a name whose own family has `settled`, when the other family says `sibling`.
///
/// Some servers answer NXDOMAIN where they mean "no AAAA": the name exists if either family does.
pub(super) fn reconcile(settled: Settled, sibling: &Settled) -> Settled {
    let exists = match sibling {
        Settled::Exists { .. } | Settled::Withheld(..) | Settled::NoData => true,
        Settled::NoSuchName | Settled::Failed => false,
    };
    if exists && settled == Settled::NoSuchName {
        return Settled::NoData;
    }
    settled
}

fn exists(left: Duration) -> Settled {
    let ttl = u32::try_from(left.as_secs()).unwrap_or(u32::MAX);
    Settled::Exists {
        ttl: ttl.clamp(SHORTEST_TTL, LONGEST_TTL),
    }
}

/// The record that carries an address.
pub(super) fn record(address: IpAddr) -> RData {
    match address {
        IpAddr::V4(v4) => RData::A(A(v4)),
        IpAddr::V6(v6) => RData::AAAA(AAAA(v6)),
    }
}

/// Questions about addresses: only those the sandbox itself knows have a name.
fn reverse(question: &Question, names: &Names) -> Option<Plan> {
    let asked = &question.name;
    let arpa = asked.iter().next_back()?;
    if !arpa.eq_ignore_ascii_case(b"arpa") {
        return None;
    }
    let Some(name) = address_of(asked).and_then(|address| known(address, names)) else {
        return Some(Plan::Reply(Reply::NoSuchName, Outcome::NoSuchName));
    };
    if question.query_type != RecordType::PTR {
        return Some(Plan::Reply(Reply::NoData, Outcome::NoData));
    }
    let reply = Reply::Records {
        ttl: LONGEST_TTL,
        data: vec![RData::PTR(PTR(name))],
    };
    Some(Plan::Reply(reply, Outcome::Answered))
}

fn address_of(asked: &Label) -> Option<IpAddr> {
    let net = asked.parse_arpa_name().ok()?;
    let whole = net.prefix_len() == net.max_prefix_len();
    whole.then(|| net.addr())
}

fn known(address: IpAddr, names: &Names) -> Option<Label> {
    if LOOPBACK.contains(&address) {
        return Label::from_ascii("localhost.").ok();
    }
    let name = names.name_of(address)?;
    Label::from_ascii(format!("{name}.")).ok()
}

/// RFC 6761: `localhost` and all below it is the machine itself, and nobody is asked.
fn localhost(query_type: RecordType) -> Plan {
    let Some(family) = family(query_type) else {
        return Plan::Reply(Reply::NoData, Outcome::NoData);
    };
    let address = match family {
        Family::V4 => LOOPBACK[0],
        Family::V6 => LOOPBACK[1],
    };
    let reply = Reply::Records {
        ttl: LONGEST_TTL,
        data: vec![record(address)],
    };
    Plan::Reply(reply, Outcome::Answered)
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "of all record types, and those to come, only two carry addresses"
)]
fn family(query_type: RecordType) -> Option<Family> {
    match query_type {
        RecordType::A => Some(Family::V4),
        RecordType::AAAA => Some(Family::V6),
        _ => None,
    }
}

/// The name as a host name: lower case, no dot at the end.
///
/// A label may hold any byte on the wire, a dot too: `origin.test` as one label is not the host
/// `origin.test`. So only what a host or a service label may contain gets through.
pub(super) fn host(asked: &Label) -> Option<String> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let mut text = String::with_capacity(asked.len());
    for label in asked {
        if !label.iter().all(plain) {
            return None;
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.extend(
            label
                .iter()
                .map(|byte| char::from(byte.to_ascii_lowercase())),
        );
    }
    Some(text)
}

/// What stands behind the service labels of `_https._tcp.origin.test` (RFC 8552).
fn bare_host(text: &str) -> &str {
    let mut rest = text;
    while let Some((label, behind)) = rest.split_once('.') {
        if !label.starts_with('_') {
            break;
        }
        rest = behind;
    }
    rest
}

/// A name that is no host, for people: odd bytes are escaped.
fn spelled(asked: &Label) -> String {
    let text = asked.to_ascii().to_ascii_lowercase();
    text.trim_end_matches('.').to_owned()
}

const LOOPBACK: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];
/// A synthetic address never changes; what may change is whether the name still exists.
const LONGEST_TTL: u32 = 60;
/// Some clients drop a record with a TTL of 0 before they have used it.
const SHORTEST_TTL: u32 = 1;

#[cfg(test)]
mod tests;
