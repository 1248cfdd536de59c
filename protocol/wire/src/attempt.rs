//! Where an attempt to connect leads.

use std::net::{IpAddr, SocketAddr};

use crate::v1::Attempt;

impl Attempt {
    /// The address that the caller wrote, an IPv4-mapped one as IPv4; `None` if it is none.
    pub fn destination(&self) -> Option<SocketAddr> {
        let ip = match *self.address.as_slice() {
            [a, b, c, d] => IpAddr::from([a, b, c, d]),
            ref octets => IpAddr::from(<[u8; 16]>::try_from(octets).ok()?),
        };
        let port = u16::try_from(self.port).ok()?;
        Some(SocketAddr::new(ip.to_canonical(), port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PX-13: a mapped address is the address it stands for.
    #[test]
    fn an_address_is_read_in_its_canonical_form() {
        let leads = |address: &[u8], port| {
            let attempt = Attempt {
                address: address.to_vec(),
                port,
                ..Attempt::default()
            };
            attempt.destination().map(|to| to.to_string())
        };
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1];

        assert_eq!(leads(&[10, 0, 0, 1], 80).as_deref(), Some("10.0.0.1:80"));
        assert_eq!(leads(&mapped, 80).as_deref(), Some("10.0.0.1:80"));
        assert_eq!(leads(&[0; 16], 80).as_deref(), Some("[::]:80"));
        assert_eq!(leads(&[10, 0, 0], 80), None);
        assert_eq!(leads(&[10, 0, 0, 1], 65536), None);
    }
}
