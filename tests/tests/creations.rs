//! `create --wait` that fails: what never ran and never will leaves nothing, and its name is free.

use holdfast_tests::{Area, Finished, Host, everyone};
use std::fs;

fn code(finished: &Finished, expected: i32) {
    assert_eq!(finished.code(), Some(expected), "{finished}");
}

/// What the gateway keeps of its sandboxes.
fn kept(area: &Area) -> Vec<String> {
    let names = |path: std::path::PathBuf| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    let state = names(area.state().join("sandboxes"));
    state
        .chain(names(area.runtime().join("sandboxes")))
        .collect()
}

/// EX-10: it is told why, and what was made for it is gone.
#[test]
fn a_creation_that_can_never_be_ready_leaves_nothing_and_its_name_is_free() {
    for area in everyone() {
        let host = Host::new(&area);
        host.done("list");
        let before = kept(&area);
        let broken = "version: 1\nfilesystem_policy: {read_only: [/usr, /nosuch]}\n\
                      landlock: {compatibility: hard_requirement}\n";
        area.file(&area.work().join("broken.yaml"), broken);
        fs::write(area.work().join("data"), "no program").expect("written");
        area.give(&area.work().join("data"));
        let data = area.work().join("data").display().to_string();

        for (options, program, expected, words) in [
            (
                "",
                Some("/nosuch/prog"),
                127,
                ["/nosuch/prog", "filesystem_policy"],
            ),
            (
                "",
                Some(data.as_str()),
                126,
                [data.as_str(), "hint: it must be executable"],
            ),
            (
                "--restart never",
                Some("no-such-program"),
                127,
                [
                    "no-such-program",
                    "hint: it has to be in the sandbox's view",
                ],
            ),
            ("--policy broken.yaml", None, 125, ["/nosuch", "hint"]),
        ] {
            let create = host.say(&format!("create qa --wait {options}"));
            let create = match program {
                Some(program) => create.command([program]),
                None => create,
            };
            let finished = create.finish();

            code(&finished, expected);
            assert_eq!(finished.text(), "", "{finished}");
            for word in words {
                assert!(finished.stderr.contains(word), "{word}: {finished}");
            }
            assert!(finished.stderr.contains("its name is free"), "{finished}");
            code(&host.said("status qa"), 125);
            assert_eq!(kept(&area), before, "{finished}");
        }
        host.ready("qa", "");
    }
}

/// A program that ran, one that is tried again, and a creation that nobody waits for are there afterwards.
#[test]
fn what_ran_or_is_tried_again_or_was_acknowledged_stays() {
    for area in everyone() {
        let host = Host::new(&area);

        let ran = host.say("create ran --wait");
        let ran = ran.command(["sh", "-c", "echo said; exit 3"]).finish();
        // It may have been ready for a moment.
        assert!(matches!(ran.code(), Some(0 | 125)), "{ran}");
        host.done("wait ran --for stopped --timeout 30s");
        assert!(
            host.done("logs ran --source workload")
                .text()
                .contains("said")
        );

        let again = host.say("create again --wait --restart always");
        code(&again.command(["/nosuch/prog"]).finish(), 127);
        host.done("status again");

        let told = host.say("create told").command(["/nosuch/prog"]).finish();
        code(&told, 0);
        host.done("wait told --for stopped --timeout 30s");

        let taken = host.say("create told --wait").command(["true"]).finish();
        code(&taken, 125);
        host.done("status told");
    }
}
