//! What is wrong is said: place, reason, fix, the right exit code, and nothing started. (Promise 9.)

use holdfast_tests::{Area, Finished, Policy, Run, everyone, skip};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

/// A policy that is right, to be made wrong.
const GOOD: &str = "version: 1
filesystem_policy:
  include_workdir: true
  read_only: [/usr, /lib, /lib64, /bin, /sbin, /etc]
network_policies:
  origin:
    endpoints: [{host: origin.test, port: 443}]
resolver:
  hosts: {origin.test: [127.0.0.1]}
";

fn run<'a>(area: &'a Area, policy: &str) -> Run<'a> {
    Run::with_text(area, policy).shell("echo started")
}

#[track_caller]
fn nothing_started(done: &Finished) {
    assert!(!done.text().contains("started"), "{done}");
    assert!(!done.stderr.contains("panicked"), "{done}");
    assert!(!done.stderr.is_empty(), "it says why: {done}");
}

#[test]
fn the_policy_that_the_others_are_made_from_is_right() {
    for area in everyone() {
        assert_eq!(run(&area, GOOD).finish().exited(0).text(), "started\n");
    }
}

#[test]
fn a_wrong_policy_is_refused_with_its_place_and_a_suggestion() {
    // What is replaced, by what, the line of the fault, and words that must be said.
    let wrong: [(&str, &str, u32, &[&str]); 14] = [
        (
            "filesystem_policy:",
            "filesystem_polcy:",
            2,
            &["filesystem_polcy", "filesystem_policy"],
        ),
        ("read_only:", "readonly:", 4, &["readonly", "read_only"]),
        ("version: 1", "version: 2", 1, &["version"]),
        ("version: 1", "version: one", 1, &["version"]),
        (
            "include_workdir: true",
            "include_workdir: maybe",
            3,
            &["include_workdir"],
        ),
        ("port: 443", "port: 70000", 7, &["70000"]),
        ("port: 443", "port: https", 7, &["port"]),
        ("port: 443", "prot: 443", 7, &["prot", "port"]),
        (
            "host: origin.test",
            "host: \"http://origin.test\"",
            7,
            &["origin.test"],
        ),
        ("host: origin.test", "host: \"*.com\"", 7, &["*.com"]),
        (
            "host: origin.test",
            "host: \"a.*.test\"",
            7,
            &["first label"],
        ),
        (
            "host: origin.test",
            "host: 169.254.169.254",
            7,
            &["169.254.169.254"],
        ),
        ("127.0.0.1", "300.0.0.1", 9, &["300.0.0.1"]),
        ("/usr, ", "usr, ", 4, &["usr", "absolute"]),
    ];
    for area in everyone() {
        for (from, to, line, words) in wrong {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from} is in the policy");
            let done = run(&area, &text).finish();
            done.exited(2);
            nothing_started(&done);
            assert!(
                done.stderr.contains(&format!("policy.yaml:{line}:")),
                "the place: {done}"
            );
            for word in words {
                assert!(done.stderr.contains(word), "{word}: {done}");
            }
        }
    }
}

#[test]
fn keys_that_are_given_twice_are_refused() {
    for area in everyone() {
        let text = format!("{GOOD}version: 1\n");
        let done = run(&area, &text).finish();
        done.exited(2);
        nothing_started(&done);
        assert!(done.stderr.contains("version"), "{done}");
        assert!(done.stderr.contains(":10:"), "the second place: {done}");
    }
}

#[test]
fn every_problem_of_a_policy_is_told_at_once() {
    for area in everyone() {
        let text = GOOD
            .replace("port: 443", "port: 0")
            .replace("read_only", "readonly");
        let done = run(&area, &text).finish();
        done.exited(2);
        assert!(
            done.stderr.contains(":4:") && done.stderr.contains(":7:"),
            "{done}"
        );
    }
}

