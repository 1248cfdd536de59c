//! The namespaces of a fence, and the network that captures everything.

use std::io::{Cursor, Write as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use nix::unistd::{Gid, Uid, getegid, geteuid, write};

use super::child::{Say, forked};
use super::{Feature, calls, netlink};

/// Builds a fence around this process, step by step, as far as the kernel allows.
pub(super) fn build(say: &mut Say) {
    let (uid, gid) = (geteuid(), getegid());
    let user = unshare(CloneFlags::CLONE_NEWUSER).and_then(|()| map(uid, gid));
    if !say.tell(Feature::UserNamespace, user) {
        return;
    }
    let private = say.tell(
        Feature::MountNamespace,
        unshare(CloneFlags::CLONE_NEWNS).and_then(|()| make_private()),
    );
    if private {
        calls::ask_to_mount(say);
    }
    say.tell(Feature::IpcNamespace, unshare(CloneFlags::CLONE_NEWIPC));
    say.tell(Feature::UtsNamespace, unshare(CloneFlags::CLONE_NEWUTS));
    let network = unshare(CloneFlags::CLONE_NEWNET).and_then(|()| netlink::loopback_up());
    if say.tell(Feature::NetworkNamespace, network) {
        say.tell(Feature::AnyIpv4, netlink::any_ipv4());
        say.tell(Feature::AnyIpv6, netlink::any_ipv6());
        say.tell(Feature::UdpRule, netlink::refuse_udp());
        say.tell(Feature::SockDiag, netlink::ask_for_sockets());
    }
    enter_pids(say, private);
}

/// The first process of a new pid namespace, which mounts a `/proc` of its own.
fn enter_pids(say: &mut Say, private: bool) {
    if let Err(errno) = unshare(CloneFlags::CLONE_NEWPID) {
        say.tell(Feature::PidNamespace, Err(errno));
        return;
    }
    let first = forked(|| {
        say.tell(Feature::PidNamespace, Ok(()));
        if private {
            say.tell(Feature::Proc, mount_proc());
        }
    });
    let ended = first.and_then(|first| waitpid(first, None));
    if let Err(errno) = ended {
        say.tell(Feature::PidNamespace, Err(errno));
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
