//! Ports that a policy allows and that a program inside holds: connects there fail, so the sandbox is not Ready and says why. (SV-01)

use holdfast_tests::keeping::{Client, Keeping, Seen, attach, code, exec, run, start};
use holdfast_tests::servers::{FOUR, tcp};
use holdfast_tests::status::{Watch, condition};
use holdfast_tests::wait::{block_on, until};
use holdfast_tests::{Host, Policy, everyone};
use holdfast_wire::v1::{self, ConditionType, Phase, Truth};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A program that listens on `port` of `address` until it reads a line.
async fn holder(client: &mut Client, address: &str, port: u16) -> Seen {
    let program = format!(
        "import socket, sys\n\
         one = socket.create_server(('{address}', {port}))\n\
         print('held', flush=True)\n\
         sys.stdin.readline()\n\
         one.close()\n\
         print('let go', flush=True)\n\
         sys.stdin.readline()"
    );
    let mut program = exec(&["python3", "-c", &program]);
    program.stdin = true;
    let mut holder = start(client, program).await.expect("started");
    holder.expect("held").await;
    holder
}

/// What a connect of the workload's to the origin comes to: 0, or its errno.
async fn connect(client: &mut Client, port: u16) -> i32 {
    let program = format!(
        "import socket, sys\n\
         place = socket.gethostbyname('origin.test')\n\
         sys.exit(socket.socket().connect_ex((place, {port})))"
    );
    let program = exec(&["python3", "-c", &program]);
    let (_, ending) = run(client, program).await.expect("ran");
    code(&ending).expect("it exits")
}

fn is_held(status: &v1::Status) -> bool {
    status.reason == "PortHeld"
}

/// The revision is in force, says what does not work under it, and heals by itself; a keeper that takes over knows it, too.
#[test]
fn a_port_that_a_program_held_before_a_rule_named_it_costs_ready_until_it_is_let_go() {
    for area in everyone() {
        let origin = tcp::echo(FOUR);
        let port = origin.port();
        block_on(async {
            let quiet = Policy::offline().host("origin.test", &["127.0.0.1"]);
            let mut sandbox = Keeping::new(&area, &quiet.text());
            let mut client = sandbox.serve().await;
            Watch::new(&mut client).await.ready(SECOND * 10).await;
            let holder = holder(&mut client, FOUR, port).await;
            let naming = v1::PolicyRevision {
                revision: 2,
                yaml: Policy::origin(port).text(),
            };

            let applied = client.apply(naming.clone()).await.expect("applied");

            let applied = applied.into_inner();
            assert_eq!((applied.desired, applied.enforced), (2, 2), "{applied:?}");
            let told = format!("port {port} is held by a program inside");
            assert!(applied.warning.contains(&told), "{applied:?}");
            let mut watch = Watch::new(&mut client).await;
            let (status, after) = watch.until(SECOND / 2, is_held).await;
            assert!(after < SECOND / 2, "{after:?}");
            assert_eq!(status.phase(), Phase::Degraded);
            assert!(status.message.contains(&told), "{}", status.message);
            let proxy = condition(&status, ConditionType::ProxyServing);
            assert_eq!(proxy.status(), Truth::False);
            let policy = condition(&status, ConditionType::PolicyCurrent);
            assert_eq!(policy.status(), Truth::True);
            assert_eq!(connect(&mut client, port).await, libc::EADDRNOTAVAIL);
            let record = format!("connect(port {port}): listen on it");
            until("it is recorded", SECOND * 5, || {
                sandbox.state("audit.jsonl").contains(&record)
            });

            sandbox.kill();
            sandbox.spec.policy = Some(naming);
            let mut client = sandbox.serve().await;
            let mut watch = Watch::new(&mut client).await;
            watch.until(SECOND, is_held).await;
            let again = attach(&mut client, holder.session, holder.offset);
            let mut again = again.await.expect("attached");
            again.send("go\n").await;
            again.expect("let go").await;
            let (back, after) = watch.ready(SECOND * 3).await;

            assert!(after < SECOND * 3 / 2, "{after:?}");
            assert_eq!(back.restarts.values().sum::<u64>(), 0);
            assert_eq!(connect(&mut client, port).await, 0);
            again.send("go\n").await;
            again.end().await.expect("ended");
            sandbox.end(client).await;
        });
    }
}

/// The revision is in force all the same.
#[test]
fn policy_set_warns_of_a_port_that_is_held() {
    for area in everyone() {
        let origin = tcp::echo(FOUR);
        let port = origin.port();
        let host = Host::new(&area);
        let file = |name: &str, policy: Policy| {
            let path = area.work().join(name);
            area.file(&path, policy.text());
            path.display().to_string()
        };
        let quiet = Policy::offline().host("origin.test", &["127.0.0.1"]);
        host.ready("qa", &format!("--policy {}", file("one.yaml", quiet)));
        let line = format!(
            "import socket, time; one = socket.create_server((\"\", {port})); open(\"held\", \"w\"); time.sleep(1000)"
        );
        let detached = host.exec("qa --detach", &["python3", "-c", &line]).finish();
        assert_eq!(detached.code(), Some(0), "{detached}");
        let held = area.work().join("held");
        until("it is held", SECOND * 20, || held.exists());

        let two = file("two.yaml", Policy::origin(port));
        let set = host.done(&format!("policy set qa {two} --wait"));

        assert_eq!(set.text(), "revision 2\n");
        let told = format!("holdfast: warning: port {port} is held by a program inside");
        assert!(set.stderr.starts_with(&told), "{set}");
        let (_, status) = host.document("status qa -o json");
        assert_eq!(status["reason"], "PortHeld", "{status}");
        assert_eq!(status["policy"]["enforced"], 2);
        let (_, again) = host.document(&format!("policy set qa {two} -o json"));
        assert!(
            again["warning"]
                .as_str()
                .is_some_and(|text| text.contains("is held")),
            "{again}"
        );
        let (_, gone) = host.document(&format!(
            "policy set qa {} -o json",
            file("one.yaml", Policy::offline())
        ));
        assert_eq!(gone["warning"], "", "{gone}");
    }
}

/// The same under a rule for every port: it is known when somebody asks for it.
#[test]
fn a_port_on_demand_that_a_program_holds_costs_ready_once_somebody_has_asked_for_it() {
    for area in everyone() {
        let origin = tcp::echo(FOUR);
        let port = origin.port();
        block_on(async {
            let policy = Policy::any_port();
            let mut sandbox = Keeping::new(&area, &policy.text());
            let mut client = sandbox.serve().await;
            let mut watch = Watch::new(&mut client).await;
            watch.ready(SECOND * 10).await;
            let mut holder = holder(&mut client, "0.0.0.0", port).await;

            assert_eq!(connect(&mut client, port).await, libc::EADDRNOTAVAIL);

            watch.until(SECOND / 2, is_held).await;
            holder.send("go\n").await;
            holder.expect("let go").await;
            let (_, after) = watch.ready(SECOND * 3).await;
            assert!(after < SECOND * 3 / 2, "{after:?}");
            assert_eq!(connect(&mut client, port).await, 0);
            holder.send("go\n").await;
            holder.end().await.expect("ended");
            sandbox.end(client).await;
        });
    }
}
