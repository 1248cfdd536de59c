//! What this kernel lets us do, found out by doing it.
//!
//! ```text
//! fence child    user ─┬─ ipc, uts, pid
//!                      ├─ net ─ AnyIP …
//!                      └─ mount ─ pid: mounts /proc
//! filter child   seccomp listener and its flags
//! asking child   system calls, asked for nothing
//! held child     held by pidfds, read from outside
//! ```
//!
//! Each child tries, says what the kernel answered, and ends; its namespaces end with it. Nothing of the caller's is
//! changed. A child may be the copy of one thread of many, so it takes no memory and no lock: it works on its stack.

use std::time::Duration;

use nix::errno::Errno;

use child::Report;

mod calls;
mod child;
mod fence;
mod filter;
mod held;
mod netlink;

/// Something the kernel can or cannot do for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Feature {
    /// A user namespace with a map of one's own uid and gid.
    UserNamespace,
    /// A mount namespace whose mounts are private.
    MountNamespace,
    /// A network namespace with its `lo` up.
    NetworkNamespace,
    /// A namespace for System V IPC.
    IpcNamespace,
    /// A namespace for the host's name.
    UtsNamespace,
    /// A pid namespace, and a first process in it.
    PidNamespace,
    /// Mounting a private `/proc` in that pid namespace.
    Proc,
    /// `open_tree`, `move_mount` and `mount_setattr`.
    MountCalls,
    /// `pivot_root` and `umount2`.
    RootCalls,
    /// Opening a path that may hold no link.
    OpenAt2,
    /// A file in memory.
    MemoryFile,
    /// Closing many descriptors at once.
    CloseRange,
    /// Hearing of signals by a descriptor.
    SignalFd,
    /// A connect to any IPv4 address reaches a listener in the namespace.
    AnyIpv4,
    /// The same for IPv6.
    AnyIpv6,
    /// A routing rule that refuses UDP only.
    UdpRule,
    /// Leading connections that nobody listens for to one listener.
    Strays,
    /// Asking the kernel about the namespace's sockets.
    SockDiag,
    /// A Landlock ruleset.
    Landlock,
    /// Adding a rule to it, and being restricted by it.
    LandlockRules,
    /// A seccomp filter with a listener.
    Listener,
    /// A notified call that only a fatal signal interrupts.
    WaitKillable,
    /// Waking the broker on the caller's own core.
    SyncWakeUp,
    /// Making a process by the newer call.
    Clone3,
    /// A descriptor that stands for a process.
    PidfdOpen,
    /// The same for a thread.
    PidfdThread,
    /// Duplicating a descriptor of another process.
    PidfdGetfd,
    /// Reading the memory of another process.
    ReadMemory,
    /// Sockets of IPv6.
    Ipv6,
}

/// What came of trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Works,
    /// The kernel answered this errno.
    Fails(Errno),
    /// It was not tried: something it rests on failed, or the child was killed before it.
    Untried,
}

/// What Landlock offers here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Landlock {
    /// The version of its interface.
    pub abi: u32,
    /// Which of its faults are fixed, a bit each; 0 where the kernel does not tell.
    pub errata: u32,
}

/// Everything that was found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    outcomes: [Outcome; Feature::ALL.len()],
    /// Landlock's version, when there is one.
    pub landlock: Option<Landlock>,
}

impl Feature {
    /// All of them, in the order in which they are told.
    pub const ALL: [Self; 29] = [
        Self::UserNamespace,
        Self::MountNamespace,
        Self::NetworkNamespace,
        Self::IpcNamespace,
        Self::UtsNamespace,
        Self::PidNamespace,
        Self::Proc,
        Self::MountCalls,
        Self::RootCalls,
        Self::OpenAt2,
        Self::MemoryFile,
        Self::CloseRange,
        Self::SignalFd,
        Self::AnyIpv4,
        Self::AnyIpv6,
        Self::UdpRule,
        Self::Strays,
        Self::SockDiag,
        Self::Landlock,
        Self::LandlockRules,
        Self::Listener,
        Self::WaitKillable,
        Self::SyncWakeUp,
        Self::Clone3,
        Self::PidfdOpen,
        Self::PidfdThread,
        Self::PidfdGetfd,
        Self::ReadMemory,
        Self::Ipv6,
    ];
}

impl Findings {
    /// Tries everything once. Takes some milliseconds, and never longer than a few seconds.
    pub fn take() -> Self {
        let mut findings = Self::nothing();
        // Written here: a child takes no memory.
        let strays = netlink::strays();
        findings.add(&child::run(|say| fence::build(say, &strays), LIMIT));
        findings.add(&child::run(filter::install, LIMIT));
        findings.add(&child::run(calls::ask, LIMIT));
        findings.add(&held::look());
        match filter::landlock() {
            Ok(landlock) => {
                findings.set(Feature::Landlock, Outcome::Works);
                findings.landlock = Some(landlock);
            }
            Err(errno) => findings.set(Feature::Landlock, Outcome::Fails(errno)),
        }
        findings.set(Feature::Ipv6, netlink::ipv6());
        findings
    }

    /// What came of trying `feature`.
    pub fn of(&self, feature: Feature) -> Outcome {
        self.outcomes[feature as usize]
    }

    const fn nothing() -> Self {
        Self {
            outcomes: [Outcome::Untried; Feature::ALL.len()],
            landlock: None,
        }
    }

    fn add(&mut self, report: &Report) {
        for (feature, outcome) in report.iter() {
            self.set(feature, outcome);
        }
    }

    fn set(&mut self, feature: Feature, outcome: Outcome) {
        self.outcomes[feature as usize] = outcome;
    }
}

/// After this a child that hangs is killed.
const LIMIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_has_a_place_of_its_own() {
        for (place, feature) in Feature::ALL.into_iter().enumerate() {
            assert_eq!(feature as usize, place);
        }
    }

    #[test]
    fn trying_changes_nothing_here_and_leaves_no_child() {
        let links = || {
            ["user", "mnt", "net", "ipc", "uts", "pid_for_children"]
                .map(|name| std::fs::read_link(format!("/proc/thread-self/ns/{name}")).ok())
        };
        let before = links();

        let first = Findings::take();
        let second = Findings::take();

        assert_eq!(first, second);
        assert_eq!(links(), before);
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("reads");
        assert!(status.contains("NoNewPrivs:\t0"));
    }

    #[test]
    fn what_rests_on_a_namespace_that_cannot_be_had_is_not_tried() {
        let report = child::run(
            |say| {
                say.tell(Feature::UserNamespace, Err(Errno::ENOSPC));
            },
            LIMIT,
        );

        let mut findings = Findings::nothing();
        findings.add(&report);

        assert_eq!(
            findings.of(Feature::UserNamespace),
            Outcome::Fails(Errno::ENOSPC)
        );
        assert_eq!(findings.of(Feature::MountNamespace), Outcome::Untried);
    }

    #[test]
    fn a_child_that_hangs_is_ended_and_what_it_said_before_counts() {
        let report = child::run(
            |say| {
                say.tell(Feature::UserNamespace, Ok(()));
                nix::unistd::pause();
            },
            Duration::from_millis(50),
        );

        let said: Vec<_> = report.iter().collect();
        assert_eq!(said, [(Feature::UserNamespace, Outcome::Works)]);
    }
}
