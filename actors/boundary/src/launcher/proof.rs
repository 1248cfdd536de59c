//! The proof: a throwaway child, confined as every session will be, tries what the fence must stop.

use std::fs;
use std::fs::File;
use std::io::Read;
use std::io::Write;
use std::os::fd::OwnedFd;

use holdfast_kernel::fork::{Forked, fork, leave};
use holdfast_kernel::{Called, Error};
use holdfast_wire::v1;
use holdfast_wire::v1::from_launcher::Kind as Told;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use prost::Message;

use super::child::{self, Standard};
use super::{Launcher, tell};
use crate::fence::build::SENTINEL;

/// Runs the proof and tells the boundary what it found. Nothing is launched if a gap was found.
pub(super) fn run(launcher: &Launcher<'_>) -> Result<(), Error> {
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).called("pipe2")?;
    match fork(CloneFlags::empty())? {
        Forked::Child => {
            let proof = v1::Proof {
                gaps: attempt(launcher, &write),
            };
            let _ = File::from(write).write_all(&proof.encode_to_vec());
            // An empty proof has no bytes: the status tells it from a child that died.
            leave(PROVED)
        }
        Forked::Parent(child) => {
            drop(write);
            let mut bytes = Vec::new();
            File::from(read)
                .read_to_end(&mut bytes)
                .called("read the proof")?;
            let died = child.wait()? != holdfast_kernel::fork::Ended::Exited(PROVED);
            let proof = if died {
                v1::Proof {
                    gaps: vec!["the proof itself died".to_owned()],
                }
            } else {
                v1::Proof::decode(bytes.as_slice())
                    .map_err(|_| Error::new("decode the proof", libc::EPROTO))?
            };
            tell(&launcher.boundary, Told::Proof(proof), &[])
        }
    }
}

/// One sentence for each thing that the fence should have stopped and did not.
fn attempt(launcher: &Launcher<'_>, report: &OwnedFd) -> Vec<String> {
    match null_descriptors()
        .and_then(|standard| child::confine(launcher, standard, report).map_err(|(_, error)| error))
    {
        Ok(()) => {}
        Err(error) => return vec![format!("a session cannot be confined: {}", error.told())],
    }
    let attempts: [(&str, bool); 8] = [
        (
            "a process can have capabilities or gain privileges",
            !is_powerless(),
        ),
        ("a file system can be mounted", can_mount()),
        (
            "a user namespace can be made",
            unshare(CloneFlags::CLONE_NEWUSER).is_ok(),
        ),
        ("a packet socket can be opened", can_open_packet_socket()),
        (
            "the view's root can be written to",
            fs::write("/proof", "").is_ok(),
        ),
        (
            "a network device other than lo is there",
            !has_only_loopback(),
        ),
        (
            "the launcher's memory can be read",
            File::open("/proc/1/mem").is_ok(),
        ),
        (
            "a file without a Landlock rule can be read",
            launcher.fence.landlock && fs::read(SENTINEL).is_ok(),
        ),
    ];
    let gaps = attempts.into_iter().filter(|(_, open)| *open);
    gaps.map(|(sentence, _)| sentence.to_owned()).collect()
}

fn null_descriptors() -> Result<Standard, Error> {
    let null = || {
        File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .called("open /dev/null")
    };
    Ok(Standard::Pipes {
        stdin: null()?.into(),
        stdout: null()?.into(),
        stderr: null()?.into(),
    })
}

/// No capability in any set, no way to gain one, a filter in force.
fn is_powerless() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
            .unwrap_or_default()
    };
    let none = |name| u64::from_str_radix(field(name), 16) == Ok(0);
    ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"]
        .into_iter()
        .all(none)
        && field("NoNewPrivs:") == "1"
        && field("Seccomp:") == "2"
}

fn can_mount() -> bool {
    mount(
        Some("tmpfs"),
        "/tmp",
        Some("tmpfs"),
        MsFlags::empty(),
        None::<&str>,
    )
    .is_ok()
}

fn can_open_packet_socket() -> bool {
    socket(
        AddressFamily::Packet,
        SockType::Raw,
        SockFlag::empty(),
        None,
    )
    .is_ok()
}

fn has_only_loopback() -> bool {
    // Two lines of heading, then one a device.
    let devices = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let mut names = devices
        .lines()
        .skip(2)
        .filter_map(|line| line.split(':').next());
    names.all(|name| name.trim() == "lo")
}

/// The status of a child that has tried everything.
const PROVED: i32 = 42;
