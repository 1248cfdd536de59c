//! Real programs work, each as it does outside, or are refused exactly as the policy says. (Promise 8.)

use holdfast_tests::servers::git::{git, repository};
use holdfast_tests::servers::refusing::{Blackhole, Refusing};
use holdfast_tests::servers::{FOUR, SIX, http, tcp};
use holdfast_tests::skip::program;
use holdfast_tests::{Area, Finished, Policy, Run, everyone, skip};
use std::path::Path;

fn curl(area: &Area, policy: &Policy, words: &str) -> Option<Finished> {
    let curl = program("curl")?;
    let all = ["-sS", "--max-time", "30"]
        .into_iter()
        .chain(words.split(' '));
    let words = std::iter::once(curl.into_os_string()).chain(all.map(Into::into));
    Some(Run::new(area, policy).command(words).finish())
}

fn python(area: &Area, policy: &Policy, line: &str, words: &[&str]) -> Option<Finished> {
    let python = program("python3")?;
    let start = [python.to_str().expect("text"), "-c", line];
    Some(
        Run::new(area, policy)
            .command(start.iter().chain(words))
            .finish(),
    )
}

fn node(area: &Area, policy: &Policy, line: &str, words: &[&str]) -> Option<Finished> {
    let node = program("node")?;
    let start = [node.to_str().expect("text"), "-e", line];
    Some(
        Run::new(area, policy)
            .command(start.iter().chain(words))
            .finish(),
    )
}

#[test]
fn curl_speaks_http() {
    for area in everyone() {
        let server = http::http(FOUR);
        let (policy, port) = (Policy::origin(server.port()), server.port());
        let Some(done) = curl(&area, &policy, &format!("http://origin.test:{port}/")) else {
            return;
        };
        assert_eq!(done.exited(0).text(), http::GREETING, "{done}");

        let much: Vec<u8> = (0..=250).cycle().take(1 << 20).collect();
        area.file(&area.work().join("much"), &much);
        let words = format!("--data-binary @much http://origin.test:{port}/echo");
        let Some(done) = curl(&area, &policy, &words) else {
            return;
        };
        assert!(done.stdout == much, "{} bytes came back", done.stdout.len());
    }
}

/// PX-21: the certificate and the protocol are the origin's own.
#[test]
fn curl_speaks_https_and_http_2() {
    for area in everyone() {
        let authority = http::Authority::new();
        let server = http::https(FOUR, &authority, "origin.test");
        area.file(&area.work().join("ca.pem"), authority.pem());
        let (policy, port) = (Policy::origin(server.port()), server.port());
        let words = format!("--http1.1 --cacert ca.pem https://origin.test:{port}/");
        let Some(done) = curl(&area, &policy, &words) else {
            return;
        };
        assert_eq!(done.exited(0).text(), http::GREETING, "{done}");

        let words = format!("https://origin.test:{port}/");
        let Some(done) = curl(&area, &policy, &words) else {
            return;
        };
        assert_eq!(
            done.code(),
            Some(60),
            "an unknown authority stays unknown: {done}"
        );

        let features = std::process::Command::new("curl").arg("--version").output();
        if !features.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains("HTTP2")) {
            skip::skip("curl --http2", "not built in");
            continue;
        }
        let words = format!("--http2 -D - --cacert ca.pem https://origin.test:{port}/");
        let Some(done) = curl(&area, &policy, &words) else {
            return;
        };
        assert!(done.text().contains("x-protocol: HTTP/2.0"), "{done}");
    }
}

#[test]
fn curl_speaks_ipv6() {
    for area in everyone() {
        let server = http::http(SIX);
        let port = server.port();
        let policy = Policy::offline()
            .host("six.test", &[SIX])
            .rule("six", "six.test", port);
        for words in ["-6 ", ""] {
            let words = format!("{words}http://six.test:{port}/");
            let Some(done) = curl(&area, &policy, &words) else {
                return;
            };
            assert_eq!(done.exited(0).text(), http::GREETING, "{done}");
        }
    }
}

#[test]
fn a_hundred_transfers_at_once() {
    for area in everyone() {
        let server = http::http(FOUR);
        let (policy, port) = (Policy::origin(server.port()), server.port());
        let words = format!(
            "-Z --parallel-immediate --parallel-max 100 -o out#1 http://origin.test:{port}/bytes/[10001-10100]"
        );
        let Some(done) = curl(&area, &policy, &words) else {
            return;
        };
        done.exited(0);
        for size in 10_001..=10_100_u64 {
            let file = area.work().join(format!("out{size}"));
            assert_eq!(
                std::fs::metadata(&file).map(|it| it.len()).ok(),
                Some(size),
                "{done}"
            );
        }
    }
}