#[test]
fn what_is_no_policy_at_all_is_refused() {
    for area in everyone() {
        let deep = "[".repeat(10_000);
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n";
        let long = format!("version: 1\n# {}\n", "x".repeat(8 << 20));
        for text in [
            "",
            "{",
            "version: [",
            "- a\n- b\n",
            "\0\0\0",
            "\t",
            &deep,
            bomb,
            &long,
            "version: 1\n---\nversion: 1\n",
        ] {
            let done = run(&area, text).finish();
            done.exited(2);
            nothing_started(&done);
            assert!(
                done.stderr.len() < 10_000,
                "and briefly: {}",
                done.stderr.len()
            );
        }
    }
}

#[test]
fn a_policy_that_cannot_be_read_is_said_with_its_name() {
    for area in everyone() {
        let secret = area.file(&area.root().join("unreadable.yaml"), GOOD);
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).expect("chmod");
        let directory = area.directory(&area.root().join("directory.yaml"));
        let mut files = vec![area.root().join("missing.yaml"), directory];
        if area.caller().is_root() {
            skip::skip(
                "a policy without permission to read",
                "root may read everything",
            );
        } else {
            files.push(secret);
        }
        for file in files {
            let done = Run::plain(&area, ["run", "--policy"])
                .option(&file)
                .shell("echo started")
                .finish();
            assert!([Some(2), Some(125)].contains(&done.code()), "{done}");
            nothing_started(&done);
            let name = file.file_name().expect("a name").to_str().expect("text");
            assert!(done.stderr.contains(name), "{done}");
        }
    }
}

#[test]
fn wrong_usage_is_2_with_a_hint_and_help_is_0_on_stdout() {
    for area in everyone() {
        let wrong: [&[&str]; 9] = [
            &["nosuch"],
            &["run", "--nosuch", "--", "true"],
            &["run"],
            &["run", "--timeout", "soon", "--", "true"],
            &["run", "--name", "Not A Name", "--", "true"],
            &["run", "--env", "=x", "--", "true"],
            &["run", "--on-link-loss", "panic", "--", "true"],
            &["policy", "check"],
            &["policy", "explain", "--host", "h", "--port", "99999"],
        ];
        for words in wrong {
            let done = Run::plain(&area, words.iter().copied()).finish();
            done.exited(2);
            assert_eq!(done.text(), "", "{done}");
            assert!(!done.stderr.is_empty(), "{done}");
        }
        for words in [
            &["--help"][..],
            &["run", "--help"],
            &["version"],
            &["--version"],
        ] {
            let done = Run::plain(&area, words.iter().copied()).finish();
            done.exited(0);
            assert!(!done.text().is_empty(), "{done}");
            assert_eq!(done.stderr, "", "{done}");
        }
    }
}

#[test]
fn nothing_is_parsed_after_the_two_dashes() {
    for area in everyone() {
        let words = ["echo", "--help", "-h", "--policy", "--", "-t"];
        let done = Run::with_text(&area, GOOD).command(words).finish();
        assert_eq!(
            done.exited(0).text(),
            "--help -h --policy -- -t\n",
            "{done}"
        );
    }
}

#[test]
fn policy_check_reports_and_its_json_is_one_document() {
    for area in everyone() {
        let good = area.file(&area.root().join("good.yaml"), GOOD);
        let bad = area.file(
            &area.root().join("bad.yaml"),
            GOOD.replace("port: 443", "port: 0"),
        );
        let check = |files: &[&std::path::Path], json: bool| {
            let mut run = Run::plain(&area, ["policy", "check"]);
            if json {
                run = run.option("-o").option("json");
            }
            files
                .iter()
                .fold(run, |run, file| run.option(*file))
                .finish()
        };
        check(&[&good], false).exited(0);
        let done = check(&[&good, &bad], false);
        done.exited(2);
        let said = done.text() + &done.stderr;
        assert!(said.contains("bad.yaml:7:"), "{done}");
        for (files, code) in [
            (&[good.as_path()][..], 0),
            (&[good.as_path(), bad.as_path()], 2),
            (&[std::path::Path::new("/no.yaml")], 2),
        ] {
            let done = check(files, true);
            let value: serde_json::Value =
                serde_json::from_slice(&done.stdout).unwrap_or_else(|e| panic!("{e}: {done}"));
            assert!(value.is_object() || value.is_array(), "{done}");
            if code == 0 {
                done.exited(0);
            } else {
                assert_ne!(done.code(), Some(0), "{done}");
                assert!(value.get("error").is_some(), "{done}");
            }
        }
    }
}

