//! A limit of open files below what is open: whoever comes is served or refused with the numbers, and never waits without an end. (PX-01.)

use holdfast_tests::host::document;
use holdfast_tests::{Finished, Host, everyone, limit};
use std::time::Duration;

/// No more than this for an answer, be it a refusal.
const PROMPT: Duration = Duration::from_secs(2);

/// Below the numbers of all that a keeper needs.
const KEEPERS: u64 = 3;

/// The same for a gateway.
const GATEWAYS: u64 = 4;

/// Refused at once, by `process`, with the numbers of its want.
fn is_refused(finished: &Finished, process: &str) {
    let (code, told) = document(finished);
    assert_eq!(code, Some(125), "{finished}");
    assert!(finished.took < PROMPT, "{finished}");
    let error = &told["error"];
    assert_eq!(error["code"], "RESOURCE_EXHAUSTED", "{told}");
    assert_eq!(error["details"]["process"], process, "{told}");
    for number in ["needed", "free", "limit"] {
        assert!(error["details"][number].is_string(), "{told}");
    }
    assert!(error["retryAfterMs"].as_u64() > Some(0), "{told}");
}

/// Has run, or was refused by the keeper.
fn is_answered(finished: &Finished) {
    assert!(finished.took < PROMPT, "{finished}");
    if finished.code() != Some(0) {
        is_refused(finished, "keeper");
    }
}

#[test]
fn under_a_keepers_limit_below_its_use_an_exec_runs_or_is_refused() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        // The next session has a connection to the boundary from this one.
        host.done("exec qa -- true");
        let (_, status) = host.document("status qa -o json");
        let keeper = status["pids"]["keeper"].as_i64().expect("a pid");
        let keeper = i32::try_from(keeper).expect("a pid");

        limit::descriptors(keeper, KEEPERS);

        for _ in 0..2 {
            is_answered(&host.said("exec qa -o json -- true"));
            let copied = host.said("cp qa:/etc/hostname -");
            assert!(copied.took < PROMPT, "{copied}");
        }
        // One that stays has one of the spares, if it runs, and the last is for those who come and go.
        let held = host.exec("qa", &["cat"]).held_input().start();
        for _ in 0..4 {
            is_answered(&host.said("exec qa -o json -- true"));
            assert!(host.done("status qa").took < PROMPT);
        }
        drop(held);

        limit::descriptors(keeper, 1024);
        host.done("wait qa --for ready --timeout 30s");
        host.done("delete qa --force");
    }
}

#[test]
fn under_a_gateways_limit_below_its_use_status_works_and_an_exec_is_refused() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let mut held = host
            .exec("qa", &["sh", "-c", "echo held; cat"])
            .held_input()
            .start();
        held.expect("held");
        let gateway = host.gateway().expect("it runs").as_raw();

        limit::descriptors(gateway, GATEWAYS);

        for _ in 0..2 {
            assert!(host.done("status qa").took < PROMPT);
            is_refused(&host.said("exec qa -o json -- true"), "gateway");
        }
        // One that stays has one of the spares, and the last is for those who come and go.
        let watching = host.say("status qa --watch").start();
        watching.expect("DescriptorPressure");
        for _ in 0..2 {
            is_refused(&host.said("exec qa -o json -- true"), "gateway");
            assert!(host.done("status qa").took < PROMPT);
        }
        limit::descriptors(gateway, 1024);
        held.end_input();
        assert_eq!(held.finish().code(), Some(0));
        host.done("wait qa --for ready --timeout 30s");
        host.done("delete qa --force");
    }
}
