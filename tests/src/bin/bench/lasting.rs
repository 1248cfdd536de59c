//! What sandboxes that last cost: an exec, a host full of them, and the output of a session.

use crate::place::{processor, proportional};
use crate::table::{Table, middle, ninety_ninth};
use holdfast_tests::daemon::{Gateway, request};
use holdfast_tests::host::Host;
use holdfast_tests::victim::parts;
use holdfast_tests::visit::{self, Client};
use holdfast_tests::wait::now;
use holdfast_tests::{Area, Caller, Policy, Run, keeping};
use holdfast_wire::v1;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Execs of one row; the 99th percentile is the third longest of them.
const EXECS: u64 = 300;
/// Creates of one row.
const CREATES: u64 = 9;
/// How long idle sandboxes are watched.
const IDLE: Duration = Duration::from_secs(10);

const QA: &str = "qa";

/// How much is done: for figures, or only to see that everything works.
struct Size {
    execs: u64,
    sessions: u64,
    sandboxes: [u64; 3],
    output: u64,
    turns: u64,
}

impl Size {
    fn of(table: &Table) -> Self {
        if table.is_few() {
            return Self {
                execs: 20,
                sessions: 100,
                sandboxes: [1, 3, 5],
                output: 1 << 24,
                turns: 1,
            };
        }
        Self {
            execs: EXECS,
            sessions: 10_000,
            sandboxes: [1, 50, 200],
            output: 1 << 30,
            turns: 5,
        }
    }
}

/// One ready sandbox, a gateway, and a channel that is warm.
struct Sandbox<'a> {
    area: &'a Area,
    gateway: Gateway,
    client: Client,
    /// Sessions so far.
    begun: u64,
}

impl<'a> Sandbox<'a> {
    fn new(area: &'a Area) -> Self {
        let gateway = Gateway::start(area, &[]);
        let client = Client::new(gateway.channel().expect("a channel"));
        let mut sandbox = Self {
            area,
            gateway,
            client,
            begun: 0,
        };
        sandbox.create(QA);
        sandbox
    }

    /// Makes one more. Answers how long it took until it was acknowledged, and until it was ready.
    fn create(&mut self, name: &str) -> (f64, f64) {
        let request = request(self.area, name);
        let client = &mut self.client;
        self.gateway.wait(async {
            let began = now();
            let made = client.create(request).await.expect("made").into_inner();
            let acknowledged = began.elapsed();
            let request = v1::SandboxRequest { sandbox: made.name };
            let mut shown = client.watch(request).await.expect("shown").into_inner();
            while let Some(status) = shown.message().await.expect("shown") {
                if status.phase() == v1::Phase::Ready {
                    break;
                }
            }
            (
                acknowledged.as_secs_f64() * 1e3,
                began.elapsed().as_secs_f64() * 1e3,
            )
        })
    }

    /// So many execs of `/bin/true` over the warm channel, in milliseconds each.
    fn execs(&mut self, count: u64) -> Vec<f64> {
        self.begun += count;
        let client = &mut self.client;
        self.gateway.wait(async {
            let mut took = Vec::new();
            for _ in 0..count {
                let start = v1::ExecStart {
                    sandbox: QA.to_owned(),
                    ..keeping::exec(&["/bin/true"])
                };
                let began = now();
                let told = visit::exec(client, start).await;
                took.push(began.elapsed().as_secs_f64() * 1e3);
                assert_eq!(told.code(), Some(0), "{told:?}");
            }
            took
        })
    }

    fn end(self) {
        for name in self.gateway.names() {
            self.gateway.delete(&name, true).expect("deleted");
        }
        assert_eq!(self.gateway.stop(), Some(0));
    }
}

/// So many runs of a command, start to exit, in milliseconds each.
fn commands(count: u64, mut command: impl FnMut() -> Command) -> Vec<f64> {
    let once = |_| {
        let mut command = command();
        let began = now();
        assert!(command.status().expect("run it").success());
        began.elapsed().as_secs_f64() * 1e3
    };
    (0..count).map(once).collect()
}

