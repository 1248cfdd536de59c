//! Who asks matters: the binary, its ancestors, and programs that cannot be looked at. (Promises 1 and 3.)

use holdfast_tests::probe::probe;
use holdfast_tests::servers::refusing::Refusing;
use holdfast_tests::servers::{FOUR, Server, tcp};
use holdfast_tests::skip::captures_every_port;
use holdfast_tests::{Policy, Run, everyone, skip};
use std::path::Path;

#[test]
fn a_rule_for_one_binary_serves_it_and_its_children_and_nobody_else() {
    let Some(probe) = probe() else { return };
    let shell = std::fs::canonicalize("/bin/sh").expect("a shell");
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let talk = format!("talk origin.test {} hello", server.port());
        let policy_for = |binary: &Path| {
            Policy::offline().host("origin.test", &[FOUR]).rule_for(
                "origin",
                ("origin.test", server.port()),
                &[binary],
            )
        };
        let line = format!("{} {talk}; exit 0", probe.display());

        let own = Run::new(&area, &policy_for(probe)).attempt(&talk).finish();
        assert_eq!(own.answer("head"), "hello", "{own}");
        let child = Run::new(&area, &policy_for(&shell)).shell(&line).finish();
        assert_eq!(child.answer("head"), "hello", "{child}");
        let before = server.accepted();
        let other = Run::new(&area, &policy_for(Path::new("/usr/bin/curl")))
            .shell(&line)
            .finish();
        assert_eq!(other.answer("connect"), "EACCES", "{other}");
        assert_eq!(server.accepted(), before, "{other}");
        let records = other.about("origin.test", server.port());
        assert_eq!(records.len(), 1, "{other}");
        assert_eq!(
            records[0].text("binary"),
            probe.to_str().expect("text"),
            "{other}"
        );
        let ancestors = records[0].0.get("ancestors").map(ToString::to_string);
        assert!(
            ancestors
                .unwrap_or_default()
                .contains(shell.to_str().expect("text")),
            "{other}"
        );
    }
}

/// A socket that was opened by who may is disconnected by its heir: the heir's connect is its own.
#[test]
fn a_socket_that_is_left_to_another_program_serves_what_that_one_may() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let (deaf, server) = (tcp::deaf(FOUR), tcp::greeting(FOUR, "secret"));
        let directory = area.root().join("heirs");
        std::fs::create_dir_all(&directory).expect("create a directory");
        holdfast_tests::artefacts::open_to_all(&directory);
        let heir = directory.join("heir");
        std::fs::copy(probe, &heir).expect("copy the probe");
        let policy = Policy::offline()
            .host("origin.test", &[FOUR])
            .read_only(&directory)
            .rule_for("first", ("origin.test", deaf.port()), &[probe])
            .rule_for("second", ("origin.test", server.port()), &[probe]);

        let (first, second, program) = (deaf.port(), server.port(), heir.display());
        let done = Run::new(&area, &policy)
            .attempt(&format!("bequeath origin.test {first} {second} {program}"))
            .finish();

        assert_eq!(done.answer("connect"), "ok", "{done}");
        assert_eq!(done.answer("inherited"), "EACCES", "{done}");
        assert_eq!(server.accepted(), 0, "{done}");
        let records = done.about("origin.test", second);
        assert_eq!(records.len(), 1, "{done}");
        assert_eq!(records[0].text("reason"), "binary_not_allowed", "{done}");
        let binary = records[0].text("binary");
        assert_eq!(binary, heir.to_str().expect("text"), "{done}");
    }
}

#[test]
fn a_socket_that_was_connected_before_is_refused_like_a_fresh_one() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let (allowed, denied) = (tcp::echo(FOUR), tcp::echo(FOUR));
        let (good, bad) = (allowed.port(), denied.port());

        let done = Run::new(&area, &Policy::origin(good))
            .attempt(&format!("reconnect origin.test {good} {bad} 200"))
            .finish();

        assert_eq!(done.answer("denied"), "200", "{done}");
        assert_eq!(done.about("origin.test", bad).len(), 200, "{done}");
        assert_eq!(denied.accepted(), 0, "{done}");
    }
}

/// SB-15: who cannot be looked at needs not be.
#[test]
fn an_unreadable_program_is_served_where_no_binary_is_asked_for() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let talk = format!("talk origin.test {} hello", server.port());
        let closed = unreadable(&area, probe);
        let programs = [format!("{} nondumpable", probe.display())];
        for program in programs.into_iter().chain(closed.iter().cloned()) {
            for child in ["", "child "] {
                let policy = Policy::origin(server.port()).read_only(area.root().join("closed"));
                let line = format!("{program} {child}{talk}");
                let done = Run::new(&area, &policy).shell(&line).finish();
                assert_eq!(done.answer("head"), "hello", "{done}");
            }
        }
    }
}

