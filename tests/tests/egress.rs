//! An allowed connection behaves as outside; every other is refused at once and leaves a record. (Promises 1 and 4.)

use holdfast_tests::probe::{outside, probe};
use holdfast_tests::servers::refusing::{Blackhole, Refusing};
use holdfast_tests::servers::{FOUR, SIX, tcp};
use holdfast_tests::skip::{captures_every_port, skip};
use holdfast_tests::wait::until;
use holdfast_tests::{Policy, Record, Run, everyone};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

#[test]
fn an_allowed_name_and_port_is_reached_on_both_families() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        for (ip, name) in [
            (FOUR, "origin.test"),
            (SIX, "origin.test/6"),
            (FOUR, "origin.test/m"),
        ] {
            let server = tcp::echo(ip);
            let policy = Policy::offline().host("origin.test", &[ip]).rule(
                "origin",
                "origin.test",
                server.port(),
            );
            let done = Run::new(&area, &policy)
                .attempt(&format!("talk {name} {} hello", server.port()))
                .finish();
            done.exited(0);
            assert_eq!(done.answer("head"), "hello", "{done}");
            assert_eq!(server.accepted(), 1, "{done}");
            let records = done.about("origin.test", server.port());
            assert_eq!(records.len(), 1, "one record for one connect: {done}");
            assert!(records[0].allowed(), "{done}");
            assert_eq!(records[0].text("rule"), "origin", "{done}");
            assert_eq!(records[0].text("dialled"), ip, "{done}");
            assert_eq!(
                records[0].text("binary"),
                probe.to_str().expect("text"),
                "{done}"
            );
        }
    }
}

#[test]
fn another_port_of_an_allowed_host_is_refused_and_sees_nobody() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let (allowed, other) = (tcp::echo(FOUR), tcp::echo(FOUR));
        let done = Run::new(&area, &Policy::origin(allowed.port()))
            .attempt(&format!("talk origin.test {} hello", other.port()))
            .finish();
        assert_eq!(done.answer("connect"), "EACCES", "{done}");
        assert_eq!(other.accepted(), 0, "{done}");
        let records = done.about("origin.test", other.port());
        assert_eq!(records.len(), 1, "{done}");
        assert!(!records[0].allowed(), "{done}");
        assert_eq!(records[0].text("nearest"), "origin", "{done}");
        assert!(!records[0].text("reason").is_empty(), "{done}");
    }
}

#[test]
fn a_rule_for_every_port_captures_on_demand() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let (one, two) = (tcp::echo(FOUR), tcp::echo(FOUR));
        let policy =
            Policy::any_port()
                .host("other.test", &[FOUR])
                .rule("other", "other.test", one.port());
        let (it, first, second) = (probe.display(), one.port(), two.port());
        let done = Run::new(&area, &policy)
            .shell(&format!(
                "{it} talk origin.test {first} hello; {it} talk origin.test {second} hello; \
                 {it} poll-connect origin.test {second} 5000; {it} connect other.test {second}"
            ))
            .finish();
        assert_eq!(done.text().matches("head=hello").count(), 2, "{done}");
        assert!(done.text().contains("so_error=ok"), "{done}");
        assert_eq!(
            done.about("other.test", second)[0].text("reason"),
            "port_not_allowed",
            "{done}"
        );
        assert_eq!(done.answer("connect"), "EACCES", "{done}");
    }
}

