//! No way out but through a verdict: each attempt from inside fails as it should. (Promise 1.)

use holdfast_tests::probe::probe;
use holdfast_tests::servers::{FOUR, tcp};
use holdfast_tests::wait::holds_within;
use holdfast_tests::{Caller, Finished, Policy, Run, artefacts, everyone, skip};
use std::net::{TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::time::Duration;

/// Death by SIGSYS, as an exit code.
const SIGSYS: i32 = 128 + 31;

/// Forks until the kernel says no.
const STORM: &str = "
import os, time
n = 0
try:
    while n < 4000:
        if os.fork() == 0:
            time.sleep(600)
        n += 1
except OSError as e:
    print('limit', e.errno)
";

#[track_caller]
fn refused(done: &Finished, names: &[&str]) {
    for name in names {
        let answer = done.answer(name);
        assert!(!answer.is_empty(), "{name} was not tried: {done}");
        assert_ne!(answer, "ok", "{name} got through: {done}");
    }
}

#[test]
fn udp_is_refused_at_once_and_nothing_arrives() {
    if probe().is_none() {
        return;
    }
    let host = UdpSocket::bind((FOUR, 0)).expect("bind");
    host.set_nonblocking(true).expect("do not wait");
    let port = host.local_addr().expect("an address").port();
    for area in everyone() {
        for ip in ["192.0.2.1", "198.18.0.9", "2001:db8::1", "origin.test"] {
            let policy = Policy::origin(port);
            let done = Run::new(&area, &policy)
                .attempt(&format!("udp {ip} {port}"))
                .finish();
            refused(&done, &["sendto", "sendmsg", "sendmmsg", "send"]);
            assert_eq!(
                done.answer("sendto"),
                "EACCES",
                "clients fall back on it: {done}"
            );
            let took: u64 = done.answer("ms").parse().expect("milliseconds");
            assert!(took < 500, "{took} ms: {done}");
        }
        assert!(host.recv(&mut [0]).is_err(), "a datagram arrived");
    }
}

#[test]
fn fast_open_carries_no_data_past_the_verdict() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let (allowed, denied) = (tcp::echo(FOUR), tcp::echo(FOUR));
        let policy = Policy::origin(allowed.port()).rule_for(
            "other",
            ("origin.test", denied.port()),
            &[std::path::Path::new("/usr/bin/somebody-else")],
        );
        for ip in ["origin.test", "127.0.0.1", "192.0.2.1"] {
            let done = Run::new(&area, &policy)
                .attempt(&format!("fastopen {ip} {}", denied.port()))
                .finish();
            done.exited(0);
            assert_eq!(denied.accepted(), 0, "{ip}: {done}");
            assert!(
                !done.records.iter().any(holdfast_tests::Record::allowed),
                "{ip}: {done}"
            );
        }
    }
}

#[test]
fn other_protocols_have_no_sockets() {
    if probe().is_none() {
        return;
    }
    // Domain, type, protocol, and what it is.
    let kinds = [
        ("2 1 262", "MPTCP"),
        ("10 1 262", "MPTCP on IPv6"),
        ("2 1 132", "SCTP"),
        ("2 5 132", "SCTP, many to many"),
        ("2 3 1", "raw ICMP"),
        ("2 3 255", "raw IP"),
        ("10 3 58", "raw ICMPv6"),
        ("17 3 768", "packets"),
        ("17 2 768", "packets without headers"),
        ("40 1 0", "vsock"),
        ("16 3 9", "audit netlink"),
        ("16 3 12", "netfilter netlink"),
        ("31 3 1", "bluetooth"),
        ("38 5 0", "kernel crypto"),
        ("44 1 0", "XDP"),
    ];
    for area in everyone() {
        for (numbers, what) in kinds {
            let done = Run::new(&area, &Policy::offline())
                .attempt(&format!("socket {numbers}"))
                .finish();
            assert_ne!(done.answer("socket"), "ok", "{what}: {done}");
            assert!(done.answer("socket").starts_with('E'), "{what}: {done}");
        }
    }
}

