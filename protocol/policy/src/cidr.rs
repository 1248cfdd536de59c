//! A range of addresses, as in `10.0.0.0/8`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

/// A network prefix. The bits after the prefix are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    base: IpAddr,
    length: u8,
}

/// Why a text is not a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadCidr {
    /// Neither an address nor an address with a length.
    #[error("not an address or a range of addresses")]
    Malformed,
    /// A length that the family does not have.
    #[error("prefix length must be at most {0}")]
    Length(u8),
    /// `10.1.2.3/8`: is the host meant, or the network?
    #[error("bits are set after the prefix")]
    HostBits(Cidr, IpAddr),
}

impl Cidr {
    /// An IPv4 range from its parts.
    pub(crate) const fn v4(base: [u8; 4], length: u8) -> Self {
        Self {
            base: IpAddr::V4(Ipv4Addr::from_octets(base)),
            length,
        }
    }

    /// An IPv6 range from its parts.
    pub(crate) const fn v6(base: [u16; 8], length: u8) -> Self {
        Self {
            base: IpAddr::V6(Ipv6Addr::from_segments(base)),
            length,
        }
    }

    /// The range of one address.
    pub fn host(address: IpAddr) -> Self {
        Self {
            base: address,
            length: width(address),
        }
    }

    /// The lowest address.
    pub fn base(&self) -> IpAddr {
        self.base
    }

    /// The number of leading bits that all its addresses share.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Whether `address`, in the form given, lies in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(a)) => {
                let shift = 32 - u32::from(self.length);
                (base.to_bits() ^ a.to_bits())
                    .checked_shr(shift)
                    .unwrap_or(0)
                    == 0
            }
            (IpAddr::V6(base), IpAddr::V6(a)) => {
                let shift = 128 - u32::from(self.length);
                (base.to_bits() ^ a.to_bits())
                    .checked_shr(shift)
                    .unwrap_or(0)
                    == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }

    /// Whether every address of `other` lies in the range.
    pub fn covers(&self, other: &Self) -> bool {
        self.length <= other.length && self.contains(other.base)
    }
}

impl FromStr for Cidr {
    type Err = BadCidr;

    fn from_str(text: &str) -> Result<Self, BadCidr> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| BadCidr::Malformed)?;
        let Some(length) = length else {
            return Ok(Self::host(address));
        };
        // `+8` and `08` would pass for a number, and mean something else elsewhere.
        let plain = length == "0"
            || (!length.starts_with('0') && length.bytes().all(|b| b.is_ascii_digit()));
        if length.is_empty() || !plain {
            return Err(BadCidr::Malformed);
        }
        let length = length.parse().ok().filter(|l| *l <= width(address));
        let length = length.ok_or(BadCidr::Length(width(address)))?;
        let range = Self {
            base: masked(address, length),
            length,
        };
        if range.base == address {
            Ok(range)
        } else {
            Err(BadCidr::HostBits(range, address))
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.length)
    }
}

fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(a) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & mask))
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().expect("a range")
    }

    #[test]
    fn an_address_alone_is_the_range_of_that_address() {
        assert_eq!(cidr("10.1.2.3"), cidr("10.1.2.3/32"));
        assert_eq!(cidr("fd00::1"), cidr("fd00::1/128"));
    }

    #[test]
    fn a_range_contains_its_first_and_last_address_and_not_the_next() {
        let range = cidr("172.16.0.0/12");
        let holds = |a: &str| range.contains(a.parse().expect("an address"));
        assert!(holds("172.16.0.0") && holds("172.31.255.255"));
        assert!(!holds("172.15.255.255") && !holds("172.32.0.0"));
    }

    #[test]
    fn the_zero_prefix_contains_all_of_its_family_and_none_of_the_other() {
        assert!(cidr("0.0.0.0/0").contains("203.0.113.9".parse().expect("an address")));
        assert!(!cidr("0.0.0.0/0").contains("::1".parse().expect("an address")));
        assert!(cidr("::/0").covers(&cidr("fd00::/8")));
    }

    #[test]
    fn set_bits_after_the_prefix_are_refused_with_both_readings() {
        let told = "10.1.2.3/8".parse::<Cidr>();

        let address = cidr("10.1.2.3").base();
        assert_eq!(told, Err(BadCidr::HostBits(cidr("10.0.0.0/8"), address)));
    }

    #[test]
    fn what_is_not_a_range_is_refused() {
        for text in [
            "",
            "/8",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/08",
            "10.0/8",
            "::/129",
            "a/8",
        ] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }
}
