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
        "holdfast doctor -qojson",
        "holdfast doctor -qo json",
        "holdfast doctor -qo=json",
        "holdfast logs -fqojson qa",
    ] {
        assert!(wants_json(&arguments(line)), "{line}");
    }
    for line in [
        "holdfast doctor -o text",
        "holdfast doctor -o",
        "holdfast doctor -qotext json",
        "holdfast nojson -no json",
        "holdfast o json",
    ] {
        assert!(!wants_json(&arguments(line)), "{line}");
    }
}

/// `keeper` is not for anybody: whoever mistypes it is told as little as whoever mistypes nothing that there is.
#[test]
fn a_mistyped_hidden_command_is_told_like_any_unknown_one() {
    let told = |word: &str| {
        let refused = parse(&arguments(&format!("holdfast {word}"))).expect_err("is none");
        refused.message().replace(word, "WORD")
    };

    assert_eq!(told("keper"), told("xyzzy"));
    assert!(!told("xyzzy").contains("\n\n\n"));
    assert!(told("lst").contains("'list'"));
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
        "holdfast gateway --nosuch",
        "holdfast create",
        "holdfast create UPPER",
        "holdfast create qa true",
        "holdfast create qa --restart sometimes",
        "holdfast create qa --label nopair",
        "holdfast list -o text",
        "holdfast status",
        "holdfast wait qa",
        "holdfast wait qa --for happy",
        "holdfast exec qa",
        "holdfast exec qa ls",
        "holdfast attach qa",
        "holdfast attach qa one",
        "holdfast kill qa 1 --signal NOSUCH",
        "holdfast logs qa --source nosuch",
        "holdfast logs qa --level loud",
        "holdfast policy get qa --revision 0",
        "holdfast policy explain --host h --port 1",
        "holdfast policy explain qa --policy p --host h --port 1",
        "holdfast why",
        "holdfast cp a",
        "holdfast forward qa 80",
    ] {
        let failure = parse(&arguments(line)).expect_err(line);
        assert_eq!(failure.kind(), Kind::Usage, "{line}");
    }
}

#[test]
fn a_value_with_a_hyphen_is_judged_as_the_value() {
    for (line, flag) in [
        ("holdfast run --timeout -1s -- true", "--timeout <D>"),
        ("holdfast exec qa --timeout -1s -- true", "--timeout <D>"),
        ("holdfast stop qa --timeout -1s", "--timeout <D>"),
        (
            "holdfast wait qa --for ready --timeout -1s",
            "--timeout <D>",
        ),
        ("holdfast logs qa --since -1s", "--since <D>"),
        (
            "holdfast policy explain qa --host h --port -1",
            "--port <P>",
        ),
    ] {
        let failure = parse(&arguments(line)).expect_err(line);
        let value = line.split(' ').find(|word| word.starts_with("-1"));
        let told = format!("invalid value '{}' for '{flag}'", value.expect("one"));
        assert!(failure.message().contains(&told), "{}", failure.message());
    }
}

#[test]
fn who_asks_no_policy_is_told_of_both_ways_to_name_one() {
    let line = "holdfast policy explain --host h --port 1";
    let failure = parse(&arguments(line)).expect_err(line);

    let told = failure.message();
    assert!(told.contains("<NAME|--policy <FILE>>"), "{told}");
}

/// Every line of the contract, word for word.
#[test]
fn what_is_promised_can_be_written() {
    for line in [
        "holdfast create qa --policy p --rootfs r --cwd d --env K=V --env K --restart on-failure --label a=b --label c=d --wait -- sh -c x",
        "holdfast create qa",
        "holdfast list -o json --label a=b",
        "holdfast list -o table",
        "holdfast status qa -o json --watch",
        "holdfast status qa -o text",
        "holdfast wait qa --for ready --timeout 5s",
        "holdfast exec qa -i -t --env K=V --cwd /d --timeout 5s -o json -- ls -o text",
        "holdfast exec qa -it -- sh",
        "holdfast exec qa --detach -o json -- ls",
        "holdfast exec qa -i -t --detach -- ls",
        "holdfast attach qa 7 --from 100",
        "holdfast sessions qa -o json",
        "holdfast kill qa 7 --signal SIGKILL",
        "holdfast kill qa 7 --signal 9",
        "holdfast stop qa --timeout 500ms",
        "holdfast start qa",
        "holdfast restart qa",
        "holdfast delete qa --force",
        "holdfast logs qa -f --since 5m --source workload --source audit --level warn -o json",
        "holdfast tree qa -o json",
        "holdfast policy check a b",
        "holdfast policy get qa --revision 2",
        "holdfast policy set qa p --wait",
        "holdfast policy diff qa p",
        "holdfast policy explain qa --host h --port 1 --binary /b --method GET --path /",
        "holdfast policy explain --policy p --host h --port 1",
        "holdfast why 01J9ZQ3V5W8X7Y6T4S2R1P0N9M",
        "holdfast cp qa:/a b",
        "holdfast cp - qa:/a",
        "holdfast forward qa 0:80",
        "holdfast man d",
        "holdfast --quiet list",
    ] {
        assert!(
            parse(&arguments(line)).is_ok_and(|cli| cli.is_some()),
            "{line}"
        );
    }
}
