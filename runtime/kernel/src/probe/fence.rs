//! The namespaces of a fence, and the network that captures everything.

use std::io::{Cursor, Write as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::CloneFlags;
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, getegid, geteuid, write};

use super::child::{Say, within};
use super::{Feature, calls, netlink};

/// Builds a fence, step by step, as far as the kernel allows.
pub(super) fn build(say: &mut Say, strays: &[u8]) {
    let (uid, gid) = (geteuid(), getegid());
    enter(
        say,
        Feature::UserNamespace,
        CloneFlags::CLONE_NEWUSER,
        |say| {
            if say.tell(Feature::UserNamespace, map(uid, gid)) {
                build_inside(say, strays);
            }
        },
    );
}

/// What needs the capabilities that one has in a user namespace of one's own.
fn build_inside(say: &mut Say, strays: &[u8]) {
    enter(
        say,
        Feature::MountNamespace,
        CloneFlags::CLONE_NEWNS,
        |say| {
            if say.tell(Feature::MountNamespace, make_private()) {
                calls::ask_to_mount(say);
                // Whether there are pid namespaces is asked below.
                let _said = within(CloneFlags::CLONE_NEWPID, || {
                    say.tell(Feature::Proc, mount_proc());
                });
            }
        },
    );
    enter(
        say,
        Feature::NetworkNamespace,
        CloneFlags::CLONE_NEWNET,
        |say| {
            if say.tell(Feature::NetworkNamespace, netlink::loopback_up()) {
                say.tell(Feature::AnyIpv4, netlink::any_ipv4());
                say.tell(Feature::AnyIpv6, netlink::any_ipv6());
                say.tell(Feature::UdpRule, netlink::refuse_udp());
                say.tell(Feature::Strays, netlink::lead(strays));
                say.tell(Feature::SockDiag, netlink::ask_for_sockets());
            }
        },
    );
    for (feature, flag) in [
        (Feature::IpcNamespace, CloneFlags::CLONE_NEWIPC),
        (Feature::UtsNamespace, CloneFlags::CLONE_NEWUTS),
        (Feature::PidNamespace, CloneFlags::CLONE_NEWPID),
    ] {
        enter(say, feature, flag, |say| {
            say.tell(feature, Ok(()));
        });
    }
}

/// A child in a namespace of its own, which does `work` there and says how it went; without the namespace that is said.
fn enter(say: &mut Say, feature: Feature, flag: CloneFlags, work: impl FnOnce(&mut Say)) {
    let entered = within(flag, || work(say));
    if let Err(errno) = entered {
        say.tell(feature, Err(errno));
    }
}

fn map(uid: Uid, gid: Gid) -> nix::Result<()> {
    put(c"/proc/self/setgroups", format_args!("deny"))?;
    put(c"/proc/self/uid_map", format_args!("{uid} {uid} 1"))?;
    put(c"/proc/self/gid_map", format_args!("{gid} {gid} 1"))
}

/// Writes a short text to a file of the kernel's, in one go and from the stack.
fn put(path: &std::ffi::CStr, text: std::fmt::Arguments) -> nix::Result<()> {
    let mut line = Cursor::new([0; 64]);
    line.write_fmt(text).map_err(|_too_long| Errno::EOVERFLOW)?;
    let length = usize::try_from(line.position()).unwrap_or_default();
    let file = open(path, OFlag::O_WRONLY, Mode::empty())?;
    write(&file, &line.get_ref()[..length]).map(drop)
}

fn make_private() -> nix::Result<()> {
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(NOTHING, c"/", NOTHING, flags, NOTHING)
}

fn mount_proc() -> nix::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some(c"proc"), c"/proc", Some(c"proc"), flags, NOTHING)
}

const NOTHING: Option<&Path> = None;