#[test]
fn curl_is_told_apart_what_is_refused_and_what_is_unknown() {
    for area in everyone() {
        let (server, other) = (http::http(FOUR), http::http(FOUR));
        let policy = Policy::origin(server.port());
        let Some(done) = curl(
            &area,
            &policy,
            &format!("http://origin.test:{}/", other.port()),
        ) else {
            return;
        };
        assert_eq!(done.code(), Some(7), "could not connect: {done}");
        let Some(done) = curl(&area, &policy, "http://unknown.test/") else {
            return;
        };
        assert_eq!(done.code(), Some(6), "could not resolve: {done}");
        assert_eq!(other.accepted(), 0);
    }
}

#[test]
fn a_rule_for_curl_is_not_one_for_python() {
    let (Some(curl_path), Some(python_path)) = (program("curl"), program("python3")) else {
        return;
    };
    let python_path = std::fs::canonicalize(python_path).expect("python");
    for area in everyone() {
        let server = http::http(FOUR);
        let port = server.port();
        let policy_for = |binary: &Path| {
            Policy::offline().host("origin.test", &[FOUR]).rule_for(
                "origin",
                ("origin.test", port),
                &[binary],
            )
        };
        let fetch = "import sys,urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1]).read().decode())";
        let url = format!("http://origin.test:{port}/");
        let Some(done) = curl(&area, &policy_for(&curl_path), &url) else {
            return;
        };
        assert_eq!(done.text(), http::GREETING, "{done}");
        let Some(done) = python(&area, &policy_for(&curl_path), fetch, &[&url]) else {
            return;
        };
        assert!(done.stderr.contains("Permission denied"), "{done}");
        let Some(done) = python(&area, &policy_for(&python_path), fetch, &[&url]) else {
            return;
        };
        assert_eq!(done.text(), http::GREETING, "{done}");
        // A program that python starts may do what python may.
        let child = "import subprocess,sys; sys.exit(subprocess.run(['curl','-sS',sys.argv[1]]).returncode)";
        let Some(done) = python(&area, &policy_for(&python_path), child, &[&url]) else {
            return;
        };
        assert_eq!(done.exited(0).text(), http::GREETING, "{done}");
        assert_eq!(server.accepted(), 3);
    }
}

#[test]
fn git_clones_over_http() {
    let Some(git_path) = program("git") else {
        return;
    };
    let place = holdfast_tests::artefacts::base().join("repositories");
    repository(&git_path, &place);
    let server = git(FOUR, &git_path, &place);
    for area in everyone() {
        let url = format!("http://origin.test:{}/project.git", server.port());
        let line = format!(
            "{} clone -q {url} clone && cat clone/README && {0} -C clone log --oneline | wc -l",
            git_path.display()
        );
        let done = Run::new(&area, &Policy::origin(server.port()))
            .shell(&line)
            .finish();
        assert_eq!(
            done.exited(0).text(),
            "a file from the repository\n1\n",
            "{done}"
        );
    }
}

#[test]
fn python_fetches_and_connects() {
    for area in everyone() {
        let (web, echo) = (http::http(FOUR), tcp::echo(FOUR));
        let policy = Policy::origin(web.port()).rule("echo", "origin.test", echo.port());
        let line = "
import socket, sys, urllib.request
print(urllib.request.urlopen(f'http://origin.test:{sys.argv[1]}/').read().decode(), end='')
s = socket.create_connection(('origin.test', int(sys.argv[2])))
assert s.getpeername()[1] == int(sys.argv[2]), s.getpeername()
s.sendall(b'abc'); s.shutdown(socket.SHUT_WR)
print(b''.join(iter(lambda: s.recv(10), b'')).decode())
s = socket.socket(); s.settimeout(10)
s.connect(('origin.test', int(sys.argv[2]))); s.sendall(b'timed'); print(s.recv(10).decode())
";
        let ports = [web.port().to_string(), echo.port().to_string()];
        let words: Vec<&str> = ports.iter().map(String::as_str).collect();
        let Some(done) = python(&area, &policy, line, &words) else {
            return;
        };
        assert_eq!(
            done.exited(0).text(),
            format!("{}abc\ntimed\n", http::GREETING),
            "{done}"
        );
    }
}

/// Races both families, as `RFC 8305` has it: whatever answers first serves.
const HAPPY: &str = "
import asyncio, sys
async def ask():
    reader, writer = await asyncio.open_connection('both.test', int(sys.argv[1]), happy_eyeballs_delay=0.1)
    writer.write(b'happy'); await writer.drain()
    print((await reader.readexactly(5)).decode())
    writer.close()
async def main():
    await asyncio.gather(*(asyncio.wait_for(ask(), 20) for _ in range(20)))
asyncio.run(main())
";

/// One host at these addresses.
fn both(addresses: &[&str], port: u16) -> Policy {
    let policy = Policy::offline().host("both.test", addresses);
    policy.rule("both", "both.test", port)
}

