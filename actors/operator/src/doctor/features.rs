//! What each feature of the kernel is needed for, and how to get it.

use holdfast_kernel::probe::{Feature, Findings, Outcome};
use nix::errno::Errno;

use super::Check;
use super::host::Host;
use super::settings::remedy;
use crate::shortage;

/// One check for each feature.
pub(super) fn checks(findings: &Findings, host: &Host) -> Vec<Check> {
    let check = |feature| {
        let (name, needed_for) = meaning(feature);
        let outcome = findings.of(feature);
        let present = outcome == Outcome::Works;
        Check {
            name,
            present,
            required: is_required(feature) && !is_moot(feature, findings),
            detail: detail(feature, findings),
            needed_for,
            remedy: remedy(present, || advice(feature, outcome, host)),
        }
    };
    Feature::ALL.into_iter().map(check).collect()
}

/// Whether something else is missing without which nobody asks for it.
fn is_moot(feature: Feature, findings: &Findings) -> bool {
    feature == Feature::LandlockRules && findings.of(Feature::Landlock) != Outcome::Works
}

/// Whether nothing starts without it.
fn is_required(feature: Feature) -> bool {
    !matches!(
        feature,
        Feature::AnyIpv6
            | Feature::Strays
            | Feature::Landlock
            | Feature::SyncWakeUp
            | Feature::Clone3
            | Feature::PidfdOpen
            | Feature::PidfdThread
            | Feature::PidfdGetfd
            | Feature::ReadMemory
            | Feature::Ipv6
    )
}

/// Its name, and what it is needed for.
const fn meaning(feature: Feature) -> (&'static str, &'static str) {
    match feature {
        Feature::UserNamespace => ("user namespace", "everything else, without being root"),
        Feature::MountNamespace => (
            "mount namespace",
            "showing the program only the files of its policy",
        ),
        Feature::NetworkNamespace => ("network namespace", "a network with no way out"),
        Feature::IpcNamespace => ("ipc namespace", "keeping the host's shared memory apart"),
        Feature::UtsNamespace => ("uts namespace", "a host name of its own"),
        Feature::PidNamespace => (
            "pid namespace",
            "hiding other processes, and ending all of the sandbox's at once",
        ),
        Feature::Proc => ("private /proc", "a /proc that shows the sandbox only"),
        Feature::MountCalls => (
            "mount calls",
            "the view of files: open_tree, move_mount, mount_setattr",
        ),
        Feature::RootCalls => (
            "root calls",
            "leaving the host's files behind: pivot_root, umount2",
        ),
        Feature::OpenAt2 => ("openat2", "opening what the policy lists, and no link"),
        Feature::MemoryFile => ("memfd_create", "programs that nobody changes as they start"),
        Feature::CloseRange => ("close_range", "letting go of the caller's descriptors"),
        Feature::SignalFd => ("signalfd4", "hearing of the end of programs"),
        Feature::AnyIpv4 => ("capture of IPv4", "bringing every connect to the proxy"),
        Feature::AnyIpv6 => (
            "capture of IPv6",
            "bringing every IPv6 connect to the proxy",
        ),
        Feature::UdpRule => (
            "rule by protocol",
            "refusing UDP at once, so that QUIC falls back to TCP",
        ),
        Feature::Strays => ("capture of every port", "`port: \"*\"`, for every program"),
        Feature::SockDiag => ("sock_diag", "knowing which program a connection belongs to"),
        Feature::Landlock => (
            "Landlock",
            "a second lock on files and signals, and `hard_requirement`",
        ),
        Feature::LandlockRules => (
            "Landlock rules",
            "Landlock, where there is one: landlock_add_rule, landlock_restrict_self",
        ),
        Feature::Listener => (
            "seccomp listener",
            "asking the broker before a connect happens, and telling every refusal",
        ),
        Feature::WaitKillable => (
            "WAIT_KILLABLE_RECV",
            "connects that signals do not break off halfway",
        ),
        Feature::SyncWakeUp => ("SYNC_WAKE_UP", "connects at half the cost"),
        Feature::Clone3 => ("clone3", "programs inside that know no other way to fork"),
        Feature::PidfdOpen => (
            "pidfd_open",
            "rules with binaries: holding the one who connects",
        ),
        Feature::PidfdThread => (
            "PIDFD_THREAD",
            "knowing the program behind a connect of any of its threads",
        ),
        Feature::PidfdGetfd => ("pidfd_getfd", "rules with binaries: knowing its socket"),
        Feature::ReadMemory => (
            "process_vm_readv",
            "rules with binaries: knowing the address before it connects",
        ),
        Feature::Ipv6 => ("IPv6 sockets", "programs that connect over IPv6"),
    }
}

fn detail(feature: Feature, findings: &Findings) -> String {
    match (findings.of(feature), feature, findings.landlock) {
        (Outcome::Works, Feature::Landlock, Some(landlock)) => {
            format!("ABI {}, errata {:#x}", landlock.abi, landlock.errata)
        }
        (Outcome::Works, _, _) => String::new(),
        (Outcome::Fails(errno), _, _) => format!("{errno:?}: {}", errno.desc()),
        (Outcome::Untried, _, _) => "not tried: it rests on something that is missing".into(),
    }
}

