//! Lays down privileges: capabilities, ids, the right to gain any, the right to be looked at.

use std::mem::size_of;

use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

use crate::error::{Called, Result, answered};

/// Capabilities that a half of the runtime keeps in its own user namespace, as bits by number (`capabilities(7)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// None at all.
    pub const NONE: Self = Self(0);
    /// Send signals to any process of the namespace.
    pub const KILL: Self = Self(1 << 5);
    /// Look at any process of the namespace.
    pub const PTRACE: Self = Self(1 << 19);

    /// These and those.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The effective capabilities of the calling thread.
    pub fn current() -> Result<Self> {
        let header = Header {
            version: LINUX_CAPABILITY_VERSION_3,
            pid: 0,
        };
        let mut sets = [Sets::default(); 2];
        // SAFETY: version 3 makes the kernel write two sets, and `sets` has two.
        let answer =
            unsafe { libc::syscall(libc::SYS_capget, &raw const header, sets.as_mut_ptr()) };
        answered("capget", answer)?;
        Ok(Self(
            u64::from(sets[0].effective) | u64::from(sets[1].effective) << 32,
        ))
    }
}

/// No program executed from now on can have a capability outside `kept` (the bounding and ambient sets). This needs
/// `CAP_SETPCAP`, so it comes before [`keep_only`] and [`become_user`].
pub fn bound_to(kept: Capabilities) -> Result<()> {
    for capability in 0..64 {
        if kept.0 & 1 << capability == 0 {
            // SAFETY: the call takes numbers only.
            let answer = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
            // EINVAL: past the last capability of this kernel.
            match answered("prctl PR_CAPBSET_DROP", answer.into()) {
                Err(error) if error.errno() == libc::EINVAL => break,
                other => other?,
            };
        }
    }
    let ambient = libc::PR_CAP_AMBIENT_CLEAR_ALL;
    // SAFETY: the call takes numbers only.
    let answer = unsafe { libc::prctl(libc::PR_CAP_AMBIENT, ambient, 0, 0, 0) };
    answered("prctl PR_CAP_AMBIENT", answer.into()).map(drop)
}

/// Keeps `kept` and lays down every other capability of this thread for good.
pub fn keep_only(kept: Capabilities) -> Result<()> {
    let header = Header {
        version: LINUX_CAPABILITY_VERSION_3,
        pid: 0,
    };
    let half = |bits: u64| {
        #[expect(clippy::cast_possible_truncation, reason = "each half has 32 bits")]
        let bits = bits as u32;
        Sets {
            effective: bits,
            permitted: bits,
            inheritable: 0,
        }
    };
    let sets = [half(kept.0), half(kept.0 >> 32)];
    // SAFETY: version 3 makes the kernel read two sets, and `sets` has two.
    let answer = unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) };
    answered("capset", answer).map(drop)
}

/// From now on no `exec` gains a privilege: set-user-id bits and file capabilities are void (`PR_SET_NO_NEW_PRIVS`).
pub fn no_new_privileges() -> Result<()> {
    nix::sys::prctl::set_no_new_privs().called("prctl PR_SET_NO_NEW_PRIVS")
}

/// Whether other processes of the same user may look at this one (`PR_SET_DUMPABLE`). A child has the same until it
/// executes something.
pub fn set_dumpable(dumpable: bool) -> Result<()> {
    nix::sys::prctl::set_dumpable(dumpable).called("prctl PR_SET_DUMPABLE")
}

/// Becomes `uid` and `gid` for good, with no other groups.
pub fn become_user(uid: Uid, gid: Gid) -> Result<()> {
    setgroups(&[]).called("setgroups")?;
    setresgid(gid, gid, gid).called("setresgid")?;
    setresuid(uid, uid, uid).called("setresuid")
}

/// The kernel kills this process with `signal` when the thread that made it ends.
pub fn die_with_parent(signal: nix::sys::signal::Signal) -> Result<()> {
    nix::sys::prctl::set_pdeathsig(signal).called("prctl PR_SET_PDEATHSIG")
}

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const LINUX_CAPABILITY_VERSION_3: u32 = 0x2008_0522;
const _: () = assert!(size_of::<Sets>() == 12, "capget writes sets of three words");
