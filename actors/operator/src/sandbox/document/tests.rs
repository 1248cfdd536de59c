use super::*;

fn sample() -> v1::Status {
    let some = |name: &str| (name.to_owned(), 2);
    v1::Status {
        name: "qa".into(),
        id: "01J".into(),
        generation: 1,
        phase: v1::Phase::Ready.into(),
        since_ms: 1_795_953_600_000,
        lease_expires_ms: 1_795_953_615_000,
        conditions: vec![v1::Condition {
            r#type: v1::ConditionType::ExecAdmitting.into(),
            status: v1::Truth::True.into(),
            reason: "CanaryPassed".into(),
            since_ms: 1_795_953_600_000,
            observed_ms: 1_795_953_600_001,
            ..v1::Condition::default()
        }],
        evidence: Some(v1::Evidence {
            landlock_abi: 7,
            scoped: true,
            seccomp: true,
            uid: 1000,
            ..v1::Evidence::default()
        }),
        descriptors: [(
            "keeper".to_owned(),
            v1::Descriptors {
                limit: 1024,
                used: 31,
                high_water: 44,
                ..v1::Descriptors::default()
            },
        )]
        .into(),
        restarts: [some("egress")].into(),
        link: Some(v1::LinkState {
            epoch: 1,
            connected: true,
            reconnects: 0,
            protocol: "1.0".into(),
        }),
        canary: Some(v1::CanaryState {
            duration_us: 2_100,
            ..v1::CanaryState::default()
        }),
        policy: Some(v1::PolicyState {
            desired: 3,
            enforced: 3,
            hash: "sha256:x".into(),
            error: String::new(),
            warning: String::new(),
        }),
        pids: [("keeper".to_owned(), 4242_u32)].into(),
        version: "0.1.0".into(),
        created_ms: 1_795_953_600_000,
        ..v1::Status::default()
    }
}

fn keys(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .expect("is an object")
        .keys()
        .map(String::as_str)
        .collect()
}

/// Every field of the page that scripts rely on is there, under exactly its name.
#[test]
fn the_status_has_every_field_of_the_contract() {
    let document = status(&sample());

    for (place, fields) in [
        (
            "",
            "name id generation phase reason message since leaseExpires conditions confinement descriptors restarts link \
             sessions egress broker canary policy pids version",
        ),
        ("/conditions/0", "type status reason message since observed"),
        ("/confinement", "capture landlock seccomp namespaces uid"),
        ("/confinement/landlock", "abi level skipped"),
        ("/descriptors/keeper", "limit used highWater shed waiting"),
        ("/descriptors/boundary", "limit used highWater shed waiting"),
        ("/restarts", "total byActor"),
        ("/link", "epoch connected reconnects protocol"),
        ("/sessions", "running total failed"),
        ("/egress", "open allowed denied refusedUpstream"),
        ("/broker", "notifications denied races faults"),
        ("/canary", "last lastOk durationMs failures"),
        ("/policy", "desired enforced hash error"),
    ] {
        let part = document.pointer(place).expect(place);
        for field in fields.split_whitespace() {
            assert!(keys(part).contains(&field), "{place} lacks {field}");
        }
    }
}

#[test]
fn the_values_are_written_as_in_the_contract() {
    let document = status(&sample());

    assert_eq!(document["phase"], "Ready");
    assert_eq!(document["since"], "2026-11-29T12:00:00.000Z");
    assert_eq!(document["conditions"][0]["type"], "ExecAdmitting");
    assert_eq!(document["conditions"][0]["status"], "True");
    assert_eq!(
        document["conditions"][0]["observed"],
        "2026-11-29T12:00:00.001Z"
    );
    assert_eq!(
        document["confinement"]["landlock"],
        json!({"abi": 7, "level": "full", "skipped": []})
    );
    assert_eq!(
        document["restarts"],
        json!({"total": 2, "byActor": {"egress": 2}})
    );
    assert_eq!(document["canary"]["durationMs"], 2.1);
    assert_eq!(document["canary"]["last"], Value::Null);
    assert_eq!(document["pids"]["keeper"], 4242);
}

#[test]
fn a_row_of_the_list_has_its_seven_fields() {
    let row = row(&sample(), 1_795_953_642_000);

    assert_eq!(
        row,
        json!({"name": "qa", "phase": "Ready", "reason": "", "age": "42s", "sessions": 0, "policy": 3, "restarts": 2, "labels": {}})
    );
}

/// A sandbox that nobody has reported on yet is a document too.
#[test]
fn an_empty_status_is_written_without_inventing_anything() {
    let document = status(&v1::Status::default());

    assert_eq!(document["phase"], "Unknown");
    assert_eq!(document["confinement"], Value::Null);
    assert_eq!(document["since"], Value::Null);
}

/// EX-11: a death by signal is told apart from a status that looks like one.
#[test]
fn an_ending_has_code_and_signal_apart() {
    let ended = |how| {
        ending(&v1::Ending {
            exit: Some(v1::Exit { how: Some(how) }),
            ..v1::Ending::default()
        })
    };

    assert_eq!(ended(v1::exit::How::Code(137))["signal"], Value::Null);
    assert_eq!(ended(v1::exit::How::Signal(9))["signal"], 9);
    assert_eq!(ended(v1::exit::How::Signal(9))["exitCode"], 137);
    assert_eq!(ended(v1::exit::How::Unknown("why".into()))["reason"], "why");
}
