//! The system calls that are no business of an agent, and what it is told instead.
//!
//! `connect` is asked about because the destination has to be judged. The others are asked about so that a refusal leaves
//! a record; most of them would fail anyway for want of a capability.

use holdfast_kernel::notify::Call;
use holdfast_kernel::seccomp::{Answer, Compare, Filter, When};
use libc::c_long;

/// A refused call: what it is called and what it fails with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// As in its manual page.
    pub(crate) name: &'static str,
    /// What the caller gets.
    pub(crate) errno: i32,
}

/// The filter of every workload process. Without `clone3` that call is said not to exist: its flags are in memory, where a
/// filter cannot see that a user namespace is asked for.
pub(crate) fn filter(clone3: bool) -> Filter {
    let mut filter = Filter::new();
    filter.on(libc::SYS_connect, Answer::Ask, &[]);
    for (number, _, _) in ALWAYS {
        filter.on(number, Answer::Ask, &[]);
    }
    for (number, _, _, when) in SOMETIMES {
        filter.on(number, Answer::Ask, when);
    }
    for (number, _, mode, when) in MODES {
        for set_id in [SET_UID, SET_GID] {
            let when: Vec<When> = when.into_iter().chain([bit(mode, set_id)]).collect();
            filter.on(number, Answer::Ask, &when);
        }
    }
    if !clone3 {
        filter.on(libc::SYS_clone3, Answer::Refuse(38), &[]);
    }
    // The mode of a new file is in memory, where a filter cannot see set-id bits. Who tries it goes on with `openat`.
    filter.on(libc::SYS_openat2, Answer::Refuse(38), &[]);
    filter
}

/// What a call that was asked about is told; `None` for `connect`, which is judged.
pub(crate) fn refusal(call: &Call) -> Option<Refusal> {
    if call.number == libc::SYS_connect {
        return None;
    }
    let always = ALWAYS
        .iter()
        .map(|(number, name, errno)| (*number, *name, *errno));
    let sometimes = SOMETIMES
        .iter()
        .map(|(number, name, errno, _)| (*number, *name, *errno));
    let modes = MODES
        .iter()
        .map(|(number, name, _, _)| (*number, *name, libc::EPERM));
    let found = always
        .chain(sometimes)
        .chain(modes)
        .find(|(number, _, _)| *number == call.number);
    let (_, name, errno) = found.unwrap_or((call.number, "unknown", libc::EPERM));
    let errno = if call.number == libc::SYS_socket {
        socket_errno(call)
    } else {
        errno
    };
    Some(Refusal { name, errno })
}

/// The call with the arguments that made it refusable, for people.
pub(crate) fn detail(call: &Call, name: &str) -> String {
    let [first, second, third, ..] = call.arguments;
    match call.number {
        libc::SYS_socket => format!("socket(domain {first}, type {second}, protocol {third})"),
        libc::SYS_clone | libc::SYS_unshare => format!("{name}(flags {first:#x})"),
        libc::SYS_ptrace => format!("ptrace(request {first:#x}, pid {second})"),
        libc::SYS_prlimit64 | libc::SYS_setpriority => format!("{name}({first}, {second})"),
        libc::SYS_chmod | libc::SYS_fchmod => format!("{name}(mode {second:o})"),
        libc::SYS_fchmodat | SYS_FCHMODAT2 => format!("{name}(mode {third:o})"),
        _ => name.to_owned(),
    }
}

/// Go and others try MPTCP first and go on with TCP after this errno; other families are forbidden.
fn socket_errno(call: &Call) -> i32 {
    let [domain, kind, _, ..] = call.arguments;
    let inet = [INET, INET6]
        .iter()
        .any(|known| u64::from(*known) == domain & WORD);
    let raw = kind & u64::from(SOCK_TYPE_MASK) == u64::from(RAW);
    if inet && !raw {
        libc::EPROTONOSUPPORT
    } else {
        libc::EPERM
    }
}