/// It hides its memory from its like, and its file from nobody.
#[test]
fn a_program_that_made_itself_undumpable_is_known_by_its_binary() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let port = server.port();
        let policy = Policy::offline().host("origin.test", &[FOUR]).rule_for(
            "origin",
            ("origin.test", port),
            &[probe],
        );
        for child in ["", "child "] {
            let done = Run::new(&area, &policy)
                .attempt(&format!("nondumpable {child}talk origin.test {port} hello"))
                .finish();
            assert_eq!(done.answer("head"), "hello", "{done}");
            let binary = done.about("origin.test", port)[0].text("binary");
            assert_eq!(binary, probe.to_str().expect("text"), "{done}");
        }
    }
}

/// Whoever has outlived the parent that was allowed is nobody's child any more.
#[test]
fn a_program_whose_allowed_parent_has_ended_is_judged_without_it() {
    if skip::program("python3").is_none() {
        return;
    }
    let shell = std::fs::canonicalize("/bin/sh").expect("a shell");
    for area in everyone() {
        let server = tcp::greeting(FOUR, "hello");
        let port = server.port();
        let policy = Policy::offline().host("origin.test", &[FOUR]).rule_for(
            "shell",
            ("origin.test", port),
            &[&shell],
        );
        let child = "import os, socket, sys\n\
                     while sys.argv[2] == 'orphan' and os.getppid() != 1: pass\n\
                     try: print(socket.create_connection(('origin.test', int(sys.argv[1]))).recv(5).decode())\n\
                     except OSError as fault: print(fault.errno)\n";
        // Its output ends with the last who has it, and so with the child.
        let line = "import subprocess, sys\n\
                    print(subprocess.run(['/bin/sh', '-c', *sys.argv[1:]], capture_output=True, text=True).stdout)\n";
        for (parent, kind, heard) in [
            ("python3 -c \"$@\" & wait", "child", "hello".to_owned()),
            ("python3 -c \"$@\" &", "orphan", libc::EACCES.to_string()),
        ] {
            let words = ["python3", "-c", line, parent, "sh", child];
            let done = Run::new(&area, &policy)
                .command(words.into_iter().chain([port.to_string().as_str(), kind]))
                .finish();
            assert_eq!(done.exited(0).text().trim(), heard, "{kind}: {done}");
            let records = done.about("origin.test", port);
            assert_eq!(records.len(), 1, "{kind}: {done}");
            let ancestors = records[0].0.get("ancestors").map(ToString::to_string);
            let known = ancestors.is_some_and(|all| all.contains(shell.to_str().expect("text")));
            assert_eq!(known, kind == "child", "{done}");
        }
    }
}

/// SB-15: nobody knows which port it will ask for, and it need not be known.
#[test]
fn an_unreadable_program_is_served_at_every_port_of_a_wildcard() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        if !captures_every_port(&area) {
            return;
        }
        let Some(program) = unreadable(&area, probe) else {
            return;
        };
        let servers = [tcp::echo(FOUR), tcp::echo(FOUR), tcp::echo("127.0.0.9")];
        let [server, silent, hosts] = servers.each_ref().map(Server::port);
        let closed = Refusing::at(FOUR);
        let policy = Policy::any_port()
            .host("other.test", &[FOUR])
            .read_only(area.root().join("closed"))
            .rule("named", "other.test", silent + 1)
            .rule_in_full("hosts", "{port: \"*\", allowed_ips: [127.0.0.9]}", &[]);
        for (child, place, answer) in [
            ("", format!("origin.test {server}"), "hello"),
            ("child ", format!("origin.test {server}"), "hello"),
            ("", format!("127.0.0.9 {hosts}"), "hello"),
            ("", format!("other.test {silent}"), ""),
            ("", format!("origin.test {}", closed.port()), ""),
        ] {
            let line = format!("{program} {child}talk {place} hello");
            let done = Run::new(&area, &policy).shell(&line).finish();
            assert_eq!(done.answer("head"), answer, "{line}: {done}");
            assert_eq!(done.records.len(), 1, "{line}: {done}");
        }
        let line = format!("{program} talk 127.0.0.1 {server} hello");
        let own = Run::new(&area, &policy).shell(&line).finish();
        assert_eq!(own.answer("connect"), "ECONNREFUSED", "{own}");
        assert_eq!(servers.map(|it| it.accepted()), [2, 0, 1]);
    }
}