pub(super) fn advice(feature: Feature, outcome: Outcome, host: &Host) -> String {
    let Outcome::Fails(errno) = outcome else {
        return "get what is missing above it first".into();
    };
    // Says nothing of the feature: there was no room to try it.
    if let Some(remedy) = shortage::of_files(errno as i32) {
        return remedy;
    }
    if host.is_sandbox() {
        return SANDBOX.into();
    }
    match feature {
        Feature::UserNamespace => user_namespace(errno, host),
        Feature::MountCalls if errno == Errno::ENOSYS => system_call("5.12", host),
        Feature::MountNamespace
        | Feature::NetworkNamespace
        | Feature::IpcNamespace
        | Feature::UtsNamespace
        | Feature::PidNamespace
        | Feature::MountCalls
        | Feature::RootCalls => namespace(errno, host),
        Feature::Proc => "in a container: run it with an unmasked /proc \
             (docker: --security-opt systempaths=unconfined; Kubernetes: procMount: Unmasked)"
            .into(),
        Feature::AnyIpv4 | Feature::UdpRule => {
            "use a kernel with CONFIG_IP_MULTIPLE_TABLES (Linux 4.17 or later for rules by protocol)"
                .into()
        }
        Feature::AnyIpv6 | Feature::Ipv6 => {
            "boot without ipv6.disable=1; without IPv6 everything else works".into()
        }
        Feature::Strays => {
            "load the modules nf_tables, nft_socket and nft_tproxy (CONFIG_NF_TABLES_INET, CONFIG_NFT_SOCKET, CONFIG_NFT_TPROXY)"
                .into()
        }
        Feature::SockDiag => "load the modules inet_diag and tcp_diag".into(),
        Feature::Landlock | Feature::LandlockRules => landlock(errno),
        Feature::CloseRange => system_call("5.9", host),
        Feature::MemoryFile | Feature::SignalFd => system_call("3.17", host),
        Feature::Listener if host.filtered => CONTAINER_FILTER.into(),
        Feature::Listener => "use a kernel with CONFIG_SECCOMP_FILTER (Linux 5.0 or later)".into(),
        Feature::WaitKillable => newer("5.19"),
        Feature::SyncWakeUp => newer("6.6"),
        Feature::Clone3 | Feature::PidfdOpen => system_call("5.3", host),
        Feature::PidfdThread => newer("6.9"),
        Feature::PidfdGetfd | Feature::OpenAt2 => system_call("5.6", host),
        Feature::ReadMemory => "set kernel.yama.ptrace_scope to 0 or 1, use a kernel with \
             CONFIG_CROSS_MEMORY_ATTACH, and allow the call in the container's seccomp profile"
            .into(),
    }
}

fn user_namespace(errno: Errno, host: &Host) -> String {
    let advice = if host.max_user_namespaces == Some(0) {
        "sysctl -w user.max_user_namespaces=15000"
    } else if host.unprivileged_userns_clone == Some(0) {
        "sysctl -w kernel.unprivileged_userns_clone=1"
    } else if host.apparmor_restrict_userns == Some(1) {
        APPARMOR
    } else if errno == Errno::ENOSPC {
        "raise user.max_user_namespaces: all that are allowed are in use"
    } else if errno == Errno::EINVAL {
        "use a kernel with CONFIG_USER_NS"
    } else if host.filtered {
        CONTAINER_FILTER
    } else {
        "run outside a chroot, and allow user namespaces to this user"
    };
    advice.into()
}

fn namespace(errno: Errno, host: &Host) -> String {
    let advice = if errno == Errno::EINVAL {
        "use a kernel with all namespaces (CONFIG_NAMESPACES)"
    } else if errno == Errno::ENOSPC {
        "raise the limits under /proc/sys/user (max_*_namespaces)"
    } else if host.apparmor_restrict_userns == Some(1) {
        APPARMOR
    } else if host.filtered {
        CONTAINER_FILTER
    } else {
        "allow it to this user: a security module of this host refuses it"
    };
    advice.into()
}

fn landlock(errno: Errno) -> String {
    let advice = if errno == Errno::EOPNOTSUPP {
        "boot with landlock in the list of security modules: lsm=landlock,…"
    } else if errno == Errno::EPERM {
        CONTAINER_FILTER
    } else {
        "use Linux 5.13 or later with CONFIG_SECURITY_LANDLOCK"
    };
    advice.into()
}

fn newer(version: &str) -> String {
    format!("use Linux {version} or later")
}

fn system_call(version: &str, host: &Host) -> String {
    if host.filtered {
        CONTAINER_FILTER.into()
    } else {
        newer(version)
    }
}

const SANDBOX: &str = "this looks like a sandbox of Holdfast, whose filter refuses it: start another one outside of it";

const APPARMOR: &str = "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or install an \
     AppArmor profile for holdfast with the line `userns,`";

const CONTAINER_FILTER: &str = "the seccomp profile that this process runs under refuses it: in a \
     container, run with a profile that allows it (docker: --security-opt seccomp=unconfined; \
     Kubernetes: seccompProfile: Unconfined)";
