//! What the host says about itself in files.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use holdfast_boundary::fence::NAMESERVER;

/// Settings that decide what a kernel that could do something does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Host {
    /// The kernel's release.
    pub(super) kernel: String,
    /// `user.max_user_namespaces`
    pub(super) max_user_namespaces: Option<u64>,
    /// `kernel.unprivileged_userns_clone` (Debian's kernels)
    pub(super) unprivileged_userns_clone: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns` (Ubuntu's kernels)
    pub(super) apparmor_restrict_userns: Option<u64>,
    /// Whether this process runs under a seccomp filter, as in most containers.
    pub(super) filtered: bool,
    /// Which controllers of cgroup version 2 there are.
    pub(super) cgroup: Option<String>,
    /// The hard limit of open files.
    pub(super) open_files: Option<u64>,
    /// The resolvers of `/etc/resolv.conf`.
    pub(super) resolvers: Vec<IpAddr>,
}

impl Host {
    /// Reads all of it.
    pub(super) fn read() -> Self {
        Self::under(Path::new("/"))
    }

    /// Whether this is a sandbox of ours, as far as it can be seen from within: it has a filter, and its only resolver is ours.
    pub(super) fn is_sandbox(&self) -> bool {
        let ours: Option<IpAddr> = NAMESERVER.parse().ok();
        self.filtered && ours.is_some_and(|ours| self.resolvers == [ours])
    }

    fn under(root: &Path) -> Self {
        let file = |path: &str| fs::read_to_string(root.join(path)).ok();
        let line = |path: &str| file(path).map(|text| text.trim().to_owned());
        let number = |path: &str| line(path)?.parse().ok();
        Self {
            kernel: line("proc/sys/kernel/osrelease").unwrap_or_default(),
            max_user_namespaces: number("proc/sys/user/max_user_namespaces"),
            unprivileged_userns_clone: number("proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restrict_userns: number(
                "proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            ),
            filtered: file("proc/self/status").is_some_and(|text| filtered(&text)),
            cgroup: cgroup(root).and_then(|path| fs::read_to_string(path).ok()),
            open_files: file("proc/self/limits").and_then(|text| hard_limit(&text)),
            resolvers: file("etc/resolv.conf").map_or_else(Vec::new, |text| resolvers(&text)),
        }
    }
}

/// The controllers that this process's own group may hand out.
fn cgroup(root: &Path) -> Option<PathBuf> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let group = root.join("sys/fs/cgroup").join(path);
    Some(group.join("cgroup.controllers"))
}

fn filtered(status: &str) -> bool {
    status
        .lines()
        .filter_map(|line| line.strip_prefix("Seccomp:"))
        .any(|mode| mode.trim() != "0")
}

/// `Max open files            1024                 524288               files`
fn hard_limit(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().nth(1)? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

fn resolvers(text: &str) -> Vec<IpAddr> {
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|word| *word == "nameserver");
        // A zone (`fe80::1%eth0`) says which interface, not which address.
        address.and(words.next())?.split('%').next()?.parse().ok()
    });
    addresses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_read_from_its_files() {
        let root = tempfile::tempdir().expect("a directory");
        for (path, text) in [
            ("proc/sys/kernel/osrelease", "6.1.0\n"),
            ("proc/sys/user/max_user_namespaces", "0\n"),
            ("proc/self/status", "Name:\tx\nSeccomp:\t2\n"),
            (
                "proc/self/limits",
                "Max open files            1024                 4096                 files\n",
            ),
            ("proc/self/cgroup", "0::/user.slice\n"),
            (
                "sys/fs/cgroup/user.slice/cgroup.controllers",
                "memory pids\n",
            ),
            (
                "etc/resolv.conf",
                "# nameserver 1.1.1.1\nnameserver 127.0.0.53\nnameserver fe80::1%eth0\nsearch lan\n",
            ),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("is in a directory")).expect("creates");
            fs::write(path, text).expect("writes");
        }

        let host = Host::under(root.path());

        assert_eq!(
            host,
            Host {
                kernel: "6.1.0".into(),
                max_user_namespaces: Some(0),
                unprivileged_userns_clone: None,
                apparmor_restrict_userns: None,
                filtered: true,
                cgroup: Some("memory pids\n".into()),
                open_files: Some(4096),
                resolvers: vec![
                    [127, 0, 0, 53].into(),
                    "fe80::1".parse().expect("an address")
                ],
            }
        );
    }
}
