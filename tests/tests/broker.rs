//! What programs do beside connecting, while the filter and the broker watch: it works as outside, or fails at once and by name. (SB-10, SB-12, SB-15, SB-17, SB-18, SB-22, SB-23, SB-25.)

use holdfast_tests::servers::{FOUR, SIX, tcp};
use holdfast_tests::skip::program;
use holdfast_tests::{Area, Finished, Policy, Run, everyone};
use std::fmt::Write as _;
use std::time::Duration;

fn python(area: &Area, policy: &Policy, line: &str, words: &[&str]) -> Option<Finished> {
    let python = program("python3")?;
    let start = [python.to_str().expect("text"), "-c", line];
    let run = Run::new(area, policy).command(start.iter().chain(words));
    Some(run.finish())
}

/// A program that connects to an allowed server, whose port it is given, and to an address that no rule names, says this.
fn judged(line: &str, told: &str) {
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let port = server.port().to_string();
        let Some(done) = python(&area, &Policy::origin(server.port()), line, &[&port]) else {
            return;
        };
        assert_eq!(done.text(), told, "{done}");
        assert!(done.took < Duration::from_secs(10), "{done}");
    }
}

/// Sends what a Unix socket can carry beside bytes.
const CARRIED: &str = "
import array, os, socket, struct
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
sent = []
for i in range(253):
    r, w = os.pipe(); os.write(w, b'%d' % i); os.close(w); sent.append(r)
def taken(flags=0):
    _, carried, _, _ = b.recvmsg(1, socket.CMSG_LEN(253 * 4), flags)
    fds = array.array('i'); fds.frombytes(carried[0][2]); return fds
a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', sent))])
child = os.fork()
if child == 0:
    for fd in sent + list(taken(socket.MSG_PEEK)): os.close(fd)
    os._exit([os.read(fd, 9) for fd in taken()] != [b'%d' % i for i in range(253)])
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
b.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
own = (os.getpid(), os.getuid(), os.getgid())
a.sendmsg([b'y'], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack('iII', *own))])
print(struct.unpack('iII', b.recvmsg(1, 100)[1][0][2]) == own)
";

/// SB-07, SB-10: descriptors and credentials pass over a Unix socket as they are.
#[test]
fn descriptors_and_credentials_pass_between_the_sandboxs_own() {
    for area in everyone() {
        let Some(done) = python(&area, &Policy::offline(), CARRIED, &[]) else {
            return;
        };
        assert_eq!(done.exited(0).text(), "0\nTrue\n", "{done}");
    }
}

/// SB-15: one that has hidden its memory is judged like any other, where it calls by name and where it calls an address.
#[test]
fn a_program_that_made_itself_undumpable_is_judged_all_the_same() {
    let line = "
import ctypes, socket, sys
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
for host, port in (('origin.test', int(sys.argv[1])), ('192.0.2.1', 9)):
    try: socket.create_connection((host, port), 10).close(); print('reached')
    except OSError as e: print(e.errno)
";
    judged(line, &format!("reached\n{}\n", libc::EACCES));
}

/// SB-18: a program without room for another descriptor is judged like any other: nothing has to be put into it.
#[test]
fn a_program_without_descriptors_is_judged_all_the_same() {
    let line = "
import os, resource, socket, sys
one, two = socket.socket(), socket.socket()
allowed = socket.getaddrinfo('origin.test', int(sys.argv[1]))[0][4]
most = len(os.listdir('/proc/self/fd')) - 1
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
for s, to in ((one, ('192.0.2.1', 9)), (two, allowed)):
    try: s.connect(to); print('reached')
    except OSError as e: print(e.errno)
";
    judged(line, &format!("{}\nreached\n", libc::EACCES));
}

/// SB-22: the interfaces can be listed, and nothing of them changed.
#[test]
fn interfaces_are_listed_and_not_changed() {
    let line = "
import socket, subprocess
print(sorted(name for _, name in socket.if_nameindex()))
print(subprocess.run(['getent', 'ahosts', 'localhost'], stdout=subprocess.DEVNULL).returncode)
for protocol in range(22):
    try: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol); print('open', protocol)
    except OSError as e: assert e.errno in (1, 93), e