/// Refused whatever their arguments: number, name, errno. ENOSYS where programs have another way and look for it.
const ALWAYS: [(c_long, &str, i32); 24] = [
    (libc::SYS_mount, "mount", libc::EPERM),
    (libc::SYS_umount2, "umount2", libc::EPERM),
    (libc::SYS_pivot_root, "pivot_root", libc::EPERM),
    (libc::SYS_move_mount, "move_mount", libc::EPERM),
    (libc::SYS_fsopen, "fsopen", libc::EPERM),
    (libc::SYS_fsmount, "fsmount", libc::EPERM),
    (libc::SYS_setns, "setns", libc::EPERM),
    (libc::SYS_bpf, "bpf", libc::EPERM),
    (libc::SYS_perf_event_open, "perf_event_open", libc::EPERM),
    (libc::SYS_userfaultfd, "userfaultfd", libc::ENOSYS),
    (libc::SYS_keyctl, "keyctl", libc::EPERM),
    (libc::SYS_add_key, "add_key", libc::EPERM),
    (libc::SYS_request_key, "request_key", libc::EPERM),
    (libc::SYS_kexec_load, "kexec_load", libc::EPERM),
    (libc::SYS_kexec_file_load, "kexec_file_load", libc::EPERM),
    (libc::SYS_init_module, "init_module", libc::EPERM),
    (libc::SYS_finit_module, "finit_module", libc::EPERM),
    (libc::SYS_delete_module, "delete_module", libc::EPERM),
    (
        libc::SYS_process_vm_writev,
        "process_vm_writev",
        libc::EPERM,
    ),
    (libc::SYS_pidfd_getfd, "pidfd_getfd", libc::ENOSYS),
    (libc::SYS_io_uring_setup, "io_uring_setup", libc::ENOSYS),
    (libc::SYS_io_uring_enter, "io_uring_enter", libc::ENOSYS),
    (
        libc::SYS_io_uring_register,
        "io_uring_register",
        libc::ENOSYS,
    ),
    (libc::SYS_kcmp, "kcmp", libc::ENOSYS),
];

/// Refused with certain arguments only. Inside, process 1 is the launcher: nobody may limit, slow or trace it.
const SOMETIMES: [(c_long, &str, i32, &[When]); 21] = [
    (
        libc::SYS_unshare,
        "unshare",
        libc::EPERM,
        &[bit(0, NEW_USER)],
    ),
    (libc::SYS_clone, "clone", libc::EPERM, &[bit(0, NEW_USER)]),
    (
        libc::SYS_ptrace,
        "ptrace",
        libc::EPERM,
        &[equal(0, PTRACE_ATTACH)],
    ),
    (
        libc::SYS_ptrace,
        "ptrace",
        libc::EPERM,
        &[equal(0, PTRACE_SEIZE)],
    ),
    (
        libc::SYS_prlimit64,
        "prlimit64",
        libc::EPERM,
        &[differs(0, 0)],
    ),
    (
        libc::SYS_setpriority,
        "setpriority",
        libc::EPERM,
        &[equal(1, 1)],
    ),
    (
        libc::SYS_setpriority,
        "setpriority",
        libc::EPERM,
        &[equal(0, PRIO_USER)],
    ),
    (
        libc::SYS_ioprio_set,
        "ioprio_set",
        libc::EPERM,
        &[equal(1, 1)],
    ),
    (
        libc::SYS_ioprio_set,
        "ioprio_set",
        libc::EPERM,
        &[equal(0, IOPRIO_WHO_USER)],
    ),
    (
        libc::SYS_sched_setaffinity,
        "sched_setaffinity",
        libc::EPERM,
        &[equal(0, 1)],
    ),
    (
        libc::SYS_sched_setscheduler,
        "sched_setscheduler",
        libc::EPERM,
        &[equal(0, 1)],
    ),
    (
        libc::SYS_sched_setparam,
        "sched_setparam",
        libc::EPERM,
        &[equal(0, 1)],
    ),
    (
        libc::SYS_sched_setattr,
        "sched_setattr",
        libc::EPERM,
        &[equal(0, 1)],
    ),
    (
        libc::SYS_migrate_pages,
        "migrate_pages",
        libc::EPERM,
        &[equal(0, 1)],
    ),
    (
        libc::SYS_move_pages,
        "move_pages",
        libc::EPERM,
        &[equal(0, 1)],
    ),
    // Unix, IPv4, IPv6 and routing netlink are the families that programs need.
    (
        libc::SYS_socket,
        "socket",
        libc::EPERM,
        &[
            differs(0, UNIX),
            differs(0, INET),
            differs(0, INET6),
            differs(0, NETLINK),
        ],
    ),
    (
        libc::SYS_socket,
        "socket",
        libc::EPERM,
        &[equal(0, NETLINK), differs(2, 0)],
    ),
    (
        libc::SYS_socket,
        "socket",
        libc::EPERM,
        &[equal(0, INET), masked(1, SOCK_TYPE_MASK, RAW)],
    ),
    (
        libc::SYS_socket,
        "socket",
        libc::EPERM,
        &[equal(0, INET6), masked(1, SOCK_TYPE_MASK, RAW)],
    ),
    // A stream is TCP: MPTCP, SCTP and SMC have ways of connecting that are not `connect`.
    (
        libc::SYS_socket,
        "socket",
        libc::EPROTONOSUPPORT,
        &[
            equal(0, INET),
            differs(2, 0),
            differs(2, TCP),
            differs(2, UDP),
            differs(2, ICMP),
        ],
    ),
    (
        libc::SYS_socket,
        "socket",
        libc::EPROTONOSUPPORT,
        &[
            equal(0, INET6),
            differs(2, 0),
            differs(2, TCP),
            differs(2, UDP),
            differs(2, ICMP6),
        ],
    ),
];

