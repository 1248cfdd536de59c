//! What is measured.

use crate::place::{
    Aside, Figures, chain, figures, inside, ours, outside, processor, proportional,
};
use crate::table::{Table, middle};
use holdfast_tests::servers::{FOUR, tcp};
use holdfast_tests::wait::{LONG, now};
use holdfast_tests::{Area, Caller, Policy, Run, artefacts, leaks};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

/// Runs of a thing that is measured as a whole.
const RUNS: usize = 41;
/// Connects of one spell. All spells together stay below the number of closing sockets where every connect gets slower.
const CONNECTS: u32 = 800;
/// Seconds of one row of throughput.
const SECONDS: u32 = 2;
/// Spells of each way, by turns.
const SPELLS: usize = 5;
/// Turns of a workload, native and inside by turns, so that a change of the machine's speed hits both.
const TURNS: usize = 9;

fn area() -> Area {
    Area::new(Caller::Myself)
}

fn figure(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::NAN, f64::from)
}

fn milliseconds(mut run: impl FnMut()) -> f64 {
    let began = now();
    run();
    began.elapsed().as_secs_f64() * 1e3
}

/// `run -- /bin/true`, start to exit.
pub(crate) fn start(table: &mut Table) {
    if !table.wants("start") {
        return;
    }
    let (area, server) = (area(), tcp::echo(FOUR));
    let mut native = Vec::new();
    let mut confined = Vec::new();
    for _ in 0..RUNS {
        native.push(milliseconds(|| {
            assert!(
                Command::new("/bin/true")
                    .status()
                    .expect("run true")
                    .success()
            );
        }));
        let policy = Policy::origin(server.port());
        let mut command = Run::new(&area, &policy).command(["/bin/true"]).describe();
        confined.push(milliseconds(|| {
            assert!(command.status().expect("run holdfast").success());
        }));
    }
    table.beside(
        "`run -- /bin/true`, p50",
        "ms",
        middle(native),
        middle(confined),
    );
    for (step, micros) in steps(&area) {
        table.alone(&format!("… {step}"), "µs", micros);
    }
}

/// What each step of the fence took, in order, as the run itself tells it.
fn steps(area: &Area) -> Vec<(String, f64)> {
    let mut order: Vec<String> = Vec::new();
    let mut took: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for _ in 0..RUNS {
        let done = Run::new(area, &Policy::offline())
            .option("--log-level=info")
            .option("--log-format=json")
            .command(["/bin/true"])
            .finish();
        for line in done.stderr.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            let Some((step, micros)) = line["step"].as_str().zip(line["micros"].as_f64()) else {
                continue;
            };
            if !took.contains_key(step) {
                order.push(step.to_owned());
            }
            took.entry(step.to_owned()).or_default().push(micros);
        }
    }
    let with_middle = |step: String| {
        let micros = middle(took.remove(&step).unwrap_or_default());
        (step, micros)
    };
    order.into_iter().map(with_middle).collect()
}

/// Connect and close.
pub(crate) fn connect(table: &mut Table) {
    if !table.wants("connect") {
        return;
    }
    let (area, server) = (area(), Aside::least_server());
    let port = server.port();
    let policy = Policy::origin(port);
    let [native, least, through] = by_turns([
        &|| outside(&format!("bench-connect {FOUR} {port} {CONNECTS}")),
        &|| outside(&format!("bench-brokered {FOUR} {port} {CONNECTS}")),
        &|| {
            let words = format!("bench-connect origin.test {port} {CONNECTS}");
            inside(&area, &policy, &words)
        },
    ]);
    for percentile in ["p50", "p99"] {
        let what = format!("connect + close, {percentile}");
        table.beside(&what, "µs", native[percentile], through[percentile]);
        let what = format!("… {percentile} against the least broker");
        table.beside(&what, "µs", least[percentile], through[percentile]);
    }
}