/// What `allowed_ips` names is the host's own at every port, but for those on which a program inside listens.
#[test]
fn a_rule_for_every_port_of_a_loopback_address_means_the_hosts() {
    for area in everyone() {
        for endpoint in [
            "{host: 127.0.0.9, port: \"*\", allowed_ips: [127.0.0.9/32]}",
            "{port: \"*\", allowed_ips: [127.0.0.0/8]}",
        ] {
            let (server, closed) = (tcp::echo("127.0.0.9"), Refusing::at("127.0.0.9"));
            let policy = Policy::offline().rule_in_full("hosts", endpoint, &[]);
            let done = Run::new(&area, &policy)
                .command([
                    "python3",
                    "-c",
                    "import errno, socket, sys\n\
                     open, closed = map(int, sys.argv[1:])\n\
                     told = socket.socket().connect_ex(('127.0.0.9', closed))\n\
                     own = socket.create_server(('127.0.0.9', closed))\n\
                     mine = socket.create_connection(('127.0.0.9', closed))\n\
                     own.accept()[0].send(b'own')\n\
                     hosts = socket.create_connection(('127.0.0.9', open))\n\
                     hosts.send(b'hosts')\n\
                     print(errno.errorcode[told], mine.recv(9), hosts.recv(9))",
                    &server.port().to_string(),
                    &closed.port().to_string(),
                ])
                .finish();
            done.exited(0);
            let said = "ECONNREFUSED b'own' b'hosts'";
            assert_eq!(done.text().trim(), said, "{endpoint}: {done}");
            assert_eq!(server.accepted(), 1, "{done}");
            let [refused, carried] = &done.records[..] else {
                panic!("one record of each: {done}");
            };
            assert_eq!(refused.text("outcome"), "ECONNREFUSED", "{done}");
            assert_eq!(carried.text("outcome"), "connected", "{done}");
            assert_eq!(carried.text("dialled"), "127.0.0.9", "{done}");
        }
    }
}

/// A program that goes through the ports of a wildcard does not take every descriptor: the first thousand have a listener each, and all
/// the others share one.
#[test]
fn a_program_that_goes_through_all_ports_is_served_with_a_bounded_number_of_listeners() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit");
    if most < 8192 {
        return skip("a thousand ports", "needs a hard limit of 8192 open files");
    }
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("a limit of its own");
    // Nobody accepts: that they can be connected to is enough.
    let servers: Vec<_> = (0..1030)
        .map(|_| TcpListener::bind((FOUR, 0)).expect("a port"))
        .collect();
    let port = |server: &TcpListener| server.local_addr().expect("bound").port();
    let ports: Vec<_> = servers.iter().map(port).collect();
    let text: Vec<_> = ports.iter().map(u16::to_string).collect();
    for area in everyone() {
        if !captures_every_port(&area) {
            return;
        }
        let policy = Policy::any_port();
        let done = Run::new(&area, &policy)
            .command([
                "python3",
                "-c",
                "import socket, sys\n\
                 place = socket.gethostbyname('origin.test')\n\
                 told = []\n\
                 for port in sys.argv[1].split():\n\
                 \x20   one = socket.socket()\n\
                 \x20   told.append(one.connect_ex((place, int(port))))\n\
                 \x20   one.close()\n\
                 listens = [line.split()[3] for line in open('/proc/net/tcp6')].count('0A')\n\
                 print(told.count(0), listens)",
                &text.join(" "),
            ])
            .finish();
        done.exited(0);
        // Names and the shared one are the two others.
        assert_eq!(done.text().trim(), "1030 1026", "{done}");
        let mut outcomes = BTreeMap::new();
        for record in done.records.iter().filter(|it| it.allowed()) {
            *outcomes.entry(record.text("outcome")).or_insert(0) += 1;
        }
        assert_eq!(outcomes, [("connected", 1030)].into());
    }
}

/// The own end of a connection holds its port like a program that serves there, and is none.
#[test]
fn a_port_of_a_wildcard_that_is_the_own_end_of_a_connection_is_reached() {
    for area in everyone() {
        if !captures_every_port(&area) {
            return;
        }
        let first = tcp::echo(FOUR);
        let policy = Policy::any_port();
        let mut running = Run::new(&area, &policy)
            .command([
                "python3",
                "-c",
                "import socket, sys\n\
                 place = socket.gethostbyname('origin.test')\n\
                 ends = [socket.create_connection((place, int(sys.argv[1]))) for _ in range(8)]\n\
                 print(*(end.getsockname()[1] for end in ends), flush=True)\n\
                 for port in map(int, input().split()):\n\
                 \x20   print(socket.socket().connect_ex((place, port)))",
                &first.port().to_string(),
            ])
            .held_input()
            .start();
        let line = running.expect("\n");
        let ports = line
            .split_whitespace()
            .map(|port| port.parse().expect("a port"));
        // Another program of this host may have one of them.
        let servers: Vec<_> = ports
            .filter_map(|port: u16| TcpListener::bind((FOUR, port)).ok())
            .collect();
        let port = |server: &TcpListener| server.local_addr().expect("bound").port();
        let words: Vec<_> = servers.iter().map(|it| port(it).to_string()).collect();
        running.send(format!("{}\n", words.join(" ")).as_bytes());
        let done = running.finish();
        assert_eq!(
            done.exited(0).text(),
            format!("{line}{}", "0\n".repeat(words.len())),
            "{done}"
        );
        assert!(!words.is_empty(), "{done}");
    }
}

