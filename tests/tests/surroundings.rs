//! It works where the caller is, or says what is missing: never a run without its fence. (Promise 9.)

use holdfast_policy::MOST_PORTS;
use holdfast_tests::servers::{FOUR, tcp};
use holdfast_tests::{
    Area, Caller, Finished, Policy, Run, artefacts, caller, everyone, probe, skip,
};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::time::Duration;

/// SV-16, LL-18: what is missing is named at once, with what to do.
#[test]
fn where_user_namespaces_are_forbidden_nothing_starts() {
    for area in everyone().filter(|area| area.caller() == caller::ordinary()) {
        // A namespace of the caller's own in which no further one may be made: what a hardened host looks like.
        let line = "echo 0 >/proc/sys/user/max_user_namespaces && exec \"$@\"";
        let hardened = [
            "unshare",
            "--user",
            "--map-root-user",
            "sh",
            "-c",
            line,
            "sh",
        ];
        let done = Run::plain(&area, ["run"])
            .under(hardened)
            .shell("echo started")
            .finish();
        done.exited(125);
        assert_eq!(done.text(), "", "{done}");
        let said = done.stderr.to_lowercase();
        assert!(
            said.contains("namespace"),
            "it names what is missing: {done}"
        );
        assert!(
            said.contains("holdfast doctor"),
            "and where to look: {done}"
        );
        let done = Run::plain(&area, ["doctor"]).under(hardened).finish();
        assert_ne!(done.code(), Some(0), "{done}");
        assert!(done.text().contains("max_user_namespaces"), "{done}");
    }
}

/// LL-15, LL-18: a run in a run is refused with the reason, and never unconfined.
#[test]
fn inside_itself_it_says_why_not() {
    for area in everyone() {
        let program = artefacts::holdfast();
        let policy = Policy::offline().read_only(program);
        let done = Run::new(&area, &policy)
            .command([
                program.to_str().expect("text"),
                "run",
                "--",
                "/bin/echo",
                "started",
            ])
            .finish();
        done.exited(125);
        assert_eq!(done.text(), "", "{done}");
        assert!(done.stderr.contains("namespace"), "{done}");
    }
}

#[test]
fn below_another_pid_and_mount_namespace_it_works() {
    if !Caller::Myself.is_root() {
        skip::skip(
            "a container around the run",
            "the tests run as an ordinary user",
        );
        return;
    }
    for area in everyone() {
        let uid = area.caller().uid();
        let become_caller =
            format!("exec setpriv --reuid={uid} --regid={uid} --clear-groups \"$@\"");
        let container = [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
            "--ipc",
            "--uts",
        ];
        let words = container
            .into_iter()
            .chain(["sh", "-c", &become_caller, "sh"]);
        let done = Run::new(&area, &Policy::offline())
            .as_root_first()
            .under(words)
            .shell("echo inside; exit 4")
            .finish();
        assert_eq!(done.exited(4).text(), "inside\n", "{done}");
    }
}

#[test]
fn closed_standard_descriptors_are_not_mistaken_for_others() {
    for area in everyone() {
        let line = "exec \"$@\" <&-";
        let done = Run::new(&area, &Policy::offline())
            .under(["sh", "-c", line, "sh"])
            .shell("cat; echo out; echo err >&2; exit 3")
            .finish();
        done.exited(3);
        assert_eq!((&*done.text(), &*done.stderr), ("out\n", "err\n"), "{done}");
        for (line, program, code, told) in [
            ("exec \"$@\" >&-", "exit 3", 3, ""),
            ("exec \"$@\" 2>&-", "echo err >&2; exit 3", 3, ""),
            (
                "exec \"$@\" >&-",
                "echo out; exit 3",
                125,
                "holdfast: write to stdout: Bad file descriptor",
            ),
        ] {
            let done = Run::new(&area, &Policy::offline())
                .under(["sh", "-c", line, "sh"])
                .shell(program)
                .finish();
            done.exited(code);
            assert!(done.stderr.starts_with(told), "{done}");
            assert_eq!(done.text(), "", "{done}");
        }
    }
}

#[test]
fn few_descriptors_are_enough() {
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let Some(probe) = probe::probe() else { return };
        let line = format!(
            "{} talk origin.test {} hello",
            probe.display(),
            server.port()
        );
        let done = Run::new(&area, &Policy::origin(server.port()))
            .under(["prlimit", "--nofile=64:64"])
            .shell(&line)
            .finish();
        assert_eq!(done.answer("head"), "hello", "{done}");
    }
}

