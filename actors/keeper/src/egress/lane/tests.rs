use super::*;

#[test]
fn an_address_is_read_in_its_canonical_form() {
    // PX-13: a mapped address is the address it stands for, also in the hint.
    let mapped = "::ffff:10.0.0.1"
        .parse::<std::net::Ipv6Addr>()
        .expect("an address");

    assert_eq!(
        hint(&mapped.octets(), 80),
        Some("10.0.0.1:80".parse().expect("an address"))
    );
    assert_eq!(
        hint(&[10, 0, 0, 1], 80),
        Some("10.0.0.1:80".parse().expect("an address"))
    );
    for (nothing, port) in [
        (&[][..], 80),
        (&[1, 2, 3][..], 80),
        (&[10, 0, 0, 1][..], 65_536),
    ] {
        assert_eq!(hint(nothing, port), None);
    }
}

#[test]
fn an_answer_fits_a_packet_and_reads_back() {
    let mut reply = Vec::new();
    encode(
        Answer {
            call: u64::MAX,
            errno: 0,
            capture: Some(5432),
        },
        &mut reply,
    );

    let read = v1::FromKeeper::decode(&reply[..]).expect("a message").kind;

    let verdict = v1::Verdict {
        id: u64::MAX,
        errno: 0,
        capture_port: 5432,
    };
    assert_eq!(read, Some(from_keeper::Kind::Verdict(verdict)));
}