#[test]
fn a_connect_to_a_port_that_a_program_holds_leaves_one_record() {
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let policy = Policy::any_port();
        let done = Run::new(&area, &policy)
            .command([
                "python3",
                "-c",
                "import errno, socket, sys\n\
                 port = int(sys.argv[1])\n\
                 held = socket.create_server(('0.0.0.0', port))\n\
                 place = socket.gethostbyname('origin.test')\n\
                 told = socket.socket().connect_ex((place, port))\n\
                 print(errno.errorcode[told])",
                &server.port().to_string(),
            ])
            .finish();
        done.exited(0);
        assert_eq!(done.text().trim(), "EADDRNOTAVAIL", "{done}");
        let [record] = &done.records[..] else {
            panic!("one record: {done}");
        };
        // It was dialled for before anybody knew.
        assert!(record.allowed(), "{done}");
        assert_eq!(record.text("outcome"), "EADDRNOTAVAIL", "{done}");
        assert!(record.text("detail").contains("listen on it"), "{done}");
    }
}

/// A connect that is allowed and fails in the kernel, since its source port is taken, leaves its place to others.
#[test]
fn thousands_of_connects_that_fail_inside_starve_nobody() {
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let done = Run::new(&area, &Policy::origin(server.port()))
            .command([
                "python3",
                "-c",
                "import errno, socket, sys\n\
                 place = socket.gethostbyname('origin.test'), int(sys.argv[1])\n\
                 def end(port):\n\
                 \x20   it = socket.socket()\n\
                 \x20   it.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
                 \x20   it.bind(('', port))\n\
                 \x20   return it\n\
                 first = end(0)\n\
                 first.connect(place)\n\
                 taken = first.getsockname()[1]\n\
                 told = {end(taken).connect_ex(place) for _ in range(5000)}\n\
                 last = socket.create_connection(place)\n\
                 for it in first, last:\n\
                 \x20   it.send(b'hello')\n\
                 \x20   print(it.recv(5))\n\
                 print(*(errno.errorcode[it] for it in told))",
                &server.port().to_string(),
            ])
            .finish();
        done.exited(0);
        assert_eq!(done.text(), "b'hello'\nb'hello'\nEADDRNOTAVAIL\n", "{done}");
        assert_eq!(done.records.len(), 5002, "one record of each");
        let carried = |it: &&Record| it.text("outcome") == "connected";
        assert_eq!(done.records.iter().filter(carried).count(), 2);
    }
}

#[test]
fn a_name_with_several_addresses_is_reached_at_one_that_answers() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let policy = Policy::offline()
            .host("origin.test", &["127.0.0.2", "127.0.0.3", FOUR])
            .rule("origin", "origin.test", server.port());
        let done = Run::new(&area, &policy)
            .attempt(&format!("talk origin.test {} hello", server.port()))
            .finish();
        assert_eq!(done.answer("head"), "hello", "{done}");
        let records = done.about("origin.test", server.port());
        assert_eq!(records.len(), 1, "{done}");
        assert_eq!(
            records[0].text("dialled"),
            FOUR,
            "the one that answered: {done}"
        );
    }
}

#[test]
fn a_rule_for_names_under_a_domain_is_none_for_the_domain() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let endpoint = format!("{{host: \"*.cdn.test\", port: {}}}", server.port());
        let policy = Policy::offline()
            .host("a.cdn.test", &[FOUR])
            .host("a.b.cdn.test", &[FOUR])
            .host("cdn.test", &[FOUR])
            .rule_in_full("cdn", &endpoint, &[]);
        let (it, port) = (probe.display(), server.port());
        let line =
            format!("for h in a.cdn.test a.b.cdn.test cdn.test; do {it} talk $h {port} x; done");
        let done = Run::new(&area, &policy).shell(&line).finish();
        assert_eq!(done.text().matches("connect=ok").count(), 1, "{done}");
        assert_eq!(done.text().matches("name=unknown").count(), 2, "{done}");
        assert_eq!(server.accepted(), 1, "{done}");
    }
}