#[test]
fn long_and_strange_arguments_pass_as_they_are() {
    for area in everyone() {
        let long = "x".repeat(100 << 10);
        let mut words = vec![
            "sh",
            "-c",
            "for a; do echo ${#a}; done | sort | uniq -c",
            "sh",
        ];
        words.extend([&*long; 10]);
        let done = Run::new(&area, &Policy::offline()).command(words).finish();
        let text = done.text();
        let said: Vec<_> = text.split_whitespace().collect();
        assert_eq!(said, ["10", &long.len().to_string()], "{}", done.stderr);

        let strange = OsString::from_vec(b"\xff\xfe \t\n'\"$`\\".to_vec());
        let printf: [OsString; 3] = ["printf".into(), "%s".into(), strange.clone()];
        let done = Run::new(&area, &Policy::offline()).command(printf).finish();
        assert_eq!(done.stdout, strange.into_vec(), "{done}");

        let done = Run::new(&area, &Policy::offline())
            .option("--env")
            .option(OsString::from_vec(b"ODD=\xff\n=x".to_vec()))
            .shell("printf %s \"$ODD\"")
            .finish();
        assert_eq!(done.stdout, b"\xff\n=x", "{done}");
    }
}

/// EX-28: the caller's umask is the program's, and makes no difference to what the view is made of.
#[test]
fn a_callers_umask_is_the_programs_and_not_the_views() {
    for area in everyone() {
        let somebody = if area.caller().is_root() {
            "process: {run_as_user: \"1500\", run_as_group: \"1500\"}"
        } else {
            ""
        };
        for mask in ["0000", "0077", "0777"] {
            let line = format!("umask {mask}; exec \"$@\"");
            let done = Run::new(&area, &Policy::offline().with(somebody))
                .under(["sh", "-c", &line, "sh"])
                .option("--cwd")
                .option("/")
                .shell("umask; stat -c %a / /dev /dev/shm /tmp; cat /etc/resolv.conf >/dev/null && echo read")
                .finish();
            let modes = "755\n755\n1777\n1777\nread\n";
            assert_eq!(done.exited(0).text(), format!("{mask}\n{modes}"), "{done}");
        }
    }
}

#[test]
fn a_strange_working_directory_is_one() {
    for area in everyone() {
        let strange = area.work().join("a b\u{fc}\"'$x\n");
        area.directory(&strange);
        let done = Run::new(&area, &Policy::offline())
            .directory(&strange)
            .shell("pwd; echo x >here")
            .finish();
        assert_eq!(done.text(), format!("{}\n", strange.display()), "{done}");
        assert!(strange.join("here").exists(), "{done}");
    }
}

/// EX-23: whichever process or thread is the one too many, the end is soon, in one sentence, and names the limit.
#[test]
fn too_few_processes_or_threads_are_told_and_nothing_hangs() {
    if !Caller::Myself.is_root() {
        skip::skip(
            "few processes",
            "the tests run as an ordinary user, who has others",
        );
        return;
    }
    let area = Area::new(Caller::Myself);
    let bounded = |most: usize, run: Run<'_>| {
        // A user whom nobody else is: the kernel counts all of his.
        let line = format!(
            "ulimit -u {most}; exec setpriv --reuid=54387 --regid=54387 --clear-groups \"$@\""
        );
        run.under(["bash", "-c", &line, "bash"])
            .directory("/")
            .limit(Duration::from_secs(20))
            .finish()
    };
    for most in 1..=12 {
        let run = Run::plain(&area, ["run", "--timeout", "10s"]).command(["echo", "hi"]);
        let done = bounded(most, run);
        if done.code() == Some(0) {
            assert_eq!((most >= 6, &*done.text()), (true, "hi\n"), "{most}: {done}");
        } else {
            told(&done, "ulimit -u");
            assert!(most < 12, "so many are enough: {done}");
        }
    }
    for most in [1, 3] {
        let places = ["/tmp/holdfast-few-state", "/tmp/holdfast-few-runtime"];
        let run = Run::plain(&area, ["gateway", "--state-dir", places[0]])
            .option("--runtime-dir")
            .option(places[1]);
        told(&bounded(most, run), "ulimit -u");
        assert!(places.iter().all(|place| !Path::new(place).exists()));
    }
}

