//! What the host's own settings mean for a sandbox.

use super::Check;
use super::host::Host;

/// The checks that need no trying.
pub(super) fn checks(host: &Host) -> [Check; 3] {
    [open_files(host), resolvers(host), cgroup(host)]
}

fn open_files(host: &Host) -> Check {
    let present = host.open_files.is_some_and(|limit| limit >= ENOUGH_FILES);
    Check {
        name: "open files",
        present,
        required: true,
        detail: match host.open_files {
            None => "hard limit unknown".into(),
            Some(u64::MAX) => "hard limit unlimited".into(),
            Some(limit) => format!("hard limit {limit}"),
        },
        needed_for: "sessions and connections: two descriptors a connection",
        remedy: remedy(present, || {
            format!("raise the hard limit of RLIMIT_NOFILE to {ENOUGH_FILES} or more (ulimit -Hn)")
        }),
    }
}

fn resolvers(host: &Host) -> Check {
    let present = !host.resolvers.is_empty();
    let names: Vec<String> = host.resolvers.iter().map(ToString::to_string).collect();
    Check {
        name: "upstream resolvers",
        present,
        required: false,
        detail: if present {
            names.join(", ")
        } else {
            "none in /etc/resolv.conf".into()
        },
        needed_for: "names of a policy that resolver.hosts does not give an address",
        remedy: remedy(present, || {
            "add a nameserver line to /etc/resolv.conf, or list the names under resolver.hosts"
                .into()
        }),
    }
}

fn cgroup(host: &Host) -> Check {
    let present = host.cgroup.is_some();
    Check {
        name: "cgroup version 2",
        present,
        required: false,
        detail: match &host.cgroup {
            None => "not mounted at /sys/fs/cgroup".into(),
            Some(controllers) => controllers.trim().to_owned(),
        },
        needed_for: "limits that hold for a sandbox as a whole",
        remedy: remedy(present, || {
            "mount cgroup2 at /sys/fs/cgroup, or boot with systemd.unified_cgroup_hierarchy=1"
                .into()
        }),
    }
}

/// Only what is missing has a remedy.
pub(super) fn remedy(present: bool, text: impl FnOnce() -> String) -> String {
    if present { String::new() } else { text() }
}

/// Keeper and boundary open some thirty each; the rest is for connections.
const ENOUGH_FILES: u64 = 256;
