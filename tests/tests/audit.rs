//! No verdict without a record, no record without a verdict. (Promise 3.)

use holdfast_tests::daemon::{Gateway, request, said};
use holdfast_tests::probe::probe;
use holdfast_tests::seed::{Draw, seed};
use holdfast_tests::servers::{FOUR, tcp};
use holdfast_tests::wait::{LONG, until};
use holdfast_tests::{Area, Policy, Record, Run, everyone};
use holdfast_wire::v1;
use nix::sys::signal::{Signal, kill};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

#[test]
fn as_many_records_as_verdicts() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let (server, other) = (tcp::echo(FOUR), tcp::echo(FOUR));
        let (it, good, bad) = (probe.display(), server.port(), other.port());
        let line = format!(
            "for n in 1 2 3 4 5 6 7; do {it} talk origin.test {good} x; done; \
             for n in 1 2 3; do {it} connect origin.test {bad}; done; \
             {it} connect 192.0.2.7 80; {it} poll-connect 192.0.2.7 80 1000"
        );
        let done = Run::new(&area, &Policy::origin(good)).shell(&line).finish();
        done.exited(0);
        let connects: Vec<_> = done
            .records
            .iter()
            .filter(|it| it.number("class_uid") == Some(4001))
            .collect();
        let allowed = connects.iter().filter(|it| it.allowed()).count();
        assert_eq!((allowed, connects.len() - allowed), (7, 5), "{done}");
        assert_eq!((server.accepted(), other.accepted()), (7, 0), "{done}");
        let names: BTreeSet<_> = done.records.iter().map(|it| it.text("decision")).collect();
        assert_eq!(
            names.len(),
            done.records.len(),
            "every decision has its own id: {done}"
        );
    }
}

/// OB-06: with the rule that is missing.
#[test]
fn a_record_says_who_what_where_and_why() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let (server, other) = (tcp::echo(FOUR), tcp::echo(FOUR));
        let line = format!(
            "{it} talk origin.test {} x; {it} connect origin.test {}; exit 0",
            server.port(),
            other.port(),
            it = probe.display()
        );
        let done = Run::new(&area, &Policy::origin(server.port()))
            .option("--name")
            .option("audited")
            .shell(&line)
            .finish();
        let [allowed, denied] = [server.port(), other.port()].map(|port| {
            let found = done.about("origin.test", port);
            assert_eq!(found.len(), 1, "{done}");
            found[0].clone()
        });
        for record in [&allowed, &denied] {
            assert_eq!(record.text("class_name"), "Network Activity", "{done}");
            assert_eq!(record.text("activity"), "connect", "{done}");
            assert_eq!(
                record.text("binary"),
                probe.to_str().expect("text"),
                "{done}"
            );
            assert_eq!(record.text("sandbox"), "audited", "{done}");
            assert!(record.text("address").starts_with("198.1"), "{done}");
            assert!(record.number("pid").is_some_and(|pid| pid > 1), "{done}");
            let time = record.text("time");
            assert!(
                time.len() == 24 && time.ends_with('Z') && time.contains('T'),
                "{time}"
            );
            assert!(!record.text("decision").is_empty(), "{done}");
        }
        assert_eq!(allowed.text("outcome"), "connected", "{done}");
        assert_eq!(allowed.text("dialled"), FOUR, "{done}");
        assert_eq!(allowed.text("rule"), "origin", "{done}");
        assert_eq!(denied.text("reason"), "port_not_allowed", "{done}");
        assert_eq!(denied.text("nearest"), "origin", "{done}");
        assert!(
            denied.text("hint").contains(&other.port().to_string()),
            "how to allow it: {done}"
        );
        assert_eq!(denied.text("rule"), "", "{done}");
    }
}

/// OB-06: not only connects.
#[test]
fn refused_system_calls_and_names_leave_records_too() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let it = probe.display();
        let line = format!("{it} namespaces; {it} kernel; {it} connect nowhere.test 80; exit 0");
        let done = Run::new(&area, &Policy::origin(443)).shell(&line).finish();
        let calls: BTreeSet<_> = done
            .records
            .iter()
            .filter(|it| it.text("activity") == "syscall")
            .map(|it| it.text("syscall"))
            .collect();
        for call in ["unshare", "io_uring_setup", "bpf"] {
            assert!(calls.contains(call), "{call}: {done}");
        }
        let names: Vec<_> = done
            .records
            .iter()
            .filter(|it| it.text("activity") == "query")
            .collect();
        assert_eq!(names.len(), 1, "{done}");
        assert_eq!(names[0].text("host"), "nowhere.test", "{done}");
        let calls = done
            .records
            .iter()
            .filter(|it| it.text("activity") == "syscall");
        assert!(
            calls
                .clone()
                .all(|it| it.text("binary").ends_with("/probe")),
            "{done}"
        );
    }
}

