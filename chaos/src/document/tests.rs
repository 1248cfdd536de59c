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
        "{LEAST}faults:\n  - {{fault: panic, actor: keeper/outside/canary, for: 1s..3s, at: [500ms, 2s]}}\n"
    );
    let scenario = Scenario::parse("mine.yaml", &text).expect("sound");
    let [breakage] = scenario.faults.as_slice() else {
        panic!("one fault");
    };
    assert_eq!(
        breakage.fault,
        Fault::Panic(Actor::Named("keeper/outside/canary".into()))
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