#[test]
fn an_address_that_no_rule_names_is_refused_at_once_on_both_families() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let server = tcp::echo(FOUR);
        for ip in [
            "192.0.2.1",
            "2001:db8::1",
            "169.254.169.254",
            "10.0.0.1",
            "8.8.8.8",
        ] {
            for port in [server.port(), 443] {
                let done = Run::new(&area, &Policy::origin(server.port()))
                    .attempt(&format!("connect {ip} {port}"))
                    .finish();
                assert_eq!(done.answer("connect"), "EACCES", "{ip}: {done}");
                assert_eq!(done.about(ip, port).len(), 1, "{ip}: {done}");
                let done = Run::new(&area, &Policy::origin(server.port()))
                    .attempt(&format!("poll-connect {ip} {port} 5000"))
                    .finish();
                assert_eq!(
                    done.answer("connect"),
                    "EACCES",
                    "without blocking, {ip}: {done}"
                );
            }
        }
    }
}

#[test]
fn the_hosts_loopback_is_out_of_reach_in_every_disguise() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let disguises = [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::1",
            "2001:0:7f00:1::80ff:fffe",
        ];
        for ip in disguises {
            let done = Run::new(&area, &Policy::origin(server.port()))
                .attempt(&format!("talk {ip} {} hello", server.port()))
                .finish();
            assert_ne!(done.answer("head"), "hello", "{ip}: {done}");
            assert_eq!(server.accepted(), 0, "{ip}: {done}");
        }
    }
}

/// RFC 6052: it is another way to write the address of IPv4.
#[test]
fn an_address_of_nat64_leads_to_the_address_of_ipv4_in_it() {
    if probe().is_none() {
        return;
    }
    let server = tcp::echo(FOUR);
    let port = server.port();
    let written = "64:ff9b::7f00:1";
    for area in everyone() {
        let listed = format!("{{port: {port}, allowed_ips: [127.0.0.1/32]}}");
        let policy = Policy::offline().rule_in_full("four", &listed, &[]);
        let done = Run::new(&area, &policy)
            .attempt(&format!("talk {written} {port} hello"))
            .finish();
        assert_eq!(done.answer("head"), "hello", "{done}");
        assert_eq!(done.records.len(), 1, "{done}");
        assert_eq!(done.records[0].text("address"), written, "{done}");
        assert_eq!(done.records[0].text("dialled"), FOUR, "{done}");

        let before = server.accepted();
        let denied = Run::new(&area, &Policy::origin(port))
            .attempt(&format!("talk {written} {port} hello"))
            .finish();
        assert_eq!(denied.answer("connect"), "EACCES", "{denied}");
        assert_eq!(server.accepted(), before, "{denied}");
    }
}

#[test]
fn a_blocking_connect_gets_the_upstreams_own_errno() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let refusing = Refusing::at(FOUR);
        let done = Run::new(&area, &Policy::origin(refusing.port()))
            .attempt(&format!("connect origin.test {}", refusing.port()))
            .finish();
        assert_eq!(done.answer("connect"), "ECONNREFUSED", "{done}");
        let records = done.about("origin.test", refusing.port());
        assert_eq!(records.len(), 1, "{done}");
        assert!(records[0].allowed(), "the policy allowed it: {done}");
        assert_eq!(records[0].text("outcome"), "ECONNREFUSED", "{done}");
    }
}

#[test]
fn a_send_timeout_ends_a_blocking_connect_as_outside() {
    if probe().is_none() {
        return;
    }
    let hole = Blackhole::at(FOUR);
    let native = outside(&format!("limited-connect {FOUR} {} 400", hole.port()));
    for area in everyone() {
        let done = Run::new(&area, &Policy::origin(hole.port()))
            .attempt(&format!("limited-connect origin.test {} 400", hole.port()))
            .finish();
        assert_eq!(done.answer("connect"), native["connect"], "{done}");
        let took: u64 = done.answer("ms").parse().expect("milliseconds");
        assert!((350..5000).contains(&took), "{took} ms: {done}");
    }
}