#[test]
fn a_name_cannot_forge_a_line() {
    if probe().is_none() {
        return;
    }
    // The label is: x"}\n{"verdict":"allowed"
    let label = "x\"}\n{\"verdict\":\"allowed\"";
    let mut packet = String::from("000701000001000000000000");
    let length = u8::try_from(label.len()).expect("a short label");
    for byte in std::iter::once(length).chain(label.bytes()) {
        write!(packet, "{byte:02x}").expect("write to a string");
    }
    packet.push_str("0000010001");
    for area in everyone() {
        let done = Run::new(&area, &Policy::origin(443))
            .attempt(&format!("dns udp 9.9.9.9 {packet}"))
            .finish();
        // Reading the records already proved that every line is one whole object.
        assert!(!done.records.iter().any(Record::allowed), "{done}");
    }
}

#[test]
fn records_are_appended_and_belong_to_the_owner_only() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let run = Run::new(&area, &Policy::origin(server.port()))
            .attempt(&format!("talk origin.test {} x", server.port()));
        let file = run.audit().expect("it has one").to_owned();
        area.file(&file, "{\"from\":\"before\"}\n");
        let done = run.finish();
        assert_eq!(done.records.len(), 2, "{done}");
        assert_eq!(done.records[0].text("from"), "before", "{done}");

        let run = Run::new(&area, &Policy::origin(server.port())).shell("exit 0");
        let file = run.audit().expect("it has one").to_owned();
        run.finish().exited(0);
        let mode = std::fs::metadata(&file)
            .expect("it was made")
            .permissions()
            .mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
    }
}

#[test]
fn records_survive_the_end_by_a_signal() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let line = format!(
            "{} crowd origin.test {} 4 50; echo ready; exec sleep 600",
            probe.display(),
            server.port()
        );
        let run = Run::new(&area, &Policy::origin(server.port()))
            .shell(&line)
            .start();
        run.expect("ready");
        run.signal(Signal::SIGTERM);
        let done = run.finish();
        assert_eq!(
            done.about("origin.test", server.port()).len(),
            200,
            "{}",
            done.stderr
        );
    }
}

#[test]
fn an_audit_that_cannot_be_written_refuses_the_start() {
    for area in everyone() {
        let done = Run::plain(&area, ["run", "--audit", "/no/such/directory/audit.jsonl"])
            .shell("echo started")
            .finish();
        done.exited(125);
        assert_eq!(done.text(), "", "{done}");
        assert!(
            done.stderr.contains("/no/such/directory"),
            "it names the file: {done}"
        );
    }
}

/// A run whose audit may be no file of records.
fn to<'a>(area: &'a Area, policy: &Policy, audit: &Path) -> Run<'a> {
    let policy = area.file(&area.fresh("policy.yaml"), policy.text());
    Run::plain(area, ["run", "--policy"])
        .option(policy)
        .option("--audit")
        .option(audit)
}

#[test]
fn a_pipe_that_nobody_reads_refuses_the_start() {
    for area in everyone() {
        let pipe = area.fresh("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo runs").success());
        area.give(&pipe);
        let done = to(&area, &Policy::offline(), &pipe)
            .shell("echo started")
            .finish();
        done.exited(125);
        assert_eq!(done.text(), "", "{done}");
        for word in [&*pipe.to_string_lossy(), "hint: start its reader first"] {
            assert!(done.stderr.contains(word), "{done}");
        }
    }
}

/// What leads nowhere closes the sandbox: after the first record that could not be written nothing is allowed.
#[test]
fn a_full_device_and_a_pipe_without_its_reader_allow_nothing() {
    const TRIES: usize = 100;
    const READ_ONCE: [&str; 4] = ["/bin/bash", "-c", "exec \"$@\" 9> >(head -n 1)", "bash"];
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let to_full: (&[&str], &str) = (&[], "/dev/full");
        for (before, audit) in [to_full, (&READ_ONCE, "/dev/fd/9")] {
            let server = tcp::echo(FOUR);
            let connect = format!("{} connect origin.test {}", probe.display(), server.port());
            let line = format!(
                "n=0; while [ $n -lt {TRIES} ] && {connect} | grep -q =ok; do n=$((n + 1)); done; \
                 for n in 1 2 3; do {connect}; done; exit 0"
            );
            let done = to(&area, &Policy::origin(server.port()), Path::new(audit))
                .under(before.iter().copied())
                .shell(&line)
                .finish();
            done.exited(0);
            assert_eq!(done.text().matches("=ENOBUFS").count(), 3, "{done}");
            assert!(server.accepted() < TRIES, "{done}");
        }
    }
}

