//! A session ends as its program does: exit status, signals, bytes. (Promise 6.)

use holdfast_tests::{Policy, Run, Running, everyone, skip};
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::symlink;
use std::time::Duration;

#[test]
fn the_exit_code_is_the_programs_own() {
    for area in everyone() {
        for code in [0, 1, 7, 125, 126, 127, 137, 255] {
            let line = format!("exit {code}");
            Run::new(&area, &Policy::offline())
                .shell(&line)
                .finish()
                .exited(code);
        }
    }
}

/// Whoever ignores SIGCHLD, as some service managers do, passes that on to what he starts, and takes its children's statuses away.
#[test]
fn a_caller_that_ignores_its_children_changes_nothing() {
    for area in everyone() {
        Run::new(&area, &Policy::offline())
            .under(["env", "--ignore-signal=CHLD"])
            .shell("true; exit 5")
            .finish()
            .exited(5);
    }
}

#[test]
fn a_death_by_signal_is_128_and_the_signal() {
    for area in everyone() {
        for (signal, code) in [
            ("KILL", 137),
            ("TERM", 143),
            ("ABRT", 134),
            ("SEGV", 139),
            ("35", 163),
        ] {
            let line = format!("ulimit -c 0; kill -{signal} $$; sleep 30");
            let done = Run::new(&area, &Policy::offline()).shell(&line).finish();
            done.exited(code);
            assert!(done.took < Duration::from_secs(10), "{done}");
        }
    }
}

#[test]
fn a_missing_program_is_127_and_one_that_cannot_run_is_126() {
    for area in everyone() {
        let plain = area.file(&area.work().join("plain"), "text");
        for (program, code) in [
            ("no-such-program", 127),
            ("/usr/bin/no-such-program", 127),
            ("/etc", 126),
            ("/etc/passwd", 126),
            (plain.to_str().expect("text"), 126),
        ] {
            let done = Run::new(&area, &Policy::offline())
                .command([program])
                .finish();
            done.exited(code);
            assert!(
                done.stderr.contains(program),
                "it names the program: {done}"
            );
            assert!(!done.stderr.contains("os error"), "once: {done}");
            assert_eq!(done.text(), "", "{done}");
        }
    }
}

#[test]
fn a_program_is_found_by_path() {
    for area in everyone() {
        let done = Run::new(&area, &Policy::offline())
            .command(["sh", "-c", "echo $0"])
            .finish();
        done.exited(0);
        let script = area.script(&area.work().join("mine"), "#!/bin/sh\necho \"mine $1\"\n");
        let words = [script.to_str().expect("text"), "-x --policy"];
        let done = Run::new(&area, &Policy::offline()).command(words).finish();
        assert_eq!(
            done.text(),
            "mine -x --policy\n",
            "arguments pass as they are: {done}"
        );
        let done = Run::new(&area, &Policy::offline())
            .command(["./mine", "y"])
            .finish();
        assert_eq!(done.text(), "mine y\n", "{done}");
    }
}

#[test]
fn output_and_errors_are_kept_apart_and_exact() {
    for area in everyone() {
        let line = r"printf 'a\nb\n\0\377\r\n'; echo err >&2";
        let done = Run::new(&area, &Policy::offline()).shell(line).finish();
        assert_eq!(done.stdout, b"a\nb\n\0\xff\r\n", "{done}");
        assert_eq!(done.stderr, "err\n", "{done}");
        let done = Run::new(&area, &Policy::offline())
            .command(["true"])
            .finish();
        assert_eq!((done.stdout.len(), &*done.stderr), (0, ""), "{done}");
    }
}

#[test]
fn the_end_of_the_input_reaches_the_program() {
    for area in everyone() {
        let policy = Policy::offline();
        let done = Run::new(&area, &policy)
            .command(["cat"])
            .input("hi")
            .finish();
        assert_eq!(done.exited(0).stdout, b"hi", "{done}");
        Run::new(&area, &policy).command(["cat"]).finish().exited(0);
        Run::new(&area, &policy)
            .shell("cat; exit 9")
            .input("")
            .finish()
            .exited(9);
    }
}

#[test]
fn only_the_input_ends_with_the_input() {
    for area in everyone() {
        let mut run: Running = Run::new(&area, &Policy::offline())
            .shell("cat; echo after; read x || echo ended; exit 3")
            .held_input()
            .start();
        run.send(b"first\n");
        run.expect("first");
        run.end_input();
        let done = run.finish();
        assert_eq!(done.text(), "first\nafter\nended\n", "{done}");
        done.exited(3);
    }
}

