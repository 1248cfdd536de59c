use super::*;

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