#[test]
fn listening_without_bind_is_reachable_from_nowhere_outside() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let mut run = Run::new(&area, &Policy::offline())
            .attempt("listen-without-bind")
            .held_input()
            .start();
        let said = run.expect("at=");
        if let Some((_, port)) = said
            .lines()
            .find_map(|line| line.strip_prefix("at=")?.split_once('|'))
        {
            let port: u16 = port.parse().expect("a port");
            for ip in [FOUR, "::1"] {
                let to = (ip.parse::<std::net::IpAddr>().expect("an address"), port).into();
                let reached = TcpStream::connect_timeout(&to, Duration::from_secs(2));
                assert!(reached.is_err(), "{ip}:{port} answers from inside");
            }
        }
        run.end_input();
        assert_eq!(run.finish().answer("visited"), "no");
    }
}

#[test]
fn sockets_of_the_host_are_out_of_reach() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        // A named socket beside the grants, reached directly and through a link inside the working directory.
        let path = area.root().join("host.sock");
        let _named = UnixListener::bind(&path).expect("listen");
        let datagrams = area.root().join("host.dgram");
        let _datagrams = UnixDatagram::bind(&datagrams).expect("bind");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("chmod");
        std::os::unix::fs::symlink(&path, area.work().join("link")).expect("link");
        let word = format!("holdfast-tests-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(word.as_bytes()).expect("a name");
        let _abstract = UnixListener::bind_addr(&abstract_name).expect("listen");

        let attempts = [
            format!("unix stream {}", path.display()),
            format!("unix stream {}", area.work().join("link").display()),
            format!("unix dgram {}", datagrams.display()),
            format!("unix stream @{word}"),
            format!("unix dgram @{word}"),
        ];
        for attempt in attempts {
            let done = Run::new(&area, &Policy::offline())
                .attempt(&attempt)
                .finish();
            let answer = done.answer("connect") + &done.answer("sendto");
            assert!(answer.starts_with('E'), "{attempt}: {done}");
        }
    }
}

#[test]
fn the_sandboxs_own_sockets_work() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let socket = area.work().join("own.sock");
        let done = Run::new(&area, &Policy::offline())
            .attempt(&format!("unix-inside {}", socket.display()))
            .finish();
        for (name, answer) in holdfast_tests::probe::answers(&done.stdout) {
            assert_eq!(answer, "ok", "{name}: {done}");
        }
        let done = Run::new(&area, &Policy::offline())
            .attempt("loopback")
            .finish();
        for name in ["four", "six", "mapped", "udp_send"] {
            assert_eq!(done.answer(name), "ok", "{name}: {done}");
        }
        assert_eq!(done.answer("udp_arrived"), "yes", "{done}");
        assert!(done.records.is_empty(), "nothing left the sandbox: {done}");
    }
}

#[test]
fn foreign_system_call_tables_kill() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        for attempt in ["int80", "x32"] {
            let done = Run::new(&area, &Policy::offline())
                .attempt(attempt)
                .finish();
            assert_eq!(done.code(), Some(SIGSYS), "{done}");
        }
    }
}

#[test]
fn no_new_namespaces_and_no_mounts() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let done = Run::new(&area, &Policy::offline())
            .attempt("namespaces")
            .finish();
        refused(
            &done,
            &[
                "unshare_user",
                "unshare_mount",
                "unshare_net",
                "unshare_user_net",
                "clone_user",
                "clone3_user",
                "setns",
            ],
        );
        let spoken = done
            .records
            .iter()
            .any(|record| record.0.to_string().contains("unshare"));
        assert!(spoken, "a refusal of the broker leaves a record: {done}");
        let done = Run::new(&area, &Policy::offline())
            .attempt("mounts")
            .finish();
        refused(
            &done,
            &[
                "mount_tmpfs",
                "mount_bind",
                "remount",
                "umount",
                "pivot_root",
                "chroot",
                "fsopen",
                "open_tree",
                "move_mount",
                "mount_setattr",
            ],
        );
        let spoken = done
            .records
            .iter()
            .any(|record| record.0.to_string().contains("mount"));
        assert!(spoken, "a refusal of the broker leaves a record: {done}");
    }
}