#[test]
fn an_open_and_silent_input_keeps_nobody() {
    for area in everyone() {
        let run = Run::new(&area, &Policy::offline())
            .command(["echo", "hi"])
            .held_input()
            .start();
        let done = run.finish();
        assert_eq!(done.exited(0).text(), "hi\n", "{done}");
        assert!(done.took < Duration::from_secs(10), "{done}");
    }
}

#[test]
fn a_program_may_ignore_its_input() {
    for area in everyone() {
        let much = vec![0; 10 << 20];
        let policy = Policy::offline();
        let done = Run::new(&area, &policy)
            .command(["true"])
            .input(much.clone())
            .finish();
        assert_eq!(done.exited(0).stderr, "", "{done}");
        let done = Run::new(&area, &policy)
            .shell("exec 0<&-; exit 5")
            .input(much)
            .finish();
        assert_eq!(done.exited(5).stderr, "", "{done}");
    }
}

#[test]
fn an_input_that_cannot_be_read_is_no_success() {
    for area in everyone() {
        let run = |line: &str, input: File| {
            let run = Run::new(&area, &Policy::offline()).shell(line);
            run.input_from(input).finish()
        };
        let directory = || File::open(area.work()).expect("open");
        let unreadable = area.file(&area.fresh("log"), "");
        // As `nohup` has it.
        let for_writing = File::options().write(true).open(unreadable).expect("open");

        let well = run("cat; echo after", directory());
        let ill = run("cat; exit 3", directory());
        let none = run("cat; echo after", for_writing);

        let told = "holdfast: read stdin: Is a directory";
        for (done, code) in [(&well, 125), (&ill, 3)] {
            assert!(done.exited(code).stderr.contains(told), "{done}");
        }
        assert_eq!(well.text(), "after\n", "{well}");
        assert_eq!(none.exited(0).text(), "after\n", "{none}");
        assert_eq!(none.stderr, "", "{none}");
    }
}

#[test]
fn a_file_may_be_the_input() {
    for area in everyone() {
        let path = area.file(&area.root().join("input"), "skipped, then read");
        let mut file = File::open(path).expect("open");
        file.seek(SeekFrom::Start(9)).expect("seek");
        let done = Run::new(&area, &Policy::offline())
            .command(["cat"])
            .input_from(file)
            .finish();
        assert_eq!(done.text(), "then read", "{done}");
    }
}

#[test]
fn sixty_four_mebibytes_pass_both_ways_unchanged() {
    // A sequence without a short period, so that a lost, doubled or swapped block shows.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let bytes: Vec<u8> = (0..8 << 20)
        .flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        })
        .collect();
    assert_eq!(bytes.len(), 64 << 20);
    for area in everyone() {
        let run = Run::new(&area, &Policy::offline())
            .command(["cat"])
            .input(bytes.clone());
        let done = run.finish();
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        assert_eq!(done.stdout.len(), bytes.len());
        assert!(done.stdout == bytes, "the bytes changed on the way");
    }
}

#[test]
fn output_of_every_size_is_whole_even_for_a_slow_reader() {
    for area in everyone() {
        for size in [
            1,
            4095,
            65535,
            65536,
            65537,
            (1 << 20) - 1,
            1 << 20,
            (1 << 22) + 1,
        ] {
            let slow = ["/bin/sh", "-c", "\"$@\" | (sleep 0.3; wc -c)", "sh"];
            let done = Run::new(&area, &Policy::offline())
                .under(slow)
                .command(["head", "-c", &size.to_string(), "/dev/zero"])
                .finish();
            assert_eq!(done.text().trim(), size.to_string(), "{done}");
        }
    }
}

#[test]
fn both_streams_are_whole_for_a_reader_that_takes_its_time() {
    for area in everyone() {
        for _ in 0..5 {
            let slow = ["/bin/sh", "-c", "\"$@\" 2>&1 | (sleep 0.2; wc -c)", "sh"];
            let line = "head -c 3000001 /dev/zero & head -c 3000002 /dev/zero >&2; wait";
            let done = Run::new(&area, &Policy::offline())
                .under(slow)
                .shell(line)
                .finish();
            assert_eq!(done.text().trim(), "6000003", "{done}");
        }
    }
}

/// EX-04: what a program wrote before its end arrives, however soon that came.
#[test]
fn short_output_is_never_lost() {
    for area in everyone() {
        for number in 0..50 {
            let line = format!("line {number}");
            let done = Run::new(&area, &Policy::offline())
                .command(["echo", &line])
                .finish();
            assert_eq!(done.text(), format!("{line}\n"), "{done}");
        }
    }
}