#[test]
fn a_non_blocking_connect_is_immediate_and_has_the_peer_it_asked_for() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        for (ip, name) in [(FOUR, "origin.test"), (SIX, "origin.test/6")] {
            let server = tcp::echo(ip);
            let policy = Policy::offline().host("origin.test", &[ip]).rule(
                "origin",
                "origin.test",
                server.port(),
            );
            let done = Run::new(&area, &policy)
                .attempt(&format!("poll-connect {name} {} 10000", server.port()))
                .finish();
            assert!(
                ["ok", "EINPROGRESS"].contains(&&*done.answer("connect")),
                "{done}"
            );
            assert_eq!(done.answer("poll"), "out", "{done}");
            assert_eq!(done.answer("so_error"), "ok", "{done}");
            assert_eq!(done.answer("nodelay"), "1", "an option set before: {done}");
            let peer = done.answer("peer");
            let synthetic = if ip == FOUR {
                "198.1"
            } else {
                "fd48:6f6c:6466:6173:"
            };
            assert!(peer.starts_with(synthetic), "{done}");
            assert!(peer.ends_with(&format!("|{}", server.port())), "{done}");
        }
    }
}

#[test]
fn a_non_blocking_connect_never_waits_for_the_upstream() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let hole = Blackhole::at(FOUR);
        let done = Run::new(&area, &Policy::origin(hole.port()))
            .attempt(&format!("poll-connect origin.test {} 300", hole.port()))
            .finish();
        let took: u64 = done.answer("connect_ms").parse().expect("milliseconds");
        assert!(took < 200, "{took} ms: {done}");
    }
}

#[test]
fn a_non_blocking_connect_to_a_port_that_refuses_fails_and_does_not_hang() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let refusing = Refusing::at(FOUR);
        let line = "import asyncio,sys\n\
                    async def main():\n r,w=await asyncio.open_connection('origin.test',int(sys.argv[1]))\n assert await r.read(1)==b'', 'bytes from nowhere'\n\
                    try: asyncio.run(asyncio.wait_for(main(),20)); print('ended')\n\
                    except (ConnectionError,OSError) as e: print(type(e).__name__)\n";
        let Some(python) = holdfast_tests::skip::program("python3") else {
            return;
        };
        let done = Run::new(&area, &Policy::origin(refusing.port()))
            .command([
                python.as_os_str(),
                "-c".as_ref(),
                line.as_ref(),
                refusing.port().to_string().as_ref(),
            ])
            .finish();
        done.exited(0);
        let said = done.text();
        let refused = ["ConnectionRefusedError", "ConnectionResetError"].contains(&said.trim());
        assert!(refused, "{done}");
    }
}

#[test]
fn one_stuck_connect_holds_up_nobody_else() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let (hole, server) = (Blackhole::at(FOUR), tcp::echo(FOUR));
        let policy = Policy::origin(server.port()).rule("hole", "origin.test", hole.port());
        let (it, stuck, good) = (probe.display(), hole.port(), server.port());
        let done = Run::new(&area, &policy)
            .shell(&format!(
                "{it} connect origin.test {stuck} & {it} crowd origin.test {good} 10 100; \
                 kill -9 $!; wait $! 2>/dev/null; exit 0"
            ))
            .finish();
        done.exited(0);
        assert_eq!(done.answer("good"), "1000", "{done}");
        assert!(done.took < Duration::from_secs(30), "{done}");
    }
}

#[test]
fn a_half_closed_connection_still_gets_its_answer() {
    if probe().is_none() {
        return;
    }
    let server = tcp::half_closing(FOUR, 1 << 20);
    let native = outside(&format!("talk {FOUR} {} question", server.port()));
    for area in everyone() {
        let done = Run::new(&area, &Policy::origin(server.port()))
            .attempt(&format!("talk origin.test {} question", server.port()))
            .finish();
        for name in ["connect", "read", "bytes", "sum", "head"] {
            assert_eq!(done.answer(name), native[name], "{name}: {done}");
        }
    }
}