#[test]
fn asyncio_connects_without_blocking() {
    for area in everyone() {
        for addresses in [&[FOUR][..], &[SIX]] {
            let server = tcp::echo(addresses[0]);
            let policy = both(addresses, server.port());
            let Some(done) = python(&area, &policy, HAPPY, &[&server.port().to_string()]) else {
                return;
            };
            assert_eq!(done.exited(0).text(), "happy\n".repeat(20), "{done}");
        }
    }
}

#[test]
fn happy_eyeballs_find_the_family_that_works() {
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let policy = both(&[SIX, FOUR], server.port());
        let Some(done) = python(&area, &policy, HAPPY, &[&server.port().to_string()]) else {
            return;
        };
        assert_eq!(done.exited(0).text(), "happy\n".repeat(20), "{done}");
    }
}

/// A connect that does not block is told that it is done before anybody knows: the other family is tried for it.
#[test]
fn happy_eyeballs_go_on_where_a_family_swallows_packets() {
    for area in everyone() {
        let hole = Blackhole::at(SIX);
        let server = tcp::echo_at(FOUR, hole.port());
        let policy = both(&[SIX, FOUR], server.port());
        let Some(done) = python(&area, &policy, HAPPY, &[&server.port().to_string()]) else {
            return;
        };
        assert_eq!(done.exited(0).text(), "happy\n".repeat(20), "{done}");
        let records = done.about("both.test", server.port());
        assert_eq!(records.len(), 20, "{done}");
        for record in records {
            assert_eq!(record.text("outcome"), "connected", "{done}");
            assert_eq!(record.text("dialled"), FOUR, "{done}");
        }
    }
}

/// SB-07: pools, queues and shared memory work without a rule.
#[test]
fn python_starts_processes_and_threads() {
    for area in everyone() {
        let line = "
import multiprocessing, subprocess, threading, concurrent.futures, tempfile, os
if __name__ == '__main__':
    with multiprocessing.Pool(2) as pool: print(pool.map(abs, [1, -2]))
    q = multiprocessing.Queue(); p = multiprocessing.Process(target=q.put, args=(5,)); p.start(); print(q.get()); p.join()
    shared = multiprocessing.Value('i', 3); print(shared.value)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        print(sum(r.returncode == 0 for r in pool.map(lambda i: subprocess.run(['true']), range(100))))
    print(subprocess.run('seq 1000 | sort -rn | head -1', shell=True, capture_output=True, text=True).stdout.strip())
    with tempfile.NamedTemporaryFile() as f: f.write(b'x'); f.flush(); print(os.path.getsize(f.name))
";
        let Some(done) = python(&area, &Policy::offline(), line, &[]) else {
            return;
        };
        assert_eq!(
            done.exited(0).text(),
            "[1, 2]\n5\n3\n100\n1000\n1\n",
            "{done}"
        );
    }
}

/// SB-14: whichever thread starts them.
#[test]
fn threads_that_start_programs_that_connect() {
    for area in everyone() {
        if program("curl").is_none() {
            return;
        }
        let server = http::http(FOUR);
        let line = "
import subprocess, sys
from concurrent.futures import ThreadPoolExecutor
one = lambda i: subprocess.run(['curl', '-sf', '-o', '/dev/null', sys.argv[1]]).returncode == 0
with ThreadPoolExecutor(16) as pool: print(sum(pool.map(one, range(100))))
";
        let url = format!("http://origin.test:{}/", server.port());
        let policy = Policy::origin(server.port());
        let Some(done) = python(&area, &policy, line, &[&url]) else {
            return;
        };
        assert_eq!(done.text(), "100\n", "{done}");
    }
}

/// SB-28: a server of the sandbox's own needs no rule.
#[test]
fn python_serves_itself() {
    for area in everyone() {
        let line = "
import http.server, threading, urllib.request
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(b'own')
    def log_message(self, *a): pass
for host, url in (('127.0.0.1', '127.0.0.1'), ('0.0.0.0', 'localhost')):
    s = http.server.ThreadingHTTPServer((host, 0), H)
    threading.Thread(target=s.serve_forever, daemon=True).start()
    print(urllib.request.urlopen(f'http://{url}:{s.server_port}/').read().decode())
";
        let server = http::http(FOUR);
        let Some(done) = python(&area, &Policy::origin(server.port()), line, &[]) else {
            return;
        };
        assert_eq!(done.exited(0).text(), "own\nown\n", "{done}");
        assert!(done.records.is_empty(), "nothing left the sandbox: {done}");
    }
}