/// EX-26, EX-28: a producer ends of SIGPIPE, as outside.
#[test]
fn a_reader_that_leaves_ends_the_writer() {
    let Some(bash) = skip::program("bash") else {
        return;
    };
    for area in everyone() {
        let line = "\"$@\" | head -n 1; echo ${PIPESTATUS[0]}";
        let wrapper = [bash.to_str().expect("text"), "-c", line, "bash"];
        let done = Run::new(&area, &Policy::offline())
            .under(wrapper)
            .command(["yes"])
            .finish();
        let text = done.text();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("y"), "{done}");
        assert_eq!(lines.next(), Some("141"), "as a pipe does outside: {done}");
        assert_eq!(done.stderr, "", "{done}");
    }
}

#[test]
fn the_session_ends_with_its_direct_child_whatever_holds_the_pipe() {
    for area in everyone() {
        let line = "sleep 300 & echo started; exit 7";
        let done = Run::new(&area, &Policy::offline()).shell(line).finish();
        assert_eq!(done.exited(7).text(), "started\n", "{done}");
        assert!(done.took < Duration::from_secs(5), "{done}");
    }
}

#[test]
fn what_was_written_before_the_end_is_delivered_before_the_end() {
    for area in everyone() {
        let line = "(head -c 300000 /dev/zero; echo END) & wait; exit 4";
        let done = Run::new(&area, &Policy::offline()).shell(line).finish();
        assert_eq!(done.exited(4).stdout.len(), 300_004, "{}", done.stderr);
    }
}

#[test]
fn a_signal_to_holdfast_reaches_the_program() {
    for area in everyone() {
        for (signal, name) in [
            (Signal::SIGTERM, "TERM"),
            (Signal::SIGINT, "INT"),
            (Signal::SIGHUP, "HUP"),
        ] {
            let line = format!(
                "trap 'echo got {name}; exit 3' {name}; echo ready; while :; do sleep 0.05; done"
            );
            let run = Run::new(&area, &Policy::offline()).shell(&line).start();
            run.expect("ready");
            run.signal(signal);
            let done = run.finish();
            assert!(done.text().contains(&format!("got {name}")), "{done}");
            done.exited(3);
        }
    }
}

#[test]
fn a_program_that_does_not_care_dies_of_the_signal() {
    for area in everyone() {
        for (signal, code) in [
            (Signal::SIGTERM, 143),
            (Signal::SIGINT, 130),
            (Signal::SIGHUP, 129),
        ] {
            let run = Run::new(&area, &Policy::offline())
                .shell("echo ready; exec sleep 300")
                .start();
            run.expect("ready");
            run.signal(signal);
            let done = run.finish();
            done.exited(code);
            assert!(done.took < Duration::from_secs(20), "{done}");
        }
    }
}

#[test]
fn a_timeout_ends_the_whole_tree_with_124() {
    for area in everyone() {
        let line =
            "trap '' TERM INT HUP; (trap '' TERM; sleep 300) & echo ready; sleep 300; sleep 300";
        let done = Run::new(&area, &Policy::offline())
            .option("--timeout")
            .option("700ms")
            .shell(line)
            .finish();
        done.exited(124);
        assert!(done.took >= Duration::from_millis(700), "{done}");
        assert!(done.took < Duration::from_secs(15), "{done}");
        let done = Run::new(&area, &Policy::offline())
            .option("--timeout")
            .option("1m")
            .shell("exit 6")
            .finish();
        done.exited(6);
    }
}

#[test]
fn the_working_directory_is_the_callers_or_the_one_that_was_given() {
    for area in everyone() {
        let done = Run::new(&area, &Policy::offline())
            .command(["pwd"])
            .finish();
        assert_eq!(
            done.text().trim(),
            area.work().to_str().expect("text"),
            "{done}"
        );
        let usr = Run::new(&area, &Policy::offline())
            .option("--cwd")
            .option("/usr");
        assert_eq!(usr.command(["pwd"]).finish().text(), "/usr\n");
        // A link that no view shows leads nowhere inside, wherever it leads outside.
        let link = area.root().join("link");
        symlink(area.work(), &link).expect("a link");
        let run = Run::new(&area, &Policy::offline())
            .option("--cwd")
            .option(&link);
        let done = run.command(["pwd"]).finish();
        done.exited(125);
        for path in [link, area.work()] {
            assert!(done.stderr.contains(path.to_str().expect("text")), "{done}");
        }
        for outside in ["/root", "/no/such/directory"] {
            let run = Run::new(&area, &Policy::offline().without_workdir())
                .option("--cwd")
                .option(outside);
            let done = run.command(["pwd"]).finish();
            done.exited(125);
            assert_eq!(done.text(), "", "{done}");
            assert!(
                done.stderr.contains(outside),
                "it names the directory: {done}"
            );
        }
    }
}