/// Whoever writes a number of the names' range gets the name that has it, and nobody where none has.
#[test]
fn an_address_of_the_names_range_is_the_name_that_has_it_and_no_other() {
    if holdfast_tests::skip::program("python3").is_none() {
        return;
    }
    let server = tcp::greeting(FOUR, "220 ready\r\n");
    let line = "import ctypes, errno, ipaddress, socket, sys\n\
                if 'hidden' in sys.argv: ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n\
                first = ipaddress.ip_address('198.18.0.2')\n\
                own = int(ipaddress.ip_address(socket.gethostbyname('origin.test'))) - int(first)\n\
                for step in range(-8, 9):\n\
                \x20   try:\n\
                \x20       place = str(first + (own + step) % 131069)\n\
                \x20       with socket.create_connection((place, int(sys.argv[1])), 10) as to:\n\
                \x20           print(step, to.makefile().readline().strip())\n\
                \x20   except OSError as error: print(step, errno.errorcode[error.errno])\n";
    for area in everyone() {
        for mode in ["plain", "hidden"] {
            let port = server.port().to_string();
            let done = Run::new(&area, &Policy::origin(server.port()))
                .command(["python3", "-c", line, &port, mode])
                .finish();
            let told: Vec<_> = done.exited(0).text().lines().map(str::to_owned).collect();
            let expected: Vec<_> = (-8..=8)
                .map(|step| match step {
                    0 => "0 220 ready".to_owned(),
                    _ => format!("{step} EACCES"),
                })
                .collect();
            assert_eq!(told, expected, "{mode}: {done}");
            let denied = done.records.iter().filter(|it| !it.allowed());
            assert_eq!(denied.count(), 16, "{mode}: {done}");
        }
    }
}

/// RFC 6093: urgency is lost on the way, the byte is not, and nothing waits behind it.
#[test]
fn an_urgent_byte_arrives_in_its_place() {
    if holdfast_tests::skip::program("python3").is_none() {
        return;
    }
    let server = tcp::echo(FOUR);
    let line = "import socket, sys\n\
                to = socket.create_connection(('origin.test', int(sys.argv[1])))\n\
                to.settimeout(10)\n\
                for bytes, flags in [(b'abc', 0), (b'!', socket.MSG_OOB), (b'def', 0)]: to.send(bytes, flags)\n\
                print(to.makefile('rb').read(7).decode())\n";
    for area in everyone() {
        let port = server.port();
        let done = Run::new(&area, &Policy::origin(port))
            .command(["python3", "-c", line, &port.to_string()])
            .finish();
        assert_eq!(done.exited(0).text().trim(), "abc!def", "{done}");
    }
}

/// PX-10: nothing that is said first, by either side, is lost.
#[test]
fn a_server_may_speak_first() {
    if probe().is_none() {
        return;
    }
    let server = tcp::greeting(FOUR, "220 ready\r\n");
    for area in everyone() {
        let done = Run::new(&area, &Policy::origin(server.port()))
            .attempt(&format!("talk origin.test {} x", server.port()))
            .finish();
        assert_eq!(done.answer("head"), "220 ready", "{done}");
    }
}

#[test]
fn a_reset_by_the_server_reaches_the_client() {
    if probe().is_none() {
        return;
    }
    let server = tcp::resetting(FOUR);
    for area in everyone() {
        let done = Run::new(&area, &Policy::origin(server.port()))
            .attempt(&format!("talk origin.test {} hello", server.port()))
            .finish();
        assert_eq!(done.answer("connect"), "ok", "{done}");
        assert_eq!(done.answer("read"), "ECONNRESET", "not a clean end: {done}");
    }
}

/// Bytes that lie unread on the other side, and between, hide it from nobody.
#[test]
fn a_reset_reaches_a_side_that_does_not_read() {
    if holdfast_tests::skip::program("python3").is_none() {
        return;
    }
    for area in everyone() {
        let ((deaf, witness), breaking) = (tcp::unread(FOUR), tcp::breaking_off(FOUR));
        let ports = [deaf.port(), witness.port(), breaking.port()];
        let endpoint = format!("{{host: origin.test, ports: {ports:?}}}");
        let policy =
            Policy::offline()
                .host("origin.test", &[FOUR])
                .rule_in_full("origin", &endpoint, &[]);
        let line = "import select, socket, struct, sys\n\
                    deaf, witness, breaking = [\n\
                    \x20   socket.create_connection(('origin.test', int(port))) for port in sys.argv[1:]]\n\
                    deaf.settimeout(0.5)\n\
                    try:\n\
                    \x20   while True: deaf.send(bytes(1 << 16))\n\
                    except TimeoutError: pass\n\
                    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))\n\
                    deaf.close()\n\
                    print('there', witness.recv(9).decode())\n\
                    told = select.poll()\n\
                    told.register(breaking, 0)\n\
                    print('back', 'reset' if told.poll(10000) else 'silence')\n";
        let done = Run::new(&area, &policy)
            .command(
                ["python3", "-c", line]
                    .map(str::to_owned)
                    .into_iter()
                    .chain(ports.map(|port| port.to_string())),
            )
            .finish();
        done.exited(0);
        assert_eq!(done.text().trim(), "there reset\nback reset", "{done}");
    }
}