/// EX-23: memory is told from threads, although the kernel calls both the same.
#[test]
fn too_little_memory_is_told_and_nothing_hangs() {
    for area in everyone() {
        for (limit, most) in [
            ("-d", "5000"),
            ("-d", "8000"),
            ("-v", "60000"),
            ("-s", "128"),
        ] {
            let line = format!("ulimit {limit} {most}; exec \"$@\"");
            let done = Run::plain(&area, ["run", "--timeout", "10s"])
                .under(["bash", "-c", &line, "bash"])
                .limit(Duration::from_secs(20))
                .command(["echo", "hi"])
                .finish();
            told(&done, &format!("ulimit {limit}"));
            assert!(done.stderr.contains(most), "{done}");
        }
    }
}

/// EX-23: the limit of open files is named, and how many are enough, wherever it is met.
#[test]
fn too_few_descriptors_are_told_with_their_limit() {
    for area in everyone() {
        for most in 5..=24 {
            let limit = format!("--nofile={most}:{most}");
            let done = Run::plain(&area, ["run"])
                .under(["prlimit", &limit])
                .command(["echo", "hi"])
                .finish();
            told(&done, "ulimit -n");
            assert!(
                done.stderr.contains(&format!(" {most} open files")),
                "{done}"
            );
        }
        // The hard limit is ours to use.
        let done = Run::plain(&area, ["run"])
            .under(["prlimit", "--nofile=12:64"])
            .shell("ulimit -Sn")
            .finish();
        assert_eq!(done.exited(0).text(), "12\n", "{done}");
    }
}

/// EX-23: a listener for each port is the runtime's affair: the hard limit bounds it, the workload keeps its soft one.
#[test]
fn a_policy_with_more_ports_than_the_soft_limit_starts_and_ends_without_a_word() {
    let ports: Vec<_> = (2000..3100)
        .map(|port| format!("{{host: a.test, port: {port}}}"))
        .collect();
    let ports = ports.join(", ");
    let policy = format!("version: 1\nnetwork_policies: {{many: {{endpoints: [{ports}]}}}}\n");
    for area in everyone() {
        let bounded = |limit: &str| {
            Run::with_text(&area, &policy)
                .under(["prlimit", &format!("--nofile={limit}")])
                .shell("ulimit -Sn; ulimit -Hn")
                .finish()
        };
        for _ in 0..3 {
            let done = bounded("1024:20000");
            assert_eq!(done.exited(0).text(), "1024\n20000\n", "{done}");
            assert_eq!(done.stderr, "", "{done}");
        }
        let done = bounded("1024:1090");
        told(&done, "ulimit -n");
        for word in ["1100 ports", "descriptors: ", " of 1090 are free"] {
            assert!(done.stderr.contains(word), "{word}: {done}");
        }
    }
}

/// EX-23: the most that a policy may name is also what a sandbox can listen on.
#[test]
fn a_policy_with_as_many_ports_as_it_may_name_starts() {
    let named = |most: usize| {
        let ports: Vec<String> = (2000..2000 + most).map(|port| port.to_string()).collect();
        let ports = ports.join(", ");
        format!(
            "version: 1\nnetwork_policies: {{many: {{endpoints: [{{host: a.test, ports: [{ports}]}}]}}}}\n"
        )
    };
    for area in everyone() {
        let bounded = |policy: &str| {
            Run::with_text(&area, policy)
                .under(["prlimit", "--nofile=1024:20000"])
                .shell("echo started")
                .finish()
        };
        let done = bounded(&named(MOST_PORTS));
        assert_eq!(done.exited(0).text(), "started\n", "{done}");
        let done = bounded(&named(MOST_PORTS + 1));
        assert_eq!(done.exited(2).text(), "", "{done}");
        assert!(done.stderr.contains("name 8001 ports"), "{done}");
    }
}

fn told(done: &Finished, limit: &str) {
    done.exited(125);
    assert_eq!(done.text(), "", "{done}");
    assert!(done.stderr.contains(limit), "{done}");
    assert!(!done.stderr.contains("panicked"), "{done}");
    let lines = done.stderr.lines().count();
    assert_eq!(lines, 2, "a sentence and what helps: {done}");
}