#[test]
fn policy_explain_answers_as_a_run_would() {
    for area in everyone() {
        let good = area.file(&area.root().join("good.yaml"), GOOD);
        let explain = |host: &str, port: &str| {
            Run::plain(&area, ["policy", "explain", "--policy"])
                .option(&good)
                .option("--host")
                .option(host)
                .option("--port")
                .option(port)
                .option("-o")
                .option("json")
                .finish()
        };
        let allowed = explain("origin.test", "443");
        allowed.exited(0);
        let value: serde_json::Value = serde_json::from_slice(&allowed.stdout).expect("JSON");
        assert_eq!(value["verdict"], "allowed", "{allowed}");
        assert_eq!(value["rule"], "origin", "{allowed}");
        let denied = explain("origin.test", "80");
        let value: serde_json::Value = serde_json::from_slice(&denied.stdout).expect("JSON");
        assert_eq!(value["verdict"], "denied", "{denied}");
        assert_eq!(value["reason"], "port_not_allowed", "{denied}");
        let elsewhere = GOOD
            .replace("host: origin.test", "host: \"*.origin.test\"")
            .replace("port: 443", "port: 443, allowed_ips: [10.0.0.0/8]")
            .replace("{origin.test:", "{a.origin.test:");
        area.file(&good, &elsewhere);
        let denied = explain("a.origin.test", "443");
        let value: serde_json::Value = serde_json::from_slice(&denied.stdout).expect("JSON");
        assert_eq!(value["verdict"], "denied", "{denied}");
        assert_eq!(value["reason"], "address_not_listed", "{denied}");
    }
}

#[test]
fn doctor_names_each_feature_and_its_json_is_one_document() {
    for area in everyone() {
        let done = Run::plain(&area, ["doctor"]).finish();
        for word in ["user", "landlock", "seccomp"] {
            assert!(done.text().to_lowercase().contains(word), "{word}: {done}");
        }
        done.exited(0);
        let done = Run::plain(&area, ["doctor", "-o", "json"]).finish();
        let value: serde_json::Value =
            serde_json::from_slice(&done.stdout).unwrap_or_else(|e| panic!("{e}: {done}"));
        assert!(value.is_object(), "{done}");
    }
}

