//! As whom and within which bounds the program runs: what `process` means. (Promise 2.)

use holdfast_tests::caller::ordinary;
use holdfast_tests::skip::skip;
use holdfast_tests::{Area, Caller, Finished, Policy, Run, everyone};

fn as_whom(area: &Area, process: &str) -> Finished {
    let policy = Policy::offline().with(&format!("process: {{{process}}}"));
    Run::new(area, &policy)
        .option("--cwd")
        .option("/")
        .shell("id -u; id -g")
        .finish()
}

#[test]
fn an_ordinary_user_may_name_himself() {
    let area = Area::new(ordinary());
    let outside = Run::new(&area, &Policy::offline())
        .shell("id -u; id -g; id -G")
        .finish();
    let text = outside.text();
    let numbers: Vec<_> = text.lines().collect();
    let [uid, gid, _] = numbers[..] else {
        panic!("three lines: {outside}");
    };
    for process in [
        format!("run_as_user: {uid}"),
        format!("run_as_group: {gid}"),
        format!("run_as_user: {uid}, run_as_group: {gid}"),
    ] {
        let done = as_whom(&area, &process);
        assert_eq!(done.exited(0).text(), format!("{uid}\n{gid}\n"), "{done}");
    }
}

#[test]
fn a_user_that_root_names_does_not_keep_roots_group() {
    let Some(area) = everyone().find(|area| area.caller().is_root()) else {
        return skip("another user", "the tests run as an ordinary user");
    };
    let passwd = std::fs::read_to_string("/etc/passwd").expect("read");
    let lines = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    let other = lines
        .into_iter()
        .find(|line| line[2] != line[3] && line[3] != "0");
    if let Some(line) = other {
        for user in [line[0], line[2]] {
            let done = as_whom(&area, &format!("run_as_user: {user:?}"));
            let own = format!("{}\n{}\n", line[2], line[3]);
            assert_eq!(done.exited(0).text(), own, "{done}");
        }
    }

    let unknown = Caller::Stranger.uid();
    let done = as_whom(&area, &format!("run_as_user: {unknown}"));

    assert_eq!(done.exited(125).text(), "", "nothing was started: {done}");
    assert!(done.stderr.contains("write process.run_as_group"), "{done}");
}

#[test]
fn a_limit_above_the_hard_one_is_said_or_refused() {
    for area in everyone() {
        for (compatibility, code) in [("best_effort", 0), ("hard_requirement", 125)] {
            let policy = Policy::offline().with(&format!(
                "process: {{limits: {{nofile: 5000}}}}\nlandlock: {{compatibility: {compatibility}}}"
            ));
            let done = Run::new(&area, &policy)
                .under(["prlimit", "--nofile=300:4096"])
                .shell("ulimit -n")
                .finish();
            let held = if code == 0 { "4096\n" } else { "" };
            assert_eq!(done.exited(code).text(), held, "{done}");
            let told = "process.limits.nofile is 5000, and the hard limit here is 4096";
            assert!(done.stderr.contains(told), "{done}");
        }
    }
}

/// Many programs write their log there.
#[test]
fn the_standard_files_can_be_opened_by_name_whoever_the_program_runs_as() {
    for area in everyone() {
        let process = match area.caller() {
            caller if caller.is_root() => "process: {run_as_user: 1500, run_as_group: 1500}",
            _ => "",
        };
        let done = Run::new(&area, &Policy::offline().with(process))
            .option("--cwd")
            .option("/")
            .input("first\nsecond\n")
            .shell(
                "read one </dev/stdin; echo $one >/dev/stdout; read two </dev/fd/0; echo $two >/proc/self/fd/1; \
                 echo error >/dev/stderr",
            )
            .finish();
        assert_eq!(done.exited(0).text(), "first\nsecond\n", "{done}");
        assert_eq!(done.stderr, "error\n", "{done}");
    }
}