#[test]
fn the_kernels_wide_doors_are_closed() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let done = Run::new(&area, &Policy::offline())
            .attempt("kernel")
            .finish();
        let doors = [
            "io_uring",
            "bpf",
            "keyctl",
            "add_key",
            "userfaultfd",
            "perf",
            "module",
            "kexec",
            "handle",
            "hostname",
            "clock",
            "swapon",
            "syslog",
            "quotactl",
        ];
        refused(&done, &doors);
        let answer = done.answer("io_uring");
        assert!(
            ["EPERM", "ENOSYS"].contains(&&*answer),
            "runtimes fall back on these: {done}"
        );
    }
}

#[test]
fn pid_one_cannot_be_touched() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let done = Run::new(&area, &Policy::offline())
            .attempt("strangers 1")
            .finish();
        refused(
            &done,
            &[
                "prlimit",
                "setpriority",
                "sched_setaffinity",
                "sched_setscheduler",
                "ioprio_set",
                "kcmp",
                "vm_read",
                "vm_write",
                "ptrace_seize",
                "ptrace_attach",
                "pidfd_getfd",
                "mem",
                "environ",
                "root",
                "fd",
                "oom",
            ],
        );
    }
}

#[test]
fn signals_to_pid_one_and_to_everybody_do_not_end_the_sandbox() {
    for area in everyone() {
        let line = "for s in HUP INT QUIT USR1 USR2 ALRM TERM CHLD CONT STOP TSTP TTIN TTOU KILL; do \
                    kill -$s 1; done; kill -KILL -1; echo alive; exit 7";
        let done = Run::new(&area, &Policy::offline()).shell(line).finish();
        assert_eq!(done.text(), "alive\n", "{done}");
        done.exited(7);
    }
}

#[test]
fn the_workload_sees_itself_and_the_launcher_only() {
    for area in everyone() {
        let line = "for p in /proc/[0-9]*; do echo ${p#/proc/}; done";
        let done = Run::new(&area, &Policy::offline()).shell(line).finish();
        let seen: Vec<u32> = done
            .text()
            .lines()
            .map(|line| line.parse().expect("a number"))
            .collect();
        assert_eq!(seen.len(), 2, "{done}");
        assert!(seen.contains(&1), "{done}");
    }
}

#[test]
fn no_capability_no_new_privileges_one_filter() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let done = Run::new(&area, &Policy::offline())
            .attempt("identity")
            .finish();
        let text = done.text();
        let value = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_else(|| panic!("no {name}: {done}"))
                .trim()
                .to_owned()
        };
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(u64::from_str_radix(&value(set), 16), Ok(0), "{set}: {done}");
        }
        assert_eq!(value("NoNewPrivs"), "1", "{done}");
        assert_eq!(value("Seccomp"), "2", "{done}");
        let uid = area.caller().uid();
        assert_eq!(done.answer("uid"), format!("{uid} {uid} {uid}"), "{done}");
        assert_ne!(done.answer("setgroups"), "ok", "{done}");
        assert_eq!(
            done.answer("setuid") == "ok",
            area.caller().is_root(),
            "{done}"
        );
        for (mask, what) in [("SigIgn", "ignored"), ("SigBlk", "blocked")] {
            assert_eq!(
                u64::from_str_radix(&value(mask), 16),
                Ok(0),
                "{what} signals: {done}"
            );
        }
    }
}

#[test]
fn a_setuid_program_gains_nothing() {
    let Some(probe) = probe() else { return };
    if !Caller::Myself.is_root() {
        skip::skip(
            "a setuid program of root",
            "the tests run as an ordinary user",
        );
        return;
    }
    for area in everyone().filter(|area| !area.caller().is_root()) {
        let directory = area.root().join("setuid");
        std::fs::create_dir(&directory).expect("create a directory");
        artefacts::open_to_all(&directory);
        let program = directory.join("probe");
        std::fs::copy(probe, &program).expect("copy");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).expect("chmod");
        let policy = Policy::offline().read_only(&directory);
        let done = Run::new(&area, &policy)
            .command([program.as_os_str(), "identity".as_ref()])
            .finish();
        let uid = area.caller().uid();
        assert_eq!(done.answer("uid"), format!("{uid} {uid} {uid}"), "{done}");
        assert!(done.text().contains("CapEff:\t0000000000000000"), "{done}");
    }
}