/// One byte there and back on sixteen kept connections.
pub(crate) fn requests(table: &mut Table) {
    if !table.wants("requests") {
        return;
    }
    let (area, server) = (area(), tcp::echo(FOUR));
    let relay = Aside::bare_relay(server.port());
    let words = |host: &str, port: u16| format!("bench-requests {host} {port} 16 {SECONDS}");
    let policy = Policy::origin(server.port());
    let [native, bare, through] = by_turns([
        &|| outside(&words(FOUR, server.port())),
        &|| outside(&words(FOUR, relay.port())),
        &|| inside(&area, &policy, &words("origin.test", server.port())),
    ]);
    let what = "requests on 16 kept connections";
    table.beside(what, "1/s", native["rate"], through["rate"]);
    table.beside(
        "… against a bare relay",
        "1/s",
        bare["rate"],
        through["rate"],
    );
    table.beside("… p50", "µs", native["p50"], through["p50"]);
    table.beside("… p99", "µs", native["p99"], through["p99"]);
    table.beside(
        "… p99 against a bare relay",
        "µs",
        bare["p99"],
        through["p99"],
    );
}

/// Bytes without end, and what they cost.
pub(crate) fn bulk(table: &mut Table) {
    if !table.wants("bulk") {
        return;
    }
    let (area, server) = (area(), tcp::source(FOUR));
    let relay = Aside::bare_relay(server.port());
    let policy = Policy::origin(server.port());
    for connections in [1, 64] {
        let words =
            |host: &str, port: u16| format!("bench-bulk {host} {port} {connections} {SECONDS}");
        let [native, bare, through] = by_turns([
            &|| outside(&words(FOUR, server.port())),
            &|| outside(&words(FOUR, relay.port())),
            &|| bulk_inside(&area, &policy, &words("origin.test", server.port())),
        ]);
        let what = format!("bulk, {connections} connections");
        table.beside(&what, "GB/s", native["gbps"], through["gbps"]);
        table.beside(
            "… against a bare relay",
            "GB/s",
            bare["gbps"],
            through["gbps"],
        );
        table.alone("… our processor time", "s/GiB", through["cost"]);
    }
}

/// One spell of bytes through a sandbox, with what they cost our processes in seconds per GiB.
fn bulk_inside(area: &Area, policy: &Policy, words: &str) -> Figures {
    // The shell stays, so that the run's own processes can be looked at when the bytes have passed.
    let probe = holdfast_tests::probe::probe()
        .expect("main asked for it")
        .display();
    let mut run = Run::new(area, policy)
        .shell(&format!("{probe} {words}; echo over; read x"))
        .held_input()
        .start();
    let said = run.expect("over");
    let mut figures = figures(holdfast_tests::probe::answers(said.as_bytes()));
    let gibibytes = figures["bytes"] / f64::from(1 << 30);
    figures.insert("cost".into(), processor(&ours(&run)) / gibibytes);
    run.end_input();
    run.finish().exited(1);
    figures
}

/// Measures each way [`SPELLS`] times, by turns, so that a noisy minute hits all of them; answers the middle of each figure.
fn by_turns<const WAYS: usize>(ways: [&dyn Fn() -> Figures; WAYS]) -> [Figures; WAYS] {
    let mut seen: [BTreeMap<String, Vec<f64>>; WAYS] = std::array::from_fn(|_| BTreeMap::new());
    for _ in 0..SPELLS {
        for (way, seen) in ways.iter().zip(&mut seen) {
            for (name, figure) in way() {
                seen.entry(name).or_default().push(figure);
            }
        }
    }
    seen.map(|figures| {
        let middles = figures.into_iter();
        middles.map(|(name, all)| (name, middle(all))).collect()
    })
}

/// Work that never leaves the sandbox.
pub(crate) fn workload(table: &mut Table) {
    if !table.wants("workload") {
        return;
    }
    let area = area();
    let directory = area.directory(&area.work().join("files"));
    for number in 0..2000 {
        area.file(&directory.join(format!("f{number}")), "content");
    }
    for number in 0..40 {
        let text = format!("#include <stdio.h>\nint f{number}(void) {{ return {number}; }}\n");
        area.file(&area.work().join(format!("c{number}.c")), text);
    }
    let makefile = "all: $(patsubst %.c,%.o,$(wildcard *.c))\n%.o: %.c\n\tcc -c -o $@ $<\n";
    area.file(&area.work().join("Makefile"), makefile);
    let begin =
        "git init -q . && git add files && git -c user.name=t -c user.email=t@t commit -qm x";
    let probe = holdfast_tests::probe::probe()
        .expect("main asked for it")
        .display();
    let turns = [
        (
            "`git status` of 2,000 files",
            "for i in $(seq 20); do git status >/dev/null; done",
        ),
        ("`make -j2` of 40 files", "make -s -B -j2"),
        (
            "file calls and nothing else",
            &format!("{probe} bench-files files 5000"),
        ),
        (
            "forks and nothing else",
            &format!("{probe} bench-forks 500"),
        ),
    ];
    in_shell(&area, begin, false);
    for (what, line) in turns {
        let (mut native, mut confined) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            native.push(in_shell(&area, line, false));
            confined.push(in_shell(&area, line, true));
        }
        table.beside(what, "ms", middle(native), middle(confined));
    }
}