#[test]
fn doctor_says_that_it_runs_in_a_sandbox_of_ours() {
    for area in everyone() {
        let program = holdfast_tests::artefacts::holdfast();
        let policy = Policy::offline().read_only(program);
        let words = [program.to_str().expect("text"), "doctor"];
        let done = Run::new(&area, &policy).command(words).finish();
        let text = done.exited(125).text();
        assert!(text.contains("a sandbox of Holdfast"), "{done}");
        assert!(!text.contains("sysctl"), "{done}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_fault() {
    let Some(bash) = skip::program("bash") else {
        return;
    };
    for area in everyone() {
        for words in [
            &["doctor"][..],
            &["--help"],
            &["completions", "bash"],
            &["version"],
            &["doctor", "-o", "json"],
        ] {
            let line = "\"$@\" | head -c 1 >/dev/null; echo ${PIPESTATUS[0]}";
            let done = Run::plain(&area, words.iter().copied())
                .under([bash.to_str().expect("text"), "-c", line, "bash"])
                .finish();
            assert!(["0\n", "141\n"].contains(&&*done.text()), "{done}");
            assert_eq!(done.stderr, "", "{done}");
        }
    }
}

#[test]
fn completions_and_version_are_what_they_should_be() {
    for area in everyone() {
        for shell in ["bash", "zsh", "fish"] {
            let done = Run::plain(&area, ["completions", shell]).finish();
            assert!(done.exited(0).text().contains("holdfast"), "{shell}");
        }
        let done = Run::plain(&area, ["version", "-o", "json"]).finish();
        let value: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
        assert!(value["version"].is_string(), "{done}");
    }
}

#[test]
fn no_escape_reaches_a_pipe() {
    for area in everyone() {
        let wrong = GOOD.replace("port: 443", "port: 0");
        for done in [
            run(&area, &wrong).finish(),
            Run::plain(&area, ["doctor"]).finish(),
            Run::plain(&area, ["nosuch"]).finish(),
        ] {
            assert!(
                !done.text().contains('\x1b') && !done.stderr.contains('\x1b'),
                "{done}"
            );
        }
    }
}

#[test]
fn a_result_that_nobody_can_be_told_is_no_success() {
    for area in everyone() {
        let file = area.file(&area.fresh("good.yaml"), GOOD);
        let runs = || {
            [
                Run::plain(&area, ["version"]),
                Run::plain(&area, ["--help"]),
                Run::plain(&area, ["completions", "bash"]),
                Run::plain(&area, ["doctor", "-o", "json"]),
                Run::plain(&area, ["policy", "check"]).option(&file),
            ]
        };
        let read_only = runs().map(|run| (run, "exec \"$@\" 1</dev/null"));
        let closed = runs().map(|run| (run, "exec \"$@\" >&-"));
        for (run, line) in read_only.into_iter().chain(closed) {
            let done = run.under(["sh", "-c", line, "sh"]).finish();
            let told = "holdfast: write to stdout: Bad file descriptor";
            assert!(done.exited(125).stderr.starts_with(told), "{done}");
        }
    }
}

#[test]
fn a_program_that_cannot_be_executed_is_told_with_what_helps() {
    for area in everyone() {
        let work = area.work();
        let program = |name: &str, text: &str| {
            let file = area.file(&work.join(name), text);
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("chmod");
            file
        };
        program("bare", "echo started\n");
        program("empty", "");
        program("lost", "#!/nosuch/sh\necho started\n");
        std::os::unix::fs::symlink("loop", work.join("loop")).expect("a link");
        let long = format!("./{}", "x".repeat(300));
        for (name, code, hint) in [
            ("./bare", 126, "a script begins with its interpreter"),
            ("./empty", 126, "a script begins with its interpreter"),
            ("./lost", 126, "what its first line (`#!`)"),
            ("./loop", 126, "lead in a circle"),
            (
                "./bare/x",
                126,
                "a part of it before the last `/` is a file",
            ),
            (long.as_str(), 126, "255 bytes at most"),
            ("./nosuch", 127, "it has to be in the sandbox's view"),
            ("", 127, "name it after `--`"),
        ] {
            let done = Run::plain(&area, ["run"]).command([name]).finish();
            nothing_started(done.exited(code));
            let told = done.stderr.split_once("\n  hint: ");
            let told = told.map(|(_, told)| told).unwrap_or_default();
            assert!(told.contains(hint), "{name}: {done}");
        }
    }
}

/// A listed path and a policy that are there, but not for this user.
#[test]
fn what_may_not_be_reached_is_told_from_what_is_not_there() {
    for area in everyone() {
        if area.caller().uid() == 0 {
            continue;
        }
        let shut = area.directory(&area.root().join("shut"));
        let listed = shut.join("listed");
        let file = area.file(&area.fresh("shut.yaml"), GOOD);
        let policy = Policy::offline().read_only(&listed);
        let strict = policy
            .clone()
            .with("landlock: {compatibility: hard_requirement}");
        for path in [&shut, &file] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o000)).expect("shut");
        }

        let refused = Run::new(&area, &strict).shell("echo started").finish();
        let left_out = Run::new(&area, &policy).shell("echo started").finish();
        let unread = Run::plain(&area, ["policy", "check", "-o", "json"])
            .option(&file)
            .finish();
        let elsewhere = Run::plain(&area, ["run", "--cwd"])
            .option(&listed)
            .command(["true"])
            .finish();

        let told = format!(
            "{}, which cannot be reached (permission denied)",
            listed.display()
        );
        nothing_started(refused.exited(125));
        assert!(refused.stderr.contains(&told), "{refused}");
        assert_eq!(left_out.exited(0).text(), "started\n", "{left_out}");
        assert!(left_out.stderr.contains(&told), "{left_out}");
        assert!(
            unread.exited(125).text().contains("\"PERMISSION_DENIED\""),
            "{unread}"
        );
        let told = format!("start in {}: Permission denied", listed.display());
        assert!(elsewhere.exited(125).stderr.contains(&told), "{elsewhere}");
    }
}