/// `/bin/true` in a running sandbox, start to exit: by the command line, and by a program that has a connection.
pub(crate) fn exec(table: &mut Table) {
    if !table.wants("exec") {
        return;
    }
    let size = Size::of(table);
    let area = Area::new(Caller::Myself);
    let mut sandbox = Sandbox::new(&area);
    sandbox.execs(10);
    let early = sandbox.execs(size.execs);
    // By turns, so that a change of the machine's speed hits all of them.
    let [mut native, mut cli, mut api, mut run] = [const { Vec::new() }; 4];
    let policy = Policy::offline();
    let whole = Run::new(&area, &policy).command(["/bin/true"]);
    let within = Run::plain(&area, ["exec", QA]).command(["/bin/true"]);
    for _ in 0..size.execs / 10 {
        // The standard library takes posix_spawn for a command without a setting of its own.
        native.extend(commands(10, || Command::new("/bin/true")));
        cli.extend(commands(10, || within.describe()));
        api.extend(sandbox.execs(10));
        run.extend(commands(2, || whole.describe()));
    }
    let late = size.sessions.saturating_sub(sandbox.begun);
    sandbox.execs(late);
    let late = sandbox.execs(size.execs);
    for (name, of) in [
        ("p50", middle as fn(Vec<f64>) -> f64),
        ("p99", ninety_ninth),
    ] {
        let native = of(native.clone());
        let row = |what: &str| format!("{what}, {name}");
        table.beside(
            &row("`exec -- /bin/true`, by the command line"),
            "ms",
            native,
            of(cli.clone()),
        );
        table.beside(&row("… by the API"), "ms", native, of(api.clone()));
        table.beside(
            &row("… by the API, from session 10 on"),
            "ms",
            native,
            of(early.clone()),
        );
        let what = format!("… by the API, from session {} on", size.sessions);
        table.beside(&row(&what), "ms", native, of(late.clone()));
        table.beside(
            &row("… by the command line, beside `run`"),
            "ms",
            of(run.clone()),
            of(cli.clone()),
        );
    }
    sandbox.end();
}

/// What many sandboxes that idle cost each other and the host.
pub(crate) fn host(table: &mut Table) {
    if !table.wants("host") {
        return;
    }
    let area = Area::new(Caller::Myself);
    let mut sandbox = Sandbox::new(&area);
    let mut there = 1;
    for wanted in Size::of(table).sandboxes {
        while there < wanted {
            sandbox.create(&format!("idle-{there}"));
            there += 1;
        }
        let (mut acknowledged, mut ready) = (Vec::new(), Vec::new());
        for _ in 0..CREATES {
            let took = sandbox.create("one-more");
            acknowledged.push(took.0);
            ready.push(took.1);
            sandbox.gateway.delete("one-more", true).expect("deleted");
        }
        let row = |what: &str| format!("{what}, {wanted} sandboxes");
        table.alone(
            &row("create, to its acknowledgement"),
            "ms",
            middle(acknowledged),
        );
        table.alone(&row("create, to Ready"), "ms", middle(ready));
        let sandboxes: Vec<i32> = parts(&area, "")
            .into_values()
            .flatten()
            .map(|process| process.pid)
            .collect();
        let gateway = [sandbox.gateway.pid()];
        let before = (processor(&gateway), processor(&sandboxes));
        let began = now();
        std::thread::sleep(IDLE);
        let seconds = began.elapsed().as_secs_f64();
        let share = |after: f64, before: f64| (after - before) / seconds * 100.0;
        table.alone(
            &row("idle processor time of the gateway"),
            "% of a core",
            share(processor(&gateway), before.0),
        );
        table.alone(
            &row("idle processor time of all sandboxes"),
            "% of a core",
            share(processor(&sandboxes), before.1),
        );
        let memory: f64 = sandboxes.into_iter().map(proportional).sum();
        let each = memory / f64::from(u32::try_from(wanted).expect("few"));
        table.alone(&row("memory of each, proportional"), "MiB", each);
        table.alone(
            &row("memory of the gateway, proportional"),
            "MiB",
            proportional(gateway[0]),
        );
    }
    sandbox.end();
}

/// What one session writes, through the command line to `/dev/null`, against the same through a pipe.
pub(crate) fn output(table: &mut Table) {
    if !table.wants("output") {
        return;
    }
    let size = Size::of(table);
    let bytes = size.output.to_string();
    let area = Area::new(Caller::Myself);
    let host = Host::new(&area);
    host.ready(QA, "");
    let pour = ["head", "-c", &bytes, "/dev/zero"];
    let (mut plain, mut through) = (Vec::new(), Vec::new());
    for _ in 0..size.turns {
        let mut command = Command::new(pour[0]);
        command.args(&pour[1..]);
        plain.push(drained(command, size.output));
        through.push(poured(host.exec(QA, &pour).describe(), size.output));
    }
    let what = format!("output of a session, {} MiB", size.output >> 20);
    table.beside(&what, "GB/s", middle(plain), middle(through));
}

/// How fast a command gets rid of its output, in GB/s.
fn poured(mut command: Command, bytes: u64) -> f64 {
    let began = now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    assert!(status.expect("run it").success());
    rate(bytes, began.elapsed())
}

/// How fast a command's output comes, in GB/s.
fn drained(mut command: Command, bytes: u64) -> f64 {
    let began = now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start it");
    let mut pipe = child.stdout.take().expect("a pipe");
    let mut buffer = vec![0; 1 << 16];
    let mut seen = 0;
    loop {
        let read = pipe.read(&mut buffer).expect("read");
        if read == 0 {
            break;
        }
        seen += u64::try_from(read).expect("small");
    }
    assert!(child.wait().expect("waited for").success());
    assert_eq!(seen, bytes);
    rate(bytes, began.elapsed())
}

fn rate(bytes: u64, took: Duration) -> f64 {
    let billions = f64::from(u32::try_from(bytes >> 10).expect("small")) * 1024.0 / 1e9;
    billions / took.as_secs_f64()
}