/// A limit of the size of files (`ulimit -f`) is a full disk.
#[test]
fn an_audit_that_may_not_grow_allows_nothing_more() {
    const TRIES: usize = 100;
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let connect = format!("{} connect origin.test {}", probe.display(), server.port());
        let line = format!(
            "n=0; while [ $n -lt {TRIES} ] && {connect} | grep -q =ok; do n=$((n + 1)); done; \
             {connect}; exit 0"
        );
        let audit = area.fresh("audit.jsonl");
        let done = to(&area, &Policy::origin(server.port()), &audit)
            .under(["/bin/bash", "-c", "ulimit -f 8; exec \"$@\"", "bash"])
            .shell(&line)
            .finish();
        done.exited(0);
        assert_eq!(done.answer("connect"), "ENOBUFS", "{done}");
        assert!((1..TRIES).contains(&server.accepted()), "{done}");
        // The last line is cut: what it was to be about had been dialled, and was reset.
        let text = std::fs::read_to_string(&audit).expect("read the audit");
        let recorded = text.matches("\"connected\"").count();
        assert!(recorded + 1 >= server.accepted(), "{text}");
    }
}

#[test]
fn the_audit_is_not_in_the_workloads_hands() {
    for area in everyone() {
        let run = Run::new(&area, &Policy::offline());
        let file = run.audit().expect("it has one").display().to_string();
        let done = run
            .shell(&format!("echo '{{}}' >>{file}; cat {file}; exit 0"))
            .finish();
        assert!(done.records.is_empty(), "{done}");
    }
}

/// In a storm of connects the keeper is killed again and again, after a number of connections that the seed chooses: each that
/// the server accepted is on record, and none twice. `HOLDFAST_SEED` repeats the numbers.
#[test]
fn a_keeper_that_is_killed_takes_no_record_with_it() {
    const KILLS: usize = 4;
    let Some(probe) = probe() else { return };
    let seed = seed("HOLDFAST_SEED");
    let mut draw = Draw::new(seed);
    let mut dice = move || usize::try_from(draw.below(150)).expect("small");
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let gateway = Gateway::start(&area, &[]);
        let storm = format!(
            "while :; do {} crowd origin.test {} 6 25; done",
            probe.display(),
            server.port()
        );
        let mut made = request(&area, "qa");
        made.policy = Policy::origin(server.port()).text();
        made.policy_name = "policy.yaml".to_owned();
        made.arguments = ["/bin/sh", "-c", &storm]
            .map(|word| word.as_bytes().to_vec())
            .into();
        let id = gateway.create(made).expect("made").id;

        for kills in 0..KILLS {
            let ready = gateway.until("qa", "Ready again", |status| {
                let epoch = status.link.as_ref().map_or(0, |link| link.epoch);
                status.phase() == v1::Phase::Ready && epoch > kills as u64
            });
            let enough = server.accepted() + 1 + dice();
            until("the storm goes on", LONG, || server.accepted() >= enough);
            let keeper = i32::try_from(ready.pids["keeper"]).expect("a pid");
            kill(nix::unistd::Pid::from_raw(keeper), Signal::SIGKILL).expect("killed");
        }
        gateway.until("qa", "Ready at the end", |status| {
            let epoch = status.link.as_ref().map_or(0, |link| link.epoch);
            status.phase() == v1::Phase::Ready && epoch > KILLS as u64
        });
        let stop = v1::StopRequest {
            sandbox: "qa".to_owned(),
            grace_ms: 500,
        };
        gateway
            .ask(|mut client| async move { client.stop(stop).await })
            .expect("stopped");
        gateway.until("qa", "stopped", |status| {
            status.phase() == v1::Phase::Stopped
        });

        let directory = area.state().join("sandboxes").join(&id);
        let records = ["audit.jsonl.1", "audit.jsonl"]
            .map(|name| holdfast_tests::record::read(&directory.join(name)))
            .concat();
        let allowed = records
            .iter()
            .filter(|it| it.is_about("origin.test", server.port()) && it.allowed());
        let (arrived, on_record) = (server.accepted(), allowed.count());
        assert!(
            arrived <= on_record,
            "{arrived} arrived, {on_record} are on record, seed {seed}: {}",
            said(&area)
        );
        let decisions: BTreeSet<_> = records.iter().map(|it| it.text("decision")).collect();
        assert_eq!(decisions.len(), records.len(), "seed {seed}");
        gateway.delete("qa", true).expect("deleted");
        assert_eq!(gateway.stop(), Some(0));
    }
}