#[test]
fn the_environment_is_short_and_what_was_given() {
    for area in everyone() {
        let done = Run::new(&area, &Policy::offline())
            .environment("GIVEN", "from the caller")
            .environment("HIDDEN", "not to be seen")
            .option("--env")
            .option("OWN=value with = and blanks")
            .option("--env")
            .option("GIVEN")
            .command(["env"])
            .finish();
        let text = done.text();
        assert!(text.contains("OWN=value with = and blanks\n"), "{done}");
        assert!(text.contains("GIVEN=from the caller\n"), "{done}");
        let known = ["PATH", "HOME", "USER", "TERM", "LANG", "OWN", "GIVEN"];
        for line in text.lines() {
            let name = line.split('=').next().unwrap_or_default();
            assert!(known.contains(&name), "{line}: {done}");
        }
        assert!(text.contains("PATH=/"), "{done}");
    }
}

#[test]
fn limits_are_the_callers_or_the_policys_and_never_the_runtimes() {
    for area in everyone() {
        let line = "ulimit -Sn; ulimit -Hn";
        let done = Run::new(&area, &Policy::offline())
            .under(["prlimit", "--nofile=300:4096"])
            .shell(line)
            .finish();
        assert!(
            done.text().starts_with("300\n"),
            "the soft limit of the caller: {done}"
        );
        // The kernel does not count root's processes: a limit on them needs somebody else.
        let somebody = if area.caller().is_root() {
            "run_as_user: \"1500\", run_as_group: \"1500\", "
        } else {
            ""
        };
        let limits = "limits: {nofile: 77, nproc: 55, memory: 1g}";
        let policy = Policy::offline().with(&format!("process: {{{somebody}{limits}}}"));
        let done = Run::new(&area, &policy)
            .option("--cwd")
            .option("/")
            .shell("ulimit -Sn; ulimit -Hn; ulimit -p 2>/dev/null || ulimit -u; ulimit -d")
            .finish();
        assert_eq!(done.text(), "77\n77\n55\n1048576\n", "{done}");
    }
}

#[test]
fn root_may_run_the_workload_as_somebody_else() {
    for area in everyone() {
        let policy =
            Policy::offline().with("process: {run_as_user: \"1500\", run_as_group: \"1501\"}");
        let done = Run::new(&area, &policy)
            .option("--cwd")
            .option("/")
            .shell("id -u; id -g")
            .finish();
        if area.caller().is_root() {
            assert_eq!(done.exited(0).text(), "1500\n1501\n", "{done}");
        } else {
            done.exited(125);
            assert!(
                done.stderr.contains("run_as_user"),
                "it names the field: {done}"
            );
        }
    }
}

#[test]
fn sixteen_sandboxes_at_once_do_not_mix() {
    for area in everyone() {
        let runs: Vec<_> = (0..16)
            .map(|number| {
                let line = format!("sleep 0.2; echo out{number}; exit {number}");
                Run::new(&area, &Policy::offline()).shell(&line).start()
            })
            .collect();
        for (number, run) in (0..).zip(runs) {
            let done = run.finish();
            assert_eq!(
                done.exited(number).text(),
                format!("out{number}\n"),
                "{done}"
            );
        }
    }
}

#[test]
fn a_full_disk_behind_the_output_is_said() {
    for area in everyone() {
        let line = "\"$@\" >/dev/full";
        let done = Run::new(&area, &Policy::offline())
            .under(["/bin/sh", "-c", line, "sh"])
            .command(["echo", "lost"])
            .finish();
        assert_ne!(done.code(), Some(0), "the output was lost: {done}");
    }
}

/// A limit of the size of files (`ulimit -f`) is a full disk to us, and to the program what it is outside.
#[test]
fn a_limit_of_file_sizes_is_said_and_kills_the_program_only() {
    for area in everyone() {
        let line = "ulimit -f 1; \"$@\" >lost";
        let done = Run::new(&area, &Policy::offline())
            .under(["/bin/bash", "-c", line, "bash"])
            .shell("head -c 5000 /dev/zero; exit 3")
            .finish();
        done.exited(125);
        assert!(
            done.stderr.contains("write to stdout: File too large"),
            "{done}"
        );

        let line = "ulimit -f 8; exec \"$@\"";
        let done = Run::new(&area, &Policy::offline())
            .under(["/bin/bash", "-c", line, "bash"])
            .shell("(head -c 20000 /dev/zero >/tmp/large); exit $?")
            .finish();
        done.exited(128 + libc::SIGXFSZ);
    }
}
