use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn class(text: &str) -> Class {
    Class::of(ip(text))
}

// PX-13
#[test]
fn each_spelling_of_the_loopback_is_the_loopback() {
    for text in [
        "127.0.0.1",
        "127.255.255.254",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",
        "2002:7f00:1:5::9",
        "2001:0:0808:0808::80ff:fffe",
        "2001:db8::5efe:127.0.0.1",
        "2001:db8::200:5efe:127.0.0.1",
    ] {
        assert_eq!(class(text), Class::Loopback, "{text}");
    }
}

// PX-13
#[test]
fn what_no_rule_may_reach_has_a_class_that_is_refused_always() {
    for (text, expected) in [
        ("0.0.0.0", Class::Unspecified),
        ("0.1.2.3", Class::Unspecified),
        ("::", Class::Unspecified),
        ("169.254.1.1", Class::LinkLocal),
        ("fe80::1", Class::LinkLocal),
        ("169.254.169.254", Class::Metadata),
        ("169.254.170.2", Class::Metadata),
        ("100.100.100.200", Class::Metadata),
        ("168.63.129.16", Class::Metadata),
        ("fd00:ec2::254", Class::Metadata),
        ("fd20:ce::254", Class::Metadata),
        ("::ffff:169.254.169.254", Class::Metadata),
        ("64:ff9b::a9fe:a9fe", Class::Metadata),
        ("224.0.0.1", Class::Multicast),
        ("ff02::1", Class::Multicast),
        ("255.255.255.255", Class::Broadcast),
        ("240.0.0.1", Class::Reserved),
        ("192.0.0.1", Class::Reserved),
        ("100::1", Class::Reserved),
        ("4000::1", Class::Reserved),
    ] {
        assert_eq!(class(text), expected, "{text}");
        assert!(expected.is_refused_always());
    }
}

// PX-13, DN-09
#[test]
fn networks_of_ones_own_are_private() {
    for text in [
        "10.0.0.5",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "198.18.0.1",
        "fd00::1",
        "fc00::1",
        "fec0::1",
        "::ffff:10.0.0.5",
        "2002:0a00:0005::1",
        "64:ff9b::10.0.0.5",
    ] {
        assert_eq!(class(text), Class::Private, "{text}");
    }
}

#[test]
fn the_rest_of_the_internet_is_public() {
    for text in [
        "1.1.1.1",
        "8.8.8.8",
        "172.32.0.1",
        "100.128.0.1",
        "203.0.113.7",
        "2606:4700::1111",
        "2001:db8::1",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
        "::ffff:8.8.8.8",
        "64:ff9b:1::8.8.8.8",
    ] {
        assert_eq!(class(text), Class::Public, "{text}");
    }
}

// SB-21
#[test]
fn a_mapped_address_is_its_ipv4_address() {
    assert_eq!(canonical(ip("::ffff:10.1.2.3")), ip("10.1.2.3"));
    assert_eq!(canonical(ip("2001:db8::1")), ip("2001:db8::1"));
    assert_eq!(canonical(ip("::1")), ip("::1"));
}

#[test]
fn a_public_address_in_isatap_form_stays_what_it_is() {
    assert_eq!(
        canonical(ip("2001:db8::5efe:8.8.8.8")),
        ip("2001:db8::5efe:8.8.8.8")
    );
}

#[test]
fn overlap_with_refused_ranges_is_told_from_both_sides() {
    let overlap = |text: &str| refused_overlap(&text.parse().expect("a range"));
    assert_eq!(
        overlap("127.0.0.0/8"),
        Some((Overlap::Inside, Class::Loopback))
    );
    assert_eq!(
        overlap("169.254.0.0/16"),
        Some((Overlap::Inside, Class::LinkLocal))
    );
    assert_eq!(
        overlap("169.254.169.254"),
        Some((Overlap::Inside, Class::Metadata))
    );
    assert_eq!(overlap("0.0.0.0/0").map(|o| o.0), Some(Overlap::Around));
    assert_eq!(overlap("::/0").map(|o| o.0), Some(Overlap::Around));
    assert_eq!(
        overlap("4000::/16"),
        Some((Overlap::Inside, Class::Reserved))
    );
    for fine in [
        "10.0.0.0/8",
        "100.64.0.0/10",
        "fd00::/8",
        "fc00::/7",
        "2000::/3",
        "2606:4700::/32",
        "8.8.8.8",
    ] {
        assert_eq!(overlap(fine), None, "{fine}");
    }
}

