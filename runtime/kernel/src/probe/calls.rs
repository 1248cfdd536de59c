//! Whether system calls are there, found out by asking them for nothing.
//!
//! A call that is there finds fault with its arguments. One that is not, or that a filter or a security module refuses, is
//! answered otherwise.

use nix::errno::Errno;
use nix::sys::prctl::set_no_new_privs;

use super::Feature;
use super::child::Say;

/// A number, and arguments that no kernel takes.
type Call = (libc::c_long, [libc::c_long; 5]);

/// Asks for what needs no namespace.
pub(super) fn ask(say: &mut Say) {
    say.tell(Feature::OpenAt2, there(&[OPENAT2]));
    say.tell(Feature::MemoryFile, there(&[MEMFD_CREATE]));
    say.tell(Feature::CloseRange, there(&[CLOSE_RANGE]));
    say.tell(Feature::SignalFd, there(&[SIGNALFD]));
    say.tell(Feature::Clone3, there(&[CLONE3]));
    // Landlock restricts nobody who could gain privileges by it.
    let rules = set_no_new_privs().and_then(|()| there(&LANDLOCK));
    say.tell(Feature::LandlockRules, rules);
}

/// Asks for what builds a view, in a mount namespace of one's own: others are refused these.
pub(super) fn ask_to_mount(say: &mut Say) {
    say.tell(Feature::MountCalls, there(&MOUNT));
    say.tell(Feature::RootCalls, there(&ROOT));
}

/// The first answer that did not come from the call itself.
fn there(calls: &[Call]) -> nix::Result<()> {
    calls
        .iter()
        .try_for_each(|(number, [a, b, c, d, e])| -> nix::Result<()> {
            // SAFETY: the calls of this file get numbers only: addresses that are null and descriptors, flags and sizes that are none.
            let answer = unsafe { libc::syscall(*number, *a, *b, *c, *d, *e) };
            match Errno::result(answer) {
                Err(errno) if !FAULTS.contains(&errno) => Err(errno),
                Ok(_) | Err(_) => Ok(()),
            }
        })
}

/// What a call says of arguments like these.
const FAULTS: [Errno; 4] = [Errno::EBADF, Errno::EFAULT, Errno::EINVAL, Errno::ENOENT];

/// No descriptor, and all flags.
const NONE: libc::c_long = -1;

const MOUNT: [Call; 3] = [
    (libc::SYS_open_tree, [NONE, 0, 0, 0, 0]),
    (libc::SYS_move_mount, [NONE, 0, NONE, 0, 0]),
    (libc::SYS_mount_setattr, [NONE, 0, 0, 0, 0]),
];
const ROOT: [Call; 2] = [
    (libc::SYS_pivot_root, [0; 5]),
    (libc::SYS_umount2, [0, NONE, 0, 0, 0]),
];
const OPENAT2: Call = (libc::SYS_openat2, [NONE, 0, 0, 0, 0]);
const MEMFD_CREATE: Call = (libc::SYS_memfd_create, [0, NONE, 0, 0, 0]);
/// From 1 to 0: no range.
const CLOSE_RANGE: Call = (libc::SYS_close_range, [1, 0, 0, 0, 0]);
const SIGNALFD: Call = (libc::SYS_signalfd4, [NONE, 0, 0, 0, 0]);
const CLONE3: Call = (libc::SYS_clone3, [0; 5]);
const LANDLOCK: [Call; 2] = [
    (libc::SYS_landlock_add_rule, [NONE, 0, 0, 0, 0]),
    (libc::SYS_landlock_restrict_self, [NONE, 0, 0, 0, 0]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_finds_fault_is_there_and_an_unknown_one_is_not() {
        let unknown = (100_000, [0; 5]);

        assert_eq!(there(&[OPENAT2, MEMFD_CREATE, SIGNALFD]), Ok(()));
        assert_eq!(there(&[OPENAT2, unknown]), Err(Errno::ENOSYS));
    }
}
