use std::time::Duration;

use super::words::span;
use crate::scenario::{Actor, Fault, Process, Scenario, When};

const LEAST: &str = "name: mine\ndescription: d\nduration: 10s\n";

fn refused(text: &str) -> String {
    let written = format!("{LEAST}{text}");
    Scenario::parse("mine.yaml", &written)
        .expect_err("refused")
        .to_string()
}

#[test]
fn the_scenarios_that_come_with_the_program_are_sound_and_named_as_they_are_found() {
    for (name, text) in Scenario::built_in() {
        let scenario = Scenario::parse(name, text).expect("sound");
        assert_eq!(scenario.name, name);
        assert!(!scenario.description.is_empty());
    }
}

#[test]
fn the_least_scenario_has_the_usual_checks() {
    let scenario = Scenario::parse("mine.yaml", LEAST).expect("sound");
    assert_eq!(scenario.checks, crate::scenario::Checks::default());
    assert_eq!(scenario.faults, []);
}

#[test]
fn a_fault_is_read_with_its_times() {
    let text = format!(
        "{LEAST}faults:\n  - {{fault: hang, actor: keeper/outside/canary, for: 1s..3s, at: [500ms, 2s]}}\n"
    );
    let scenario = Scenario::parse("mine.yaml", &text).expect("sound");
    let [breakage] = scenario.faults.as_slice() else {
        panic!("one fault");
    };
    assert_eq!(
        breakage.fault,
        Fault::Hang(Actor::Named("keeper/outside/canary".into()))
    );
    assert_eq!(
        breakage.lasts,
        (Duration::from_secs(1), Duration::from_secs(3))
    );
    assert_eq!(
        breakage.when,
        When::At(vec![Duration::from_millis(500), Duration::from_secs(2)])
    );
}

#[test]
fn an_actor_may_be_any_of_a_process() {
    let text = format!("{LEAST}faults:\n  - {{fault: hang, process: boundary, random: 2}}\n");
    let scenario = Scenario::parse("mine.yaml", &text).expect("sound");
    assert_eq!(
        scenario.faults[0].fault,
        Fault::Hang(Actor::AnyOf(Process::Boundary))
    );
}

#[test]
fn mistakes_are_told_with_their_place_and_what_was_meant() {
    let cases = [
        (
            "durations: 5s\n",
            "mine.yaml:4:1: unknown key `durations`; did you mean `duration`?",
        ),
        (
            "load: {exec: 5}\n",
            "mine.yaml:4:8: unknown key `exec`; did you mean `execs`?",
        ),
        (
            "faults:\n  - {fault: stpo, process: keeper, at: [1s]}\n",
            "mine.yaml:5:13: unknown fault `stpo`; did you mean `stop`?",
        ),
        (
            "faults:\n  - {fault: stop, process: keper, at: [1s]}\n",
            "mine.yaml:5:28: unknown process `keper`; did you mean `keeper`?",
        ),
        (
            "faults:\n  - {fault: stop, process: keeper, spare: 3, at: [1s]}\n",
            "mine.yaml:5:43: `stop` has no `spare`; it has `process`",
        ),
        (
            "faults:\n  - {fault: stop, process: keeper}\n",
            "mine.yaml:5:5: the fault has no time; write `at: [5s]`, `every: 10s` or `random: 3`",
        ),
        (
            "faults:\n  - {fault: stop, process: keeper, for: 3 s, at: [1s]}\n",
            "mine.yaml:5:41: `3 s` is no duration; write `500ms`, `30s` or `5m`",
        ),
        (
            "checks: {false-redy: 1s}\n",
            "mine.yaml:4:10: unknown key `false-redy`; did you mean `false-ready`?",
        ),
        (
            "faults:\n  - {fault: emfile, process: launcher, at: [1s]}\n",
            "mine.yaml:5:30: unknown process `launcher`; known are `gateway`, `keeper`, `boundary`",
        ),
        (
            "faults:\n  - {fault: panic, actor: canary, at: [1s]}\n",
            "mine.yaml:5:27: `canary` is no path of an actor; write it as `holdfast tree` does: `keeper/outside/canary`",
        ),
        (
            "name: again\n",
            "mine.yaml:4:1: `name` is given twice; keep one of them",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refused(text), expected);
    }
}