/// SB-15: who cannot be looked at is nobody.
#[test]
fn an_unreadable_program_is_refused_where_a_binary_is_asked_for() {
    let Some(probe) = probe() else { return };
    for area in everyone().filter(|area| !area.caller().is_root()) {
        let server = tcp::echo(FOUR);
        let Some(program) = unreadable(&area, probe) else {
            return;
        };
        let copy = area.root().join("closed/probe");
        for child in ["", "child "] {
            let policy = Policy::offline()
                .host("origin.test", &[FOUR])
                .read_only(area.root().join("closed"))
                .rule_for("origin", ("origin.test", server.port()), &[&copy]);
            let talk = format!("{child}talk origin.test {} hello", server.port());
            let done = Run::new(&area, &policy)
                .shell(&format!("{program} {talk}"))
                .finish();
            assert_ne!(done.answer("head"), "hello", "{done}");
            assert_eq!(server.accepted(), 0, "{done}");
            let denied: Vec<_> = done.records.iter().filter(|it| !it.allowed()).collect();
            assert_eq!(denied.len(), 1, "{done}");
            assert_eq!(denied[0].text("reason"), "identity_unobservable", "{done}");
        }
    }
}

/// What `policy explain` says of a script and of an unreadable program is what a run then does.
#[test]
fn a_script_is_explained_as_its_interpreter_and_an_unreadable_program_as_nobody() {
    let Some(probe) = probe() else { return };
    let shell = std::fs::canonicalize("/bin/sh").expect("a shell");
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let talk = format!("talk origin.test {} hello", server.port());
        let work = area.work();
        let script = |name: &str, first: &str| {
            let file = work.join(name);
            let text = format!("#!{first}\n{} {talk}\nexit 0\n", probe.display());
            std::fs::write(&file, text).expect("write a script");
            holdfast_tests::artefacts::open_to_all(&file);
            file
        };
        let plain = script("plain", "/bin/sh");
        let by_env = script("by-env", "/usr/bin/env sh");
        let mut asked = vec![
            (plain.clone(), shell.clone(), None),
            (plain.clone(), plain, Some("binary_not_allowed")),
            (by_env.clone(), shell.clone(), None),
            (by_env, "/usr/bin/env".into(), Some("binary_not_allowed")),
        ];
        if !area.caller().is_root()
            && let Some(program) = unreadable(&area, probe)
        {
            asked.push((
                program.clone().into(),
                program.into(),
                Some("identity_unobservable"),
            ));
        }
        for (program, binary, reason) in asked {
            let policy = Policy::offline()
                .host("origin.test", &[FOUR])
                .read_only(area.root().join("closed"))
                .rule_for("origin", ("origin.test", server.port()), &[&binary]);
            let file = area.file(&area.fresh("explained.yaml"), policy.text());
            let explained = Run::plain(&area, ["policy", "explain", "-o", "json", "--policy"])
                .option(file)
                .option("--host=origin.test")
                .option(format!("--port={}", server.port()))
                .option("--binary")
                .option(&program)
                .finish();
            let words = std::iter::once(program.to_str().expect("text")).chain(talk.split(' '));
            let done = Run::new(&area, &policy).command(words).finish();

            let told: serde_json::Value =
                serde_json::from_slice(&explained.exited(0).stdout).expect("JSON");
            assert_eq!(told["reason"].as_str(), reason, "{told}");
            assert_eq!(told["notes"].as_array().map(Vec::len), Some(1), "{told}");
            let talked = done.answer("head") == "hello";
            assert_eq!(told["verdict"] == "allowed", talked, "{told} {done}");
            let refused = done.records.iter().find(|it| !it.allowed());
            assert_eq!(
                refused.map(|it| it.text("reason")),
                told["reason"].as_str(),
                "{done}"
            );
        }
    }
}

/// A copy of the probe that only root may read and everyone may execute. Only root can make one.
fn unreadable(area: &holdfast_tests::Area, probe: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = area.root().join("closed");
    std::fs::create_dir_all(&directory).expect("create a directory");
    holdfast_tests::artefacts::open_to_all(&directory);
    if !holdfast_tests::Caller::Myself.is_root() {
        skip::skip(
            "a 0711 program of root",
            "the tests run as an ordinary user",
        );
        return None;
    }
    let copy = directory.join("probe");
    std::fs::copy(probe, &copy).expect("copy the probe");
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o711)).expect("chmod");
    Some(copy.display().to_string())
}
