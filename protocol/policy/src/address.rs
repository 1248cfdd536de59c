//! Says what kind of address something is, whatever it is dressed up as.
//!
//! Every comparison of addresses in this crate is made in canonical form, so that an address which is refused
//! stays refused in each of its spellings: `::ffff:127.0.0.1`, `64:ff9b::7f00:1` and `2002:7f00:1::` are all
//! `127.0.0.1`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use crate::cidr::Cidr;

/// The ranges whose addresses stand for names inside a sandbox. They never mean a host of that address.
pub(crate) const SYNTHETIC: [Cidr; 2] = [
    Cidr::v4([198, 18, 0, 0], 15),
    Cidr::v6([0xfd48, 0x6f6c, 0x6466, 0x6173, 0, 0, 0, 0], 64),
];

/// Whether an address stands for a name inside a sandbox, if for anything. In canonical form.
pub fn is_synthetic(address: IpAddr) -> bool {
    SYNTHETIC.iter().any(|range| range.contains(address))
}

/// What an address is for. All but `Public` and `Private` are refused unless a policy names the host's loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A host on the internet.
    Public,
    /// A host on somebody's own network (RFC 1918, RFC 6598, RFC 4193, RFC 2544).
    Private,
    /// The machine itself.
    Loopback,
    /// The link itself (RFC 3927, RFC 4291).
    LinkLocal,
    /// A cloud provider's service that hands out the machine's own credentials.
    Metadata,
    /// Many hosts.
    Multicast,
    /// No host; Linux takes it for the loopback.
    Unspecified,
    /// Every host of the link.
    Broadcast,
    /// Set aside by IANA; no host has it.
    Reserved,
}

impl Class {
    /// The class of an address, whatever its spelling.
    pub fn of(address: IpAddr) -> Self {
        let address = canonical(address);
        let named = RANGES.iter().find(|(range, _)| range.contains(address));
        match (named, address) {
            (Some((_, class)), _) => *class,
            (None, IpAddr::V4(_)) => Self::Public,
            (None, IpAddr::V6(v6)) if GLOBAL_UNICAST.contains(IpAddr::V6(v6)) => Self::Public,
            (None, IpAddr::V6(_)) => Self::Reserved,
        }
    }

    /// The article that goes before its name.
    pub(crate) fn article(self) -> &'static str {
        match self {
            Self::Unspecified => "an",
            Self::Public
            | Self::Private
            | Self::Loopback
            | Self::LinkLocal
            | Self::Metadata
            | Self::Multicast
            | Self::Broadcast
            | Self::Reserved => "a",
        }
    }

    /// Whether no rule can open it. Loopback counts: only `resolver.hosts` and `allowed_ips` open that.
    pub fn is_refused_always(self) -> bool {
        match self {
            Self::Public | Self::Private => false,
            Self::Loopback
            | Self::LinkLocal
            | Self::Metadata
            | Self::Multicast
            | Self::Unspecified
            | Self::Broadcast
            | Self::Reserved => true,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Public => "public",
            Self::Private => "private",
            Self::Loopback => "loopback",
            Self::LinkLocal => "link-local",
            Self::Metadata => "metadata",
            Self::Multicast => "multicast",
            Self::Unspecified => "unspecified",
            Self::Broadcast => "broadcast",
            Self::Reserved => "reserved",
        })
    }
}

/// The address that is really meant: IPv4 is taken out of each IPv6 form that carries it.
///
/// Unwrapped are IPv4-mapped and IPv4-compatible (RFC 4291 §2.5.5), IPv4-translated (RFC 2765), NAT64 with the
/// well-known prefix (RFC 6052) and the local one (RFC 8215), 6to4 (RFC 3056), Teredo's client (RFC 4380) and, where
/// it hides an address that is not public, ISATAP (RFC 5214).
pub fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => embedded(v6).map_or(address, IpAddr::V4),
    }
}

/// The refused ranges that `range` reaches into, with the class of the first.
pub(crate) fn refused_overlap(range: &Cidr) -> Option<(Overlap, Class)> {
    for (refused, class) in RANGES.iter().filter(|(_, class)| class.is_refused_always()) {
        if refused.covers(range) {
            return Some((Overlap::Inside, *class));
        }
        // A metadata address may lie in a private range; naming that range does not open it.
        if range.covers(refused) && *class != Class::Metadata {
            return Some((Overlap::Around, *class));
        }
    }
    if !RANGES.iter().any(|(known, _)| known.covers(range)) && matches!(range.base(), IpAddr::V6(_))
    {
        if range.covers(&GLOBAL_UNICAST) && *range != GLOBAL_UNICAST {
            return Some((Overlap::Around, Class::Reserved));
        }
        if !GLOBAL_UNICAST.covers(range) {
            return Some((Overlap::Inside, Class::Reserved));
        }
    }
    None
}

/// How a range lies to a refused one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlap {
    /// All of it is refused.
    Inside,
    /// It is larger, and takes the refused one in.
    Around,
}

fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = v6.to_bits();
    let s = v6.segments();
    let low = take(bits, 0);
    match s {
        // `::` and `::1` are addresses of their own.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0 | 0xffff, 0, ..]
        | [0, 0, 0, 0, 0, 0xffff, ..]
        | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(low),
        [0x64, 0xff9b, 1, ..] => Some(local_nat64(bits)),
        [0x2002, ..] => Some(take(bits, 80)),
        [0x2001, 0, ..] => Some(Ipv4Addr::from_bits(!low.to_bits())),
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => {
            (Class::of(IpAddr::V4(low)) != Class::Public).then_some(low)
        }
        _ => None,
    }
}

/// RFC 8215 leaves the translator's prefix open: the IPv4 address may stand in any of the places of RFC 6052 §2.2.
/// If one reading is an address that is not public, that reading counts.
fn local_nat64(bits: u128) -> Ipv4Addr {
    // Bits 64 to 71 are reserved and skipped by the address.
    let after_48 = joined(bits, 16);
    let after_56 = joined(bits, 24);
    let after_64 = take(bits, 24);
    let after_96 = take(bits, 0);
    let hides = |v4: &Ipv4Addr| match Class::of(IpAddr::V4(*v4)) {
        Class::Public => false,
        // An empty place is no reading, and one with a single octet is the start of an address that ends the bits.
        Class::Unspecified => v4.to_bits() > 0xff,
        Class::Private
        | Class::Loopback
        | Class::LinkLocal
        | Class::Metadata
        | Class::Multicast
        | Class::Broadcast
        | Class::Reserved => true,
    };
    [after_48, after_56, after_64]
        .into_iter()
        .find(hides)
        .unwrap_or(after_96)
}

/// An address whose last `low` bits stand below bit 72 (counted from the left) and whose others end at bit 64.
fn joined(bits: u128, low: u32) -> Ipv4Addr {
    let high = take(bits, 64).to_bits() << low;
    Ipv4Addr::from_bits(high | take(bits, 24).to_bits() >> (32 - low))
}

/// The 32 bits that start `shift` bits above the lowest.
fn take(bits: u128, shift: u32) -> Ipv4Addr {
    let [.., a, b, c, d] = (bits >> shift).to_be_bytes();
    Ipv4Addr::new(a, b, c, d)
}

/// What IANA has handed out to hosts of the internet.
const GLOBAL_UNICAST: Cidr = Cidr::v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// Ranges with a meaning of their own; the first that contains an address says its class. The documentation
/// ranges (RFC 5737, RFC 3849) count as public: nothing is there to be protected.
const RANGES: &[(Cidr, Class)] = &[
    // Amazon, Google, Azure, OpenStack and others; ECS tasks and EKS pods; Alibaba; Azure's WireServer; Oracle.
    (Cidr::v4([169, 254, 169, 254], 32), Class::Metadata),
    (Cidr::v4([169, 254, 170, 2], 32), Class::Metadata),
    (Cidr::v4([169, 254, 170, 23], 32), Class::Metadata),
    (Cidr::v4([100, 100, 100, 200], 32), Class::Metadata),
    (Cidr::v4([168, 63, 129, 16], 32), Class::Metadata),
    (Cidr::v4([192, 0, 0, 192], 32), Class::Metadata),
    // Amazon, EKS, Google, Oracle, Scaleway, OpenStack.
    (
        Cidr::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128),
        Class::Metadata,
    ),
    (
        Cidr::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23], 128),
        Class::Metadata,
    ),
    (
        Cidr::v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),
        Class::Metadata,
    ),
    (
        Cidr::v6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128),
        Class::Metadata,
    ),
    (
        Cidr::v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128),
        Class::Metadata,
    ),
    (
        Cidr::v6([0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128),
        Class::Metadata,
    ),
    // RFC 6890 and the IANA special-purpose registries.
    (Cidr::v4([0, 0, 0, 0], 8), Class::Unspecified),
    (Cidr::v4([127, 0, 0, 0], 8), Class::Loopback),
    (Cidr::v4([169, 254, 0, 0], 16), Class::LinkLocal),
    (Cidr::v4([10, 0, 0, 0], 8), Class::Private),
    (Cidr::v4([172, 16, 0, 0], 12), Class::Private),
    (Cidr::v4([192, 168, 0, 0], 16), Class::Private),
    (Cidr::v4([100, 64, 0, 0], 10), Class::Private),
    (Cidr::v4([198, 18, 0, 0], 15), Class::Private),
    (Cidr::v4([192, 0, 0, 0], 24), Class::Reserved),
    (Cidr::v4([192, 88, 99, 0], 24), Class::Reserved),
    (Cidr::v4([224, 0, 0, 0], 4), Class::Multicast),
    (Cidr::v4([255, 255, 255, 255], 32), Class::Broadcast),
    (Cidr::v4([240, 0, 0, 0], 4), Class::Reserved),
    (Cidr::v6([0, 0, 0, 0, 0, 0, 0, 0], 128), Class::Unspecified),
    (Cidr::v6([0, 0, 0, 0, 0, 0, 0, 1], 128), Class::Loopback),
    (
        Cidr::v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
        Class::LinkLocal,
    ),
    (Cidr::v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), Class::Private),
    (Cidr::v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), Class::Private),
    (Cidr::v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48), Class::Private),
    (Cidr::v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), Class::Multicast),
];

#[cfg(test)]
mod tests;