/// Every way in which IPv6 carries an IPv4 address.
fn disguises(v4: Ipv4Addr) -> Vec<IpAddr> {
    let bits = u128::from(v4.to_bits());
    let at = |prefix: [u16; 8], shift: u32| {
        IpAddr::V6(Ipv6Addr::from_bits(
            Ipv6Addr::from_segments(prefix).to_bits() | bits << shift,
        ))
    };
    let teredo = u128::from(!v4.to_bits()) | 0x2001_0000_0808_0808_u128 << 64;
    vec![
        IpAddr::V4(v4),
        at([0, 0, 0, 0, 0, 0xffff, 0, 0], 0),
        at([0, 0, 0, 0, 0xffff, 0, 0, 0], 0),
        at([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 0),
        at([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 0),
        at([0x2002, 0, 0, 1, 0, 0, 0, 1], 80),
        IpAddr::V6(Ipv6Addr::from_bits(teredo)),
    ]
}

/// Where RFC 6052 §2.2 puts the address behind shorter prefixes of RFC 8215's range.
fn local_disguises(v4: Ipv4Addr) -> Vec<IpAddr> {
    let [a, b, c, d] = v4.octets();
    [
        [0, 0x64, 0xff, 0x9b, 0, 1, a, b, 0, c, d, 0, 0, 0, 0, 0],
        [0, 0x64, 0xff, 0x9b, 0, 1, 0, a, 0, b, c, d, 0, 0, 0, 0],
        [0, 0x64, 0xff, 0x9b, 0, 1, 0, 0, 0, a, b, c, d, 0, 0, 0],
    ]
    .map(|octets| IpAddr::V6(Ipv6Addr::from_octets(octets)))
    .to_vec()
}

fn refused() -> impl Strategy<Value = Ipv4Addr> {
    let range = RANGES
        .iter()
        .filter_map(|(range, class)| match range.base() {
            IpAddr::V4(base) if class.is_refused_always() => Some((base, range.length())),
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        });
    (
        prop::sample::select(range.collect::<Vec<_>>()),
        any::<u32>(),
    )
        .prop_map(|((base, length), noise)| {
            let host = noise.checked_shr(u32::from(length)).unwrap_or(0);
            Ipv4Addr::from_bits(base.to_bits() | host)
        })
}

proptest! {
    #[test]
    fn the_canonical_form_is_its_own_canonical_form(bits in any::<u128>(), v4 in any::<u32>()) {
        let mut all = disguises(Ipv4Addr::from_bits(v4));
        all.extend(local_disguises(Ipv4Addr::from_bits(v4)));
        all.push(IpAddr::V6(Ipv6Addr::from_bits(bits)));
        for address in all {
            let once = canonical(address);
            prop_assert_eq!(canonical(once), once);
            prop_assert_eq!(Class::of(address), Class::of(once));
        }
    }

    #[test]
    fn a_disguise_changes_no_class(v4 in any::<u32>()) {
        let plain = IpAddr::V4(Ipv4Addr::from_bits(v4));
        for address in disguises(Ipv4Addr::from_bits(v4)) {
            prop_assert_eq!(canonical(address), plain, "{}", address);
        }
    }

    #[test]
    fn a_refused_address_is_refused_in_every_disguise(v4 in refused()) {
        // 0.0.0.8 behind a short prefix cannot be told from 8.0.0.0 behind a long one.
        let local = if v4.to_bits() > 0xff { local_disguises(v4) } else { Vec::new() };
        for address in disguises(v4).into_iter().chain(local) {
            prop_assert!(Class::of(address).is_refused_always(), "{}", address);
        }
    }
}