/// CL-10: what a terminal obeys stands in no line of ours, whoever's word it was; ordinary letters stand as they are.
#[test]
fn control_characters_of_others_are_written_out_in_results_for_people() {
    for area in everyone() {
        let name = "nö\x1b[31m\n\u{202e}such";
        let policy = "version: 1\nfilesystem_policy: {read_only: [\"/\\u202ex\"]}\n";
        let file = area.file(&area.root().join(name), policy);
        let explain = ["policy", "explain", "--host", "a.test", "--port", "1"];
        let runs = [
            Run::plain(&area, ["policy", "check"]).option(file.clone()),
            Run::plain(&area, explain)
                .option("--policy")
                .option(file)
                .option("--binary")
                .option(format!("/{name}")),
        ];
        for run in runs {
            let done = run.finish();
            let text = done.exited(0).text();
            let obeyed = |c: char| c == '\x1b' || c == '\u{202e}';
            assert!(!text.contains(obeyed), "{text:?}");
            assert!(text.contains("nö\\u{1b}[31m\\n\\u{202e}such"), "{text:?}");
        }
    }
}

#[test]
fn control_characters_of_others_are_written_out_in_every_message() {
    for area in everyone() {
        let hostile = "nö\x1b[31m\n\u{202e}such";
        let file = area.file(&area.fresh("x.yaml"), "version: 1\n\"k\\u202ey\": 1\n");
        let good = area.file(&area.fresh("good.yaml"), GOOD);
        let runs = [
            Run::plain(&area, ["run"]).command([hostile]),
            Run::plain(&area, ["run", "--cwd", hostile]).command(["true"]),
            Run::plain(&area, ["run", "--policy", hostile]).command(["true"]),
            Run::plain(&area, ["run", "--audit"])
                .option(format!("/nowhere/{hostile}"))
                .command(["true"]),
            Run::plain(&area, [&format!("--{hostile}")]),
            Run::plain(&area, ["policy", "check"]).option(file.clone()),
            Run::plain(
                &area,
                ["policy", "explain", "--host", "a.test", "--port", "1"],
            )
            .option("--policy")
            .option(good.clone())
            .option("--binary")
            .option(hostile),
            Run::plain(&area, ["run", "--policy"])
                .option(file)
                .command(["true"]),
        ];
        for run in runs {
            let done = run.finish();
            assert_ne!(done.code(), Some(0), "{done}");
            let obeyed = |c: char| c == '\x1b' || c == '\u{202e}';
            assert!(!done.stderr.contains(obeyed), "{:?}", done.stderr);
            assert!(done.stderr.contains("\\u{202e}"), "{:?}", done.stderr);
            // The parser of the command line leaves out what colours.
            if done.stderr.contains("such") && !done.stderr.starts_with("error:") {
                assert!(done.stderr.contains("nö\\u{1b}"), "{:?}", done.stderr);
            }
        }
    }
}
