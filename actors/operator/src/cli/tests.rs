use super::*;

fn arguments(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn run_of(line: &str) -> Run {
    let cli = parse(&arguments(line)).expect("is well written");
    let Command::Run(run) = cli.expect("asks for no help").command else {
        panic!("{line} is no run");
    };
    run
}

#[test]
fn the_definition_holds_together() {
    Cli::command().debug_assert();
}

#[test]
fn nothing_is_parsed_after_the_two_dashes() {
    let run = run_of("holdfast run --name qa -- ls -h --policy x -- -o json");

    assert_eq!(
        run.command,
        ["ls", "-h", "--policy", "x", "--", "-o", "json"]
    );
    assert_eq!(run.policy, None);
    assert!(!wants_json(&arguments("holdfast run -- ls -o json")));
}

#[test]
fn a_document_is_asked_for_in_every_spelling() {
    for line in [
        "holdfast doctor -o json",
        "holdfast doctor -ojson",
        "holdfast doctor -o=json",
        "holdfast doctor --output json",
        "holdfast doctor --output=json --nosuch",
    ] {
        assert!(wants_json(&arguments(line)), "{line}");
    }
    assert!(!wants_json(&arguments("holdfast doctor -o text")));
}

#[test]
fn wrong_usage_is_kind_usage() {
    for line in [
        "holdfast",
        "holdfast nosuch",
        "holdfast run",
        "holdfast run ls",
        "holdfast run --nosuch -- true",
        "holdfast run --timeout 30 -- true",
        "holdfast run --name UPPER -- true",
        "holdfast run --on-link-loss maybe -- true",
        "holdfast run -q --log-level info -- true",
        "holdfast policy check",
        "holdfast policy explain --policy p --host h --port 0",
        "holdfast policy explain --policy p --host h --port 70000",
        "holdfast gateway",
    ] {
        let failure = parse(&arguments(line)).expect_err(line);
        assert_eq!(failure.kind(), Kind::Usage, "{line}");
    }
}
