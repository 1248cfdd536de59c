use super::*;

fn captured(bytes: &[u8], total: u64) -> Captured {
    Captured {
        bytes: bytes.to_vec(),
        total,
    }
}

fn carried(how: v1::exit::How, reason: &str) -> Carried {
    Carried {
        begun: Some(v1::Begun {
            session: 7,
            started_ms: 1_795_953_600_000,
        }),
        ending: Some(v1::Ending {
            exit: Some(v1::Exit { how: Some(how) }),
            reason: reason.into(),
            started_ms: 1_795_953_600_000,
            ended_ms: 1_795_953_600_012,
            stdout_bytes: 3,
            ..v1::Ending::default()
        }),
        lost: 0,
    }
}

#[test]
fn the_document_is_literally_that_of_the_contract() {
    let carried = carried(v1::exit::How::Code(3), "");

    let document = document_of(
        &carried,
        3,
        [&captured("aé".as_bytes(), 3), &captured(b"", 0)],
    );

    assert_eq!(
        document,
        json!({
            "session": 7, "exitCode": 3, "signal": null, "reason": "", "stdout": "aé", "stderr": "", "encoding": "utf-8",
            "stdoutBytes": 3, "stderrBytes": 0, "truncated": false,
            "startedAt": "2026-11-29T12:00:00.000Z", "endedAt": "2026-11-29T12:00:00.012Z", "durationMs": 12,
        })
    );
}

#[test]
fn bytes_that_are_no_text_are_base64_in_both_streams() {
    let carried = carried(v1::exit::How::Signal(9), "Timeout");

    let document = document_of(
        &carried,
        124,
        [&captured(b"\xff\x00", 2), &captured(b"ab", 2)],
    );

    assert_eq!(document["encoding"], "base64");
    assert_eq!(document["stdout"], "/wA=");
    assert_eq!(document["stderr"], "YWI=");
    assert_eq!(document["signal"], 9);
    assert_eq!(document["exitCode"], 124);
    assert_eq!(document["reason"], "Timeout");
}

#[test]
fn what_exceeds_the_bound_is_counted_and_text_that_was_cut_stays_text() {
    let carried = carried(v1::exit::How::Code(0), "");
    let half = &"é".as_bytes()[..1];

    let cut = document_of(
        &carried,
        0,
        [&captured(&[b"ab", half].concat(), 500), &captured(b"", 0)],
    );
    let broken = document_of(
        &carried,
        0,
        [&captured(&[b"ab", half].concat(), 3), &captured(b"", 0)],
    );

    assert_eq!(
        (&cut["truncated"], &cut["encoding"]),
        (&json!(true), &json!("utf-8"))
    );
    assert_eq!(
        (&cut["stdout"], &cut["stdoutBytes"]),
        (&json!("ab"), &json!(500))
    );
    assert_eq!(broken["encoding"], "base64");
}
