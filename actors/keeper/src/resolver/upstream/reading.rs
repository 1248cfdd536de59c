//! Reads what a name server said about one name and one family. Pure.
//!
//! The answer to a question for `www.origin.test` may be a chain: an alias, the alias's alias, and at
//! its end the addresses. Only addresses at the end of *that* chain count, whatever else was sent.

use std::net::IpAddr;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Name as Label, RData, Record};
use hickory_resolver::net::{DnsError, NetError};

use crate::resolver::names::Family;

/// A real answer. Times are seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    Addresses { ips: Vec<IpAddr>, ttl: u32 },
    NoAddress { ttl: u32 },
    NoSuchName { ttl: u32 },
}

/// What an exchange with a server came to; `Err` says why it gave no answer.
pub(super) fn read(
    asked: &Label,
    family: Family,
    exchange: Result<&Message, NetError>,
) -> Result<Said, String> {
    match exchange {
        Ok(message) => Ok(follow(asked, family, message)),
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) => {
            let ttl = negative_ttl(none.negative_ttl);
            if none.response_code == ResponseCode::NXDomain {
                Ok(Said::NoSuchName { ttl })
            } else {
                Ok(Said::NoAddress { ttl })
            }
        }
        Err(error) => Err(error.to_string()),
    }
}

fn follow(asked: &Label, family: Family, message: &Message) -> Said {
    let (owner, mut ttl) = end_of_chain(asked, message);
    let mut ips = Vec::new();
    for record in &message.answers {
        let fits = |ip: &IpAddr| record.name == *owner && ip.is_ipv4() == (family == Family::V4);
        if let Some(ip) = record.data.ip_addr().filter(fits)
            && ips.len() < MOST_ADDRESSES
        {
            ttl = ttl.min(record.ttl);
            ips.push(ip);
        }
    }
    if !ips.is_empty() {
        return Said::Addresses { ips, ttl };
    }
    let ttl = negative_ttl(message.authorities.iter().find_map(soa_ttl));
    if message.metadata.response_code == ResponseCode::NXDomain {
        Said::NoSuchName { ttl }
    } else {
        Said::NoAddress { ttl }
    }
}

/// The name at the end of the aliases, and the shortest TTL on the way.
fn end_of_chain<'a>(asked: &'a Label, message: &'a Message) -> (&'a Label, u32) {
    let mut end = (asked, LONGEST_TTL);
    for _ in 0..LONGEST_CHAIN {
        let mut answers = message.answers.iter();
        let Some((target, ttl)) = answers.find_map(|record| alias_of(end.0, record)) else {
            break;
        };
        end = (target, end.1.min(ttl));
    }
    end
}

fn alias_of<'a>(owner: &Label, record: &'a Record) -> Option<(&'a Label, u32)> {
    if let RData::CNAME(target) = &record.data
        && record.name == *owner
    {
        return Some((&target.0, record.ttl));
    }
    None
}

/// RFC 2308, section 5: the lesser of the record's own TTL and its last field.
fn soa_ttl(record: &Record) -> Option<u32> {
    if let RData::SOA(soa) = &record.data {
        return Some(record.ttl.min(soa.minimum));
    }
    None
}

fn negative_ttl(said: Option<u32>) -> u32 {
    said.unwrap_or(UNSAID_NEGATIVE_TTL)
        .min(LONGEST_NEGATIVE_TTL)
}

/// A day: a server that says more is not believed.
const LONGEST_TTL: u32 = 86_400;
/// A minute: a name that is created now should work soon.
const LONGEST_NEGATIVE_TTL: u32 = 60;
/// For a negative answer without a SOA record.
const UNSAID_NEGATIVE_TTL: u32 = 5;
const LONGEST_CHAIN: usize = 8;
const MOST_ADDRESSES: usize = 64;

#[cfg(test)]
mod tests;
