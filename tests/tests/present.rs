//! What `status` says is of now, and small mistakes are told by their names.

use holdfast_tests::wait::{LONG, until};
use holdfast_tests::{Host, Policy, everyone};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn status(host: &Host) -> Value {
    host.document("status qa -o json").1
}

/// Nobody has to wait for a beat.
#[test]
fn what_is_counted_is_there_as_soon_as_the_exec_has_ended() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");

        for number in 1..=5 {
            assert_eq!(host.shell("qa", "true").code(), Some(0));
            let sessions = &status(&host)["sessions"];
            assert_eq!(sessions["total"], number, "{sessions}");
            assert_eq!(sessions["running"], 0, "{sessions}");
        }
    }
}

/// The count is the boundary's life's, and not one keeper's.
#[test]
fn a_keeper_that_takes_over_is_a_reconnect() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        assert_eq!(status(&host)["link"]["reconnects"], 0);

        for number in 1..=2 {
            let keeper = status(&host)["pids"]["keeper"].as_i64().expect("a keeper");
            let pid = Pid::from_raw(i32::try_from(keeper).expect("a pid"));
            kill(pid, Signal::SIGKILL).expect("killed");
            until("another keeper holds it", LONG, || {
                let status = status(&host);
                status["phase"] == "Ready" && status["pids"]["keeper"].as_i64() != Some(keeper)
            });
            assert_eq!(status(&host)["link"]["reconnects"], number);
        }

        host.done("restart qa --timeout 1s");
        host.done("wait qa --for ready --timeout 30s");
        assert_eq!(status(&host)["link"]["reconnects"], 0, "another generation");
    }
}

#[test]
fn the_error_of_a_policy_goes_with_the_next_good_one() {
    for area in everyone() {
        let host = Host::new(&area);
        let file = |name: &str, text: String| area.file(&area.work().join(name), text);
        let good = Policy::offline().text();
        file("good.yaml", good.clone());
        file(
            "bad.yaml",
            format!("{good}process: {{limits: {{nofile: 100}}}}\n"),
        );
        host.ready("qa", "--policy good.yaml");

        assert_eq!(host.said("policy set qa bad.yaml --wait").code(), Some(125));
        let policy = status(&host)["policy"].clone();
        assert!(
            policy["error"].as_str().expect("text").contains("process"),
            "{policy}"
        );
        assert_eq!(policy["desired"], policy["enforced"]);

        host.done("policy set qa good.yaml --wait");
        let policy = status(&host)["policy"].clone();
        assert_eq!(policy["error"], "", "{policy}");
        assert_eq!(policy["desired"], policy["enforced"]);
    }
}

#[test]
fn edges_of_the_command_line_say_what_is_wrong() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");

        let nameless = host.exec("qa", &[""]).finish();
        assert_eq!(nameless.code(), Some(127), "{nameless}");
        let lost = host.exec("qa --cwd /nonexist", &["true"]).finish();
        assert_eq!(lost.code(), Some(125), "{lost}");
        assert!(
            lost.stderr.contains("enter its directory /nonexist: "),
            "{lost}"
        );
        assert!(!lost.stderr.contains("true"), "{lost}");

        let long = area.root().join("x".repeat(120));
        let told = host
            .say("list")
            .environment("HOLDFAST_RUNTIME_DIR", long)
            .finish();
        assert_eq!(told.code(), Some(125), "{told}");
        assert!(
            told.stderr
                .contains("set HOLDFAST_RUNTIME_DIR to a shorter one"),
            "{told}"
        );

        let root = host.say("create root --wait").directory("/").finish();
        assert_eq!(root.code(), Some(0), "{root}");
        let seen = host.shell("root", "pwd; touch /x /etc/x /var/x 2>&1; ls");
        assert!(seen.text().starts_with("/\n"), "{seen}");
        assert!(
            seen.text().contains("Read-only") || seen.text().contains("denied"),
            "{seen}"
        );
    }
}