/// SB-22, SB-01: interfaces are listed, and libuv does without a ring.
#[test]
fn node_fetches_resolves_and_lists_interfaces() {
    for area in everyone() {
        let server = http::http(FOUR);
        let line = "
const url = `http://origin.test:${process.argv[1]}/`;
(async () => {
  process.stdout.write(await (await fetch(url)).text());
  await new Promise((ok, no) => require('http').get(url, r => r.pipe(process.stdout).on('error', no) && r.on('end', ok)).on('error', no));
  const found = await require('dns').promises.lookup('origin.test');
  console.log(found.family, found.address.startsWith('198.1'));
  const raw = await new (require('dns').promises.Resolver)().resolve4('origin.test');
  console.log(raw[0] === found.address);
  console.log(Object.keys(require('os').networkInterfaces()).join());
  await new Promise(ok => new (require('worker_threads').Worker)('', {eval: true}).on('exit', ok));
  const many = await Promise.all(Array.from({length: 50}, async (_, n) => (await (await fetch(url + 'bytes/' + n)).text()).length === n));
  console.log(many.every(Boolean));
})().catch(e => { console.error(e); process.exit(1); });
";
        let policy = Policy::origin(server.port());
        let Some(done) = node(&area, &policy, line, &[&server.port().to_string()]) else {
            return;
        };
        let expected = format!("{0}{0}4 true\ntrue\nlo\ntrue\n", http::GREETING);
        assert_eq!(done.exited(0).text(), expected, "{done}");
    }
}

#[test]
fn node_is_told_the_errno() {
    for area in everyone() {
        let (refusing, other) = (Refusing::at(FOUR), tcp::echo(FOUR));
        let line = "
const net = require('net');
const ask = (host, port) => new Promise(ok => net.connect({host, port}).on('error', e => ok(e.code)).on('close', () => ok('closed')));
(async () => console.log(await ask('origin.test', +process.argv[1]), await ask('origin.test', +process.argv[2]), await ask('unknown.test', 80)))();
";
        let ports = [refusing.port().to_string(), other.port().to_string()];
        let words: Vec<&str> = ports.iter().map(String::as_str).collect();
        let Some(done) = node(&area, &Policy::origin(refusing.port()), line, &words) else {
            return;
        };
        let text = done.text();
        let said: Vec<&str> = text.split_whitespace().collect();
        assert!(["ECONNREFUSED", "ECONNRESET"].contains(&said[0]), "{done}");
        assert_eq!(said[1..], ["EACCES", "ENOTFOUND"], "{done}");
        assert_eq!(other.accepted(), 0, "{done}");
    }
}

/// EX-28, SB-12: pipelines end, whatever signals come between, and their producers quietly.
#[test]
fn shells_pipe_and_control_jobs() {
    let Some(bash) = program("bash") else { return };
    for area in everyone() {
        let line = "set -m; sleep 300 & kill -STOP %1; kill -CONT %1; kill %1; wait %1; echo $?; \
                    (sleep 300; echo never) & p=$!; kill -TERM -$p; wait $p; echo $?; \
                    diff <(seq 3) <(seq 3) && echo same; coproc cat; echo x >&${COPROC[1]}; read y <&${COPROC[0]}; echo $y";
        let words = [bash.to_str().expect("text"), "-c", line];
        let done = Run::new(&area, &Policy::offline()).command(words).finish();
        assert_eq!(done.text(), "143\n143\nsame\nx\n", "{done}");
        let pipes = "for i in $(seq 100); do seq 1000 | cat | wc -l; done | sort | uniq -c";
        let done = Run::new(&area, &Policy::offline()).shell(pipes).finish();
        let text = done.text();
        assert_eq!(
            text.split_whitespace().collect::<Vec<_>>(),
            ["100", "1000"],
            "{done}"
        );
        let quiet = "yes | head -1; ls -R /usr 2>&1 | head -0; echo y >/dev/null; echo done";
        let done = Run::new(&area, &Policy::offline()).shell(quiet).finish();
        assert_eq!((&*done.text(), &*done.stderr), ("y\ndone\n", ""), "{done}");
    }
}

#[test]
fn make_builds_in_parallel() {
    if program("make").is_none() || program("cc").is_none() {
        return;
    }
    for area in everyone() {
        let objects: Vec<_> = (0..12).map(|n| format!("f{n}.o")).collect();
        for n in 0..12 {
            let text = format!("int f{n}(void) {{ return {n}; }}\n");
            area.file(&area.work().join(format!("f{n}.c")), text);
        }
        area.file(&area.work().join("main.c"), "#include <stdio.h>\nint f3(void);\nint main(void) { printf(\"%d\\n\", f3()); return 0; }\n");
        let makefile = format!(
            "app: main.o {}\n\tcc -o $@ $^\n%.o: %.c\n\tcc -c -o $@ $<\n",
            objects.join(" ")
        );
        area.file(&area.work().join("Makefile"), makefile);
        let done = Run::new(&area, &Policy::offline())
            .shell("make -s -j8 && ./app")
            .finish();
        assert_eq!(done.exited(0).text(), "3\n", "{done}");
    }
}