/// Where a file gets its mode: number, name, which argument the mode is, and when that counts. Inside, set-id bits mean
/// nothing. Outside, in a directory that the program shares with the host, they would make its file a program of the
/// caller's, or of root, for everybody.
const MODES: [(c_long, &str, u8, Option<When>); 11] = [
    (libc::SYS_chmod, "chmod", 1, None),
    (libc::SYS_fchmod, "fchmod", 1, None),
    (libc::SYS_fchmodat, "fchmodat", 2, None),
    (SYS_FCHMODAT2, "fchmodat2", 2, None),
    (libc::SYS_creat, "creat", 1, None),
    (libc::SYS_mknod, "mknod", 1, None),
    (libc::SYS_mknodat, "mknodat", 2, None),
    (libc::SYS_open, "open", 2, Some(bit(1, CREATE))),
    (libc::SYS_open, "open", 2, Some(bit(1, TEMPORARY))),
    (libc::SYS_openat, "openat", 3, Some(bit(2, CREATE))),
    (libc::SYS_openat, "openat", 3, Some(bit(2, TEMPORARY))),
];

const fn equal(argument: u8, value: u32) -> When {
    When {
        argument,
        mask: u32::MAX,
        is: Compare::Equal(value),
    }
}

const fn differs(argument: u8, value: u32) -> When {
    When {
        argument,
        mask: u32::MAX,
        is: Compare::NotEqual(value),
    }
}

const fn masked(argument: u8, mask: u32, value: u32) -> When {
    When {
        argument,
        mask,
        is: Compare::Equal(value),
    }
}

const fn bit(argument: u8, bit: u32) -> When {
    masked(argument, bit, bit)
}

/// The kernel takes these arguments as 32-bit numbers; the upper half of the register is nobody's.
const WORD: u64 = 0xffff_ffff;
/// `fchmodat2(2)`, of Linux 6.6; the same number everywhere.
const SYS_FCHMODAT2: c_long = 452;
const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const CREATE: u32 = 0o100;
const TEMPORARY: u32 = 0o20_000_000;
const NEW_USER: u32 = 0x1000_0000;
const PTRACE_ATTACH: u32 = 16;
const PTRACE_SEIZE: u32 = 0x4206;
const PRIO_USER: u32 = 2;
const IOPRIO_WHO_USER: u32 = 3;
const UNIX: u32 = 1;
const INET: u32 = 2;
const INET6: u32 = 10;
const NETLINK: u32 = 16;
const SOCK_TYPE_MASK: u32 = 0xf;
const RAW: u32 = 3;
const TCP: u32 = 6;
const UDP: u32 = 17;
const ICMP: u32 = 1;
const ICMP6: u32 = 58;

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: c_long, arguments: [u64; 6]) -> Call {
        Call {
            id: 1,
            tid: 2,
            number,
            arguments,
        }
    }

    #[test]
    fn connect_is_judged_and_all_else_is_refused_by_name() {
        assert_eq!(refusal(&call(libc::SYS_connect, [0; 6])), None);
        let mount = refusal(&call(libc::SYS_mount, [0; 6]));
        assert_eq!(
            mount,
            Some(Refusal {
                name: "mount",
                errno: libc::EPERM
            })
        );
    }

    /// SB-06, SB-31: the errno is the one after which programs take their other way.
    #[test]
    fn a_refusal_tells_programs_to_take_their_other_way() {
        let mptcp = refusal(&call(libc::SYS_socket, [2, 1, 262, 0, 0, 0]));
        let raw = refusal(&call(libc::SYS_socket, [2, 3, 255, 0, 0, 0]));
        let packet = refusal(&call(libc::SYS_socket, [17, 3, 0, 0, 0, 0]));
        let ring = refusal(&call(libc::SYS_io_uring_setup, [8, 0, 0, 0, 0, 0]));

        assert_eq!(
            mptcp.map(|refusal| refusal.errno),
            Some(libc::EPROTONOSUPPORT)
        );
        assert_eq!(raw.map(|refusal| refusal.errno), Some(libc::EPERM));
        assert_eq!(packet.map(|refusal| refusal.errno), Some(libc::EPERM));
        assert_eq!(ring.map(|refusal| refusal.errno), Some(libc::ENOSYS));
    }
}