/// It would pass every check.
#[test]
fn what_would_never_be_made_or_does_nothing_is_refused() {
    let cases = [
        (
            "faults:\n  - {fault: disk-full, at: [2s, 9s]}\n",
            "mine.yaml:5:33: never made: it would last until 12s, and all ends at 10s; make `duration` longer, or the fault earlier or shorter",
        ),
        (
            "faults:\n  - {fault: disk-full, every: 20s}\n",
            "mine.yaml:5:31: never made: it would last until 23s, and all ends at 10s; make `duration` longer, or the fault earlier or shorter",
        ),
        (
            "faults:\n  - {fault: disk-full, for: 11s..1m, random: 2}\n",
            "mine.yaml:5:5: never made: it would last until 11s, and all ends at 10s; make `duration` longer, or the fault earlier or shorter",
        ),
        (
            "shuffle: {times: 2, rest: 8s}\nfaults:\n  - {fault: disk-full}\n",
            "mine.yaml:6:5: never made: it would last until 11s, and all ends at 10s; make `duration` longer, or the fault earlier or shorter",
        ),
        (
            "faults:\n  - {fault: disk-full, at: []}\n",
            "mine.yaml:5:28: `at` has no time; write `at: [5s]`",
        ),
        (
            "faults:\n  - {fault: disk-full, random: 0}\n",
            "mine.yaml:5:32: `random` is 0; write `random: 3`",
        ),
        (
            "shuffle: {times: 0}\nfaults:\n  - {fault: disk-full}\n",
            "mine.yaml:4:18: `times` is 0; write how many faults are drawn",
        ),
        (
            "probe: {every: 0ms, limit: 0s}\n",
            "mine.yaml:4:28: `limit` needs some time; write `500ms`, `30s` or `5m`",
        ),
        (
            "faults:\n  - {fault: kill, process: keeper, for: 3s, at: [1s]}\n",
            "mine.yaml:5:41: `kill keeper` has no `for`: it is done at once; remove it",
        ),
        (
            "faults:\n  - {fault: panic, process: keeper, for: 3s, at: [1s]}\n",
            "mine.yaml:5:42: `panic any actor of the keeper` has no `for`: it is done at once; remove it",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refused(text), expected);
    }
    let nothing = Scenario::parse("mine.yaml", "name: mine\ndescription: d\nduration: 0s\n");
    assert_eq!(
        nothing.expect_err("refused").to_string(),
        "mine.yaml:3:11: `duration` needs some time; write `500ms`, `30s` or `5m`"
    );
    let later = "faults:\n  - {fault: kill, process: gateway, for: 3s, at: [1s]}\n";
    assert!(Scenario::parse("mine.yaml", &format!("{LEAST}{later}")).is_ok());
}

#[test]
fn a_value_of_another_kind_is_told_in_the_words_of_a_scenario() {
    let cases = [
        (
            "faults:\n  - {fault: disk-full, at: 2s}\n",
            "mine.yaml:5:28: a list is expected here; write `[…]`, also around a single one",
        ),
        (
            "load: {execs: many}\n",
            "mine.yaml:4:15: a whole number is expected here; write digits only, such as `8`",
        ),
        (
            "faults:\n  - {fault: emfile, process: keeper, spare: few, at: [1s]}\n",
            "mine.yaml:5:45: a whole number is expected here; write `8`, or `-8`",
        ),
        (
            "checks: {sessions: maybe}\n",
            "mine.yaml:4:20: yes or no is expected here; write `true` or `false`",
        ),
        (
            "probe: fast\n",
            "mine.yaml:4:8: a key with its value is expected here; write `{key: value}`",
        ),
        (
            "settle: [5s]\n",
            "mine.yaml:4:9: a single value is expected here; write it without brackets",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refused(text), expected);
    }
}

#[test]
fn a_shuffle_and_times_do_not_go_together() {
    let message =
        refused("shuffle: {times: 3}\nfaults:\n  - {fault: stop, process: keeper, at: [1s]}\n");
    assert!(message.contains("under `shuffle`"), "{message}");
    assert!(refused("shuffle: {times: 3}\n").contains("needs faults to draw from"));
}

#[test]
fn durations_have_a_unit_and_an_end() {
    assert_eq!(span("250ms"), Some(Duration::from_millis(250)));
    assert_eq!(span("2h"), Some(Duration::from_hours(2)));
    for wrong in [
        "",
        "5",
        "ms",
        "-1s",
        "1.5s",
        "99999999999999999999s",
        "1000000h",
    ] {
        assert_eq!(span(wrong), None, "{wrong}");
    }
}
