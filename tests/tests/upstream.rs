//! Names that the host's own name server knows: asked when they are connected to, and believed only as far as the policy goes. (Promise 5.)

use hickory_proto::rr::RecordType;
use holdfast_tests::probe::probe;
use holdfast_tests::servers::dns::{Answer, Dns};
use holdfast_tests::servers::{FOUR, tcp};
use holdfast_tests::{Area, Caller, Policy, Run, Running, everyone, skip};
use std::net::IpAddr;
use std::path::Path;

/// Runs with `/etc/resolv.conf` naming a server of the test. Only root can arrange that.
struct Upstream {
    file: std::path::PathBuf,
    server: Dns,
}

impl Upstream {
    fn start(area: &Area, ip: &str, names: &[(&str, Answer)]) -> Option<Self> {
        if !Caller::Myself.is_root() {
            skip::skip(
                "an upstream name server",
                "the tests run as an ordinary user",
            );
            return None;
        }
        let server = Dns::at(ip, names).expect("take port 53 of a loopback address");
        let file = area.file(&area.fresh("resolv.conf"), format!("nameserver {ip}\n"));
        Some(Self { file, server })
    }

    fn under<'a>(&self, area: &Area, run: Run<'a>) -> Run<'a> {
        seeing(area, run, &self.file, "/etc/resolv.conf")
    }

    fn asked(&self, name: &str) -> usize {
        self.server
            .asked()
            .iter()
            .filter(|(asked, _)| asked == name)
            .count()
    }
}

/// Runs with `file` in the place of the host's `path`.
fn seeing<'a>(area: &Area, run: Run<'a>, file: &Path, path: &str) -> Run<'a> {
    let uid = area.caller().uid();
    let become_caller = format!("--reuid={uid} --regid={uid} --clear-groups");
    // The tests start the binary as root here, so that it can mount; then the caller is who it should be.
    let line = format!(
        "mount --bind {} {path} && exec setpriv {become_caller} \"$@\"",
        file.display()
    );
    run.as_root_first()
        .under(["unshare", "--mount", "sh", "-c", &line, "sh"])
}

fn here() -> IpAddr {
    FOUR.parse().expect("an address")
}

#[test]
fn an_upstream_name_is_resolved_when_it_is_connected_to() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let ip = "127.53.1.1";
        let names = [("up.test", Answer::Addresses(vec![here()], 60))];
        let Some(upstream) = Upstream::start(&area, ip, &names) else {
            return;
        };
        let endpoint = format!(
            "{{host: up.test, port: {}, allowed_ips: [127.0.0.1/32]}}",
            server.port()
        );
        let policy = Policy::offline().rule_in_full("up", &endpoint, &[]);
        let run =
            Run::new(&area, &policy).attempt(&format!("talk up.test {} hello", server.port()));
        let done = upstream.under(&area, run).finish();
        assert_eq!(done.answer("head"), "hello", "{done}");
        assert_eq!(
            done.about("up.test", server.port())[0].text("dialled"),
            FOUR,
            "{done}"
        );
        assert!(upstream.asked("up.test") > 0, "{done}");
    }
}

/// The C library believes `/etc/hosts` before it asks anybody, and a bare address is what no rule for the name is about.
#[test]
fn a_name_of_the_hosts_file_is_judged_as_a_name() {
    let bash = Path::new("/bin/bash");
    if !Caller::Myself.is_root() || !bash.exists() {
        skip::skip("a hosts file", "this needs root and bash");
        return;
    }
    for area in everyone() {
        let server = tcp::greeting(FOUR, "hello\n");
        let port = server.port();
        let hosts = area.file(
            &area.fresh("hosts"),
            "# ours\n127.0.0.1 localhost\n127.0.0.1 listed.test\n10.11.12.13 given.test other.test\n",
        );
        let policy = Policy::offline()
            .rule_in_full(
                "listed",
                &format!("{{host: listed.test, port: {port}, allowed_ips: [127.0.0.1/32]}}"),
                &[],
            )
            .host("given.test", &[FOUR])
            .rule("given", "given.test", port);
        let line = format!(
            "head -n 1 </dev/tcp/listed.test/{port}; head -n 1 </dev/tcp/given.test/{port}; cat /etc/hosts"
        );
        let run =
            Run::new(&area, &policy).command([bash.as_os_str(), "-c".as_ref(), line.as_ref()]);
        let done = seeing(&area, run, &hosts, "/etc/hosts").finish();
        let text = "hello\nhello\n# ours\n127.0.0.1 localhost\n10.11.12.13\tother.test\n";
        assert_eq!(done.exited(0).text(), text, "{done}");
        for host in ["listed.test", "given.test"] {
            assert_eq!(done.about(host, port)[0].text("dialled"), FOUR, "{done}");
        }
    }
}