#[test]
fn no_descriptor_of_ours_or_of_the_callers_is_inherited() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let opens = [
            "/bin/sh",
            "-c",
            "exec \"$@\" 7</etc/passwd 8</ 9</etc/passwd",
            "sh",
        ];
        let done = Run::new(&area, &Policy::offline())
            .under(opens)
            .attempt("descriptors")
            .finish();
        assert_eq!(done.text().trim(), "0 1 2", "{done}");
    }
}

#[test]
fn no_secret_of_the_caller_is_readable_inside() {
    for area in everyone() {
        let line = "cat /proc/self/environ /proc/$PPID/environ /proc/1/environ /proc/*/environ \
                    /proc/*/cmdline /proc/1/task/*/environ 2>/dev/null | tr '\\0' '\\n'; env";
        let done = Run::new(&area, &Policy::offline())
            .environment("API_KEY", "topsecret")
            .shell(line)
            .finish();
        assert!(!done.text().contains("topsecret"), "{done}");
        assert!(
            done.text().contains("PATH="),
            "the environment was read: {done}"
        );
    }
}

#[test]
fn the_kernels_settings_cannot_be_written() {
    for area in everyone() {
        let line = "for f in /proc/sys/kernel/core_pattern /proc/sys/net/ipv4/ip_forward \
                    /proc/sysrq-trigger /proc/sys/vm/drop_caches /proc/sys/user/max_user_namespaces \
                    /proc/sys/net/ipv4/tcp_fastopen; do \
                    [ -e $f ] && (echo 1 >$f) 2>/dev/null && echo written $f; done; echo done";
        let done = Run::new(&area, &Policy::offline()).shell(line).finish();
        assert_eq!(done.text(), "done\n", "{done}");
    }
}

#[test]
fn only_harmless_devices_are_there() {
    for area in everyone() {
        let done = Run::new(&area, &Policy::offline())
            .shell("ls /dev; for d in mem kmem kmsg sda vda fuse kvm loop0 net/tun; do [ -e /dev/$d ] && echo bad $d; done; exit 0")
            .finish();
        assert!(!done.text().contains("bad"), "{done}");
        for device in [
            "null", "zero", "full", "random", "urandom", "shm", "pts", "ptmx", "tty",
        ] {
            assert!(
                done.text().lines().any(|line| line == device),
                "no {device}: {done}"
            );
        }
        let done = Run::new(&area, &Policy::offline()).attempt(&format!(
            "file mknod {}",
            area.work().join("device").display()
        ));
        if probe().is_some() {
            assert_ne!(done.finish().answer("mknod"), "ok");
        }
    }
}

#[test]
fn a_fork_storm_meets_its_limit_and_the_sandbox_stays_usable() {
    let Some(python) = skip::program("python3") else {
        return;
    };
    for area in everyone() {
        let policy = Policy::offline().with("process: {limits: {nproc: 200}}");
        let done = Run::new(&area, &policy)
            .command([python.as_os_str(), "-c".as_ref(), STORM.as_ref()])
            .finish();
        done.exited(0);
        assert!(
            done.text().contains("limit 11"),
            "EAGAIN at the limit: {done}"
        );
        let uid = area.caller().uid();
        let gone = || {
            !holdfast_tests::leaks::processes().iter().any(|pid| {
                std::fs::read(format!("/proc/{pid}/cmdline"))
                    .is_ok_and(|line| String::from_utf8_lossy(&line).contains("while n < 4000"))
            })
        };
        assert!(
            holds_within(Duration::from_secs(20), gone),
            "the storm of uid {uid} lives on"
        );
    }
}