header = lambda kind, flags, body: (16 + len(body)).to_bytes(4, 'little') + kind.to_bytes(2, 'little') + flags.to_bytes(2, 'little') + bytes(8) + body
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
down = bytes(4) + (1).to_bytes(4, 'little') + (0).to_bytes(4, 'little') + (1).to_bytes(4, 'little')
s.send(header(16, 5, down))
print(int.from_bytes(s.recv(4096)[16:20], 'little', signed=True))
";
    for area in everyone() {
        let Some(done) = python(&area, &Policy::offline(), line, &[]) else {
            return;
        };
        assert_eq!(done.text(), "['lo']\n0\nopen 0\n-1\n", "{done}");
    }
}

/// SB-23: libc may probe which source address it would have, and both families come back.
#[test]
fn addresses_are_sorted_without_a_datagram() {
    let line = "
import socket
found = socket.getaddrinfo('both.test', 443, 0, socket.SOCK_STREAM)
print(sorted(family == socket.AF_INET6 for family, *_ in found))
";
    for area in everyone() {
        let policy =
            Policy::offline()
                .host("both.test", &[FOUR, SIX])
                .rule("both", "both.test", 443);
        let Some(done) = python(&area, &policy, line, &[]) else {
            return;
        };
        assert_eq!(done.exited(0).text(), "[False, True]\n", "{done}");
        assert!(done.records.is_empty(), "{done}");
    }
}

/// SB-25, SB-11: many short lives that connect once each are all served.
#[test]
fn a_thousand_processes_that_connect_once_are_all_served() {
    let line = "
import os, socket, sys
to = socket.getaddrinfo('origin.test', int(sys.argv[1]))[0][4]
good = 0
for _ in range(20):
    children = []
    for _ in range(50):
        child = os.fork()
        if child == 0:
            try: socket.socket().connect(to)
            except OSError as e: os._exit(e.errno)
            os._exit(0)
        children.append(child)
    good += sum(os.waitpid(child, 0)[1] == 0 for child in children)
print(good)
";
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let port = server.port().to_string();
        let Some(done) = python(&area, &Policy::origin(server.port()), line, &[&port]) else {
            return;
        };
        assert_eq!(done.text(), "1000\n", "{done}");
        assert_eq!(done.records.len(), 1000, "one record each");
    }
}

/// SB-12: calls that no caller expects to be interrupted are not, whatever signals come.
#[test]
fn signals_interrupt_no_fork_and_no_close() {
    let line = "
import os, signal
signal.signal(signal.SIGALRM, lambda *_: None); signal.siginterrupt(signal.SIGALRM, True)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for _ in range(2000): os.close(os.dup(0))
for _ in range(100):
    child = os.fork()
    if child == 0: os._exit(0)
    os.waitpid(child, 0)
signal.setitimer(signal.ITIMER_REAL, 0)
print('whole')
";
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let Some(done) = python(&area, &Policy::origin(server.port()), line, &[]) else {
            return;
        };
        assert_eq!(done.exited(0).text(), "whole\n", "{done}");
    }
}

/// SB-17: no combination of options makes a start hang.
#[test]
fn every_combination_of_options_starts() {
    let landlock = ["hard_requirement", "best_effort"];
    let process = ["", "process: {limits: {nofile: 100, memory: 1g}}\n"];
    let loss = ["continue", "freeze"];
    let network = [
        "",
        "network_policies: {}\n",
        "network_policies: {a: {endpoints: [{host: a.test, port: 80}]}}\n",
        "network_policies: {a: {endpoints: [{host: a.test, port: \"*\"}]}}\n",
    ];
    for area in everyone() {
        for (landlock, process, loss, network) in combined(&landlock, &process, &loss, &network) {
            let mut policy = String::from(
                "version: 1\nfilesystem_policy: {include_workdir: true, read_only: [/usr, /lib, /lib64, /bin, /etc]}\n",
            );
            let rest = write!(
                policy,
                "landlock: {{compatibility: {landlock}}}\non_link_loss: {loss}\n{process}{network}"
            );
            rest.expect("written");
            let done = Run::with_text(&area, &policy).command(["true"]).finish();
            done.exited(0);
            assert!(done.took < Duration::from_secs(5), "{policy}: {done}");
        }
    }
}

fn combined<'a>(
    one: &'a [&'a str],
    two: &'a [&'a str],
    three: &'a [&'a str],
    four: &'a [&'a str],
) -> impl Iterator<Item = (&'a str, &'a str, &'a str, &'a str)> {
    let all = one.len() * two.len() * three.len() * four.len();
    (0..all).map(move |number| {
        let (a, number) = (one[number % one.len()], number / one.len());
        let (b, number) = (two[number % two.len()], number / two.len());
        let (c, number) = (three[number % three.len()], number / three.len());
        (a, b, c, four[number])
    })
}