/// How many milliseconds a line for the shell takes in the working directory, without the start of the shell.
fn in_shell(area: &Area, line: &str, confined: bool) -> f64 {
    let timed = format!(
        "a=$(date +%s%N); {{ {line}; }} >/dev/null || exit 1; b=$(date +%s%N); echo $(((b - a) / 1000))"
    );
    let said = if confined {
        let done = Run::new(area, &Policy::offline()).shell(&timed).finish();
        assert_eq!(done.code(), Some(0), "{done}");
        done.text()
    } else {
        let mut shell = Command::new("/bin/sh");
        let done = shell
            .args(["-c", &timed])
            .current_dir(area.work())
            .output()
            .expect("run sh");
        assert!(done.status.success(), "{line}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    said.trim().parse::<f64>().expect("microseconds") / 1e3
}

/// Proportional memory of our own processes while the workload sleeps.
pub(crate) fn memory(table: &mut Table) {
    if !table.wants("memory") {
        return;
    }
    let (area, server) = (area(), tcp::echo(FOUR));
    let mut run = Run::new(&area, &Policy::origin(server.port()))
        .shell("echo ready; read x")
        .held_input()
        .start();
    run.expect("ready");
    let each = settled(&ours(&run));
    for (figure, who) in each
        .iter()
        .zip(["keeper", "boundary", "launcher", "further"])
    {
        table.alone(
            &format!("memory of the {who}, idle, proportional"),
            "MiB",
            *figure,
        );
    }
    table.alone("memory, all", "MiB", each.iter().sum());
    run.end_input();
    run.finish().exited(1);
}

/// What each of `pids` takes once that changes no more, in MiB.
fn settled(pids: &[i32]) -> Vec<f64> {
    let look = || pids.iter().copied().map(proportional).collect::<Vec<f64>>();
    let mut last = look();
    for _ in 0..10 {
        std::thread::sleep(Duration::from_secs(2));
        let next = look();
        let (before, after): (f64, f64) = (last.iter().sum(), next.iter().sum());
        last = next;
        if (before - after).abs() < 0.1 {
            break;
        }
    }
    last
}

/// Descriptors of our own processes, whatever the root has in it.
pub(crate) fn descriptors(table: &mut Table) {
    if !table.wants("descriptors") {
        return;
    }
    let area = area();
    for entries in [0, 100, 1000] {
        let root = area.directory(&area.root().join(format!("root-{entries}")));
        area.directory(&root.join("bin"));
        let probe = holdfast_tests::probe::probe().expect("main asked for it");
        std::fs::copy(probe, root.join("bin/probe")).expect("copy the probe");
        artefacts::open_to_all(&root.join("bin/probe"));
        for number in 0..entries {
            area.directory(&root.join(format!("top-{number}")));
        }
        let mut run = Run::plain(&area, ["run", "--cwd", "/", "--rootfs"])
            .option(&root)
            .command(["/bin/probe", "wait"])
            .held_input()
            .start();
        // Looked at all the time, so that what is open only while the fence is built is seen as well.
        let mut highest = [0; 3];
        let end = now() + LONG;
        while !run.output().contains("ready") {
            assert!(now() < end, "the run did not start: {}", run.output());
            for (most, pid) in highest.iter_mut().zip(chain(&run)) {
                // One that is gone meanwhile has been counted before.
                *most = leaks::descriptors(pid).unwrap_or(0).max(*most);
            }
        }
        let all = chain(&run);
        assert_eq!(all.len(), 3, "keeper, boundary and launcher");
        let idle = all
            .into_iter()
            .map(|pid| leaks::descriptors(pid).expect("it runs"));
        for ((who, idle), most) in ["keeper", "boundary", "launcher"]
            .iter()
            .zip(idle)
            .zip(highest)
        {
            let name = |state| format!("descriptors of the {who}, {entries} entries, {state}");
            table.alone(&name("idle"), "", figure(idle));
            table.alone(&name("highest"), "", figure(most.max(idle)));
        }
        run.end_input();
        run.finish().exited(0);
    }
}