/// A thousand are more than the decision lane has room for, in either direction.
#[test]
fn hundreds_of_threads_connect_at_once() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        for (threads, each) in [(200, 3), (1000, 1)] {
            let server = tcp::echo(FOUR);
            let port = server.port();
            let done = Run::new(&area, &Policy::origin(port))
                .attempt(&format!("crowd origin.test {port} {threads} {each}"))
                .finish();
            let all = threads * each;
            assert_eq!(done.answer("good"), all.to_string(), "{done}");
            let records = done.about("origin.test", port).len();
            assert_eq!(records, all, "one record each");
        }
    }
}

#[test]
fn twenty_thousand_raced_addresses_reach_nobody_that_is_denied() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let (allowed, denied) = (tcp::echo(FOUR), tcp::echo(FOUR));
        // The denied port is captured as well, for somebody else: the worst case.
        let policy = Policy::origin(allowed.port()).rule_for(
            "other",
            ("origin.test", denied.port()),
            &[Path::new("/usr/bin/somebody-else")],
        );
        let (good, bad) = (allowed.port(), denied.port());
        let done = Run::new(&area, &policy)
            .attempt(&format!("race origin.test {good} {bad} 20000"))
            .finish();
        done.exited(0);
        assert_eq!(done.answer("tries"), "20000", "{done}");
        assert_eq!(denied.accepted(), 0, "the race was lost");
        assert!(allowed.accepted() > 0, "and some were allowed");
        let wrong = done
            .records
            .iter()
            .any(|it| it.is_about("origin.test", bad) && it.allowed());
        assert!(!wrong, "no record says that a denied port was allowed");
    }
}

/// SB-11: one that is gone is no fault of anybody's.
#[test]
fn callers_that_are_killed_while_they_wait_harm_nobody() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let (hole, server) = (Blackhole::at(FOUR), tcp::echo(FOUR));
        let policy = Policy::origin(server.port()).rule("hole", "origin.test", hole.port());
        let (it, stuck, good) = (probe.display(), hole.port(), server.port());
        let done = Run::new(&area, &policy)
            .shell(&format!(
                "{it} victims origin.test {stuck} 300 & {it} crowd origin.test {good} 4 100; wait; \
                 {it} talk origin.test {good} hello"
            ))
            .finish();
        done.exited(0);
        assert_eq!(done.answer("good"), "400", "{done}");
        assert_eq!(done.answer("victims"), "300", "{done}");
        assert_eq!(done.answer("head"), "hello", "and afterwards: {done}");
        assert!(!done.stderr.contains("ERROR"), "a race is no error: {done}");
    }
}

/// Whose they were cannot be asked any more when they are accepted.
#[test]
fn a_connection_that_is_reset_at_once_leaves_one_record_and_one_dial() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let port = server.port();
        let policy = Policy::offline().host("origin.test", &[FOUR]).rule_for(
            "origin",
            ("origin.test", port),
            &[probe],
        );
        let abort = format!("{} abort origin.test {port} 100", probe.display());
        let run = Run::new(&area, &policy)
            .shell(&format!("{abort}; exec sleep 600"))
            .start();
        run.expect("made=100");

        until(
            "what was dialled is let go",
            Duration::from_secs(15),
            || run.records().len() >= 100,
        );
        run.signal(Signal::SIGTERM);
        let done = run.finish();

        assert_eq!(done.about("origin.test", port).len(), 100, "{done}");
        let probe = probe.to_str().expect("text");
        for record in &done.records {
            assert!(record.allowed(), "{done}");
            assert_eq!(record.text("binary"), probe, "{done}");
        }
        assert!(server.accepted() <= 100, "{} arrived", server.accepted());
    }
}
