//! Making every address in the world local, so that every connection lands in this namespace or is refused at once.
//!
//! ```text
//! rule 100  UDP to lo's own addresses   table local        talk among the sandbox's own programs
//! rule 101  UDP to port 53              table local        names: any server is ours
//! rule 102  UDP                         prohibit           refused with EACCES at connect or sendto, so QUIC falls back
//! rule 103  everything                  table local        own addresses, and local default dev lo src OWN
//! ```
//!
//! Why the default route is in the table `local`, and the rule that asks this table behind those for UDP:
//! `docs/decisions/0001-route-the-world-in-table-local.md`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Action, Batch, Family, Netlink, Rule, Traffic};
use crate::listen::DOMAIN;
use crate::{Error, Result};

/// The addresses that `lo` is given and connections leave from, beside 127.0.0.1 and `::1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own {
    /// The IPv4 address.
    pub v4: Ipv4Addr,
    /// The IPv6 address.
    pub v6: Ipv6Addr,
}

/// Which families are captured.
#[derive(Debug)]
pub enum Captured {
    /// IPv4 and IPv6.
    Both,
    /// IPv4; the namespace has no IPv6, for the reason given.
    V4(Error),
}

/// Takes `lo` up in the caller's network namespace and makes every address local; the namespace has to be fresh.
///
/// `EEXIST` of "capture a fresh network namespace": `lo` is up already, so this may be somebody's network in use, and
/// nothing was done.
pub fn capture(own: Own) -> Result<Captured> {
    let netlink = Netlink::open()?;
    if netlink.is_loopback_up()? {
        return Err(Error::new(
            "capture a fresh network namespace",
            libc::EEXIST,
        ));
    }
    let mut batch = Batch::new();
    batch.loopback_up();
    batch.add_address(IpAddr::V4(own.v4));
    add_routes(&mut batch, Family::V4, IpAddr::V4(own.v4));
    netlink.apply(batch)?;

    // By itself, because a refusal means that there is no IPv6 and the rest would be pointless.
    let mut batch = Batch::new();
    batch.add_address(IpAddr::V6(own.v6));
    if let Err(absent) = netlink.apply(batch) {
        return Ok(Captured::V4(absent));
    }
    let mut batch = Batch::new();
    add_routes(&mut batch, Family::V6, IpAddr::V6(own.v6));
    netlink.apply(batch)?;
    Ok(Captured::Both)
}

fn add_routes(batch: &mut Batch, family: Family, own: IpAddr) {
    let (loopback, bits, all) = match family {
        Family::V4 => (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8, 32),
        Family::V6 => (IpAddr::V6(Ipv6Addr::LOCALHOST), 128, 128),
    };
    let local = Rule {
        family,
        priority: LAST,
        to: None,
        traffic: Traffic::Any,
        action: Action::LookUpLocal,
    };
    for (to, bits) in [(loopback, bits), (own, all)] {
        batch.add_rule(&Rule {
            priority: FIRST,
            to: Some((to, bits)),
            traffic: Traffic::Udp,
            ..local
        });
    }
    batch.add_rule(&Rule {
        priority: FIRST + 1,
        traffic: Traffic::UdpTo(DOMAIN),
        ..local
    });
    batch.add_rule(&Rule {
        priority: FIRST + 2,
        traffic: Traffic::Udp,
        action: Action::Prohibit,
        ..local
    });
    batch.add_rule(&local);
    batch.remove_rule(&Rule {
        priority: 0,
        ..local
    });
    batch.add_local_default(own);
}

/// The place of the first rule; whatever the host's kernel starts with is at 0 or beyond 32,000.
const FIRST: u32 = 100;
/// The place of the rule for everything else.
const LAST: u32 = FIRST + 3;

#[cfg(test)]
mod tests;