#[test]
fn a_denied_name_never_leaves_the_host() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let Some(upstream) = Upstream::start(&area, "127.53.1.2", &[]) else {
            return;
        };
        let it = probe.display();
        // Through the address of the host's own server as well: inside it is nobody's but ours.
        let line = format!(
            "{it} connect secret-in-a-name.denied.test 443; {it} connect another.denied.test/6 443; \
             {it} dns udp 127.53.1.2 000701000001000000000000067365637265740664656e69656404746573740000100001; exit 0"
        );
        let done = upstream
            .under(&area, Run::new(&area, &Policy::origin(443)).shell(&line))
            .finish();
        assert_eq!(done.text().matches("name=unknown").count(), 2, "{done}");
        assert_eq!(upstream.server.asked(), [], "nobody was asked: {done}");
    }
}

#[test]
fn times_to_live_are_kept_on_the_hosts_side() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let names = [("long.test", Answer::Addresses(vec![here()], 600))];
        let Some(upstream) = Upstream::start(&area, "127.53.1.3", &names) else {
            return;
        };
        let port = server.port();
        let endpoint = format!("{{host: long.test, port: {port}, allowed_ips: [127.0.0.1/32]}}");
        let policy = Policy::offline().rule_in_full("long", &endpoint, &[]);
        let line = format!(
            "for n in 1 2 3 4 5; do {} talk long.test {port} x; done",
            probe.display()
        );
        let done = upstream
            .under(&area, Run::new(&area, &policy).shell(&line))
            .finish();
        assert_eq!(server.accepted(), 5, "{done}");
        let asked = upstream.server.asked();
        let questions = asked
            .iter()
            .filter(|(_, kind)| *kind == RecordType::A)
            .count();
        assert_eq!(questions, 1, "{asked:?}: {done}");
    }
}

#[test]
fn a_name_that_leads_to_a_forbidden_address_is_not_dialled() {
    if probe().is_none() {
        return;
    }
    let forbidden = [
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "10.0.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "fd00::1",
        "fe80::1",
        "0.0.0.0",
        "224.0.0.1",
        "100.64.0.1",
    ];
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let names: Vec<(String, Answer)> = forbidden
            .iter()
            .enumerate()
            .map(|(at, ip)| {
                let ip = ip.parse().expect("an address");
                (format!("n{at}.up.test"), Answer::Addresses(vec![ip], 60))
            })
            .collect();
        let zone: Vec<_> = names
            .iter()
            .map(|(name, it)| (name.as_str(), it.clone()))
            .collect();
        let Some(upstream) = Upstream::start(&area, "127.53.1.4", &zone) else {
            return;
        };
        for (at, ip) in forbidden.iter().enumerate() {
            let endpoint = format!("{{host: \"*.up.test\", port: {}}}", server.port());
            let policy = Policy::offline().rule_in_full("all", &endpoint, &[]);
            let family = if ip.contains(':') { "/6" } else { "" };
            let run = Run::new(&area, &policy).attempt(&format!(
                "talk n{at}.up.test{family} {} hello",
                server.port()
            ));
            let done = upstream.under(&area, run).finish();
            assert_ne!(done.answer("head"), "hello", "{ip}: {done}");
            assert_eq!(server.accepted(), 0, "{ip}: {done}");
            let denied = done
                .records
                .iter()
                .filter(|record| !record.allowed())
                .count();
            assert!(denied >= 1, "{ip}: {done}");
        }
    }
}

#[test]
fn a_large_answer_is_fetched_over_tcp() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let mut all: Vec<IpAddr> = vec![here()];
        all.extend((1..60).map(|n| IpAddr::from([127, 0, 0, n + 1])));
        let names = [("large.test", Answer::Large(all))];
        let Some(upstream) = Upstream::start(&area, "127.53.1.5", &names) else {
            return;
        };
        let endpoint = format!(
            "{{host: large.test, port: {}, allowed_ips: [127.0.0.1/32]}}",
            server.port()
        );
        let policy = Policy::offline().rule_in_full("large", &endpoint, &[]);
        let run =
            Run::new(&area, &policy).attempt(&format!("talk large.test {} hello", server.port()));
        let done = upstream.under(&area, run).finish();
        assert_eq!(done.answer("head"), "hello", "{done}");
    }
}

#[test]
fn a_silent_or_failing_upstream_holds_up_nobody_else() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let names = [
            ("dead.test", Answer::Silence),
            ("broken.test", Answer::Failure),
        ];
        let Some(upstream) = Upstream::start(&area, "127.53.1.6", &names) else {
            return;
        };
        let port = server.port();
        let policy = Policy::origin(port).rule("dead", "dead.test", port).rule(
            "broken",
            "broken.test",
            port,
        );
        let it = probe.display();
        let line = format!(
            "{it} connect dead.test {port} >dead & {it} connect broken.test {port} >broken & \
             {it} crowd origin.test {port} 4 50; echo first; wait; echo last; cat dead broken"
        );
        let run: Running = upstream
            .under(&area, Run::new(&area, &policy).shell(&line))
            .start();
        let so_far = run.expect("first");
        assert!(so_far.contains("good=200"), "{so_far}");
        assert!(!so_far.contains("last"), "{so_far}");
        let done = run.finish();
        done.exited(0);
        assert!(!done.text().contains("connect=ok"), "{done}");
    }
}
