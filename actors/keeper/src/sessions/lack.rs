//! What a start fails for want of, whichever step it was: that is neither the program's fault nor ours, and passes.

/// What there was too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    /// For programs.
    pub(crate) reason: &'static str,
    /// What to do about it.
    pub(crate) remedy: &'static str,
}

impl Lack {
    /// What this errno says; `None` when it speaks of no want.
    pub(crate) fn of(errno: i32) -> Option<Self> {
        let (reason, remedy) = match errno {
            libc::EMFILE | libc::ENFILE | libc::ETOOMANYREFS => (
                DESCRIPTORS,
                "let sessions end, or raise the limit of open files",
            ),
            libc::EAGAIN => (
                "ProcessPressure",
                "let processes of this user end, or raise `process.limits.nproc` in the policy or \
                 `ulimit -u` where the sandbox was started from",
            ),
            libc::ENOMEM | libc::ENOBUFS => (
                "MemoryPressure",
                "let something end, or raise `process.limits.memory` in the policy",
            ),
            _ => return None,
        };
        Some(Self { reason, remedy })
    }
}

/// Too few descriptors.
pub(crate) const DESCRIPTORS: &str = "DescriptorPressure";
